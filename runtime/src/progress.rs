//! How far one copy of a pool has come in its pass: for what executes steps later than they are issued.
//!
//! A graph that was captured from a copy does its steps again at every replay. In the middle of a pass
//! that is right at one place only: where the steps of the graph are the next ones. So the copy counts
//! the steps that it has issued, a device that captures asks for the count ([`Progress::position`]), and
//! a replay tells the copy to go on behind the graph's steps ([`Progress::replayed`]).
//!
//! Invariant: outside a step, `issued` is how many steps of the present pass were issued, in order; steps
//! before `behind` are issued as empty ones before any other is entered.

use std::cell::Cell;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};

/// How far one copy of a pool has come in its pass. Opaque: a device passes it on, to the device that it
/// wraps.
pub struct Progress(Rc<State>);

struct State {
    /// Counts passes.
    pass: Cell<u64>,
    open: Cell<bool>,
    /// Steps of the present pass that were issued, those that were skipped among them.
    issued: Cell<u64>,
    /// Where a replay has taken the pass to.
    behind: Cell<u64>,
    /// Steps of a whole pass.
    total: u64,
}

/// A place in the passes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "asked for by devices that capture"))]
pub(crate) struct Position {
    pub(crate) pass: u64,
    /// Steps of the pass that were issued.
    pub(crate) issued: u64,
    /// The same, in the middle of a pass; `None` at its edges, where nothing is issued, or
    /// everything.
    pub(crate) inside: Option<u64>,
}

#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "used by devices that capture"))]
impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        Self(Rc::new(State {
            pass: Cell::new(0),
            open: Cell::new(false),
            issued: Cell::new(0),
            behind: Cell::new(0),
            total,
        }))
    }

    pub(crate) fn begin(&self) {
        self.0.pass.set(self.0.pass.get() + 1);
        self.0.open.set(true);
        self.0.issued.set(0);
        self.0.behind.set(0);
    }

    pub(crate) fn finish(&self) {
        self.0.open.set(false);
    }

    /// One more step was issued.
    #[inline]
    pub(crate) fn issue(&self) {
        self.0.issued.set(self.0.issued.get() + 1);
    }

    /// Whether a replay did steps that were not issued since.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.0.issued.get() < self.0.behind.get()
    }

    /// Where the copy is.
    pub(crate) fn position(&self) -> Position {
        let issued = self.0.issued.get().max(self.0.behind.get());
        let inside = self.0.open.get() && issued > 0 && issued < self.0.total;
        Position { pass: self.0.pass.get(), issued, inside: inside.then_some(issued) }
    }

    /// A replay did the steps up to this one, of the pass that is open; to its end where that is `None`.
    pub(crate) fn replayed(&self, behind: Option<u64>) {
        if self.0.open.get() {
            self.0.behind.set(behind.unwrap_or(self.0.total));
        }
    }

    /// For whoever must not keep it alive.
    pub(crate) fn downgrade(&self) -> WeakProgress {
        WeakProgress(Rc::downgrade(&self.0))
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Progress({:?})", self.position())
    }
}

/// A [`Progress`] that does not keep its pool's alive.
#[derive(Clone)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "kept by devices that capture"))]
pub(crate) struct WeakProgress(Weak<State>);

#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "used by devices that capture"))]
impl WeakProgress {
    pub(crate) fn upgrade(&self) -> Option<Progress> {
        self.0.upgrade().map(Progress)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Whose steps a stream is given: one name of one copy of a pool. Made by pools alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamUser(u64);

impl StreamUser {
    /// So many users that nobody else is.
    pub(crate) fn some(count: usize) -> impl Iterator<Item = Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let first = NEXT.fetch_add(count as u64, Ordering::Relaxed);
        (first..).take(count).map(Self)
    }
}
