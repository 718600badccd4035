//! Streams and events: cudarc's, with what a pool must know of them besides.
//!
//! # Eras
//!
//! An event that was recorded while a graph was captured cannot be waited for outside that capture,
//! nor the other way round. So a stream knows its **era**: the capture that it takes part in, or
//! none ([`EAGER`]); and an event knows in which era it was recorded. A wait inside one era is
//! issued. A wait across eras is not, because barriers stand in for it:
//!
//! ```text
//!  eager work ─ barrier ─ [ capture ] ─ eager work      a barrier orders all streams of a copy
//!  eager work ─ barrier ─   replay    ─ barrier ─ eager work      after all that they hold
//! ```
//!
//! Invariant: a wait is left out only where both streams took part in the capture whose edge it
//! crosses; every such edge, and every replay, is fenced by barriers over just those streams. All
//! else is an error ([`CudaError::OutsideCapture`]), never an order silently lost.
//!
//! # One stream of the driver's, one lane
//!
//! What is known of a stream (its era, what it owes, the memory and the pools that use it) is true only
//! while there is one such record of it. Invariant: a stream of the driver's has at most one [`Lane`] in
//! the process. A device that is handed it again gives another handle to the same lane; another
//! device, also one of another thread, is refused ([`CudaError::StreamTaken`]).
//!
//! # What it was given
//!
//! A stream counts what it is given, so that a pool leaves out records and waits that would change
//! nothing. Invariant: whatever in this crate gives it something takes the driver's stream from
//! [`Stream::give`], which counts; who takes it from outside, by `Deref` or [`Stream::handle`], may give it
//! anything at any time, and from then on nothing is left out. Nor is it in a capture.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaEvent, CudaStream};

use super::error::CudaError;
use super::raw;
use super::state::{Block, EAGER, Shared, Taking, next_number};
use crate::progress::{Progress, StreamUser, WeakProgress};
use crate::tables::Launch;

/// The count of a stream that may be given something from outside.
const UNSEEN: u64 = u64::MAX;

/// The era of an event that has not been recorded.
const NEVER: u64 = 0;

/// A stream of the CUDA device. Cloning gives another handle to the same one.
///
/// It dereferences to cudarc's stream, so cudarc's launches, copies and libraries take it. What they
/// give it cannot be seen from here, so that from the first time on every wait and record of its steps
/// is issued; launched on by [`kernel`](Self::kernel) alone, steps that launch nothing cost no call of
/// the driver's.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use scratchpool::{Device, cuda::Cuda};
/// let cuda = Cuda::open(0)?;
/// let stream = cuda.create_stream("main")?;
/// let ones = stream.clone_htod(&[1_u32; 4])?;
/// assert_eq!(stream.clone_dtoh(&ones)?, [1; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stream {
    pub(super) lane: Rc<Lane>,
}

/// Which stream of the driver's: its context, and its handle there.
type Key = (usize, usize);

fn key_of(stream: &CudaStream) -> Key {
    (stream.context().cu_ctx().addr(), stream.cu_stream().addr())
}

/// The streams that have a lane, of the whole process.
static TAKEN: Mutex<BTreeSet<Key>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The lanes of this thread: a device, and what is its, stay on one.
    static LANES: RefCell<Vec<Weak<Lane>>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Lane {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// What all handles of a stream share.
pub(super) struct Lane {
    key: Key,
    stream: Arc<CudaStream>,
    /// How often it was given something; [`UNSEEN`] once it may be given something from outside.
    given: Cell<u64>,
    pub(super) name: &'static str,
    /// A number of its own.
    pub(super) id: u64,
    pub(super) shared: Rc<Shared>,
    /// For barriers.
    pub(super) tail: CudaEvent,
    /// The number of the capture that it takes part in, or [`EAGER`].
    era: Cell<u64>,
    /// That capture.
    capture: RefCell<Option<Rc<Taking>>>,
    /// The copies of pools whose stream it is.
    copies: RefCell<Vec<Rc<Follower>>>,
    /// Whose step, of those that are not full, it was given last.
    user: Cell<Option<StreamUser>>,
    /// The arenas of the pools that use the stream.
    pub(super) arenas: RefCell<Vec<Weak<Block>>>,
    /// An address in one of its views that was handed to another stream; 0 is none.
    pub(super) foreign: Cell<u64>,
    step: Cell<Step>,
}

/// How the next launch relates to the one in front of it.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The step's own kind, until its first launch.
    fresh: Option<Launch>,
    /// What empty steps before it, and waits in a graph, demand at least.
    least: Launch,
    /// Whether a step is entered.
    inside: bool,
}

