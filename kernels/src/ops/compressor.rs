//! The compressors: save partial states, pool finished windows, store entries. Arguments and their
//! check.
//!
//! ```text
//!  projection ──> save_state ──> paged state cache ──┬─ compress (C4, one pass) ──────────────> cache
//!                 kv | score + ape                   └─ compress_pool (C128) ─> scratch ─> compress_store ─> cache
//! ```
//!
//! Only *boundary* tokens compress: `(position + 1) mod ratio = 0` and a state slot that is not
//! negative. See [`reference::compressor`](crate::reference::compressor) for the arithmetic.

use scratchpool::{Device, View, ViewMut};

use crate::error::{Check, Error, Wanted};
use crate::ops::q_insert::{Paged, num, paged};
use crate::reference::cache::{EntryFormat, HEAD_DIM, INDEX_DIM, PagedLayout};
use crate::reference::rope::ROPE_DIM;

pub(crate) const SAVE: &str = "save_state";
pub(crate) const COMPRESS: &str = "compress";
pub(crate) const POOL: &str = "compress_pool";
pub(crate) const STORE: &str = "compress_store";

/// How windows are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Ratio 4, windows of 8 that overlap: the first 4 rows use the first half of the columns, the last 4
    /// the second half.
    C4,
    /// Ratio 128, windows of 128.
    C128,
}

impl Compression {
    /// Tokens that one entry stands for.
    pub const fn ratio(self) -> usize {
        match self {
            Self::C4 => 4,
            Self::C128 => 128,
        }
    }

    /// Halves of columns in a state row: 2 where windows overlap.
    pub const fn halves(self) -> usize {
        match self {
            Self::C4 => 2,
            Self::C128 => 1,
        }
    }

    /// Rows of a window, which is how many tokens the state cache must retain.
    pub const fn window(self) -> usize {
        self.ratio() * self.halves()
    }
}

/// What is known about a batch on the host, where positions are known too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boundaries {
    /// Some token may be a boundary: the device looks. The only choice in a captured graph.
    #[default]
    Possible,
    /// No token is a boundary: nothing is launched.
    None,
}

impl Boundaries {
    /// Looks at positions on the host.
    ///
    /// ```
    /// use scratchpool_kernels::ops::compressor::{Boundaries, Compression};
    /// assert_eq!(Boundaries::of(&[0, 1, 126], Compression::C128), Boundaries::None);
    /// assert_eq!(Boundaries::of(&[127], Compression::C128), Boundaries::Possible);
    /// ```
    pub fn of(positions: &[i64], compression: Compression) -> Self {
        let ratio = if compression == Compression::C4 { 4 } else { 128 };
        let boundary = |position: &i64| position.rem_euclid(ratio) == ratio - 1;
        if positions.iter().any(boundary) { Self::Possible } else { Self::None }
    }
}

/// Arguments of saving partial states: for each token with a slot, the row
/// `[kv | score + ape[position mod ratio]]` into the paged state cache. kv is copied bit for bit; the sum
/// is rounded to f32, and a NaN in it is some NaN.
#[derive(Debug)]
pub struct SaveState<'v, D: Device> {
    /// The projection `[T, 2 W]`: `W` of kv, then `W` of score.
    pub kv_score: View<'v, f32, D, 2>,
    /// Bias of the score by position in a window `[ratio, W]`.
    pub ape: View<'v, f32, D, 2>,
    /// Positions `[T]`.
    pub positions: View<'v, i64, D, 1>,
    /// Slots in the state cache `[T]`; negative ones, and ones beyond it, are not saved. No two may
    /// be equal.
    pub slots: View<'v, i64, D, 1>,
    /// The state cache `[pages, page_tokens, 2 W]`.
    pub state: ViewMut<'v, f32, D, 3>,
}

/// The numbers of checked saving.
#[derive(Clone, Copy, Debug)]
pub struct SavePlan {
    /// Tokens.
    pub tokens: usize,
    /// Columns of kv, and of score; a multiple of 4.
    pub width: usize,
    /// Rows of the bias.
    pub ratio: usize,
    /// Rows of the state cache.
    pub slots: usize,
}

