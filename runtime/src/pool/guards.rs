//! The cores of pool, micro-batch, pass, layer and step: untyped, driven by the constant tables.
//!
//! Generated code wraps each in a thin typed struct: it knows step numbers, offsets and shapes,
//! and this module knows the order.
//!
//! ```text
//!  PoolCore ──split──> UbatchCore ──begin(rows)──> PassCore ──layer(k)──> LayerCore ──step(i)──> StepCore
//!  device, plan,       one copy: streams,                                                       stream,
//!  N copies            events, bytes, walk                                                      addresses
//! ```
//!
//! Each borrows the one before it mutably, so at most one step of a copy is open at a time, and
//! views, which borrow the step, are gone when the next one opens.

use core::fmt;

use super::clock::Clocks;
use super::plan::{MemoryReport, Place, Plan};
use super::sanitize::{self, Sanitizer, Visit};
use super::storage::{Apart, Backing, Prepare, Storage};
use super::walk::{Lanes, Ready, Walk, Walker, check};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::view::{View, ViewMut};

/// A pool: `N` copies of the arena, each with its own streams, events and progress.
pub struct PoolCore<D: Device, P: Plan, const N: usize = 1> {
    base: Base<D, P>,
    replicas: [Replica<D>; N],
}

/// What all copies share.
struct Base<D, P> {
    device: D,
    plan: P,
    backing: Backing,
}

/// One copy. `lanes` never changes, so that views can keep a stream while the rest moves on.
struct Replica<D: Device> {
    lanes: Lanes<D>,
    state: State<D>,
}

struct State<D: Device> {
    walk: Walk,
    storage: Storage<D>,
    watch: Option<Box<Sanitizer<D>>>,
}

/// One copy, borrowed, with what all copies share.
struct Cursor<'c, D: Device, P> {
    base: &'c Base<D, P>,
    lanes: &'c Lanes<D>,
    state: &'c mut State<D>,
}

impl<'c, D: Device, P: Plan> Cursor<'c, D, P> {
    fn new(base: &'c Base<D, P>, replica: &'c mut Replica<D>) -> Self {
        Self { base, lanes: &replica.lanes, state: &mut replica.state }
    }

    fn reborrow(&mut self) -> Cursor<'_, D, P> {
        Cursor { base: self.base, lanes: self.lanes, state: self.state }
    }

    fn walker(&mut self) -> Walker<'c, '_, D> {
        Walker {
            device: &self.base.device,
            schedule: P::SCHEDULE,
            lanes: self.lanes,
            walk: &mut self.state.walk,
        }
    }

    /// What the sanitizer found, once each.
    #[inline]
    fn report(&mut self) -> Result<(), Error> {
        if !self.is_watched() {
            return Ok(());
        }
        self.state.watch.as_deref_mut().map_or(Ok(()), Sanitizer::report)
    }

    #[inline]
    fn is_watched(&self) -> bool {
        self.state.walk.shadow.is_some()
    }

    /// Does something with the sanitizer and the present layer, where there is a sanitizer.
    #[cold]
    fn visit(
        &mut self,
        step: usize,
        act: impl FnOnce(&mut Sanitizer<D>, &P, &Visit<'_, D>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let State { walk, watch, .. } = &mut *self.state;
        let (Some(watch), Some(clocks)) = (watch, walk.shadow.as_deref()) else { return Ok(()) };
        let visit = Visit {
            device: &self.base.device,
            streams: self.lanes.streams(),
            step,
            layer: walk.layer(),
            rows: walk.rows(),
            clocks,
            exists: walk.kind().buffers,
            runs: walk.kind().steps,
        };
        act(watch, &self.base.plan, &visit)
    }

    /// Ends the pass, if one is open.
    #[inline]
    fn finish_pass(&mut self) {
        let open = self.state.walk.in_pass();
        self.walker().finish_pass();
        if open && self.is_watched() {
            self.look_at_the_rest();
        }
    }

    #[cold]
    fn look_at_the_rest(&mut self) {
        let State { walk, watch, .. } = &mut *self.state;
        if let Some(watch) = watch
            && let Err(error) = watch.pass_ends(&self.base.device, self.lanes.streams())
        {
            walk.lose(error);
        }
    }
}

