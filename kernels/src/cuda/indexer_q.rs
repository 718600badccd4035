//! RoPE and quantisation of the indexer's queries.

use scratchpool::Device;
use scratchpool::cuda::Stream;
use scratchpool::cuda::cudarc::driver::CudaFunction;

use super::module::Module;
use super::params::{Layout, params};
use super::program::Program;
use super::site::{NONE, Site, count, divisor};
use crate::error::Error;
use crate::ops::indexer_q::{IndexQuery, IndexerQ, NAME, Wide};

/// The source.
pub(super) const PROGRAM: Program = Program::new(
    "indexer_q",
    &["indexer_q_fp8_any", "indexer_q_fp8_4", "indexer_q_mxfp4_any", "indexer_q_mxfp4_4"],
    LAYOUTS,
    include_str!("../../cuda/indexer_q.cu"),
);

const LAYOUTS: &[Layout] = &[IndexerQParams::LAYOUT];

params! {
    IndexerQParams {
        q: u64,
        positions: u64,
        rope: u64,
        weights: u64,
        values: u64,
        scales: u64,
        weights_out: u64,
        rows: u32,
        heads: u32,
        max_pos: u32,
        rope_is_bf16: u32,
        weights_are_bf16: u32,
        softmax_scale: f32,
        head_scale: f32,
        token_factor: u32,
        token_shift: u32,
    }
}

/// The kernels, loaded.
pub(super) struct IndexerQKernels {
    /// For any number of heads, and for a multiple of four.
    fp8: [CudaFunction; 2],
    mxfp4: [CudaFunction; 2],
}

impl IndexerQKernels {
    pub(super) fn load(module: &Module<'_>) -> Result<Self, Error> {
        let both = |format: &str| -> Result<_, Error> {
            let kernel = |heads: &str| module.kernel(&format!("indexer_q_{format}_{heads}"));
            Ok([kernel("any")?, kernel("4")?])
        };
        Ok(Self { fp8: both("fp8")?, mxfp4: both("mxfp4")? })
    }

    pub(super) fn launch<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &IndexerQ<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: NAME, stream };
        let place = |argument, wide: &Wide<'_, D>, align: u64| match wide {
            Wide::F32(wide) => site.on(argument, wide, align),
            Wide::Bf16(narrow) => site.on(argument, narrow, align / 2),
        };
        let (values, scales, weights_out) = match &args.out {
            IndexQuery::Fp8 { values, weights } => {
                (site.on("out.values", values, 8)?, 0, site.on("out.weights", weights, 4)?)
            }
            IndexQuery::Mxfp4 { values, scales, weights } => (
                site.on("out.values", values, 4)?,
                site.on("out.scales", scales, 4)?,
                site.on("out.weights", weights, 4)?,
            ),
        };
        let rows = plan.tokens * plan.heads;
        // Only asked for where heads come in fours.
        let (token_factor, token_shift) = divisor(count(plan.heads / 4));
        let params = IndexerQParams {
            q: site.on("q", &args.q, 16)?,
            positions: site.on("positions", &args.positions, 8)?,
            rope: place("rope", &args.rope, 16)?,
            weights: place("weights", &args.weights, 4)?,
            values,
            scales,
            weights_out,
            rows: count(rows),
            heads: count(plan.heads),
            max_pos: count(plan.max_pos),
            rope_is_bf16: u32::from(matches!(args.rope, Wide::Bf16(_))),
            weights_are_bf16: u32::from(matches!(args.weights, Wide::Bf16(_))),
            softmax_scale: plan.softmax_scale,
            head_scale: plan.head_scale,
            token_factor,
            token_shift,
        };
        let is_fp8 = matches!(args.out, IndexQuery::Fp8 { .. });
        let [any, fours] = if is_fp8 { &self.fp8 } else { &self.mxfp4 };
        let function = if plan.heads.is_multiple_of(4) { fours } else { any };
        // SAFETY: the module's invariant.
        unsafe { site.launch(function, (rows.div_ceil(16), 1), 128, 0, &params, NONE) }
    }
}
