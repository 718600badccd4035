//! Sparse attention over cache entries chosen by index, with a sink: arguments and their check.
//!
//! Keys and values are the same row of 512. `s_j = scale * q . k_j` over the chosen entries of up to
//! two sources (the window's, and the compressed ones); weights
//! `exp(s_j - m) / (sum_j exp(s_j - m) + exp(sink_h - m))`; output `sum_j weight_j k_j`. An index
//! that is no entry, or stands behind its row's length, contributes nothing; without any entry the
//! output is 0.
//!
//! **Tolerance**: a device computes scores in f32 and rounds weights to bf16. The output of a head is
//! within 6e-3 of the real numbers, as a norm relative to theirs, plus 2^-19 of the largest
//! `scale * (|q| . |k_j|)`, which only counts where scores are in the thousands. What is below 2^-126
//! may be 0. Scores and sums that f32 cannot hold are not finite.
//!
//! **What is not finite**: a score that is NaN, or infinite above, makes its head NaN; so does a NaN
//! among the head's queries, once there is an entry. An entry of negative infinite score has weight 0,
//! and an infinite element of it makes that dim of the output NaN. Where all scores are negative
//! infinity, and where the sink is infinite, all weights are 0. A NaN sink makes the output NaN, unless
//! all scores are negative infinity or there is no entry.
//!
//! **Shared memory**: 136 KiB a block before compute capability 9.0, and 204.5 KiB from there on. On a
//! device with less the launch is [`Error::SharedMemory`].

use scratchpool::{Device, View, ViewMut, bf16};

use crate::error::{Check, Error, Wanted};
use crate::ops::q_insert::{Paged, paged};
use crate::reference::cache::{EntryFormat, HEAD_DIM, PagedLayout};

pub(crate) const NAME: &str = "attention";

/// Rows that indices point at.
#[derive(Debug)]
pub enum Entries<'v, D: Device> {
    /// A paged FP8 cache, [`EntryFormat::Main`]: bytes `[blocks, stride]`; an index is a slot.
    Paged {
        /// The cache.
        cache: View<'v, u8, D, 2>,
        /// Entries in a block.
        block_size: usize,
    },
    /// A bf16 workspace `[rows, 512]`; an index is a row.
    Rows(View<'v, bf16, D, 2>),
}

/// A source and what is chosen from it.
#[derive(Debug)]
pub struct Selected<'v, D: Device> {
    /// The rows.
    pub entries: Entries<'v, D>,
    /// Chosen rows `[T, K]`.
    pub indices: View<'v, i32, D, 2>,
    /// How many of each row count `[T]`.
    pub lens: View<'v, i32, D, 1>,
}

/// Arguments of sparse attention.
#[derive(Debug)]
pub struct Attention<'v, D: Device> {
    /// Queries `[T, H_pad, 512]`.
    pub q: View<'v, bf16, D, 3>,
    /// The window's entries, or the combined rows of prefill.
    pub first: Selected<'v, D>,
    /// The compressed entries.
    pub second: Option<Selected<'v, D>>,
    /// The sink's logit of each head `[H_pad]`; negative infinity is no sink.
    pub sinks: View<'v, f32, D, 1>,
    /// `512^-0.5` in the model.
    pub scale: f32,
    /// Output `[T, H_pad, 512]`.
    pub out: ViewMut<'v, bf16, D, 3>,
}

/// The numbers of a checked source.
#[derive(Clone, Copy, Debug)]
pub struct SourcePlan {
    /// The cache; for a workspace, a block of one row.
    pub layout: PagedLayout,
    /// Whether it is the paged cache.
    pub is_paged: bool,
    /// Columns of the indices.
    pub width: usize,
}

/// The numbers of a checked launch.
#[derive(Clone, Copy, Debug)]
pub struct AttentionPlan {
    /// Tokens.
    pub tokens: usize,
    /// Heads.
    pub heads: usize,
    /// The first source.
    pub first: SourcePlan,
    /// The second.
    pub second: Option<SourcePlan>,
    /// What dot products are multiplied with.
    pub scale: f32,
}

/// What a source's arguments are called in errors.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) indices: &'static str,
    pub(crate) lens: &'static str,
    pub(crate) rows: &'static str,
    pub(crate) cache: Paged,
}

macro_rules! names {
    ($source:literal) => {
        Names {
            indices: concat!($source, ".indices"),
            lens: concat!($source, ".lens"),
            rows: concat!($source, ".rows"),
            cache: Paged {
                bytes: concat!($source, ".cache"),
                block_size: concat!($source, ".block_size"),
            },
        }
    };
}

pub(crate) const FIRST: Names = names!("first");
pub(crate) const SECOND: Names = names!("second");

impl<D: Device> Selected<'_, D> {
    fn check(&self, check: Check, names: Names, tokens: usize) -> Result<SourcePlan, Error> {
        let [_, width] = self.indices.shape();
        let rows = Wanted::of("q", tokens);
        check.shape(names.indices, self.indices.shape(), [rows, width.into()])?;
        check.shape(names.lens, self.lens.shape(), [rows])?;
        check.counts(&[(names.indices, width)])?;
        let (layout, is_paged) = match &self.entries {
            Entries::Paged { cache, block_size } => {
                (paged(check, names.cache, cache.shape(), *block_size, EntryFormat::Main)?, true)
            }
            Entries::Rows(rows) => {
                let [blocks, columns] = rows.shape();
                check.extent(names.rows, 1, columns, HEAD_DIM)?;
                let format = EntryFormat::Main;
                (PagedLayout { format, block_size: 1, stride: 2 * HEAD_DIM, blocks }, false)
            }
        };
        let name = if is_paged { names.cache.bytes } else { names.rows };
        check.counts(&[(name, layout.blocks.saturating_mul(layout.block_size))])?;
        Ok(SourcePlan { layout, is_paged, width })
    }
}

impl<D: Device> Attention<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<AttentionPlan, Error> {
        let check = Check(NAME);
        let [tokens, heads, _] = self.q.shape();
        let [rows, each] = [tokens, heads].map(|count| Wanted::of("q", count));
        check.shape("q", self.q.shape(), [tokens, heads, HEAD_DIM])?;
        check.shape("out", self.out.shape(), [rows, each, HEAD_DIM.into()])?;
        check.shape("sinks", self.sinks.shape(), [each])?;
        let first = self.first.check(check, FIRST, tokens)?;
        let second = self.second.as_ref().map(|it| it.check(check, SECOND, tokens)).transpose()?;
        check.above_zero("scale", self.scale)?;
        check.counts(&[("q", tokens.saturating_mul(heads))])?;
        Ok(AttentionPlan { tokens, heads, first, second, scale: self.scale })
    }
}
