//! What can be launched: the arguments of each kernel, checked before anything is launched.
//!
//! | kernel | arguments | writes |
//! | --- | --- | --- |
//! | query norm, RoPE, KV insertion | [`q_insert::QInsert`] | queries, cache |
//! | indexer's queries | [`indexer_q::IndexerQ`] | values, scales, weights |
//! | global top-k map | [`topk_map::TopkMap`] | slots, lengths |
//! | combined indices of prefill | [`topk_map::CombineIndices`] | workspace rows, lengths |
//! | gather of prefill | [`gather::Gather`] | workspace |
//! | save partial states | [`compressor::SaveState`] | state cache |
//! | C4 compressor | [`compressor::Compress`] | cache |
//! | C128 compressor, two stages | [`compressor::CompressPool`], [`compressor::CompressStore`] | scratch; cache |
//! | indexer's logits and choice | [`indexer_topk::IndexerLogits`], [`indexer_topk::IndexerTopk`] | logits; columns |
//! | sparse attention | [`attention::Attention`] | output |
//!
//! Each has a `check`, which gives the numbers of the launch or names the argument that does not
//! fit. What is *in* the arguments (slots, positions, indices) is not known when launching; kernels
//! treat what is out of range as the argument's documentation says, and never touch memory outside
//! the arguments.

pub mod attention;
pub mod compressor;
pub mod gather;
pub mod indexer_q;
pub mod indexer_topk;
pub mod q_insert;
pub mod topk_map;

use scratchpool::Device;

use crate::error::Error;

/// Kernels of a device. The same model code runs on any that has them.
///
/// Launches return when the work is queued on `stream`, which is the stream of all arguments.
///
/// ```
/// use scratchpool::{Device, Host};
/// use scratchpool_kernels::ops::indexer_topk::IndexerTopk;
/// use scratchpool_kernels::{HostKernels, Kernels, Tensor, alloc};
///
/// let host = Host::in_order();
/// let stream = host.create_stream("main")?;
/// let logits = Tensor::from_values(&host, &stream, [1, 4], &[0.5, 3.0, f32::NEG_INFINITY, 2.0])?;
/// let mut chosen = alloc::choice(&host, &stream, 1, 2)?;      // or a pool's view: `view.into()`
/// let args = IndexerTopk { logits: logits.view(), indices: chosen.view_mut() };
/// HostKernels.indexer_topk(&stream, args)?;
/// assert_eq!(chosen.to_vec()?, [1, 3]);
///
/// let few = Tensor::from_values(&host, &stream, [2, 4], &[0.0; 8])?;
/// let args = IndexerTopk { logits: few.view(), indices: chosen.view_mut() };
/// let refused = HostKernels.indexer_topk(&stream, args).unwrap_err();
/// assert_eq!(refused.to_string(), "indexer_topk: axis 0 of `indices` is 1; expected 2, as `logits` has");
/// # Ok::<(), scratchpool_kernels::Error>(())
/// ```
///
/// # Errors
///
/// Every method gives what the arguments' `check` gives, and what the device refuses.
#[expect(clippy::missing_errors_doc, reason = "the trait's documentation says it for all")]
pub trait Kernels<D: Device> {
    /// Query norm, RoPE and KV insertion.
    fn q_insert(&self, stream: &D::Stream, args: q_insert::QInsert<'_, D>) -> Result<(), Error>;

    /// RoPE and quantisation of the indexer's queries.
    fn indexer_q(&self, stream: &D::Stream, args: indexer_q::IndexerQ<'_, D>) -> Result<(), Error>;

    /// The global top-k map.
    fn topk_map(&self, stream: &D::Stream, args: topk_map::TopkMap<'_, D>) -> Result<(), Error>;

    /// The combined indices of prefill.
    fn combine_indices(
        &self,
        stream: &D::Stream,
        args: topk_map::CombineIndices<'_, D>,
    ) -> Result<(), Error>;

    /// The gather of prefill.
    fn gather(&self, stream: &D::Stream, args: gather::Gather<'_, D>) -> Result<(), Error>;

    /// Saves partial states of a compressor.
    fn save_state(
        &self,
        stream: &D::Stream,
        args: compressor::SaveState<'_, D>,
    ) -> Result<(), Error>;

    /// The C4 compressor, in one pass.
    fn compress(&self, stream: &D::Stream, args: compressor::Compress<'_, D>) -> Result<(), Error>;

    /// The C128 compressor's first stage.
    fn compress_pool(
        &self,
        stream: &D::Stream,
        args: compressor::CompressPool<'_, D>,
    ) -> Result<(), Error>;

    /// The C128 compressor's second stage.
    fn compress_store(
        &self,
        stream: &D::Stream,
        args: compressor::CompressStore<'_, D>,
    ) -> Result<(), Error>;

    /// The indexer's logits.
    fn indexer_logits(
        &self,
        stream: &D::Stream,
        args: indexer_topk::IndexerLogits<'_, D>,
    ) -> Result<(), Error>;

    /// The choice of the largest logits.
    fn indexer_topk(
        &self,
        stream: &D::Stream,
        args: indexer_topk::IndexerTopk<'_, D>,
    ) -> Result<(), Error>;

    /// Sparse attention.
    fn attention(&self, stream: &D::Stream, args: attention::Attention<'_, D>)
    -> Result<(), Error>;
}
