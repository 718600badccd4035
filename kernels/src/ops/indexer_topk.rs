//! The indexer's logits and the choice of the largest: arguments and their check.
//!
//! Candidates of a token at position `p` are the finished entries `j < (p + 1) / ratio` of its
//! request. `logit[t, j] = sum_h weights[t, h] * max(0, q[t, h] . k[j]) * kscale[j]`, in f32.
//!
//! **Tolerance**: a device's sums are f32, in any order: within 2^-18 of the sum of the magnitudes of
//! all terms, `sum_h |weights[t, h]| * (|q[t, h]| . |k[j]|) * |kscale[j]|`, of the real number, wherever
//! that sum is finite in f32. Elements of MXFP4 below 2^-126 may count as 0, and so may
//! products, also beside an infinity.
//!
//! **What is not finite**: a NaN in a candidate's key or scale, or in any query, scale or weight of the
//! token, gives NaN, also beside a weight of 0; a product of 0 and infinity does too. Otherwise an
//! infinite weight or key scale gives an infinity of its sign; where what it multiplies is within the
//! tolerance of 0, that may count as 0 or have the other sign. NaN is a logit that the choice never takes.

use scratchpool::{Device, View, ViewMut, e8m0, f8e4m3};

use crate::error::{Check, Error, Wanted};
use crate::ops::q_insert::{CACHE, paged};
use crate::reference::cache::{EntryFormat, INDEX_DIM, MXFP4_BLOCK, PagedLayout};

pub(crate) const LOGITS: &str = "indexer_logits";
pub(crate) const TOPK: &str = "indexer_topk";

/// The most index heads that the logits are computed for.
pub const MOST_HEADS: usize = 64;

/// The quantised queries, as the indexer's query kernel wrote them; keys have the same format.
#[derive(Debug)]
pub enum IndexQueryIn<'v, D: Device> {
    /// E4M3 values; keys with one f32 scale an entry.
    Fp8 {
        /// Values `[T, H, 128]`.
        values: View<'v, f8e4m3, D, 3>,
    },
    /// MXFP4, queries and keys.
    Mxfp4 {
        /// Codes `[T, H, 64]`.
        values: View<'v, u8, D, 3>,
        /// Scales `[T, H, 4]`.
        scales: View<'v, e8m0, D, 3>,
    },
}

/// Arguments of the logits.
#[derive(Debug)]
pub struct IndexerLogits<'v, D: Device> {
    /// Queries.
    pub q: IndexQueryIn<'v, D>,
    /// Weights `[T, H]`, with whatever is folded into them; at most [`MOST_HEADS`] heads.
    pub weights: View<'v, f32, D, 2>,
    /// Keys: bytes `[blocks, stride]`, in the indexer's format.
    pub cache: View<'v, u8, D, 2>,
    /// Entries in a block.
    pub block_size: usize,
    /// Blocks of each request `[requests, columns]`.
    pub block_table: View<'v, i32, D, 2>,
    /// Requests `[T]`.
    pub token_to_req: View<'v, i32, D, 1>,
    /// Positions `[T]`.
    pub positions: View<'v, i64, D, 1>,
    /// Tokens that one entry stands for.
    pub ratio: usize,
    /// Logits `[T, C]`: candidates from `C` on are not considered. What is no candidate, or has no
    /// block, is negative infinity.
    pub logits: ViewMut<'v, f32, D, 2>,
}

/// The numbers of checked logits.
#[derive(Clone, Copy, Debug)]
pub struct LogitsPlan {
    /// Tokens.
    pub tokens: usize,
    /// Index heads.
    pub heads: usize,
    /// Columns of the logits.
    pub columns: usize,
    /// The keys.
    pub layout: PagedLayout,
    /// Rows of the table.
    pub requests: usize,
    /// Columns of the table.
    pub table_columns: usize,
    /// Tokens that one entry stands for.
    pub ratio: usize,
}

impl<D: Device> IndexerLogits<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<LogitsPlan, Error> {
        let check = Check(LOGITS);
        let [tokens, heads] = self.weights.shape();
        let [rows, each] = [tokens, heads].map(|count| Wanted::of("weights", count));
        let format = match &self.q {
            IndexQueryIn::Fp8 { values } => {
                check.shape("q.values", values.shape(), [rows, each, INDEX_DIM.into()])?;
                EntryFormat::IndexFp8
            }
            IndexQueryIn::Mxfp4 { values, scales } => {
                check.shape("q.values", values.shape(), [rows, each, (INDEX_DIM / 2).into()])?;
                check.shape(
                    "q.scales",
                    scales.shape(),
                    [rows, each, (INDEX_DIM / MXFP4_BLOCK).into()],
                )?;
                EntryFormat::IndexMxfp4
            }
        };
        check.shape("token_to_req", self.token_to_req.shape(), [rows])?;
        check.shape("positions", self.positions.shape(), [rows])?;
        let layout = paged(check, CACHE, self.cache.shape(), self.block_size, format)?;
        let [requests, table_columns] = self.block_table.shape();
        let [_, columns] = self.logits.shape();
        check.shape("logits", self.logits.shape(), [rows, columns.into()])?;
        check.positive("ratio", self.ratio)?;
        check.at_most("weights", heads, MOST_HEADS)?;
        check.counts(&[
            ("weights", tokens),
            ("logits", columns),
            ("block_table", requests),
            ("block_table", table_columns),
            ("ratio", self.ratio),
        ])?;
        let ratio = self.ratio;
        Ok(LogitsPlan { tokens, heads, columns, layout, requests, table_columns, ratio })
    }
}

/// Arguments of the choice: of each row, the columns with the largest logits, in ascending order, -1
/// behind them. Of equal logits at the cut the lower columns are chosen; both zeros are equal.
/// Negative infinity and NaN are never chosen; where at most `topk` columns are left, all of them are.
/// The same logits give the same choice, whatever the device.
#[derive(Debug)]
pub struct IndexerTopk<'v, D: Device> {
    /// Logits `[T, C]`.
    pub logits: View<'v, f32, D, 2>,
    /// Chosen columns `[T, topk]`.
    pub indices: ViewMut<'v, i32, D, 2>,
}

/// The numbers of a checked choice.
#[derive(Clone, Copy, Debug)]
pub struct TopkPlan {
    /// Tokens.
    pub tokens: usize,
    /// Columns of the logits.
    pub columns: usize,
    /// Columns chosen.
    pub topk: usize,
}

impl<D: Device> IndexerTopk<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<TopkPlan, Error> {
        let check = Check(TOPK);
        let [tokens, columns] = self.logits.shape();
        let [_, topk] = self.indices.shape();
        let rows = Wanted::of("logits", tokens);
        check.shape("indices", self.indices.shape(), [rows, topk.into()])?;
        check.counts(&[("logits", tokens), ("logits", columns), ("indices", topk)])?;
        Ok(TopkPlan { tokens, columns, topk })
    }
}
