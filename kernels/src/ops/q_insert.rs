//! Query norm, RoPE and insertion of the new KV rows: arguments and their check.
//!
//! For each of `T` tokens: its `H` query heads are normed (without weight), rotated and written to
//! `H_pad` heads, the padding heads as +0; its KV row, normed upstream or here with a weight, is
//! rotated and written to the cache at its slot. See
//! [`reference::q_insert`](crate::reference::q_insert) for the arithmetic.
//!
//! **Tolerance**: none between devices. Of the real numbers, queries in bf16 are within 1.01 times half
//! a last place, which is 2^-8 of a value. **What is not finite** follows the table of
//! [`formats`](crate::formats); where the norm is on, a NaN makes its whole head NaN; an infinity
//! becomes NaN, and what is finite beside it 0.

use scratchpool::{Device, View, ViewMut, bf16, f8e4m3};

use crate::error::{Check, Error, Wanted};
use crate::reference::cache::{EntryFormat, HEAD_DIM, PagedLayout};
use crate::reference::rope::ROPE_DIM;

pub(crate) const NAME: &str = "q_insert";

/// Where queries come from and go to. Heads are `[T, heads, 512]`.
#[derive(Debug)]
pub enum Query<'v, D: Device> {
    /// From `H` heads to `H_pad >= H` heads elsewhere; the rest becomes +0.
    Out {
        /// Queries `[T, H, 512]`.
        from: View<'v, bf16, D, 3>,
        /// Normed and rotated queries `[T, H_pad, 512]`, such as the pool's.
        to: ViewMut<'v, bf16, D, 3>,
    },
    /// Over themselves: as many heads as there are.
    InPlace(ViewMut<'v, bf16, D, 3>),
    /// To E4M3 with one scale for the whole tensor: `e4m3(q * (1 / scale))`, rounded once.
    Fp8 {
        /// Queries `[T, H, 512]`.
        from: View<'v, bf16, D, 3>,
        /// Quantised queries `[T, H_pad, 512]`.
        to: ViewMut<'v, f8e4m3, D, 3>,
        /// The value of code 1.0.
        scale: f32,
    },
}

/// The cache that KV rows are inserted into. Slot `s` is row `s mod block_size` of block
/// `s / block_size`.
#[derive(Debug)]
pub enum KvCache<'v, D: Device> {
    /// The paged FP8 layout, [`EntryFormat::Main`]: bytes `[blocks, stride]`.
    Paged {
        /// The cache.
        bytes: ViewMut<'v, u8, D, 2>,
        /// Entries in a block.
        block_size: usize,
    },
    /// Whole rows in bf16: `[blocks, block_size, 512]`.
    Rows(ViewMut<'v, bf16, D, 3>),
    /// Whole rows in E4M3 with one scale: `[blocks, block_size, 512]`, each
    /// `e4m3(bf16(x) * (1 / scale))`.
    Fp8 {
        /// The cache.
        rows: ViewMut<'v, f8e4m3, D, 3>,
        /// The value of code 1.0.
        scale: f32,
    },
}

/// Arguments of the fused query norm, RoPE and KV insertion.
#[derive(Debug)]
pub struct QInsert<'v, D: Device> {
    /// The queries.
    pub q: Query<'v, D>,
    /// KV rows `[T, 512]`.
    pub kv: View<'v, bf16, D, 2>,
    /// Weight of the KV rows' norm `[512]`; `None` where they were normed upstream.
    pub kv_norm: Option<View<'v, f32, D, 1>>,
    /// Positions `[T]`: rows of `rope`. One without a row gives NaN.
    pub positions: View<'v, i64, D, 1>,
    /// Slots `[T_ins]`, `T_ins <= T`. Negative ones, ones beyond the cache, and tokens without
    /// one write no cache. No two may be equal.
    pub slots: View<'v, i64, D, 1>,
    /// Cosines and sines `[max_pos, 64]`: a row is 32 of each, as
    /// [`reference::rope`](crate::reference::rope) lays them out.
    pub rope: View<'v, f32, D, 2>,
    /// The cache.
    pub cache: KvCache<'v, D>,
    /// The epsilon of both norms.
    pub eps: f32,
    /// Whether queries are normed; without, they are only rotated.
    pub norm: bool,
}

/// The numbers of a checked launch.
#[derive(Clone, Copy, Debug)]
pub struct QInsertPlan {
    /// Tokens.
    pub tokens: usize,
    /// Query heads that hold data.
    pub heads: usize,
    /// Query heads written.
    pub padded_heads: usize,
    /// Tokens that have a slot.
    pub inserted: usize,
    /// Rows of the table.
    pub max_pos: usize,
    /// Blocks, block size and stride. The stride is in bytes, for the paged form; whole rows are
    /// dense.
    pub layout: PagedLayout,
    /// The norm's epsilon.
    pub eps: f32,
    /// Whether queries are normed.
    pub norm: bool,
    /// `1 / scale` of E4M3 queries; 1 for bf16.
    pub q_inverse: f32,
    /// `1 / scale` of E4M3 rows; 1 for others.
    pub kv_inverse: f32,
}

