//! From checked arguments to launches.
//!
//! Invariant, on which every unsafe launch rests: parameters come from a `check`, which fixes all
//! shapes, and from views, which are live memory in order on their stream; [`Site::on`] makes sure that it is the stream launched on, and aligned for the kernel's
//! loads; and kernels stay inside the shapes whatever the contents are.

use core::fmt;

use scratchpool::cuda::cudarc::driver::sys::{CUdevice_attribute, CUfunction_attribute};
use scratchpool::cuda::cudarc::driver::{CudaFunction, LaunchConfig, result};
use scratchpool::cuda::cudarc::nvrtc::Ptx;
use scratchpool::cuda::{Cuda, KernelArg, Stream};
use scratchpool::{Device, Element, View, ViewMut};

use super::cache;
use super::params::{
    AttentionParams, ChoiceParams, CombineParams, GatherParams, IndexerQParams, LogitsParams,
    PooledParams, QInsertParams, SaveParams, SourceParams, StatesParams, StoreParams,
    TopkMapParams,
};
use super::program::{Architecture, PROGRAMS};
use crate::error::Error;
use crate::ops::attention::{Attention, Entries, Selected, SourcePlan};
use crate::ops::compressor::{
    Boundaries, Compress, CompressPool, CompressStore, SaveState, States, StatesPlan, Store,
    StorePlan,
};
use crate::ops::gather::{Gather, KvCacheIn};
use crate::ops::indexer_q::{IndexQuery, IndexerQ, Wide};
use crate::ops::indexer_topk::{IndexQueryIn, IndexerLogits, IndexerTopk};
use crate::ops::q_insert::{KvCache, QInsert, Query};
use crate::ops::topk_map::{CombineIndices, Placement, TopkMap};
use crate::ops::{
    Kernels, attention, compressor, gather, indexer_q, indexer_topk, q_insert, topk_map,
};
use crate::reference::cache::EntryFormat;

/// The kernels of the CUDA device, compiled and loaded.
///
/// ```no_run
/// use scratchpool::{Device, cuda::Cuda};
/// use scratchpool_kernels::cuda::CudaKernels;
/// let cuda = Cuda::open(0)?;
/// let kernels = CudaKernels::new(&cuda)?;      // compiles once, then reads the cache on disk
/// # Ok::<(), scratchpool_kernels::Error>(())
/// ```
pub struct CudaKernels {
    q_insert: [[[CudaFunction; 3]; 3]; 2],
    indexer_q: [[CudaFunction; 2]; 2],
    topk_map: [CudaFunction; 3],
    combine_indices: CudaFunction,
    save_state: CudaFunction,
    compress: [CudaFunction; 3],
    compress_pool: CudaFunction,
    compress_store: CudaFunction,
    indexer_logits: [CudaFunction; 2],
    indexer_topk: CudaFunction,
    attention: CudaFunction,
    gather: [CudaFunction; 2],
    /// Shared memory that attention needs.
    attention_shared: u32,
    /// Shared memory that a block can have.
    most_shared: u32,
    /// Multiprocessors of the device.
    processors: usize,
}

/// Shared memory of the attention kernel for tiles of `keys` entries: queries, entries, weights, the
/// numbers of heads and entries, and the stage, as the source lays them out.
const fn attention_shared(keys: u32) -> u32 {
    let rows = (64 + keys) * 520 * 2;
    rows + 64 * (keys + 8) * 2 + (128 + 64 + 128 + 64) * 4 + keys * 1024
}

/// Refuses attention on a device whose blocks can have too little shared memory.
const fn enough_shared(needed: u32, most: u32) -> Result<(), Error> {
    if needed <= most {
        return Ok(());
    }
    Err(Error::SharedMemory { kernel: attention::NAME, needed, most })
}

impl fmt::Debug for CudaKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaKernels").field("processors", &self.processors).finish_non_exhaustive()
    }
}

