//! The compressors.

use scratchpool::Device;
use scratchpool::cuda::Stream;
use scratchpool::cuda::cudarc::driver::CudaFunction;

use super::module::Module;
use super::params::{Layout, params};
use super::program::Program;
use super::site::{NONE, Site, count};
use crate::error::Error;
use crate::ops::compressor::{
    Boundaries, COMPRESS, Compress, CompressPool, CompressStore, POOL, SAVE, STORE, SaveState,
    States, StatesPlan, Store, StorePlan,
};
use crate::reference::cache::EntryFormat;

/// The source.
pub(super) const PROGRAM: Program = Program::new(
    "compressor",
    &[
        "save_state",
        "compress_main",
        "compress_fp8",
        "compress_mxfp4",
        "compress_pool",
        "compress_store",
    ],
    LAYOUTS,
    include_str!("../../cuda/compressor.cu"),
);

const LAYOUTS: &[Layout] =
    &[SaveParams::LAYOUT, StatesParams::LAYOUT, StoreParams::LAYOUT, PooledParams::LAYOUT];

params! {
    SaveParams {
        kv_score: u64,
        ape: u64,
        positions: u64,
        slots: u64,
        state: u64,
        state_rows: u64,
        tokens: u32,
        width: u32,
        ratio: u32,
    }
    StatesParams {
        state: u64,
        block_table: u64,
        token_to_req: u64,
        positions: u64,
        slots: u64,
        tokens: u32,
        pages: u32,
        page_tokens: u32,
        requests: u32,
        columns: u32,
        chunk: u32,
    }
    StoreParams {
        slots: u64,
        norm_weight: u64,
        rope: u64,
        cache: u64,
        stride: u64,
        blocks: u32,
        block_size: u32,
        max_pos: u32,
        eps: f32,
    }
    PooledParams {
        scratch: u64,
        positions: u64,
        state_slots: u64,
        tokens: u32,
        chunk: u32,
    }
}

/// The kernels, loaded.
pub(super) struct CompressorKernels {
    save_state: CudaFunction,
    main: CudaFunction,
    fp8: CudaFunction,
    mxfp4: CudaFunction,
    pool: CudaFunction,
    store: CudaFunction,
}

impl CompressorKernels {
    pub(super) fn load(module: &Module<'_>) -> Result<Self, Error> {
        Ok(Self {
            save_state: module.kernel("save_state")?,
            main: module.kernel("compress_main")?,
            fp8: module.kernel("compress_fp8")?,
            mxfp4: module.kernel("compress_mxfp4")?,
            pool: module.kernel("compress_pool")?,
            store: module.kernel("compress_store")?,
        })
    }

    pub(super) fn save<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &SaveState<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: SAVE, stream };
        let params = SaveParams {
            kv_score: site.on("kv_score", &args.kv_score, 16)?,
            ape: site.on("ape", &args.ape, 16)?,
            positions: site.on("positions", &args.positions, 8)?,
            slots: site.on("slots", &args.slots, 8)?,
            state: site.on("state", &args.state, 16)?,
            state_rows: plan.slots as u64,
            tokens: count(plan.tokens),
            width: count(plan.width),
            ratio: count(plan.ratio),
        };
        // SAFETY: the module's invariant.
        unsafe { site.launch(&self.save_state, (plan.tokens, 1), 256, 0, &params, NONE) }
    }

    pub(super) fn compress<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &Compress<'_, D>,
    ) -> Result<(), Error> {
        let (states_plan, plan) = args.check()?;
        if args.boundaries == Boundaries::None {
            return Ok(());
        }
        let site = Site { kernel: COMPRESS, stream };
        let chunk = if plan.tokens < 1024 { 1 } else { 4 };
        let states = states_params(site, &args.states, &states_plan, chunk)?;
        let store = store_params(site, &args.store, &plan)?;
        let groups = plan.tokens.div_ceil(chunk);
        let (function, blocks) = match args.store.format {
            EntryFormat::Main => (&self.main, groups),
            EntryFormat::IndexFp8 => (&self.fp8, groups.div_ceil(4)),
            EntryFormat::IndexMxfp4 => (&self.mxfp4, groups.div_ceil(4)),
        };
        // SAFETY: the module's invariant.
        unsafe { site.launch(function, (blocks, 1), 128, 0, &states, Some(&store)) }
    }

    pub(super) fn pool<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &CompressPool<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        if args.boundaries == Boundaries::None {
            return Ok(());
        }
        let site = Site { kernel: POOL, stream };
        let chunk = (plan.tokens / 256).clamp(1, 32);
        let params = states_params(site, &args.states, &plan, chunk)?;
        let scratch = site.on("scratch", &args.scratch, 16)?;
        let grid = (plan.tokens.div_ceil(chunk), 8);
        // SAFETY: the module's invariant.
        unsafe { site.launch(&self.pool, grid, 256, 0, &params, Some(&scratch)) }
    }

    pub(super) fn store<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &CompressStore<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        if args.boundaries == Boundaries::None {
            return Ok(());
        }
        let site = Site { kernel: STORE, stream };
        let chunk = (plan.tokens / 256).clamp(1, 32);
        let params = PooledParams {
            scratch: site.on("scratch", &args.scratch, 16)?,
            positions: site.on("positions", &args.positions, 8)?,
            state_slots: site.on("state_slots", &args.state_slots, 8)?,
            tokens: count(plan.tokens),
            chunk: count(chunk),
        };
        let store = store_params(site, &args.store, &plan)?;
        let grid = (plan.tokens.div_ceil(chunk), 1);
        // SAFETY: the module's invariant.
        unsafe { site.launch(&self.store, grid, 128, 0, &params, Some(&store)) }
    }
}

fn states_params<D: Device<Stream = Stream>>(
    site: Site<'_>,
    states: &States<'_, D>,
    plan: &StatesPlan,
    chunk: usize,
) -> Result<StatesParams, Error> {
    Ok(StatesParams {
        state: site.on("states.state", &states.state, 16)?,
        block_table: site.on("states.block_table", &states.block_table, 4)?,
        token_to_req: site.on("states.token_to_req", &states.token_to_req, 4)?,
        positions: site.on("states.positions", &states.positions, 8)?,
        slots: site.on("states.slots", &states.slots, 8)?,
        tokens: count(plan.tokens),
        pages: count(plan.pages),
        page_tokens: count(plan.page_tokens),
        requests: count(plan.requests),
        columns: count(plan.columns),
        chunk: count(chunk),
    })
}

fn store_params<D: Device<Stream = Stream>>(
    site: Site<'_>,
    store: &Store<'_, D>,
    plan: &StorePlan,
) -> Result<StoreParams, Error> {
    let align = plan.layout.format.access_bytes() as u64;
    Ok(StoreParams {
        slots: site.on("store.slots", &store.slots, 8)?,
        norm_weight: site.on("store.norm_weight", &store.norm_weight, 16)?,
        rope: site.on("store.rope", &store.rope, 16)?,
        cache: site.on("store.cache", &store.cache, align)?,
        stride: plan.layout.stride as u64,
        blocks: count(plan.layout.blocks),
        block_size: count(plan.layout.block_size),
        max_pos: count(plan.max_pos),
        eps: plan.eps,
    })
}