impl<D: Device> SaveState<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<SavePlan, Error> {
        let check = Check(SAVE);
        let [tokens, both] = self.kv_score.shape();
        let [ratio, width] = self.ape.shape();
        let rows = Wanted::of("kv_score", tokens);
        check.extent("kv_score", 1, both, width.saturating_mul(2))?;
        check.value(
            "ape",
            width > 0 && width % 4 == 0,
            num(width),
            "of a width of 4 or its multiple",
        )?;
        check.positive("ape", ratio)?;
        check.shape("positions", self.positions.shape(), [rows])?;
        check.shape("slots", self.slots.shape(), [rows])?;
        let [pages, page_tokens, _] = self.state.shape();
        check.shape(
            "state",
            self.state.shape(),
            [pages.into(), page_tokens.into(), Wanted::of("kv_score", both)],
        )?;
        check.counts(&[("kv_score", tokens), ("ape", width), ("ape", ratio)])?;
        Ok(SavePlan { tokens, width, ratio, slots: pages.saturating_mul(page_tokens) })
    }
}

/// Where windows are read from.
#[derive(Debug)]
pub struct States<'v, D: Device> {
    /// The state cache `[pages, page_tokens, 2 W]`.
    pub state: View<'v, f32, D, 3>,
    /// Pages of each request `[requests, columns]`. A row whose page is missing counts as one
    /// before position 0.
    pub block_table: View<'v, i32, D, 2>,
    /// Requests `[T]`.
    pub token_to_req: View<'v, i32, D, 1>,
    /// Positions `[T]`.
    pub positions: View<'v, i64, D, 1>,
    /// Slots in the state cache `[T]`; tokens with a negative one do not compress.
    pub slots: View<'v, i64, D, 1>,
}

/// The numbers of checked states.
#[derive(Clone, Copy, Debug)]
pub struct StatesPlan {
    /// Tokens.
    pub tokens: usize,
    /// Elements of an entry.
    pub width: usize,
    /// How windows are cut.
    pub compression: Compression,
    /// Pages of the cache.
    pub pages: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Rows of the table.
    pub requests: usize,
    /// Columns of the table.
    pub columns: usize,
}

impl<D: Device> States<'_, D> {
    fn check(
        &self,
        check: Check,
        compression: Compression,
        width: usize,
    ) -> Result<StatesPlan, Error> {
        let [tokens] = self.positions.shape();
        let rows = Wanted::of("states.positions", tokens);
        check.shape("states.slots", self.slots.shape(), [rows])?;
        check.shape("states.token_to_req", self.token_to_req.shape(), [rows])?;
        let [pages, page_tokens, both] = self.state.shape();
        check.extent("states.state", 2, both, 2 * compression.halves() * width)?;
        check.positive("states.state", page_tokens)?;
        let [requests, columns] = self.block_table.shape();
        check.counts(&[
            ("states.positions", tokens),
            ("states.state", pages.saturating_mul(page_tokens)),
            ("states.block_table", requests),
            ("states.block_table", columns),
        ])?;
        Ok(StatesPlan { tokens, width, compression, pages, page_tokens, requests, columns })
    }
}

/// How a pooled vector becomes a cache entry.
#[derive(Debug)]
pub struct Store<'v, D: Device> {
    /// Slots in the cache `[T]`; a boundary token without one, or with one that is no entry, stores
    /// nothing.
    pub slots: View<'v, i64, D, 1>,
    /// Weight of the norm `[D]`.
    pub norm_weight: View<'v, f32, D, 1>,
    /// The norm's epsilon.
    pub eps: f32,
    /// Cosines and sines `[max_pos, 64]`: a row is 32 of each, as
    /// [`reference::rope`](crate::reference::rope) lays them out.
    pub rope: View<'v, f32, D, 2>,
    /// The cache: bytes `[blocks, stride]`.
    pub cache: ViewMut<'v, u8, D, 2>,
    /// Entries in a block.
    pub block_size: usize,
    /// What an entry is, which also says its width.
    pub format: EntryFormat,
}

