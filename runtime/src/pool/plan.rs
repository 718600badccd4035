//! What generated code says about a pool, and the memory report made from it.

use core::fmt;

use crate::tables::{LayoutTable, ScheduleTable};

/// A pool's proved plan, as the macro emits it: a type of size zero where all sizes are constants,
/// a few numbers where some are known only at start-up.
///
/// # Safety
///
/// Views are made on the word of this trait. An implementor guarantees that
///
/// - `SCHEDULE` is a schedule that was proved, together with the offsets that generated code uses;
/// - [`tensor_bytes`](Self::tensor_bytes) is what the views of the buffer span at that many rows,
///   and does not decrease with the rows;
/// - for every buffer, its offset plus `tensor_bytes` at `max_rows` is at most
///   [`MemoryReport::bytes_per_copy`] of [`memory`](Self::memory), and its offset is a multiple of its element's
///   size;
/// - [`MemoryReport::base_align`] is a multiple of every buffer's alignment.
pub unsafe trait Plan: 'static {
    /// The order that a pool of this plan issues.
    const SCHEDULE: &'static ScheduleTable;

    /// How many buffers there are.
    const BUFFERS: usize;

    /// The dim that [`max_rows`](Self::max_rows) is, where it is given at start-up, for messages.
    const ROWS: Option<&'static str> = None;

    /// The most rows that a pass may have.
    fn max_rows(&self) -> usize;

    /// The bytes of one copy of the arena, and what sharing saved.
    fn memory(&self) -> MemoryReport;

    /// Bytes of a buffer's tensor when a pass has `rows` rows; 0 for an unknown buffer.
    fn tensor_bytes(&self, buffer: usize, rows: usize) -> u64;

    /// A buffer's name and planned place, for messages and for the sanitizer. A plan that does not
    /// say has numbers for names, and accesses to overlaid buffers are not compared.
    fn describe(&self, buffer: usize) -> Option<Described> {
        let _ = buffer;
        None
    }
}

/// What a plan says of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// `group.buffer`.
    pub name: &'static str,
    /// Its first byte, from the arena's base.
    pub offset: usize,
}

/// A buffer's place in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The buffer: an index into the plan's buffers.
    pub buffer: usize,
    /// Its first byte, from the arena's base.
    pub offset: usize,
}

impl Place {
    /// Buffer `buffer` at byte `offset`.
    pub const fn new(buffer: usize, offset: usize) -> Self {
        Self { buffer, offset }
    }
}

/// What a pool reserves, known before anything is allocated.
///
/// ```
/// use scratchpool::{MemoryReport, tables::LayoutTable};
///
/// # const LAYOUT: LayoutTable = LayoutTable {
/// #     pool: "EagerScratch", align: 256, base_align: 256, total_bytes: 574_619_648, sum_bytes: 608_206_848,
/// #     lower_bound_bytes: 574_619_648, optimal: true, fingerprint: "", buffers: &[],
/// # };
/// const REPORT: MemoryReport = MemoryReport::of(&LAYOUT, 1);
/// assert_eq!(REPORT.reserved_bytes(), 574_619_648);
/// assert_eq!(REPORT.saved_bytes(), 33_587_200);
/// assert_eq!(
///     REPORT.to_string(),
///     "EagerScratch: 574619648 bytes reserved in 1 copy; 33587200 saved of 608206848",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReport {
    /// The pool's name.
    pub pool: &'static str,
    /// How many disjoint copies of the arena there are, one a micro-batch in flight.
    pub copies: usize,
    /// Bytes of one copy.
    pub bytes_per_copy: u64,
    /// The alignment of a copy's base.
    pub base_align: u64,
    /// What the buffers of one copy would take apart.
    pub sum_bytes: u64,
}

impl MemoryReport {
    /// The report of `copies` copies of a layout.
    pub const fn of(layout: &LayoutTable, copies: usize) -> Self {
        Self {
            pool: layout.pool,
            copies,
            bytes_per_copy: layout.total_bytes,
            base_align: layout.base_align,
            sum_bytes: layout.sum_bytes,
        }
    }

    /// The same layout in another number of copies.
    #[must_use]
    pub const fn in_copies(mut self, copies: usize) -> Self {
        self.copies = copies;
        self
    }

    /// Bytes reserved in all.
    pub const fn reserved_bytes(&self) -> u64 {
        self.bytes_per_copy.saturating_mul(self.copies as u64)
    }

    /// What the buffers would take apart, in all copies.
    pub const fn apart_bytes(&self) -> u64 {
        self.sum_bytes.saturating_mul(self.copies as u64)
    }

    /// What sharing saved, in all.
    pub const fn saved_bytes(&self) -> u64 {
        self.apart_bytes().saturating_sub(self.reserved_bytes())
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, copies, .. } = self;
        let (reserved, apart) = (self.reserved_bytes(), self.apart_bytes());
        let plural = if *copies == 1 { "copy" } else { "copies" };
        let saved = self.saved_bytes();
        write!(
            f,
            "{pool}: {reserved} bytes reserved in {copies} {plural}; {saved} saved of {apart}"
        )
    }
}