impl<D: Device, P: Plan, const N: usize> PoolCore<D, P, N> {
    /// Allocates a pool, and creates its streams and events.
    ///
    /// # Errors
    ///
    /// What the device refuses, and [`Error::Schedule`] for tables that contradict each other.
    pub fn new(device: &D, plan: P, backing: Backing) -> Result<Self, Error> {
        let streams = (0..N).map(|_| Lanes::create_streams(device, P::SCHEDULE));
        Self::build(device, plan, backing, streams)
    }

    /// Allocates a pool on the caller's streams: for each copy, one for each name of the
    /// schedule, in its order.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and [`Error::StreamCount`].
    pub fn with_streams(
        device: &D,
        plan: P,
        backing: Backing,
        streams: [Vec<D::Stream>; N],
    ) -> Result<Self, Error> {
        Self::build(device, plan, backing, streams.into_iter().map(Ok))
    }

    fn build(
        device: &D,
        plan: P,
        backing: Backing,
        streams: impl Iterator<Item = Result<Vec<D::Stream>, Error>>,
    ) -> Result<Self, Error> {
        check(P::SCHEDULE, P::BUFFERS)?;
        let asked = backing == Backing::Arena && sanitize::is_asked_for();
        let backing = if asked { Backing::Sanitized } else { backing };
        let replicas = streams
            .map(|streams| {
                let lanes = Lanes::new(device, P::SCHEDULE, streams?)?;
                let storage = Storage::new(device, &plan, backing)?;
                storage.adopt(device, lanes.streams());
                let watch = if backing == Backing::Sanitized {
                    let (apart, base) = (Apart::of(&plan)?, storage.base());
                    let watch = Sanitizer::new(device, &plan, &apart, base, lanes.streams())?;
                    Some(Box::new(watch))
                } else {
                    None
                };
                let mut walk = Walk::new(device, P::SCHEDULE, &lanes);
                device.follow(lanes.streams(), &walk.progress);
                walk.shadow = watch.as_ref().map(|_| {
                    let (streams, steps) = (P::SCHEDULE.streams.len(), P::SCHEDULE.steps.len());
                    Box::new(Clocks::new(streams, steps))
                });
                Ok(Replica { lanes, state: State { walk, storage, watch } })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let replicas = replicas
            .try_into()
            .map_err(|made: Vec<_>| Error::StreamCount { given: made.len(), expected: N })?;
        Ok(Self { base: Base { device: device.clone(), plan, backing }, replicas })
    }

    /// The device.
    pub const fn device(&self) -> &D {
        &self.base.device
    }

    /// The plan.
    pub const fn plan(&self) -> &P {
        &self.base.plan
    }

    /// How the pool gets its memory.
    pub const fn backing(&self) -> Backing {
        self.base.backing
    }

    /// What the plan reserves in an arena, in all copies.
    pub fn memory(&self) -> MemoryReport {
        self.base.plan.memory().in_copies(N)
    }

    /// Bytes allocated now, in all copies. In an arena that is what the plan reserves.
    pub fn held_bytes(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.state.storage.held_bytes()).sum()
    }

    /// The copies, one for each micro-batch in flight.
    pub fn split(&mut self) -> [UbatchCore<'_, D, P>; N] {
        let base = &self.base;
        self.replicas.each_mut().map(|replica| UbatchCore { cursor: Cursor::new(base, replica) })
    }
}

impl<D: Device, P: Plan> PoolCore<D, P, 1> {
    /// Begins a pass of `rows` rows on the only copy.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyRows`], and what an earlier `Drop` could not report.
    #[inline]
    pub fn begin(&mut self, rows: usize) -> Result<PassCore<'_, D, P>, Error> {
        let [replica] = &mut self.replicas;
        PassCore::begin(Cursor::new(&self.base, replica), rows)
    }
}

/// One copy of a pool: what one micro-batch in flight uses.
pub struct UbatchCore<'p, D: Device, P: Plan> {
    cursor: Cursor<'p, D, P>,
}

