//! The gather of prefill.

use scratchpool::Device;
use scratchpool::cuda::Stream;
use scratchpool::cuda::cudarc::driver::CudaFunction;

use super::module::Module;
use super::params::{Layout, params};
use super::program::Program;
use super::site::{NONE, Site, count};
use crate::error::Error;
use crate::ops::gather::{Gather, KvCacheIn, NAME};

/// The source.
pub(super) const PROGRAM: Program = Program::new(
    "gather",
    &["gather_paged", "gather_rows"],
    LAYOUTS,
    include_str!("../../cuda/gather.cu"),
);

const LAYOUTS: &[Layout] = &[GatherParams::LAYOUT];

params! {
    GatherParams {
        cache: u64,
        block_table: u64,
        seq_lens: u64,
        gather_lens: u64,
        out: u64,
        stride: u64,
        requests: u32,
        columns: u32,
        blocks: u32,
        block_size: u32,
        ratio: u32,
        workspace_rows: u32,
        first_row: u32,
        most_rows: u32,
    }
}

/// The kernels, loaded.
pub(super) struct GatherKernels {
    paged: CudaFunction,
    rows: CudaFunction,
    processors: usize,
}

impl GatherKernels {
    pub(super) fn load(module: &Module<'_>) -> Result<Self, Error> {
        Ok(Self {
            paged: module.kernel("gather_paged")?,
            rows: module.kernel("gather_rows")?,
            processors: module.processors,
        })
    }

    pub(super) fn launch<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &Gather<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: NAME, stream };
        let (function, cache) = match &args.cache {
            KvCacheIn::Paged { bytes, .. } => (&self.paged, site.on("cache", bytes, 8)?),
            KvCacheIn::Rows(whole) => (&self.rows, site.on("cache", whole, 16)?),
        };
        let lens = args.gather_lens.as_ref().map(|lens| site.on("gather_lens", lens, 4));
        let params = GatherParams {
            cache,
            block_table: site.on("block_table", &args.block_table, 4)?,
            seq_lens: site.on("seq_lens", &args.seq_lens, 4)?,
            gather_lens: lens.transpose()?.unwrap_or(0),
            out: site.on("out", &args.out, 16)?,
            stride: plan.layout.stride as u64,
            requests: count(plan.requests),
            columns: count(plan.columns),
            blocks: count(plan.layout.blocks),
            block_size: count(plan.layout.block_size),
            ratio: count(plan.ratio),
            workspace_rows: count(plan.workspace_rows),
            first_row: count(plan.first_row),
            most_rows: count(plan.most_rows),
        };
        // As many warps as there can be rows, or as the device holds at a time.
        let most = (plan.requests * plan.most_rows).div_ceil(8);
        let blocks = most.min(4 * self.processors);
        // SAFETY: the module's invariant.
        unsafe { site.launch(function, (blocks, 1), 256, 0, &params, NONE) }
    }
}
