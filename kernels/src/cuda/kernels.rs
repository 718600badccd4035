//! All kernels of the CUDA device: loaded together, launched each in its own file.

use core::fmt;

use scratchpool::Device;
use scratchpool::cuda::{Cuda, Stream};

use super::attention::AttentionKernels;
use super::compressor::CompressorKernels;
use super::gather::GatherKernels;
use super::indexer_q::IndexerQKernels;
use super::indexer_topk::IndexerTopkKernels;
use super::module::Target;
use super::program::Program;
use super::q_insert::QInsertKernels;
use super::topk_map::TopkMapKernels;
use super::{attention, compressor, gather, indexer_q, indexer_topk, q_insert, topk_map};
use crate::error::Error;
use crate::ops::{self, Kernels};

/// All programs.
pub const PROGRAMS: [Program; 7] = [
    q_insert::PROGRAM,
    indexer_q::PROGRAM,
    topk_map::PROGRAM,
    compressor::PROGRAM,
    indexer_topk::PROGRAM,
    attention::PROGRAM,
    gather::PROGRAM,
];

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
    q_insert: QInsertKernels,
    indexer_q: IndexerQKernels,
    topk_map: TopkMapKernels,
    compressor: CompressorKernels,
    indexer_topk: IndexerTopkKernels,
    attention: AttentionKernels,
    gather: GatherKernels,
    processors: usize,
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
        let target = Target::of(cuda)?;
        Ok(Self {
            q_insert: QInsertKernels::load(&target.load(&q_insert::PROGRAM)?)?,
            indexer_q: IndexerQKernels::load(&target.load(&indexer_q::PROGRAM)?)?,
            topk_map: TopkMapKernels::load(&target.load(&topk_map::PROGRAM)?)?,
            compressor: CompressorKernels::load(&target.load(&compressor::PROGRAM)?)?,
            indexer_topk: IndexerTopkKernels::load(&target.load(&indexer_topk::PROGRAM)?)?,
            attention: AttentionKernels::load(&target.load(&attention::PROGRAM)?)?,
            gather: GatherKernels::load(&target.load(&gather::PROGRAM)?)?,
            processors: target.processors(),
        })
    }
}

impl<D: Device<Stream = Stream>> Kernels<D> for CudaKernels {
    fn q_insert(&self, stream: &Stream, args: ops::q_insert::QInsert<'_, D>) -> Result<(), Error> {
        self.q_insert.launch(stream, &args)
    }

    fn indexer_q(
        &self,
        stream: &Stream,
        args: ops::indexer_q::IndexerQ<'_, D>,
    ) -> Result<(), Error> {
        self.indexer_q.launch(stream, &args)
    }

    fn topk_map(&self, stream: &Stream, args: ops::topk_map::TopkMap<'_, D>) -> Result<(), Error> {
        self.topk_map.map(stream, &args)
    }

    fn combine_indices(
        &self,
        stream: &Stream,
        args: ops::topk_map::CombineIndices<'_, D>,
    ) -> Result<(), Error> {
        self.topk_map.combine(stream, &args)
    }

    fn gather(&self, stream: &Stream, args: ops::gather::Gather<'_, D>) -> Result<(), Error> {
        self.gather.launch(stream, &args)
    }

    fn save_state(
        &self,
        stream: &Stream,
        args: ops::compressor::SaveState<'_, D>,
    ) -> Result<(), Error> {
        self.compressor.save(stream, &args)
    }

    fn compress(
        &self,
        stream: &Stream,
        args: ops::compressor::Compress<'_, D>,
    ) -> Result<(), Error> {
        self.compressor.compress(stream, &args)
    }

    fn compress_pool(
        &self,
        stream: &Stream,
        args: ops::compressor::CompressPool<'_, D>,
    ) -> Result<(), Error> {
        self.compressor.pool(stream, &args)
    }

    fn compress_store(
        &self,
        stream: &Stream,
        args: ops::compressor::CompressStore<'_, D>,
    ) -> Result<(), Error> {
        self.compressor.store(stream, &args)
    }

    fn indexer_logits(
        &self,
        stream: &Stream,
        args: ops::indexer_topk::IndexerLogits<'_, D>,
    ) -> Result<(), Error> {
        self.indexer_topk.logits(stream, &args)
    }

    fn indexer_topk(
        &self,
        stream: &Stream,
        args: ops::indexer_topk::IndexerTopk<'_, D>,
    ) -> Result<(), Error> {
        self.indexer_topk.choose(stream, &args)
    }

    fn attention(
        &self,
        stream: &Stream,
        args: ops::attention::Attention<'_, D>,
    ) -> Result<(), Error> {
        self.attention.launch(stream, &args)
    }
}