impl<D: Device, P: Plan> UbatchCore<'_, D, P> {
    /// Begins a pass of `rows` rows on this copy.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyRows`], and what an earlier `Drop` could not report.
    #[inline]
    pub fn begin(&mut self, rows: usize) -> Result<PassCore<'_, D, P>, Error> {
        PassCore::begin(self.cursor.reborrow(), rows)
    }
}

/// One pass over the layers. Dropping it issues what is left of the order.
pub struct PassCore<'u, D: Device, P: Plan> {
    cursor: Cursor<'u, D, P>,
}

impl<'u, D: Device, P: Plan> PassCore<'u, D, P> {
    fn begin(mut cursor: Cursor<'u, D, P>, rows: usize) -> Result<Self, Error> {
        let max = cursor.base.plan.max_rows();
        cursor.finish_pass();
        cursor.report()?;
        let lost = cursor.state.walk.is_lost();
        cursor.walker().begin(rows, max, P::ROWS)?;
        if let Some(watch) = cursor.state.watch.as_deref_mut().filter(|_| lost) {
            watch.forget();
        }
        Ok(Self { cursor })
    }

    /// Rows of the pass.
    pub fn rows(&self) -> usize {
        self.cursor.state.walk.rows()
    }

    /// The streams of this copy, in the schedule's order.
    pub fn streams(&self) -> &[D::Stream] {
        self.cursor.lanes.streams()
    }

    /// Ends the pass, and says what dropping it could not.
    ///
    /// # Errors
    ///
    /// What the device reports of the order of the steps not asked for, and what an earlier `Drop`
    /// could not report.
    pub fn finish(mut self) -> Result<(), Error> {
        self.cursor.finish_pass();
        self.cursor.state.walk.late()?;
        self.cursor.report()
    }

    /// Opens a layer, after issuing the order of the skipped ones before it.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchLayer`], [`Error::LayerOrder`], what the device reports, and what an earlier
    /// `Drop` could not report.
    #[inline]
    pub fn layer(&mut self, layer: usize) -> Result<LayerCore<'_, D, P>, Error> {
        let mut cursor = self.cursor.reborrow();
        cursor.report()?;
        cursor.walker().open_layer(layer)?;
        cursor.state.storage.enter_layer();
        Ok(LayerCore { cursor })
    }
}

impl<D: Device, P: Plan> Drop for PassCore<'_, D, P> {
    #[inline]
    fn drop(&mut self) {
        self.cursor.finish_pass();
    }
}

/// One layer of a pass. Dropping it issues the order of the steps not asked for.
pub struct LayerCore<'l, D: Device, P: Plan> {
    cursor: Cursor<'l, D, P>,
}

impl<D: Device, P: Plan> LayerCore<'_, D, P> {
    /// Rows of the pass.
    pub fn rows(&self) -> usize {
        self.cursor.state.walk.rows()
    }

    /// Enters a step, by its index in the schedule: issues the order of the skipped ones before
    /// it, and its waits. `None` where it does not run in this layer.
    ///
    /// # Errors
    ///
    /// [`Error::StepOrder`], what the device reports, and what an earlier `Drop` could not report.
    /// A step that could not be entered may be asked for again.
    #[inline]
    pub fn step(&mut self, step: usize) -> Result<Option<StepCore<'_, D, P>>, Error> {
        let mut cursor = self.cursor.reborrow();
        cursor.report()?;
        let Some(ready) = cursor.walker().prepare(step)? else { return Ok(None) };
        let Cursor { base, lanes, state } = &mut cursor;
        if let Some(ranges) = state.storage.per_call() {
            let prepare = Prepare {
                device: &base.device,
                plan: &base.plan,
                streams: lanes.streams(),
                step: ready.row.name,
                stream: ready.stream,
                kind: state.walk.kind(),
                row: ready.row,
            };
            ranges.prepare(&prepare, state.walk.rows())?;
        }
        cursor.walker().enter(&ready)?;
        if cursor.is_watched() {
            cursor.visit(ready.step, Sanitizer::entered)?;
        }
        Ok(Some(StepCore { ready, cursor }))
    }

    /// Enters a step that runs in every layer.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step), and [`Error::StepAbsent`].
    #[inline]
    pub fn step_in_every_layer(&mut self, step: usize) -> Result<StepCore<'_, D, P>, Error> {
        let layer = self.cursor.state.walk.layer();
        self.step(step)?.ok_or_else(|| Error::StepAbsent {
            step: P::SCHEDULE.steps.get(step).map_or("", |row| row.name),
            layer,
        })
    }
}