/// A copy of a pool, and all of its streams: their numbers and names.
pub(super) struct Follower {
    pub(super) progress: WeakProgress,
    pub(super) lanes: Box<[(u64, &'static str)]>,
}

/// The stronger of two kinds.
const fn stronger(a: Launch, b: Launch) -> Launch {
    match (a, b) {
        (Launch::Full, _) | (_, Launch::Full) => Launch::Full,
        (Launch::Dependent, _) | (_, Launch::Dependent) => Launch::Dependent,
        (Launch::Early, Launch::Early) => Launch::Early,
    }
}

/// How the kernel of a step may be launched, behind empty steps that demand `least`. A kernel declared
/// early does not wait for the one in front of it, so where waiting is demanded it has to be launched
/// in full.
const fn due(kind: Launch, least: Launch) -> Launch {
    match (kind, stronger(kind, least)) {
        (Launch::Early, Launch::Dependent) => Launch::Full,
        (_, launch) => launch,
    }
}

impl Stream {
    /// A stream that nobody else has.
    pub(super) fn own(
        shared: &Rc<Shared>,
        stream: Arc<CudaStream>,
        name: &'static str,
    ) -> Result<Self, CudaError> {
        Self::new(shared, stream, name, 0)
    }

    /// A stream of the caller's; one that the device has already is that one.
    pub(super) fn foreign(
        shared: &Rc<Shared>,
        stream: Arc<CudaStream>,
        name: &'static str,
    ) -> Result<Self, CudaError> {
        let key = key_of(&stream);
        let known = LANES.with_borrow(|lanes| {
            let mut alive = lanes.iter().filter_map(Weak::upgrade);
            alive.find(|lane| lane.key == key && Rc::ptr_eq(&lane.shared, shared))
        });
        if let Some(lane) = known {
            return Ok(Self { lane });
        }
        Self::new(shared, stream, name, UNSEEN)
    }

    fn new(
        shared: &Rc<Shared>,
        stream: Arc<CudaStream>,
        name: &'static str,
        given: u64,
    ) -> Result<Self, CudaError> {
        let tail = raw::named("cuEventCreate", shared.context.new_event(None))?;
        let key = key_of(&stream);
        if !TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            return Err(CudaError::StreamTaken { stream: name });
        }
        let lane = Rc::new(Lane {
            key,
            stream,
            given: Cell::new(given),
            name,
            id: next_number(),
            shared: Rc::clone(shared),
            tail,
            era: Cell::new(EAGER),
            capture: RefCell::default(),
            copies: RefCell::default(),
            user: Cell::new(None),
            arenas: RefCell::default(),
            foreign: Cell::new(0),
            step: Cell::new(Step { fresh: None, least: Launch::Early, inside: false }),
        });
        LANES.with_borrow_mut(|lanes| {
            lanes.retain(|lane| lane.strong_count() > 0);
            lanes.push(Rc::downgrade(&lane));
        });
        Ok(Self { lane })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.lane.name
    }

    /// The driver's handle, for other libraries. It lives as long as a handle of this stream.
    pub fn handle(&self) -> CUstream {
        self.lane.given.set(UNSEEN);
        self.lane.stream.cu_stream()
    }

    /// The driver's stream, to give it something: it is counted.
    #[inline]
    pub(super) fn give(&self) -> &Arc<CudaStream> {
        let given = &self.lane.given;
        given.set(given.get().saturating_add(1));
        &self.lane.stream
    }

    /// The driver's stream, to ask it, or to record what it holds.
    #[inline]
    pub(super) fn peek(&self) -> &CudaStream {
        &self.lane.stream
    }

    /// How often it was given something, where that can be known.
    #[inline]
    pub(super) fn issued(&self) -> Option<u64> {
        let given = self.lane.given.get();
        (given != UNSEEN && !self.is_capturing()).then_some(given)
    }

    /// Whether a graph is being captured from it by this crate.
    pub fn is_capturing(&self) -> bool {
        self.lane.era.get() != EAGER
    }

    /// How the next kernel of the step may be launched: the step's own kind at its first launch,
    /// made stronger where empty steps came before it, or in a graph a wait, and [`Launch::Full`]
    /// afterwards and outside a step. [`kernel`](Self::kernel) asks this itself; who launches by other
    /// means asks it, launches so or in full, and then says so with [`launched`](Self::launched).
    pub fn next_launch(&self) -> Launch {
        let step = self.lane.step.get();
        step.fresh.map_or(Launch::Full, |kind| due(kind, step.least))
    }

    /// Says that the launch which [`next_launch`](Self::next_launch) speaks of was made, by other means
    /// than [`kernel`](Self::kernel). Without it the next kernel is launched as if it were the first of
    /// the step, or as strongly as empty steps before it demand.
    ///
    /// # Safety
    ///
    /// Since the step was entered, a kernel was launched on this stream, in full or as `next_launch` said.
    pub unsafe fn launched(&self) {
        self.take_launch();
    }

    /// As [`next_launch`](Self::next_launch), for a launch that is made.
    pub(super) fn take_launch(&self) -> Launch {
        let launch = self.next_launch();
        let step = self.lane.step.get();
        if step.fresh.is_some() {
            self.lane.step.set(Step { fresh: None, least: Launch::Early, ..step });
        }
        launch
    }

    /// Makes the next launch a full one: because of a wait captured in front of it, a graph that was
    /// replayed, a capture that began or ended, or a launch that failed. In a graph every edge to a
    /// kernel that is launched programmatically is such an edge, those of events too, so it could start
    /// while what the event stands for is still running.
    pub(super) fn owe_full(&self) {
        let step = self.lane.step.get();
        let fresh = if step.inside { Some(step.fresh.unwrap_or(Launch::Full)) } else { None };
        self.lane.step.set(Step { fresh, least: Launch::Full, ..step });
    }

    pub(super) fn enter_step(&self, kind: Launch) {
        self.leave_step();
        let least = self.lane.step.get().least;
        self.lane.step.set(Step { fresh: Some(kind), least, inside: true });
    }

    /// A step that ends without a launch leaves its order to the next one.
    pub(super) fn leave_step(&self) {
        let Step { fresh, least, .. } = self.lane.step.get();
        let least = fresh.map_or(least, |kind| stronger(kind, least));
        self.lane.step.set(Step { fresh: None, least, inside: false });
    }

    /// Notes whose step, other than a full one, comes next, and says whether the latest was of the same.
    pub(super) fn take_turn(&self, user: StreamUser) -> bool {
        self.lane.user.replace(Some(user)).is_none_or(|latest| latest == user)
    }

    /// Notes a copy of a pool whose streams these are.
    pub(super) fn follow(streams: &[Self], progress: &Progress) {
        let lanes = streams.iter().map(|stream| (stream.lane.id, stream.name())).collect();
        let follower = Rc::new(Follower { progress: progress.downgrade(), lanes });
        for stream in streams {
            let mut copies = stream.lane.copies.borrow_mut();
            copies.retain(|it| it.progress.is_alive());
            copies.push(Rc::clone(&follower));
        }
    }

    /// The copies of pools whose stream this is.
    pub(super) fn copies(&self) -> Vec<Rc<Follower>> {
        self.lane.copies.borrow().clone()
    }

    /// Takes part in a capture from now on.
    pub(super) fn join_capture(&self, taking: &Rc<Taking>) {
        self.lane.capture.replace(Some(Rc::clone(taking)));
        self.lane.era.set(taking.era);
        self.owe_full();
    }

    /// Is given work that is executed as it comes again.
    pub(super) fn leave_capture(&self) {
        self.lane.capture.take();
        self.lane.era.set(EAGER);
        self.owe_full();
    }

    /// Keeps a block for the capture that it takes part in, if it does.
    pub(super) fn keep(&self, block: &Rc<Block>) {
        if let Some(taking) = &*self.lane.capture.borrow() {
            taking.keep(block);
        }
    }

    /// Refuses what may only be done between steps.
    pub(super) fn check_between_steps(&self, what: &'static str) -> Result<(), CudaError> {
        if self.lane.step.get().inside {
            return Err(CudaError::InsideStep { what, stream: self.name() });
        }
        Ok(())
    }

    /// Refuses what would break a graph that is being captured.
    pub(super) fn check_eager(&self, what: &'static str) -> Result<(), CudaError> {
        if self.is_capturing() {
            return Err(CudaError::Capturing { what, stream: self.name() });
        }
        Ok(())
    }
}

impl Deref for Stream {
    type Target = Arc<CudaStream>;

