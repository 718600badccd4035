//! Captures and graphs: a whole pass, or pieces of it with eager breaks in between.
//!
//! ```text
//!  let mut pass = pool.begin(max)?;
//!  let capture = cuda.capture(pass.streams(), pass.num_tokens(), CaptureMode::ThreadLocal)?;
//!  …issue steps…                                    nothing is executed yet
//!  let graph = capture.end()?;
//!  …
//!  graph.replay(rows)?;                             all rows of the capture; `rows` of them count
//! ```
//!
//! A piecewise replay replays a graph, asks the pass for the next eager step (the steps before it
//! are then skipped, and keep their place in the order), replays the next graph, and so on.
//!
//! # Why a replay is safe
//!
//! 1. Inside the graph, nodes are ordered as the steps that were captured: their waits and events
//!    were captured with them. All streams of the copy take part from the first to the last node.
//! 2. Across its edges, barriers: a replay comes after all that the copy's streams hold, and all
//!    that they are given next comes after the replay. So a wait of the schedule that crosses an
//!    edge is covered (see `stream`).
//! 3. Pointers in the graph are those of blocks that never move: the arena, and what else its streams
//!    were [said to use](crate::Device::adopt) before the capture or during it. The graph holds them
//!    all, so a pool may be dropped while its graphs live, and a graph may be dropped while it runs.
//!    Other memory that a captured launch was given, by `unsafe`, is the caller's to keep, and so are
//!    cudarc's own slices and pinned memory in a copy that is captured.
//! 4. A graph with steps of a copy holds work of all streams of that copy, and of whole steps:
//!    [`Capture::end`] refuses any other.
//! 5. In the middle of a pass the values of one step wait for another. So a graph that was captured there
//!    is replayed there: where its steps are the next ones, after which the pass goes on behind them;
//!    or once behind the capture itself, which executed nothing. A graph that begins with a pass is
//!    replayed between passes. All else is [`CudaError::OutOfTurn`].
//!
//! # Rows of a replay
//!
//! A graph does again what was captured: every kernel runs with the grid, the shapes and the addresses of
//! its capture, which are those of the pass's rows. A replay for fewer rows is the caller's to arrange,
//! in one of two ways: kernels of one's own read the number of rows from device memory that is
//! brought up to date between replays; or the rows that are not there hold *padding*, values that a
//! kernel passes over. (The crate `scratchpool-kernels` says for each of its kernels what those are.)
//!
//! | during a capture | |
//! | --- | --- |
//! | launches, copies on the device, memsets | captured |
//! | copies to and from the host through a view or the device | [`CudaError::Capturing`] |
//! | allocating a pool | [`CudaError::Capturing`] |
//! | a step of a pool under `Backing::PerCall` | [`Error::PerCallCaptured`] |
//! | dropping a pool | its arena stays with the graph, or is freed after the capture |

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaGraph, CudaStream};

use super::device::Cuda;
use super::error::CudaError;
use super::raw;
use super::state::{Block, Shared, Taking};
use super::stream::{Follower, Stream, barrier, fork_from_first, join_into_first};
use crate::error::Error;
use crate::progress::{Position, Progress};

/// What other calls of the process may do while a graph is captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// No thread may make a call that could break the capture, such as an allocation.
    Global,
    /// This thread may not; others may.
    #[default]
    ThreadLocal,
    /// Any thread may.
    Relaxed,
}