impl CudaKernels {
    /// Compiles the kernels for a device, or reads them from the cache, and loads them. A device with too
    /// little shared memory for attention has all the others.
    ///
    /// # Errors
    ///
    /// [`Error::TooOld`], [`Error::Compile`], a missing NVRTC, and what the driver reports.
    pub fn new(cuda: &Cuda) -> Result<Self, Error> {
        let (major, minor) = cuda.capability();
        let architecture = Architecture::of(major, minor)?;
        let mut functions = Vec::new();
        for program in &PROGRAMS {
            let code = cache::machine_code(program, &architecture)?;
            let module = cuda.load(Ptx::from_binary(code))?;
            for name in program.kernels {
                functions.push(cuda.kernel(&module, name)?);
            }
        }
        let attribute = |attribute| {
            let found = cuda.context().attribute(attribute).map_err(scratchpool::Error::device)?;
            Ok::<_, Error>(u32::try_from(found).unwrap_or(0))
        };
        let processors = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let most_shared =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        // In the order of `PROGRAMS`.
        let mut functions = functions.into_iter();
        let mut next = move || {
            functions.next().ok_or(Error::Compile {
                program: "kernels",
                arch: architecture.name().to_owned(),
                code: "a kernel is missing from the list of programs".to_owned(),
                log: String::new(),
            })
        };
        let mut three = || -> Result<_, Error> { Ok([next()?, next()?, next()?]) };
        let q_insert = [[three()?, three()?, three()?], [three()?, three()?, three()?]];
        let indexer_q = [[next()?, next()?], [next()?, next()?]];
        let topk_map = [next()?, next()?, next()?];
        let kernels = Self {
            q_insert,
            indexer_q,
            topk_map,
            combine_indices: next()?,
            save_state: next()?,
            compress: [next()?, next()?, next()?],
            compress_pool: next()?,
            compress_store: next()?,
            indexer_logits: [next()?, next()?],
            indexer_topk: next()?,
            attention: next()?,
            gather: [next()?, next()?],
            attention_shared: attention_shared(if major >= 9 { 64 } else { 32 }),
            most_shared,
            processors: processors as usize,
        };
        if enough_shared(kernels.attention_shared, kernels.most_shared).is_err() {
            // Only attention is out of reach; it says so when it is launched.
            return Ok(kernels);
        }
        // SAFETY: the function is loaded, and the context is current, as loading it made it.
        unsafe {
            result::function::set_function_attribute(
                kernels.attention.cu_function(),
                CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                i32::try_from(kernels.attention_shared).unwrap_or(i32::MAX),
            )
        }
        .map_err(scratchpool::Error::device)?;
        Ok(kernels)
    }
}

/// Which kernel is launched where.
#[derive(Clone, Copy)]
struct Site<'s> {
    kernel: &'static str,
    stream: &'s Stream,
}

/// An argument that has an address and a stream.
trait Placed<'v> {
    fn place(&self) -> (u64, &'v Stream);
}

impl<'v, T: Element, D: Device<Stream = Stream>, const R: usize> Placed<'v> for View<'v, T, D, R> {
    fn place(&self) -> (u64, &'v Stream) {
        (self.address(), self.stream())
    }
}

impl<'v, T: Element, D: Device<Stream = Stream>, const R: usize> Placed<'v>
    for ViewMut<'v, T, D, R>
{
    fn place(&self) -> (u64, &'v Stream) {
        (self.address(), self.stream())
    }
}

impl Site<'_> {
    /// The address of an argument, which must be of this stream, and aligned.
    fn on<'v>(
        &self,
        argument: &'static str,
        placed: &impl Placed<'v>,
        align: u64,
    ) -> Result<u64, Error> {
        let (address, stream) = placed.place();
        if stream != self.stream {
            let (view, launch) = (stream.name(), self.stream.name());
            return Err(scratchpool::Error::ForeignStream { view, launch }.into());
        }
        if address % align != 0 {
            return Err(Error::Align { kernel: self.kernel, argument, address, align });
        }
        Ok(address)
    }

    /// Launches on a grid of `x` times `y` blocks; nothing where there is none.
    ///
    /// # Safety
    ///
    /// The module's invariant, and the parameters are those of the function, at most two.
    unsafe fn launch<A: KernelArg, B: KernelArg>(
        &self,
        function: &CudaFunction,
        (x, y): (usize, usize),
        threads: u32,
        shared: u32,
        first: &A,
        second: Option<&B>,
    ) -> Result<(), Error> {
        let config = LaunchConfig {
            grid_dim: (count(x), count(y), 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: shared,
        };
        let call = self.stream.kernel(function).arg(first);
        let call = match second {
            Some(second) => call.arg(second),
            None => call,
        };
        // SAFETY: the caller's promise; every kernel begins by waiting for the one in front of it.
        unsafe { call.launch(config)? };
        Ok(())
    }
}

