//! The indexer's logits, and the choice of the largest.

use scratchpool::Device;
use scratchpool::cuda::Stream;
use scratchpool::cuda::cudarc::driver::CudaFunction;

use super::module::Module;
use super::params::{Layout, params};
use super::program::Program;
use super::site::{NONE, Site, count};
use crate::error::Error;
use crate::ops::indexer_topk::{IndexQueryIn, IndexerLogits, IndexerTopk, LOGITS, TOPK};

/// The source.
pub(super) const PROGRAM: Program = Program::new(
    "indexer_topk",
    &["indexer_logits_fp8", "indexer_logits_mxfp4", "indexer_topk"],
    LAYOUTS,
    include_str!("../../cuda/indexer_topk.cu"),
);

const LAYOUTS: &[Layout] = &[LogitsParams::LAYOUT, ChoiceParams::LAYOUT];

params! {
    LogitsParams {
        q: u64,
        q_scales: u64,
        weights: u64,
        cache: u64,
        block_table: u64,
        token_to_req: u64,
        positions: u64,
        logits: u64,
        stride: u64,
        tokens: u32,
        heads: u32,
        columns: u32,
        blocks: u32,
        block_size: u32,
        requests: u32,
        table_columns: u32,
        ratio: u32,
    }
    ChoiceParams {
        logits: u64,
        indices: u64,
        tokens: u32,
        columns: u32,
        topk: u32,
    }
}

/// The kernels, loaded.
pub(super) struct IndexerTopkKernels {
    fp8: CudaFunction,
    mxfp4: CudaFunction,
    choice: CudaFunction,
    processors: usize,
}

impl IndexerTopkKernels {
    pub(super) fn load(module: &Module<'_>) -> Result<Self, Error> {
        Ok(Self {
            fp8: module.kernel("indexer_logits_fp8")?,
            mxfp4: module.kernel("indexer_logits_mxfp4")?,
            choice: module.kernel("indexer_topk")?,
            processors: module.processors,
        })
    }

    pub(super) fn logits<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &IndexerLogits<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: LOGITS, stream };
        let (function, q, q_scales) = match &args.q {
            IndexQueryIn::Fp8 { values } => (&self.fp8, site.on("q.values", values, 4)?, 0),
            IndexQueryIn::Mxfp4 { values, scales } => {
                (&self.mxfp4, site.on("q.values", values, 4)?, site.on("q.scales", scales, 1)?)
            }
        };
        let params = LogitsParams {
            q,
            q_scales,
            weights: site.on("weights", &args.weights, 4)?,
            cache: site.on("cache", &args.cache, 4)?,
            block_table: site.on("block_table", &args.block_table, 4)?,
            token_to_req: site.on("token_to_req", &args.token_to_req, 4)?,
            positions: site.on("positions", &args.positions, 8)?,
            logits: site.on("logits", &args.logits, 4)?,
            stride: plan.layout.stride as u64,
            tokens: count(plan.tokens),
            heads: count(plan.heads),
            columns: count(plan.columns),
            blocks: count(plan.layout.blocks),
            block_size: count(plan.layout.block_size),
            requests: count(plan.requests),
            table_columns: count(plan.table_columns),
            ratio: count(plan.ratio),
        };
        // Few tokens share the device by columns, 64 of which keep a block busy.
        let share = (8 * self.processors).div_ceil(plan.tokens.max(1));
        let parts = plan.columns.div_ceil(256).min(share).clamp(1, 1024);
        // SAFETY: the module's invariant.
        unsafe { site.launch(function, (plan.tokens, parts), 128, 0, &params, NONE) }
    }

    pub(super) fn choose<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &IndexerTopk<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: TOPK, stream };
        let params = ChoiceParams {
            logits: site.on("logits", &args.logits, 4)?,
            indices: site.on("indices", &args.indices, 4)?,
            tokens: count(plan.tokens),
            columns: count(plan.columns),
            topk: count(plan.topk),
        };
        // SAFETY: the module's invariant.
        unsafe { site.launch(&self.choice, (plan.tokens, 1), 512, 0, &params, NONE) }
    }
}
