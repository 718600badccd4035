//! From the indexer's local choices to cache slots: the global map, and the combined indices that
//! prefill uses. Arguments and their check.

use scratchpool::{Device, View, ViewMut, bool8};

use crate::error::{Check, Error, Wanted};
use crate::ops::q_insert::num;

pub(crate) const MAP: &str = "topk_map";
pub(crate) const COMBINE: &str = "combine_indices";

/// Where the entries of a row go that are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Each in its own column, -1 in the others.
    #[default]
    InPlace,
    /// To the left, in their order, -1 behind: the first `len` columns are the valid ones, also
    /// where invalid ones stood between them.
    PackedLeft,
}

/// Arguments of the global top-k map.
///
/// For token `t`, request `r = token_to_req[t]`, local index `l = topk[t, j]`: the slot is
/// `block_table[r, l / block_size] * block_size + l mod block_size`. It is -1 where `l` is negative,
/// `r` no row of the table, `l / block_size` not below `columns`, the table's entry negative, or
/// the slot beyond i32. The length counts the slots that are not -1; of an invalid token it is 0,
/// and its slots are mapped all the same.
#[derive(Debug)]
pub struct TopkMap<'v, D: Device> {
    /// Local indices `[T, topk]`.
    pub topk: View<'v, i32, D, 2>,
    /// Requests `[T]`.
    pub token_to_req: View<'v, i32, D, 1>,
    /// Blocks of each request `[requests, >= columns]`.
    pub block_table: View<'v, i32, D, 2>,
    /// Columns of the table that mean something.
    pub columns: usize,
    /// Which tokens are valid `[T]`.
    pub valid: View<'v, bool8, D, 1>,
    /// Entries in a block: tokens of a page divided by the compression ratio.
    pub block_size: usize,
    /// Where valid slots go.
    pub placement: Placement,
    /// Slots `[T, topk]`.
    pub indices: ViewMut<'v, i32, D, 2>,
    /// Lengths `[T]`.
    pub lens: ViewMut<'v, i32, D, 1>,
}

/// The numbers of a checked map.
#[derive(Clone, Copy, Debug)]
pub struct TopkMapPlan {
    /// Tokens.
    pub tokens: usize,
    /// Columns of a row.
    pub topk: usize,
    /// Rows of the table.
    pub requests: usize,
    /// Elements from one row of the table to the next.
    pub table_stride: usize,
    /// Columns of the table that mean something.
    pub columns: usize,
    /// Entries in a block.
    pub block_size: usize,
    /// Where valid slots go.
    pub placement: Placement,
}

impl<D: Device> TopkMap<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<TopkMapPlan, Error> {
        let check = Check(MAP);
        let [tokens, topk] = self.topk.shape();
        let [rows, each] = [tokens, topk].map(|count| Wanted::of("topk", count));
        check.shape("token_to_req", self.token_to_req.shape(), [rows])?;
        check.shape("valid", self.valid.shape(), [rows])?;
        check.shape("indices", self.indices.shape(), [rows, each])?;
        check.shape("lens", self.lens.shape(), [rows])?;
        let [requests, table_stride] = self.block_table.shape();
        check.at_least("block_table", 1, table_stride, self.columns)?;
        check.positive("block_size", self.block_size)?;
        check.counts(&[
            ("topk", tokens),
            ("topk", topk),
            ("block_table", requests),
            ("block_table", table_stride),
            ("block_size", self.block_size),
        ])?;
        let Self { columns, block_size, placement, .. } = *self;
        Ok(TopkMapPlan { tokens, topk, requests, table_stride, columns, block_size, placement })
    }
}

