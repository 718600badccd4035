//! Query norm, RoPE and KV insertion.

use scratchpool::Device;
use scratchpool::cuda::Stream;
use scratchpool::cuda::cudarc::driver::CudaFunction;

use super::module::Module;
use super::params::{Layout, params};
use super::program::Program;
use super::site::{NONE, Site, count};
use crate::error::Error;
use crate::ops::q_insert::{KvCache, NAME, QInsert, Query};

/// The source.
pub(super) const PROGRAM: Program = Program::new(
    "q_insert",
    &[
        "q_insert_paged_bf16_1",
        "q_insert_paged_bf16_2",
        "q_insert_paged_bf16_4",
        "q_insert_rows_bf16_1",
        "q_insert_rows_bf16_2",
        "q_insert_rows_bf16_4",
        "q_insert_fp8_bf16_1",
        "q_insert_fp8_bf16_2",
        "q_insert_fp8_bf16_4",
        "q_insert_paged_fp8_1",
        "q_insert_paged_fp8_2",
        "q_insert_paged_fp8_4",
        "q_insert_rows_fp8_1",
        "q_insert_rows_fp8_2",
        "q_insert_rows_fp8_4",
        "q_insert_fp8_fp8_1",
        "q_insert_fp8_fp8_2",
        "q_insert_fp8_fp8_4",
    ],
    LAYOUTS,
    include_str!("../../cuda/q_insert.cu"),
);

const LAYOUTS: &[Layout] = &[QInsertParams::LAYOUT];

params! {
    QInsertParams {
        q_in: u64,
        q_out: u64,
        kv: u64,
        kv_norm: u64,
        positions: u64,
        slots: u64,
        rope: u64,
        cache: u64,
        stride: u64,
        tokens: u32,
        heads: u32,
        padded_heads: u32,
        inserted: u32,
        max_pos: u32,
        blocks: u32,
        block_size: u32,
        norm: u32,
        eps: f32,
        q_inverse: f32,
        kv_inverse: f32,
        units: u32,
    }
}

/// The kernels, loaded.
pub(super) struct QInsertKernels {
    /// By the form of the queries, that of the cache, and rows a warp: 1, 2, 4.
    functions: [[[CudaFunction; 3]; 3]; 2],
    processors: usize,
}

impl QInsertKernels {
    pub(super) fn load(module: &Module<'_>) -> Result<Self, Error> {
        let rows = |form: String| -> Result<_, Error> {
            let kernel = |rows: u32| module.kernel(&format!("{form}_{rows}"));
            Ok([kernel(1)?, kernel(2)?, kernel(4)?])
        };
        let caches = |queries: &str| -> Result<_, Error> {
            let form = |cache: &str| rows(format!("q_insert_{cache}_{queries}"));
            Ok([form("paged")?, form("rows")?, form("fp8")?])
        };
        Ok(Self { functions: [caches("bf16")?, caches("fp8")?], processors: module.processors })
    }

    pub(super) fn launch<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &QInsert<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: NAME, stream };
        let (q_form, q_in, q_out) = match &args.q {
            Query::Out { from, to } => (0, site.on("q.from", from, 16)?, site.on("q.to", to, 16)?),
            Query::InPlace(q) => (0, site.on("q", q, 16)?, site.on("q", q, 16)?),
            Query::Fp8 { from, to, .. } => {
                (1, site.on("q.from", from, 16)?, site.on("q.to", to, 8)?)
            }
        };
        let (cache_form, cache) = match &args.cache {
            KvCache::Paged { bytes, .. } => (0, site.on("cache", bytes, 8)?),
            KvCache::Rows(rows) => (1, site.on("cache", rows, 16)?),
            KvCache::Fp8 { rows, .. } => (2, site.on("cache", rows, 8)?),
        };
        let kv_norm = args.kv_norm.as_ref().map(|weight| site.on("kv_norm", weight, 16));
        let kv_norm = kv_norm.transpose()?;
        // More rows a warp keep more loads in flight, once there are enough warps for all.
        let rows = plan.tokens * plan.padded_heads;
        let (form, heads) = match rows / self.processors.max(1) {
            0..16 => (0, 1),
            16..64 => (1, 2),
            _ => (2, 4),
        };
        let units = plan.padded_heads.div_ceil(heads) + 1;
        let params = QInsertParams {
            q_in,
            q_out,
            kv: site.on("kv", &args.kv, 16)?,
            kv_norm: kv_norm.unwrap_or(0),
            positions: site.on("positions", &args.positions, 8)?,
            slots: site.on("slots", &args.slots, 8)?,
            rope: site.on("rope", &args.rope, 16)?,
            cache,
            stride: plan.layout.stride as u64,
            tokens: count(plan.tokens),
            heads: count(plan.heads),
            padded_heads: count(plan.padded_heads),
            inserted: count(plan.inserted),
            max_pos: count(plan.max_pos),
            blocks: count(plan.layout.blocks),
            block_size: count(plan.layout.block_size),
            norm: u32::from(plan.norm),
            eps: plan.eps,
            q_inverse: plan.q_inverse,
            kv_inverse: plan.kv_inverse,
            units: count(units),
        };
        let threads: u32 = if form == 2 { 256 } else { 128 };
        let blocks = (plan.tokens * units).div_ceil(threads as usize / 32);
        let Some(function) = self
            .functions
            .get(q_form)
            .and_then(|caches| caches.get(cache_form))
            .and_then(|forms| forms.get(form))
        else {
            return Ok(());
        };
        // SAFETY: the module's invariant.
        unsafe { site.launch(function, (blocks, 1), threads, 0, &params, NONE) }
    }
}
