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
//!
//! # Replaying with fewer rows
//!
//! A captured launch keeps the shapes of its arguments, so a replay does all rows that were captured,
//! whatever number [`Graph::replay`](scratchpool::cuda::Graph::replay) is given. Rows that a batch does
//! not have are *padding*: inputs that make a kernel write nothing but the row's own scratch. Write
//! them before the replay ([`Constant::replace`](scratchpool::Constant::replace)):
//!
//! | kernel | what a row of padding holds | what it writes then |
//! | --- | --- | --- |
//! | [`q_insert`] | `slots` -1 | queries of its own row; no cache |
//! | [`indexer_q`] | anything | its own row |
//! | [`save_state`](compressor::SaveState) | `slots` -1 | nothing |
//! | [`compress`](compressor::Compress), [`compress_pool`](compressor::CompressPool) | `states.slots` -1 | nothing |
//! | [`compress_store`](compressor::CompressStore) | `state_slots` -1 | nothing |
//! | [`indexer_logits`](indexer_topk::IndexerLogits) | `positions` -1 | negative infinity in its own row |
//! | [`indexer_topk`](indexer_topk::IndexerTopk) | such a row | -1 in its own row |
//! | [`topk_map`](topk_map::TopkMap) | `valid` false | length 0, and slots that nobody reads |
//! | [`combine_indices`](topk_map::CombineIndices) | `positions` -1 | length 0, and -1 in its own row |
//! | [`gather`] | `seq_lens` 0, of a request | nothing in that request's rows |
//! | [`attention`] | `lens` 0, in both sources | zeros in its own row |
//!
//! So: position -1, every slot -1, `valid` false, the window's length 0, and anything elsewhere. A
//! position of -1 has no row in the table of cosines, so queries of padding are NaN; without entries to
//! attend to they do not show. Such a row costs what a real one costs in all that does not depend on
//! entries; capture a graph for each of a few numbers of rows where that is too much.

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
/// use scratchpool::{Device, Host, Tensor};
/// use scratchpool_kernels::ops::indexer_topk::IndexerTopk;
/// use scratchpool_kernels::{HostKernels, Kernels, alloc};
///
/// let host = Host::in_order();
/// let stream = host.create_stream("main")?;
/// let logits = Tensor::from_values(&host, &stream, [1, 4], &[0.5, 3.0, f32::NEG_INFINITY, 2.0])?;
/// let mut chosen = alloc::choice(&host, &stream, 1, 2)?;      // or a step's view
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
