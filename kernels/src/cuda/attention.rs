//! Sparse attention.

use scratchpool::Device;
use scratchpool::cuda::Stream;
use scratchpool::cuda::cudarc::driver::sys::CUfunction_attribute;
use scratchpool::cuda::cudarc::driver::{CudaFunction, result};

use super::module::Module;
use super::params::{Layout, params};
use super::program::Program;
use super::site::{NONE, Site, count};
use crate::error::Error;
use crate::ops::attention::{Attention, Entries, FIRST, NAME, Names, SECOND, Selected, SourcePlan};

/// The source.
pub(super) const PROGRAM: Program =
    Program::new("attention", &["attention"], LAYOUTS, include_str!("../../cuda/attention.cu"));

const LAYOUTS: &[Layout] = &[SourceParams::LAYOUT, AttentionParams::LAYOUT];

params! {
    SourceParams {
        entries: u64,
        indices: u64,
        lens: u64,
        stride: u64,
        blocks: u32,
        block_size: u32,
        width: u32,
        paged: u32,
    }
    AttentionParams {
        q: u64,
        sinks: u64,
        out: u64,
        sources: [SourceParams; 2],
        tokens: u32,
        heads: u32,
        scale_log2: f32,
        unused: u32,
    }
}

/// The kernels, loaded.
pub(super) struct AttentionKernels {
    function: CudaFunction,
    /// Shared memory that a block needs.
    shared: u32,
    /// Shared memory that a block can have.
    most_shared: u32,
}

impl AttentionKernels {
    pub(super) fn load(module: &Module<'_>) -> Result<Self, Error> {
        let function = module.kernel(NAME)?;
        let (shared, most_shared) = (attention_shared(module.keys()), module.most_shared);
        // Where there is too little, only attention is out of reach; it says so when it is launched.
        if enough_shared(shared, most_shared).is_ok() {
            // SAFETY: the function is loaded, and the context is current, as loading it made it.
            unsafe {
                result::function::set_function_attribute(
                    function.cu_function(),
                    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    i32::try_from(shared).unwrap_or(i32::MAX),
                )
            }
            .map_err(scratchpool::Error::device)?;
        }
        Ok(Self { function, shared, most_shared })
    }

    pub(super) fn launch<D: Device<Stream = Stream>>(
        &self,
        stream: &Stream,
        args: &Attention<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        let site = Site { kernel: NAME, stream };
        let first = source_params(site, FIRST, &args.first, &plan.first)?;
        let second = match (&args.second, &plan.second) {
            (Some(selected), Some(plan)) => source_params(site, SECOND, selected, plan)?,
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
        enough_shared(self.shared, self.most_shared)?;
        let grid = (plan.tokens, plan.heads.div_ceil(64));
        // SAFETY: the module's invariant.
        unsafe { site.launch(&self.function, grid, 256, self.shared, &params, NONE) }
    }
}

fn source_params<D: Device<Stream = Stream>>(
    site: Site<'_>,
    names: Names,
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
    Err(Error::SharedMemory { kernel: NAME, needed, most })
}

#[cfg(test)]
mod tests {
    use super::*;

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