impl CaptureMode {
    const fn raw(self) -> CUstreamCaptureMode {
        match self {
            Self::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            Self::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            Self::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}

/// A graph being captured. Dropping it throws the graph away.
pub struct Capture {
    shared: Rc<Shared>,
    lanes: Vec<Stream>,
    /// Held from the start: a pool may be dropped before its capture ends.
    arenas: Vec<Rc<Block>>,
    rows: usize,
    taking: Rc<Taking>,
    /// Where the copies of pools were that use the streams.
    copies: Vec<(Rc<Follower>, Position)>,
    open: bool,
}

/// A captured graph, ready to be replayed on the first of its streams.
pub struct Graph {
    replayed: CudaGraph,
    lanes: Vec<Stream>,
    arenas: Vec<Rc<Block>>,
    rows: usize,
    spans: Vec<Span>,
}

/// The steps of one copy of a pool that a graph does.
struct Span {
    progress: Progress,
    /// The first one, in the middle of a pass; `None` is the beginning of one.
    from: Option<u64>,
    /// The one behind the last; `None` is the end of a pass.
    to: Option<u64>,
    /// The pass in which it was captured, while it has not been replayed: nothing was executed, so its
    /// place is still open.
    unexecuted: Cell<Option<u64>>,
}

impl Span {
    /// What a capture did of a copy, if anything.
    fn of(copy: &Follower, began: Position, streams: &[Stream]) -> Result<Option<Self>, CudaError> {
        let Some(progress) = copy.progress.upgrade() else { return Ok(None) };
        let ended = progress.position();
        if (began.pass, began.issued) == (ended.pass, ended.issued) {
            return Ok(None);
        }
        let takes_part = |id: u64| streams.iter().any(|stream| stream.lane.id == id);
        if let Some((_, stream)) = copy.lanes.iter().find(|(id, _)| !takes_part(*id)) {
            return Err(CudaError::PartialCapture { stream });
        }
        if began.inside.is_some() && began.pass != ended.pass {
            return Err(CudaError::OtherPass);
        }
        let unexecuted = Cell::new(ended.inside.map(|_| ended.pass));
        Ok(Some(Self { progress, from: began.inside, to: ended.inside, unexecuted }))
    }

    /// Whether its place is where its copy is now.
    fn check(&self) -> Result<(), CudaError> {
        let now = self.progress.position();
        if now.inside == self.from || self.is_unexecuted(now) {
            return Ok(());
        }
        Err(CudaError::OutOfTurn { from: self.from.unwrap_or(0), issued: now.issued })
    }

    fn is_unexecuted(&self, now: Position) -> bool {
        self.unexecuted.get() == Some(now.pass) && now.inside == self.to
    }

    /// Takes its copy behind it.
    fn replayed(&self) {
        let now = self.progress.position();
        let whole = self.from.is_none() && self.to.is_none();
        if !whole && !self.is_unexecuted(now) {
            self.progress.replayed(self.to);
        }
        self.unexecuted.set(None);
    }
}

/// The copies of pools that use the streams, each once.
fn copies_of(streams: &[Stream]) -> Vec<Rc<Follower>> {
    let mut copies: Vec<Rc<Follower>> = Vec::new();
    for copy in streams.iter().flat_map(Stream::copies) {
        if !copies.iter().any(|known| Rc::ptr_eq(known, &copy)) {
            copies.push(copy);
        }
    }
    copies
}

impl Cuda {
    /// Captures what the streams are given from now on, until [`Capture::end`]. The streams are all
    /// those of one copy of a pool, as its pass lists them, and any others that take part.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoStreams`], [`CudaError::ForeignContext`], [`CudaError::Capturing`] where one
    /// is captured already, [`CudaError::InsideStep`], and what the driver reports.
    pub fn capture(
        &self,
        streams: &[Stream],
        rows: usize,
        mode: CaptureMode,
    ) -> Result<Capture, Error> {
        let lanes = streams.to_vec();
        let Some(first) = lanes.first() else { return Err(CudaError::NoStreams.into()) };
        for lane in &lanes {
            if !Rc::ptr_eq(&lane.lane.shared, &self.shared) {
                return Err(CudaError::ForeignContext.into());
            }
            lane.check_eager("capturing")?;
            lane.check_between_steps("beginning a capture")?;
        }
        let at = |copy: Rc<Follower>| {
            let position = copy.progress.upgrade()?.position();
            Some((copy, position))
        };
        let copies = copies_of(&lanes).into_iter().filter_map(at).collect();
        let arenas = arenas_of(&lanes);
        barrier(&lanes)?;
        let first = first.clone();
        raw::named("cuStreamBeginCapture", first.give().begin_capture(mode.raw()))?;
        let ids = lanes.iter().map(|stream| stream.lane.id).collect();
        let taking = self.shared.open_capture(ids);
        for lane in &lanes {
            lane.join_capture(&taking);
        }
        let shared = Rc::clone(&self.shared);
        let capture = Capture { shared, lanes, arenas, rows, taking, copies, open: true };
        // From here on an error drops the capture, which ends it.
        fork_from_first(&capture.lanes)?;
        Ok(capture)
    }
}

impl Capture {
    /// Ends the capture.
    ///
    /// # Errors
    ///
    /// [`CudaError::InsideStep`], [`CudaError::PartialCapture`], [`CudaError::OtherPass`], and what the
    /// driver reports: among others that something was called in between which breaks a capture. The
    /// graph is thrown away then; the streams can be used again.
    pub fn end(mut self) -> Result<Graph, Error> {
        let between =
            self.lanes.iter().try_for_each(|it| it.check_between_steps("ending a capture"));
        let ended = self.close();
        between?;
        let graph = ended?.ok_or(CudaError::NoStreams)?;
        let mut spans = Vec::new();
        for copy in copies_of(&self.lanes) {
            let began = self.copies.iter().find(|(known, _)| Rc::ptr_eq(known, &copy));
            // One that was made meanwhile had not begun.
            let new = Position { pass: 0, issued: 0, inside: None };
            spans.extend(Span::of(&copy, began.map_or(new, |(_, at)| *at), &self.lanes)?);
        }
        let (lanes, arenas) = (std::mem::take(&mut self.lanes), std::mem::take(&mut self.arenas));
        Ok(Graph { replayed: graph, lanes, arenas, rows: self.rows, spans })
    }

    /// Joins all streams into the first, ends the capture, and goes back to eager work.
    fn close(&mut self) -> Result<Option<CudaGraph>, CudaError> {
        if !self.open {
            return Ok(None);
        }
        self.open = false;
        let joined = join_into_first(&self.lanes);
        let ended = match self.lanes.first() {
            Some(first) => raw::named("cuStreamEndCapture", end(first.give())),
            None => Ok(None),
        };
        for lane in &self.lanes {
            lane.leave_capture();
        }
        self.arenas.append(&mut self.shared.close_capture(&self.taking));
        joined.and(ended)
    }
}

/// The arenas of the pools that use the streams.
fn arenas_of(lanes: &[Stream]) -> Vec<Rc<Block>> {
    let mut arenas: Vec<Rc<Block>> = Vec::new();
    for lane in lanes {
        for arena in lane.lane.arenas.borrow().iter().filter_map(Weak::upgrade) {
            if !arenas.iter().any(|known| Rc::ptr_eq(known, &arena)) {
                arenas.push(arena);
            }
        }
    }
    arenas
}

fn end(first: &Arc<CudaStream>) -> Result<Option<CudaGraph>, cudarc::driver::DriverError> {
    match first.end_capture(CUgraphInstantiate_flags(0)) {
        // A capture that is broken stays attached to its stream until it is ended once more.
        Err(error) => {
            if first
                .capture_status()
                .is_ok_and(|it| it != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
            {
                let _ = first.end_capture(CUgraphInstantiate_flags(0));
            }
            Err(error)
        }
        ended => ended,
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture")
            .field("streams", &self.lanes)
            .field("arenas", &self.arenas)
            .field("max_rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl Graph {
    /// The rows of the pass that was captured, which are the rows that every replay does: kernels keep the
    /// grids, shapes and addresses of the capture. The rows that a batch does not have are the caller's
    /// to pad, in the inputs that are written before the replay, with values that the kernels pass over
    /// (for its own, the crate `scratchpool-kernels` lists them: `ops`, "Replaying with fewer rows").
    pub const fn max_rows(&self) -> usize {
        self.rows
    }

    /// How many blocks it keeps alive: arenas, and other memory that its streams use.
    pub fn arenas(&self) -> usize {
        self.arenas.len()
    }

    /// Replays it, after all that its streams hold, and before all that they are given next.
    ///
    /// A graph of a whole pass is replayed between passes. A piece of one is replayed where its first step
    /// is the next one of an open pass; its steps then count as issued.
    ///
    /// `rows` is compared with the rows captured, and changes nothing else: kernels do all rows that were
    /// captured. For fewer, the rows behind `rows` hold padding, or kernels read their number
    /// themselves: see [`max_rows`](Self::max_rows).
    ///
    /// # Errors
    ///
    /// [`CudaError::TooManyRows`], [`CudaError::Capturing`] where one of its streams is being captured,
    /// [`CudaError::InsideStep`], [`CudaError::OutOfTurn`], and what the driver reports.
    pub fn replay(&self, rows: usize) -> Result<(), Error> {
        if rows > self.rows {
            return Err(CudaError::TooManyRows { asked: rows, max: self.rows }.into());
        }
        for lane in &self.lanes {
            lane.check_eager("replaying a graph")?;
            lane.check_between_steps("replaying a graph")?;
        }
        self.spans.iter().try_for_each(Span::check)?;
        join_into_first(&self.lanes)?;
        // The graph launches itself on the first stream, past the count.
        for lane in &self.lanes {
            lane.give();
        }
        raw::named("cuGraphLaunch", self.replayed.launch())?;
        for lane in &self.lanes {
            lane.owe_full();
        }
        self.spans.iter().for_each(Span::replayed);
        if let Err(error) = fork_from_first(&self.lanes) {
            // The other streams are not ordered behind it: the host waits instead.
            if let Some(first) = self.lanes.first() {
                raw::synchronize(first.peek())?;
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// Brings it to the device, so that the first replay does not have to.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    pub fn upload(&self) -> Result<(), Error> {
        Ok(raw::named("cuGraphUpload", self.replayed.upload())?)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // It may be running. Where that cannot be waited for, the arenas' own drop waits later.
        if let Some(first) = self.lanes.first()
            && !first.lane.shared.is_capturing()
        {
            let _ = raw::synchronize(first.peek());
        }
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph")
            .field("streams", &self.lanes)
            .field("arenas", &self.arenas)
            .field("max_rows", &self.rows)
            .finish_non_exhaustive()
    }
}