impl<D: Device, P: Plan> Drop for LayerCore<'_, D, P> {
    #[inline]
    fn drop(&mut self) {
        self.cursor.walker().finish_layer();
    }
}

/// A step that has been entered. Dropping it records the event, if a later step waits for it.
pub struct StepCore<'l, D: Device, P: Plan> {
    ready: Ready<'l, D>,
    cursor: Cursor<'l, D, P>,
}

impl<'l, D: Device, P: Plan> StepCore<'l, D, P> {
    /// The step's stream. Its waits have been issued.
    #[inline]
    pub const fn stream(&self) -> &'l D::Stream {
        self.ready.stream
    }

    /// Rows of the pass.
    #[inline]
    pub fn rows(&self) -> usize {
        self.cursor.state.walk.rows()
    }

    /// The plan.
    #[inline]
    pub const fn plan(&self) -> &'l P {
        &self.cursor.base.plan
    }

    /// Whether a buffer exists in this layer.
    #[inline]
    pub fn has(&self, place: Place) -> bool {
        self.cursor.state.walk.kind().buffers.get(place.buffer).copied().unwrap_or(false)
    }

    /// A shared view of a buffer.
    ///
    /// # Safety
    ///
    /// - `place` is of a buffer of element type `T` that this step declares to read or write and
    ///   that [exists in this layer](Self::has);
    /// - `shape` is its shape at [`rows`](Self::rows): it spans at most [`Plan::tensor_bytes`];
    /// - no exclusive view of the buffer can be used while this one can.
    #[inline]
    pub unsafe fn view<T: Element, const R: usize>(
        &self,
        place: Place,
        shape: [usize; R],
    ) -> View<'_, T, D, R> {
        let start = self.cursor.state.storage.address(place).cast();
        // SAFETY: by the plan's contract the arena, or by the storage's invariant the live range,
        // has the bytes of the buffer's tensor at this address, aligned; they stay while the pool
        // is borrowed. The step is entered, so its waits have been issued on this stream and all
        // that the proof orders before it is ordered. The caller keeps exclusiveness.
        unsafe { View::from_raw_parts(start, shape, self.ready.stream) }
    }

    /// An exclusive view of a buffer.
    ///
    /// # Safety
    ///
    /// As [`view`](Self::view), and
    ///
    /// - the step declares to write the buffer;
    /// - the caller holds this guard exclusively for as long as the view can be used, and makes
    ///   no other view of the buffer in that time. (Buffers that overlap this one's bytes are not
    ///   live in this step: that is what was proved.)
    #[inline]
    pub unsafe fn view_mut<T: Element, const R: usize>(
        &self,
        place: Place,
        shape: [usize; R],
    ) -> ViewMut<'_, T, D, R> {
        let start = self.cursor.state.storage.address(place).cast();
        // SAFETY: as above; other steps' views are gone, because a step borrows the layer
        // exclusively; those of this step are the caller's affair.
        unsafe { ViewMut::from_raw_parts(start, shape, self.ready.stream) }
    }
}

impl<D: Device, P: Plan> Drop for StepCore<'_, D, P> {
    #[inline]
    fn drop(&mut self) {
        if self.cursor.is_watched()
            && let Err(error) =
                self.cursor.visit(self.ready.step, |watch, _, visit| watch.leaving(visit))
        {
            self.cursor.state.walk.lose(error);
        }
        self.cursor.walker().drop_step(&self.ready);
    }
}

macro_rules! debug {
    ($($name:ident)*) => {$(
        impl<D: Device, P: Plan> fmt::Debug for $name<'_, D, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.cursor.state.walk).finish()
            }
        }
    )*};
}

debug!(UbatchCore PassCore LayerCore StepCore);

impl<D: Device, P: Plan, const N: usize> fmt::Debug for PoolCore<D, P, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolCore")
            .field("memory", &self.memory())
            .field("backing", &self.base.backing)
            .finish_non_exhaustive()
    }
}