impl<D: Device> QInsert<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<QInsertPlan, Error> {
        let check = Check(NAME);
        let [tokens, width] = self.kv.shape();
        let rows = Wanted::of("kv", tokens);
        check.extent("kv", 1, width, HEAD_DIM)?;
        if let Some(weight) = &self.kv_norm {
            check.shape("kv_norm", weight.shape(), [HEAD_DIM])?;
        }
        let (from, to, q_scale) = match &self.q {
            Query::Out { from, to } => (from.shape(), to.shape(), 1.0),
            Query::InPlace(q) => (q.shape(), q.shape(), 1.0),
            Query::Fp8 { from, to, scale } => (from.shape(), to.shape(), *scale),
        };
        let [_, heads, _] = from;
        let [_, padded_heads, _] = to;
        let (from_name, to_name) = match &self.q {
            Query::InPlace(_) => ("q", "q"),
            _ => ("q.from", "q.to"),
        };
        check.shape(from_name, from, [rows, heads.into(), HEAD_DIM.into()])?;
        check.shape(to_name, to, [rows, padded_heads.into(), HEAD_DIM.into()])?;
        check.at_least("q.to", 1, padded_heads, heads)?;
        check.shape("positions", self.positions.shape(), [rows])?;
        let [inserted] = self.slots.shape();
        check.at_most("slots", inserted, rows)?;
        let [max_pos, columns] = self.rope.shape();
        check.extent("rope", 1, columns, ROPE_DIM)?;
        let (layout, kv_scale) = match &self.cache {
            KvCache::Paged { bytes, block_size } => {
                let layout = paged(check, CACHE, bytes.shape(), *block_size, EntryFormat::Main)?;
                (layout, 1.0)
            }
            KvCache::Rows(rows) => (whole(check, rows.shape(), 2)?, 1.0),
            KvCache::Fp8 { rows, scale } => (whole(check, rows.shape(), 1)?, *scale),
        };
        check.epsilon("eps", self.eps)?;
        check.above_zero("q.scale", q_scale)?;
        check.above_zero("cache.scale", kv_scale)?;
        check.counts(&[
            ("kv", tokens),
            (to_name, padded_heads.saturating_add(1).saturating_mul(tokens)),
            ("rope", max_pos),
            ("cache", layout.blocks),
        ])?;
        Ok(QInsertPlan {
            tokens,
            heads,
            padded_heads,
            inserted,
            max_pos,
            layout,
            eps: self.eps,
            norm: self.norm,
            q_inverse: 1.0 / q_scale,
            kv_inverse: 1.0 / kv_scale,
        })
    }
}

/// What the arguments of a paged cache are called in errors.
#[derive(Clone, Copy)]
pub(crate) struct Paged {
    pub(crate) bytes: &'static str,
    pub(crate) block_size: &'static str,
}

/// A cache that is an argument of its own.
pub(crate) const CACHE: Paged = Paged { bytes: "cache", block_size: "block_size" };

/// The layout of a paged cache of bytes `[blocks, stride]`.
pub(crate) fn paged(
    check: Check,
    names: Paged,
    shape: [usize; 2],
    block_size: usize,
    format: EntryFormat,
) -> Result<PagedLayout, Error> {
    check.positive(names.block_size, block_size)?;
    check.counts(&[(names.block_size, block_size)])?;
    let [blocks, stride] = shape;
    check.at_least(names.bytes, 1, stride, PagedLayout::block_bytes(format, block_size))?;
    let align = format.access_bytes();
    let rule = match format {
        EntryFormat::Main => "of a stride that is a multiple of 8 bytes",
        EntryFormat::IndexFp8 | EntryFormat::IndexMxfp4 => {
            "of a stride that is a multiple of 4 bytes"
        }
    };
    check.value(names.bytes, stride % align == 0, num(stride), rule)?;
    Ok(PagedLayout { format, block_size, stride, blocks })
}

/// The layout of a cache of whole rows `[blocks, block_size, 512]`.
pub(crate) fn whole(check: Check, shape: [usize; 3], element: usize) -> Result<PagedLayout, Error> {
    let [blocks, block_size, width] = shape;
    check.extent("cache", 2, width, HEAD_DIM)?;
    check.positive("cache", block_size)?;
    let stride = block_size.saturating_mul(HEAD_DIM).saturating_mul(element);
    Ok(PagedLayout { format: EntryFormat::Main, block_size, stride, blocks })
}

/// A count for an error's text.
pub(crate) fn num(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