/// The numbers of a checked store.
#[derive(Clone, Copy, Debug)]
pub struct StorePlan {
    /// Tokens.
    pub tokens: usize,
    /// Tokens that one entry stands for.
    pub ratio: usize,
    /// Rows of the table.
    pub max_pos: usize,
    /// The cache.
    pub layout: PagedLayout,
    /// The norm's epsilon.
    pub eps: f32,
}

impl<D: Device> Store<'_, D> {
    fn check(
        &self,
        check: Check,
        (rows_of, tokens): (&'static str, usize),
        ratio: usize,
    ) -> Result<StorePlan, Error> {
        check.shape("store.slots", self.slots.shape(), [Wanted::of(rows_of, tokens)])?;
        check.shape("store.norm_weight", self.norm_weight.shape(), [self.format.width()])?;
        check.epsilon("store.eps", self.eps)?;
        let [max_pos, columns] = self.rope.shape();
        check.extent("store.rope", 1, columns, ROPE_DIM)?;
        let names = Paged { bytes: "store.cache", block_size: "store.block_size" };
        let layout = paged(check, names, self.cache.shape(), self.block_size, self.format)?;
        check.counts(&[("store.rope", max_pos), ("store.cache", layout.blocks)])?;
        Ok(StorePlan { tokens, ratio, max_pos, layout, eps: self.eps })
    }
}

/// Arguments of C4 in one pass, for the main store (512 wide) or the indexer's (128 wide).
#[derive(Debug)]
pub struct Compress<'v, D: Device> {
    /// Where windows are read from.
    pub states: States<'v, D>,
    /// How entries are made.
    pub store: Store<'v, D>,
    /// What the host knows.
    pub boundaries: Boundaries,
}

impl<D: Device> Compress<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<(StatesPlan, StorePlan), Error> {
        let check = Check(COMPRESS);
        let states = self.states.check(check, Compression::C4, self.store.format.width())?;
        Ok((
            states,
            self.store.check(
                check,
                ("states.positions", states.tokens),
                Compression::C4.ratio(),
            )?,
        ))
    }
}

/// Arguments of C128's first stage: pooled vectors of boundary tokens into the pool's scratch.
#[derive(Debug)]
pub struct CompressPool<'v, D: Device> {
    /// Where windows are read from.
    pub states: States<'v, D>,
    /// Pooled vectors before the norm `[T, 512]`; only boundary rows are written.
    pub scratch: ViewMut<'v, f32, D, 2>,
    /// What the host knows.
    pub boundaries: Boundaries,
}

impl<D: Device> CompressPool<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<StatesPlan, Error> {
        let check = Check(POOL);
        let states = self.states.check(check, Compression::C128, HEAD_DIM)?;
        let rows = Wanted::of("states.positions", states.tokens);
        check.shape("scratch", self.scratch.shape(), [rows, HEAD_DIM.into()])?;
        Ok(states)
    }
}

/// Arguments of C128's second stage: entries from the scratch.
#[derive(Debug)]
pub struct CompressStore<'v, D: Device> {
    /// Pooled vectors `[T, 512]`; only boundary rows are read.
    pub scratch: View<'v, f32, D, 2>,
    /// Positions `[T]`.
    pub positions: View<'v, i64, D, 1>,
    /// Slots in the state cache `[T]`: a token with a negative one is no boundary.
    pub state_slots: View<'v, i64, D, 1>,
    /// How entries are made.
    pub store: Store<'v, D>,
    /// What the host knows.
    pub boundaries: Boundaries,
}

impl<D: Device> CompressStore<'_, D> {
    /// Checks shapes and numbers.
    ///
    /// # Errors
    ///
    /// The first argument that does not fit the others, by name.
    pub fn check(&self) -> Result<StorePlan, Error> {
        let check = Check(STORE);
        let [tokens] = self.positions.shape();
        let rows = Wanted::of("positions", tokens);
        check.shape("scratch", self.scratch.shape(), [rows, HEAD_DIM.into()])?;
        check.shape("state_slots", self.state_slots.shape(), [rows])?;
        let main = self.store.format == EntryFormat::Main;
        check.value("store.format", main, num(INDEX_DIM), "the main format, of 512 elements")?;
        check.counts(&[("positions", tokens)])?;
        self.store.check(check, ("positions", tokens), Compression::C128.ratio())
    }
}
