//! The global top-k map, and the combined indices of prefill.

use scratchpool::Device;
use scratchpool::cuda::Stream;
use scratchpool::cuda::cudarc::driver::CudaFunction;

use super::module::Module;
use super::params::{Layout, params};
use super::program::Program;
use super::site::{NONE, Site, count};
use crate::error::Error;
use crate::ops::topk_map::{COMBINE, CombineIndices, MAP, Placement, TopkMap};

/// The source.
pub(super) const PROGRAM: Program = Program::new(
    "topk_map",
    &["topk_map_warp", "topk_map_in_place", "topk_map_packed", "combine_indices"],
    LAYOUTS,
    include_str!("../../cuda/topk_map.cu"),
);

const LAYOUTS: &[Layout] = &[TopkMapParams::LAYOUT, CombineParams::LAYOUT];

params! {
    TopkMapParams {
        topk: u64,
        token_to_req: u64,
        block_table: u64,
        valid: u64,
        indices: u64,
        lens: u64,
        tokens: u32,
        width: u32,
        requests: u32,
        table_stride: u32,
        columns: u32,
        block_size: u32,
        shift: u32,
        most_block: u32,
        vector: u32,
    }
    CombineParams {
        topk: u64,
        token_to_req: u64,
        positions: u64,
        seq_lens: u64,
        gather_lens: u64,
        indices: u64,
        lens: u64,
        tokens: u32,
        requests: u32,
        most: u32,
        width: u32,
        ratio: u32,
        window: u32,
        workspace_rows: u32,
        compressed_rows: u32,
    }
}

/// The kernels, loaded.
pub(super) struct TopkMapKernels {
    warp: CudaFunction,
    in_place: CudaFunction,
    packed: CudaFunction,
    combine_indices: CudaFunction,
    processors: usize,
}

impl TopkMapKernels {
    pub(super) fn load(module: &Module<'_>) -> Result<Self, Error> {
        Ok(Self {
            warp: module.kernel("topk_map_warp")?,
            in_place: module.kernel("topk_map_in_place")?,
            packed: module.kernel("topk_map_packed")?,
            combine_indices: module.kernel("combine_indices")?,
            processors: module.processors,
        })
    }

    pub(super) fn map<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &TopkMap<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: MAP, stream };
        let power = plan.block_size.is_power_of_two();
        let params = TopkMapParams {
            topk: site.on("topk", &args.topk, 4)?,
            token_to_req: site.on("token_to_req", &args.token_to_req, 4)?,
            block_table: site.on("block_table", &args.block_table, 4)?,
            valid: site.on("valid", &args.valid, 1)?,
            indices: site.on("indices", &args.indices, 4)?,
            lens: site.on("lens", &args.lens, 4)?,
            tokens: count(plan.tokens),
            width: count(plan.topk),
            requests: count(plan.requests),
            table_stride: count(plan.table_stride),
            columns: count(plan.columns),
            block_size: count(plan.block_size),
            shift: if power { plan.block_size.trailing_zeros() } else { 32 },
            most_block: 0x7fff_ffff / count(plan.block_size).max(1),
            vector: 0,
        };
        let vector = plan.topk.is_multiple_of(4)
            && params.topk.is_multiple_of(16)
            && params.indices.is_multiple_of(16);
        let params = TopkMapParams { vector: u32::from(vector), ..params };
        let (function, blocks) = match plan.placement {
            Placement::PackedLeft => (&self.packed, plan.tokens),
            Placement::InPlace if vector && plan.tokens >= 16 * self.processors => {
                (&self.warp, plan.tokens.div_ceil(4))
            }
            Placement::InPlace => (&self.in_place, plan.tokens),
        };
        // SAFETY: the module's invariant.
        unsafe { site.launch(function, (blocks, 1), 128, 0, &params, NONE) }
    }

    pub(super) fn combine<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &CombineIndices<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: COMBINE, stream };
        let topk = args.topk.as_ref().map(|topk| site.on("topk", topk, 4)).transpose()?;
        let params = CombineParams {
            topk: topk.unwrap_or(0),
            token_to_req: site.on("token_to_req", &args.token_to_req, 4)?,
            positions: site.on("positions", &args.positions, 8)?,
            seq_lens: site.on("seq_lens", &args.seq_lens, 4)?,
            gather_lens: site.on("gather_lens", &args.gather_lens, 4)?,
            indices: site.on("indices", &args.indices, 4)?,
            lens: site.on("lens", &args.lens, 4)?,
            tokens: count(plan.tokens),
            requests: count(plan.requests),
            most: count(plan.most),
            width: count(plan.width),
            ratio: count(plan.ratio),
            window: count(plan.window),
            workspace_rows: count(plan.workspace_rows),
            compressed_rows: count(plan.compressed_rows),
        };
        let blocks = plan.tokens.div_ceil(4);
        // SAFETY: the module's invariant.
        unsafe { site.launch(&self.combine_indices, (blocks, 1), 128, 0, &params, NONE) }
    }
}
