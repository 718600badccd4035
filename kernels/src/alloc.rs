//! Outputs for callers without a pool: allocated in the shapes that the kernels write.
//!
//! The launch is the same, so the bytes are too; only where they are differs.
//!
//! ```
//! use scratchpool::{Device, Host};
//! use scratchpool_kernels::alloc;
//! let host = Host::in_order();
//! let stream = host.create_stream("main")?;
//! let mut slots = alloc::Slots::new(&host, &stream, 3, 512)?;
//! let (indices, lens) = slots.out();               // as `TopkMap` takes them
//! assert_eq!((indices.shape(), lens.shape()), ([3, 512], [3]));
//! # Ok::<(), scratchpool::Error>(())
//! ```

use scratchpool::{Device, Error, Tensor, View, ViewMut, bf16, e8m0, f8e4m3};

use crate::ops::indexer_q::IndexQuery;
use crate::ops::indexer_topk::IndexQueryIn;
use crate::reference::cache::{HEAD_DIM, INDEX_DIM, MXFP4_BLOCK};

/// Queries `[tokens, padded_heads, 512]`, for [`Query::Out`](crate::ops::q_insert::Query::Out).
///
/// # Errors
///
/// What allocating gives.
pub fn queries<'s, D: Device>(
    device: &D,
    stream: &'s D::Stream,
    tokens: usize,
    padded_heads: usize,
) -> Result<Tensor<'s, bf16, D, 3>, Error> {
    Tensor::new(device, stream, [tokens, padded_heads, HEAD_DIM])
}

/// Quantised queries `[tokens, padded_heads, 512]`, for
/// [`Query::Fp8`](crate::ops::q_insert::Query::Fp8).
///
/// # Errors
///
/// What allocating gives.
pub fn queries_fp8<'s, D: Device>(
    device: &D,
    stream: &'s D::Stream,
    tokens: usize,
    padded_heads: usize,
) -> Result<Tensor<'s, f8e4m3, D, 3>, Error> {
    Tensor::new(device, stream, [tokens, padded_heads, HEAD_DIM])
}

/// Logits `[tokens, columns]`, for
/// [`IndexerLogits`](crate::ops::indexer_topk::IndexerLogits).
///
/// # Errors
///
/// What allocating gives.
pub fn logits<'s, D: Device>(
    device: &D,
    stream: &'s D::Stream,
    tokens: usize,
    columns: usize,
) -> Result<Tensor<'s, f32, D, 2>, Error> {
    Tensor::new(device, stream, [tokens, columns])
}

/// Chosen columns `[tokens, topk]`, for [`IndexerTopk`](crate::ops::indexer_topk::IndexerTopk).
///
/// # Errors
///
/// What allocating gives.
pub fn choice<'s, D: Device>(
    device: &D,
    stream: &'s D::Stream,
    tokens: usize,
    topk: usize,
) -> Result<Tensor<'s, i32, D, 2>, Error> {
    Tensor::new(device, stream, [tokens, topk])
}

/// Attention's output `[tokens, padded_heads, 512]`, for
/// [`Attention`](crate::ops::attention::Attention).
///
/// # Errors
///
/// What allocating gives.
pub fn attended<'s, D: Device>(
    device: &D,
    stream: &'s D::Stream,
    tokens: usize,
    padded_heads: usize,
) -> Result<Tensor<'s, bf16, D, 3>, Error> {
    Tensor::new(device, stream, [tokens, padded_heads, HEAD_DIM])
}

/// The workspace of prefill `[requests, rows, 512]`, for [`Gather`](crate::ops::gather::Gather).
///
/// # Errors
///
/// What allocating gives.
pub fn workspace<'s, D: Device>(
    device: &D,
    stream: &'s D::Stream,
    requests: usize,
    rows: usize,
) -> Result<Tensor<'s, bf16, D, 3>, Error> {
    Tensor::new(device, stream, [requests, rows, HEAD_DIM])
}