    fn deref(&self) -> &Arc<CudaStream> {
        self.lane.given.set(UNSEEN);
        &self.lane.stream
    }
}

/// Whether they are handles of the same stream of the driver's.
impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.lane, &other.lane) || self.peek() == other.peek()
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.name())
    }
}

/// An event of the CUDA device, without a time stamp.
pub struct Event {
    handle: CudaEvent,
    /// The era in which it was recorded last.
    era: Cell<u64>,
    /// The stream on which it was recorded last.
    lane: Cell<u64>,
    /// The capture in which it was recorded last, if it was ever recorded in one.
    capture: RefCell<Option<Rc<Taking>>>,
}

impl Event {
    pub(super) fn new(shared: &Shared) -> Result<Self, CudaError> {
        let handle = raw::named("cuEventCreate", shared.context.new_event(None))?;
        let (era, lane) = (Cell::new(NEVER), Cell::new(0));
        Ok(Self { handle, era, lane, capture: RefCell::default() })
    }

    #[inline]
    pub(super) fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        raw::record(&self.handle, stream.peek())?;
        self.era.set(stream.lane.era.get());
        self.lane.set(stream.lane.id);
        if stream.is_capturing() {
            self.capture.replace(stream.lane.capture.borrow().clone());
        }
        Ok(())
    }

    #[inline]
    pub(super) fn make_wait(&self, stream: &Stream) -> Result<(), CudaError> {
        if self.era.get() == stream.lane.era.get() {
            raw::wait(stream.give(), &self.handle)?;
            if stream.is_capturing() {
                stream.owe_full();
            }
            return Ok(());
        }
        self.wait_across(stream)
    }

    /// Leaves a wait out where barriers stand in for it.
    #[cold]
    fn wait_across(&self, stream: &Stream) -> Result<(), CudaError> {
        let (recorded, now) = (self.era.get(), stream.lane.era.get());
        if recorded == NEVER {
            return Ok(());
        }
        let both = [self.lane.get(), stream.lane.id];
        let took = |taking: &RefCell<Option<Rc<Taking>>>, over| {
            taking.borrow().as_ref().is_some_and(|taking| taking.has(both, over))
        };
        let was = recorded == EAGER || took(&self.capture, true);
        let covered = was && (now == EAGER || took(&stream.lane.capture, false));
        if covered { Ok(()) } else { Err(CudaError::OutsideCapture { stream: stream.name() }) }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?})", self.handle.cu_event())
    }
}