/// A count that a check has bounded.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A factor and a shift that divide any number below `2^31`: `n / by = n * factor >> shift`.
///
/// With `by <= 2^s` the factor is `2^(31 + s) / by` rounded up, which adds less than
/// `n / 2^(31 + s) < 1 / by` to the quotient: too little to reach the next whole number.
fn divisor(by: u32) -> (u32, u32) {
    let by = u64::from(by.clamp(1, 1 << 30));
    let shift = 31 + by.next_power_of_two().trailing_zeros();
    (u32::try_from((1_u64 << shift).div_ceil(by)).unwrap_or(u32::MAX), shift)
}

/// For launches of one parameter.
const NONE: Option<&u32> = None;

impl<D: Device<Stream = Stream>> Kernels<D> for CudaKernels {
    fn q_insert(&self, stream: &Stream, args: QInsert<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: q_insert::NAME, stream };
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
            .q_insert
            .get(q_form)
            .and_then(|caches| caches.get(cache_form))
            .and_then(|forms| forms.get(form))
        else {
            return Ok(());
        };
        // SAFETY: the module's invariant.
        unsafe { site.launch(function, (blocks, 1), threads, 0, &params, NONE) }
    }

    fn indexer_q(&self, stream: &Stream, args: IndexerQ<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: indexer_q::NAME, stream };
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
        let [fp8, mxfp4] = &self.indexer_q;
        let [any, fours] = if matches!(args.out, IndexQuery::Fp8 { .. }) { fp8 } else { mxfp4 };
        let function = if plan.heads.is_multiple_of(4) { fours } else { any };
        // SAFETY: the module's invariant.
        unsafe { site.launch(function, (rows.div_ceil(16), 1), 128, 0, &params, NONE) }
    }

    fn topk_map(&self, stream: &Stream, args: TopkMap<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: topk_map::MAP, stream };
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
        let [warp, in_place, packed] = &self.topk_map;
        let (function, blocks) = match plan.placement {
            Placement::PackedLeft => (packed, plan.tokens),
            Placement::InPlace if vector && plan.tokens >= 16 * self.processors => {
                (warp, plan.tokens.div_ceil(4))
            }
            Placement::InPlace => (in_place, plan.tokens),
        };
        // SAFETY: the module's invariant.
        unsafe { site.launch(function, (blocks, 1), 128, 0, &params, NONE) }
    }

    fn combine_indices(&self, stream: &Stream, args: CombineIndices<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: topk_map::COMBINE, stream };
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

    fn gather(&self, stream: &Stream, args: Gather<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: gather::NAME, stream };
        let [paged, rows] = &self.gather;
        let (function, cache) = match &args.cache {
            KvCacheIn::Paged { bytes, .. } => (paged, site.on("cache", bytes, 8)?),
            KvCacheIn::Rows(whole) => (rows, site.on("cache", whole, 16)?),
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

    fn save_state(&self, stream: &Stream, args: SaveState<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: compressor::SAVE, stream };
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

    fn compress(&self, stream: &Stream, args: Compress<'_, D>) -> Result<(), Error> {
        let (states_plan, plan) = args.check()?;
        if args.boundaries == Boundaries::None {
            return Ok(());
        }
        let site = Site { kernel: compressor::COMPRESS, stream };
        let chunk = if plan.tokens < 1024 { 1 } else { 4 };
        let states = states_params(site, &args.states, &states_plan, chunk)?;
        let store = store_params(site, &args.store, &plan)?;
        let [main, fp8, mxfp4] = &self.compress;
        let groups = plan.tokens.div_ceil(chunk);
        let (function, blocks) = match args.store.format {
            EntryFormat::Main => (main, groups),
            EntryFormat::IndexFp8 => (fp8, groups.div_ceil(4)),
            EntryFormat::IndexMxfp4 => (mxfp4, groups.div_ceil(4)),
        };
        // SAFETY: the module's invariant.
        unsafe { site.launch(function, (blocks, 1), 128, 0, &states, Some(&store)) }
    }

    fn compress_pool(&self, stream: &Stream, args: CompressPool<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        if args.boundaries == Boundaries::None {
            return Ok(());
        }
        let site = Site { kernel: compressor::POOL, stream };
        let chunk = (plan.tokens / 256).clamp(1, 32);
        let params = states_params(site, &args.states, &plan, chunk)?;
        let scratch = site.on("scratch", &args.scratch, 16)?;
        let grid = (plan.tokens.div_ceil(chunk), 8);
        // SAFETY: the module's invariant.
        unsafe { site.launch(&self.compress_pool, grid, 256, 0, &params, Some(&scratch)) }
    }

    fn compress_store(&self, stream: &Stream, args: CompressStore<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        if args.boundaries == Boundaries::None {
            return Ok(());
        }
        let site = Site { kernel: compressor::STORE, stream };
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
        unsafe { site.launch(&self.compress_store, grid, 128, 0, &params, Some(&store)) }
    }

    fn indexer_logits(&self, stream: &Stream, args: IndexerLogits<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: indexer_topk::LOGITS, stream };
        let [fp8, mxfp4] = &self.indexer_logits;
        let (function, q, q_scales) = match &args.q {
            IndexQueryIn::Fp8 { values } => (fp8, site.on("q.values", values, 4)?, 0),
            IndexQueryIn::Mxfp4 { values, scales } => {
                (mxfp4, site.on("q.values", values, 4)?, site.on("q.scales", scales, 1)?)
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

    fn indexer_topk(&self, stream: &Stream, args: IndexerTopk<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: indexer_topk::TOPK, stream };
        let params = ChoiceParams {
            logits: site.on("logits", &args.logits, 4)?,
            indices: site.on("indices", &args.indices, 4)?,
            tokens: count(plan.tokens),
            columns: count(plan.columns),
            topk: count(plan.topk),
        };
        // SAFETY: the module's invariant.
        unsafe { site.launch(&self.indexer_topk, (plan.tokens, 1), 512, 0, &params, NONE) }
    }

    fn attention(&self, stream: &Stream, args: Attention<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: attention::NAME, stream };
        let first = source_params(site, attention::FIRST, &args.first, &plan.first)?;
        let second = match (&args.second, &plan.second) {
            (Some(selected), Some(plan)) => source_params(site, attention::SECOND, selected, plan)?,
            _ => SourceParams { width: 0, ..first },
        };
        let params = AttentionParams {
            q: site.on("q", &args.q, 16)?,
            sinks: site.on("sinks", &args.sinks, 4)?,
            out: site.on("out", &args.out, 4)?,
            sources: [first, second],
            tokens: count(plan.tokens),
            heads: count(plan.heads),
            scale_log2: plan.scale * core::f32::consts::LOG2_E,
            unused: 0,
        };
        enough_shared(self.attention_shared, self.most_shared)?;
        let grid = (plan.tokens, plan.heads.div_ceil(64));
        // SAFETY: the module's invariant.
        unsafe { site.launch(&self.attention, grid, 256, self.attention_shared, &params, NONE) }
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

fn source_params<D: Device<Stream = Stream>>(
    site: Site<'_>,
    names: attention::Names,
    selected: &Selected<'_, D>,
    plan: &SourcePlan,
) -> Result<SourceParams, Error> {
    let entries = match &selected.entries {
        Entries::Paged { cache, .. } => site.on(names.cache.bytes, cache, 8)?,
        Entries::Rows(rows) => site.on(names.rows, rows, 16)?,
    };
    Ok(SourceParams {
        entries,
        indices: site.on(names.indices, &selected.indices, 4)?,
        lens: site.on(names.lens, &selected.lens, 4)?,
        stride: plan.layout.stride as u64,
        blocks: count(plan.layout.blocks),
        block_size: count(plan.layout.block_size),
        width: count(plan.width),
        paged: u32::from(plan.is_paged),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_and_a_shift_divide_as_division_does() {
        let most = (1_u32 << 31) - 1;
        for by in (1..=4096).chain([65_535, 65_536, 65_537, (1 << 30) - 1, 1 << 30]) {
            let (factor, shift) = divisor(by);
            let whole = most / by * by;
            for n in [0, 1, by - 1, by, by + 1, whole / 2, whole - 1, whole, most] {
                let quotient = (u64::from(n) * u64::from(factor)) >> shift;
                assert_eq!(quotient, u64::from(n / by), "{n} / {by}");
            }
        }
    }

    #[test]
    fn attention_fits_an_a100_and_an_h100_and_says_where_it_does_not() {
        let (before, after) = (attention_shared(32), attention_shared(64));
        assert_eq!((before, after), (139_264, 209_408));
        // What a block can have, by the programming guide: 8.0 and 8.7, 8.6 and 8.9 and 12.x, 9.0 and 10.x.
        let (a100, consumer, h100) = (163 << 10, 99 << 10, 227 << 10);
        assert!(enough_shared(before, a100).is_ok() && enough_shared(after, h100).is_ok());
        let refused = |needed| enough_shared(needed, consumer).unwrap_err().to_string();
        assert_eq!(
            refused(before),
            "attention: a block needs 139264 bytes of shared memory; this device has 101376"
        );
        assert!(refused(after).contains("needs 209408"));
    }
}
