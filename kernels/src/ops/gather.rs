//! The gather of paged cache entries into the bf16 workspace that prefill's attention reads: arguments
//! and their check.
//!
//! ```text
//!  request b of the workspace, M rows:   | N compressed entries          | the window's entries        |
//!  gathered with rows, ratio, gather_lens  0..N, 4 or 128, None            N..M, 1, Some(gather_lens)
//! ```
//!
//! The two launches take the lengths that [`CombineIndices`] takes, from device memory, so that a
//! captured graph serves any lengths; and then the row that combined indices give for an entry is the
//! row that it was gathered to. [`View::flatten_rows`] makes the workspace one of
//! [`Entries::Rows`].
//!
//! Request `b` has `end = seq_lens[b] / ratio` entries, of which the last `gather_lens[b]`, or all, are
//! gathered: entry `end - gather_lens[b] + i` to row `rows.start + i`. Entry `e` is entry `e mod block_size`
//! of block `block_table[b, e / block_size]`.
//!
//! **Rounding**: none of a row that is bf16 already, nor of the 64 elements that a paged entry keeps in
//! bf16: they are copied bit for bit. The other 448 are E4M3 times their scale, in f32, rounded to bf16
//! once, to nearest and ties to even; a NaN among them, or of their scale, becomes `0x7fff`. So attention
//! sees the numbers that it reads from the cache itself.
//!
//! **What is out of range**: a length below 0 counts as 0. What has no row of `rows` is not
//! gathered. An entry that does not exist (before the first, behind the table's columns, or of a
//! block that is none of the cache's) becomes a row of +0, a key of score 0: never what another request
//! has left there. Every other row of the workspace stays as it is.
//!
//! [`CombineIndices`]: crate::ops::topk_map::CombineIndices
//! [`Entries::Rows`]: crate::ops::attention::Entries::Rows

use core::ops::Range;

use scratchpool::{Device, View, ViewMut, bf16};

use crate::error::{Check, Error, Wanted};
use crate::ops::q_insert::{CACHE, num, paged, whole};
use crate::reference::cache::{EntryFormat, HEAD_DIM, PagedLayout};

pub(crate) const NAME: &str = "gather";

/// The cache that entries are gathered from, as [`KvCache`](crate::ops::q_insert::KvCache) and the
/// compressors write it.
#[derive(Debug)]
pub enum KvCacheIn<'v, D: Device> {
    /// The paged FP8 layout, [`EntryFormat::Main`]: bytes `[blocks, stride]`.
    Paged {
        /// The cache.
        bytes: View<'v, u8, D, 2>,
        /// Entries in a block.
        block_size: usize,
    },
    /// Whole rows in bf16: `[blocks, block_size, 512]`.
    Rows(View<'v, bf16, D, 3>),
}

/// Arguments of the gather.
#[derive(Debug)]
pub struct Gather<'v, D: Device> {
    /// The cache.
    pub cache: KvCacheIn<'v, D>,
    /// Blocks of each request `[requests, columns]`.
    pub block_table: View<'v, i32, D, 2>,
    /// Lengths of the requests in tokens `[requests]`.
    pub seq_lens: View<'v, i32, D, 1>,
    /// How many entries of each, the last ones, are gathered `[requests]`; `None` gathers all.
    /// [`gather_len`] for the window.
    pub gather_lens: Option<View<'v, i32, D, 1>>,
    /// Tokens that one entry stands for: 1 for the window's.
    pub ratio: usize,
    /// The rows of every request that are written: `0..N` for compressed entries, `N..M` for the
    /// window's.
    pub rows: Range<usize>,
    /// The workspace `[>= requests, M, 512]`.
    pub out: ViewMut<'v, bf16, D, 3>,
}

/// How many of the window's entries prefill gathers: those of the query, and those before it that the
/// first of its tokens sees.
///
/// ```
/// use scratchpool_kernels::ops::gather::gather_len;
/// assert_eq!(gather_len(1000, 5000, 128), 1127);
/// assert_eq!(gather_len(1000, 3, 128), 1003);
/// ```
pub const fn gather_len(query_len: usize, prefix_len: usize, window: usize) -> usize {
    let before = window.saturating_sub(1);
    query_len.saturating_add(if prefix_len < before { prefix_len } else { before })
}

/// The numbers of a checked gather.
#[derive(Clone, Copy, Debug)]
pub struct GatherPlan {
    /// Requests.
    pub requests: usize,
    /// Columns of the table.
    pub columns: usize,
    /// The cache; the stride is in bytes, and whole rows are dense.
    pub layout: PagedLayout,
    /// Whether it is the paged FP8 cache.
    pub is_paged: bool,
    /// Tokens that one entry stands for.
    pub ratio: usize,
    /// Rows of a request in the workspace.
    pub workspace_rows: usize,
    /// The first of them that is written.
    pub first_row: usize,
    /// How many may be written.
    pub most_rows: usize,
}

impl<D: Device> Gather<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<GatherPlan, Error> {
        let check = Check(NAME);
        let [requests, columns] = self.block_table.shape();
        let each = Wanted::of("block_table", requests);
        check.shape("seq_lens", self.seq_lens.shape(), [each])?;
        if let Some(lens) = &self.gather_lens {
            check.shape("gather_lens", lens.shape(), [each])?;
        }
        let [spaces, workspace_rows, width] = self.out.shape();
        check.at_least("out", 0, spaces, requests)?;
        check.extent("out", 2, width, HEAD_DIM)?;
        let (layout, is_paged) = match &self.cache {
            KvCacheIn::Paged { bytes, block_size } => {
                (paged(check, CACHE, bytes.shape(), *block_size, EntryFormat::Main)?, true)
            }
            KvCacheIn::Rows(rows) => (whole(check, rows.shape(), 2)?, false),
        };
        check.positive("ratio", self.ratio)?;
        let Range { start, end } = self.rows;
        check.at_most("rows.end", end, Wanted::of("out", workspace_rows))?;
        check.value("rows.start", start <= end, num(start), "at most `rows.end`")?;
        check.counts(&[
            ("block_table", requests),
            ("block_table", columns),
            ("cache", layout.blocks.saturating_mul(layout.block_size)),
            ("ratio", self.ratio),
            ("out", workspace_rows.saturating_mul(requests)),
        ])?;
        Ok(GatherPlan {
            requests,
            columns,
            layout,
            is_paged,
            ratio: self.ratio,
            workspace_rows,
            first_row: start,
            most_rows: end - start,
        })
    }
}