/// Orders whatever the streams are given next after all that they hold now.
pub(super) fn barrier(lanes: &[Stream]) -> Result<(), CudaError> {
    join_into_first(lanes)?;
    fork_from_first(lanes)
}

/// Orders the first stream after all that the others hold.
pub(super) fn join_into_first(lanes: &[Stream]) -> Result<(), CudaError> {
    let Some((first, others)) = lanes.split_first() else { return Ok(()) };
    for other in others {
        raw::record(&other.lane.tail, other.peek())?;
        raw::wait(first.give(), &other.lane.tail)?;
    }
    Ok(())
}

/// Orders the other streams after all that the first holds.
pub(super) fn fork_from_first(lanes: &[Stream]) -> Result<(), CudaError> {
    let Some((first, others)) = lanes.split_first() else { return Ok(()) };
    if others.is_empty() {
        return Ok(());
    }
    raw::record(&first.lane.tail, first.peek())?;
    for other in others {
        raw::wait(other.give(), &first.lane.tail)?;
    }
    Ok(())
}

/// Orders `stream` after all that `other` holds.
pub(super) fn join(stream: &CudaStream, other: &Stream) -> Result<(), CudaError> {
    raw::record(&other.lane.tail, other.peek())?;
    raw::wait(stream, &other.lane.tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stronger_kind_wins() {
        use Launch::{Dependent, Early, Full};
        assert_eq!(stronger(Early, Dependent), Dependent);
        assert_eq!(stronger(Dependent, Full), Full);
        assert_eq!(stronger(Early, Early), Early);
    }

    #[test]
    fn a_kernel_that_does_not_wait_is_not_asked_to() {
        use Launch::{Dependent, Early, Full};
        assert_eq!(due(Early, Dependent), Full);
        assert_eq!(due(Early, Early), Early);
        assert_eq!(due(Dependent, Early), Dependent);
        assert_eq!(due(Dependent, Dependent), Dependent);
        assert_eq!([due(Early, Full), due(Dependent, Full), due(Full, Early)], [Full; 3]);
    }
}