/// Arguments of the combined indices of prefill over a gathered workspace.
///
/// The workspace gives each request `b` of the chunk `workspace_rows` rows: first
/// `compressed_rows` compressed entries, then the window's rows from position
/// `seq_lens[b] - gather_lens[b]` on, as [`Gather`](crate::ops::gather::Gather) fills it. For the query at position `p` the row lists
/// `n1 = min((p + 1) / ratio, topk)` compressed entries, then `n2 = min(p + 1, window)` window rows
/// of positions `p - n2 + 1 ..= p`; its length is `n1 + n2`. What lies behind the length is -1, and
/// so is an entry that is not in its part of the workspace. A token whose request is no row of
/// `seq_lens`, or whose position is negative, has length 0.
#[derive(Debug)]
pub struct CombineIndices<'v, D: Device> {
    /// Local indices `[T, topk]`; `None` takes all finished entries, `0..n1`.
    pub topk: Option<View<'v, i32, D, 2>>,
    /// How many compressed entries at most; with `topk`, its width.
    pub most: usize,
    /// Requests of the chunk `[T]`.
    pub token_to_req: View<'v, i32, D, 1>,
    /// Positions `[T]`.
    pub positions: View<'v, i64, D, 1>,
    /// Lengths of the requests `[requests]`.
    pub seq_lens: View<'v, i32, D, 1>,
    /// How many rows of each were gathered `[requests]`.
    pub gather_lens: View<'v, i32, D, 1>,
    /// Tokens that one compressed entry stands for; at least 1.
    pub ratio: usize,
    /// The sliding window.
    pub window: usize,
    /// Rows of a request.
    pub workspace_rows: usize,
    /// Compressed rows of a request.
    pub compressed_rows: usize,
    /// Rows of the workspace `[T, >= most + window]`; [`combined_width`] in the model.
    pub indices: ViewMut<'v, i32, D, 2>,
    /// Lengths `[T]`.
    pub lens: ViewMut<'v, i32, D, 1>,
}

/// The width of combined rows: `topk + window`, up to a multiple of 128.
///
/// ```
/// assert_eq!(scratchpool_kernels::ops::topk_map::combined_width(512, 128), 640);
/// assert_eq!(scratchpool_kernels::ops::topk_map::combined_width(500, 128), 640);
/// ```
pub const fn combined_width(topk: usize, window: usize) -> usize {
    topk.saturating_add(window).div_ceil(128).saturating_mul(128)
}

/// The numbers of checked combined indices.
#[derive(Clone, Copy, Debug)]
pub struct CombinePlan {
    /// Tokens.
    pub tokens: usize,
    /// Requests of the chunk.
    pub requests: usize,
    /// How many compressed entries at most.
    pub most: usize,
    /// Columns of a row.
    pub width: usize,
    /// Tokens that one compressed entry stands for.
    pub ratio: usize,
    /// The sliding window.
    pub window: usize,
    /// Rows of a request.
    pub workspace_rows: usize,
    /// Compressed rows of a request.
    pub compressed_rows: usize,
}

impl<D: Device> CombineIndices<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<CombinePlan, Error> {
        let check = Check(COMBINE);
        let [tokens] = self.positions.shape();
        let rows = Wanted::of("positions", tokens);
        let Self { most, ratio, window, workspace_rows, compressed_rows, .. } = *self;
        if let Some(topk) = &self.topk {
            check.shape("topk", topk.shape(), [rows, Wanted::of("most", most)])?;
        }
        check.shape("token_to_req", self.token_to_req.shape(), [rows])?;
        let [requests] = self.seq_lens.shape();
        check.shape("gather_lens", self.gather_lens.shape(), [Wanted::of("seq_lens", requests)])?;
        let [_, width] = self.indices.shape();
        check.shape("indices", self.indices.shape(), [rows, width.into()])?;
        check.at_least("indices", 1, width, most.saturating_add(window))?;
        check.shape("lens", self.lens.shape(), [rows])?;
        check.positive("ratio", ratio)?;
        let fits = compressed_rows <= workspace_rows;
        check.value("compressed_rows", fits, num(compressed_rows), "at most `workspace_rows`")?;
        check.counts(&[
            ("positions", tokens),
            ("indices", width),
            ("ratio", ratio),
            ("workspace_rows", workspace_rows.saturating_mul(requests)),
        ])?;
        Ok(CombinePlan {
            tokens,
            requests,
            most,
            width,
            ratio,
            window,
            workspace_rows,
            compressed_rows,
        })
    }
}
