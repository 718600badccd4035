//! RoPE and quantisation of the indexer's queries: arguments and their check.
//!
//! See [`reference::indexer_q`](crate::reference::indexer_q) for the arithmetic. The format is what
//! [`IndexQuery`] says, and nothing is implied by which buffers were passed.

use scratchpool::{Device, View, ViewMut, bf16, e8m0, f8e4m3};

use crate::error::{Check, Error, Wanted};
use crate::reference::cache::{INDEX_DIM, MXFP4_BLOCK};
use crate::reference::rope::ROPE_DIM;

pub(crate) const NAME: &str = "indexer_q";

/// An input that may be f32 or bf16; bf16 is widened.
#[derive(Debug)]
pub enum Wide<'v, D: Device> {
    /// As it is.
    F32(View<'v, f32, D, 2>),
    /// To be widened.
    Bf16(View<'v, bf16, D, 2>),
}

impl<D: Device> Wide<'_, D> {
    pub(crate) const fn shape(&self) -> [usize; 2] {
        match self {
            Self::F32(wide) => wide.shape(),
            Self::Bf16(narrow) => narrow.shape(),
        }
    }
}

/// The quantised queries, in the pool's shapes.
#[derive(Debug)]
pub enum IndexQuery<'v, D: Device> {
    /// E4M3 values; the scale of a head is folded into its weight.
    Fp8 {
        /// Values `[T, H, 128]`.
        values: ViewMut<'v, f8e4m3, D, 3>,
        /// Weights `[T, H]`: `w * scale * softmax_scale * head_scale`.
        weights: ViewMut<'v, f32, D, 2>,
    },
    /// Pairs of E2M1 with an E8M0 scale for each 32.
    Mxfp4 {
        /// Codes `[T, H, 64]`, the even element low.
        values: ViewMut<'v, u8, D, 3>,
        /// Scales `[T, H, 4]`; as a little-endian i32 `[T, H]`, block 0 is the low byte.
        scales: ViewMut<'v, e8m0, D, 3>,
        /// Weights `[T, H]`: `w * softmax_scale * head_scale`.
        weights: ViewMut<'v, f32, D, 2>,
    },
}

/// Arguments of the indexer's query kernel.
#[derive(Debug)]
pub struct IndexerQ<'v, D: Device> {
    /// Queries `[T, H, 128]`, after their projection.
    pub q: View<'v, bf16, D, 3>,
    /// Positions `[T]`: rows of `rope`. One without a row gives NaN.
    pub positions: View<'v, i64, D, 1>,
    /// Cosines and sines `[max_pos, 64]`: a row is 32 of each, as
    /// [`reference::rope`](crate::reference::rope) lays them out.
    pub rope: Wide<'v, D>,
    /// Weights of the heads `[T, H]`.
    pub weights: Wide<'v, D>,
    /// `128^-0.5` in the model.
    pub softmax_scale: f32,
    /// `H^-0.5` in the model.
    pub head_scale: f32,
    /// The format and the buffers.
    pub out: IndexQuery<'v, D>,
}

/// The numbers of a checked launch.
#[derive(Clone, Copy, Debug)]
pub struct IndexerQPlan {
    /// Tokens.
    pub tokens: usize,
    /// Index heads.
    pub heads: usize,
    /// Rows of the table.
    pub max_pos: usize,
    /// `128^-0.5` in the model.
    pub softmax_scale: f32,
    /// `H^-0.5` in the model.
    pub head_scale: f32,
}

impl<D: Device> IndexerQ<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<IndexerQPlan, Error> {
        let check = Check(NAME);
        let [tokens, heads, width] = self.q.shape();
        let [rows, each] = [tokens, heads].map(|count| Wanted::of("q", count));
        check.extent("q", 2, width, INDEX_DIM)?;
        check.shape("positions", self.positions.shape(), [rows])?;
        let [max_pos, columns] = self.rope.shape();
        check.extent("rope", 1, columns, ROPE_DIM)?;
        check.shape("weights", self.weights.shape(), [rows, each])?;
        let weights = match &self.out {
            IndexQuery::Fp8 { values, weights } => {
                check.shape("out.values", values.shape(), [rows, each, INDEX_DIM.into()])?;
                weights
            }
            IndexQuery::Mxfp4 { values, scales, weights } => {
                check.shape("out.values", values.shape(), [rows, each, (INDEX_DIM / 2).into()])?;
                check.shape(
                    "out.scales",
                    scales.shape(),
                    [rows, each, (INDEX_DIM / MXFP4_BLOCK).into()],
                )?;
                weights
            }
        };
        check.shape("out.weights", weights.shape(), [rows, each])?;
        let Self { softmax_scale, head_scale, .. } = *self;
        check.above_zero("softmax_scale", softmax_scale)?;
        check.above_zero("head_scale", head_scale)?;
        check.counts(&[("q", tokens.saturating_mul(heads)), ("rope", max_pos)])?;
        Ok(IndexerQPlan { tokens, heads, max_pos, softmax_scale, head_scale })
    }
}