/// Pooled vectors `[tokens, 512]`, for
/// [`CompressPool`](crate::ops::compressor::CompressPool).
///
/// # Errors
///
/// What allocating gives.
pub fn compress_scratch<'s, D: Device>(
    device: &D,
    stream: &'s D::Stream,
    tokens: usize,
) -> Result<Tensor<'s, f32, D, 2>, Error> {
    Tensor::new(device, stream, [tokens, HEAD_DIM])
}

/// Slots and lengths, for the maps.
#[derive(Debug)]
pub struct Slots<'s, D: Device> {
    /// Slots `[tokens, width]`.
    pub indices: Tensor<'s, i32, D, 2>,
    /// Lengths `[tokens]`.
    pub lens: Tensor<'s, i32, D, 1>,
}

impl<'s, D: Device> Slots<'s, D> {
    /// Allocates both.
    ///
    /// # Errors
    ///
    /// What allocating gives.
    pub fn new(
        device: &D,
        stream: &'s D::Stream,
        tokens: usize,
        width: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            indices: Tensor::new(device, stream, [tokens, width])?,
            lens: Tensor::new(device, stream, [tokens])?,
        })
    }

    /// As outputs.
    pub fn out(&mut self) -> (ViewMut<'_, i32, D, 2>, ViewMut<'_, i32, D, 1>) {
        (self.indices.view_mut(), self.lens.view_mut())
    }
}

/// The values of index queries, in one of the two formats.
#[derive(Debug)]
enum Values<'s, D: Device> {
    Fp8(Tensor<'s, f8e4m3, D, 3>),
    Mxfp4(Tensor<'s, u8, D, 3>, Tensor<'s, e8m0, D, 3>),
}

/// Quantised index queries, for [`IndexerQ`](crate::ops::indexer_q::IndexerQ), and from there for
/// the logits.
#[derive(Debug)]
pub struct IndexQueries<'s, D: Device> {
    values: Values<'s, D>,
    weights: Tensor<'s, f32, D, 2>,
}

impl<'s, D: Device> IndexQueries<'s, D> {
    /// Allocates FP8 queries.
    ///
    /// # Errors
    ///
    /// What allocating gives.
    pub fn fp8(
        device: &D,
        stream: &'s D::Stream,
        tokens: usize,
        heads: usize,
    ) -> Result<Self, Error> {
        let values = Values::Fp8(Tensor::new(device, stream, [tokens, heads, INDEX_DIM])?);
        Ok(Self { values, weights: Tensor::new(device, stream, [tokens, heads])? })
    }

    /// Allocates MXFP4 queries.
    ///
    /// # Errors
    ///
    /// What allocating gives.
    pub fn mxfp4(
        device: &D,
        stream: &'s D::Stream,
        tokens: usize,
        heads: usize,
    ) -> Result<Self, Error> {
        let codes = Tensor::new(device, stream, [tokens, heads, INDEX_DIM / 2])?;
        let scales = Tensor::new(device, stream, [tokens, heads, INDEX_DIM / MXFP4_BLOCK])?;
        let values = Values::Mxfp4(codes, scales);
        Ok(Self { values, weights: Tensor::new(device, stream, [tokens, heads])? })
    }

    /// As outputs.
    pub fn out(&mut self) -> IndexQuery<'_, D> {
        let weights = self.weights.view_mut();
        match &mut self.values {
            Values::Fp8(values) => IndexQuery::Fp8 { values: values.view_mut(), weights },
            Values::Mxfp4(values, scales) => {
                let (values, scales) = (values.view_mut(), scales.view_mut());
                IndexQuery::Mxfp4 { values, scales, weights }
            }
        }
    }

    /// The queries and their weights, as the logits take them.
    pub fn view(&self) -> (IndexQueryIn<'_, D>, View<'_, f32, D, 2>) {
        let queries = match &self.values {
            Values::Fp8(values) => IndexQueryIn::Fp8 { values: values.view() },
            Values::Mxfp4(values, scales) => {
                IndexQueryIn::Mxfp4 { values: values.view(), scales: scales.view() }
            }
        };
        (queries, self.weights.view())
    }
}
