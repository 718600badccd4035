//! The walk over the schedule: issues exactly the table's waits and records, in the declared order.
//!
//! A walk is the progress of one copy of a pool: which layer, which step, how often each step has
//! run. It lives in the pool, not in the guards, so a guard that is forgotten instead of dropped
//! loses nothing: whatever it left open is closed by the next call.
//!
//! ```text
//!  layer k      fork   index_q   index_topk   compress   q_proj   join …
//!                 ✓       ✓       (skipped)     open        ·        ·
//!                                     │           └ its guard is held: record when it drops
//!                                     └ waits and records issued as for an empty step
//! ```
//!
//! Invariant: for every step before the cursor, in every layer where it runs, the waits, the step
//! and the record were issued once, in order; or [`Walk::lost`] is set. Views are handed out only
//! while it is not set, so whoever holds one is ordered as the proof assumes. A wait or a record that
//! would change nothing, because nothing was given to the streams since (see `elide`), counts as
//! issued.

use super::clock::Clocks;
use super::elide::Known;
use crate::device::Device;
use crate::error::Error;
use crate::progress::{Progress, StreamUser};
use crate::tables::{Launch, LayerKind, ScheduleTable, StepInLayer, StepRow};

/// A kind of layer without steps, before the first layer.
const NO_LAYER: &LayerKind = &LayerKind { steps: &[], buffers: &[] };

/// The streams and events of one copy, created once.
#[derive(Debug)]
pub(crate) struct Lanes<D: Device> {
    streams: Box<[D::Stream]>,
    /// Who each stream's steps belong to, where a stream is shared.
    users: Box<[StreamUser]>,
    events: Box<[StepEvents<D::Event>]>,
}

/// The events that a step alternates between.
#[derive(Debug)]
enum StepEvents<E> {
    None,
    One(E),
    Two([E; 2]),
}

impl<E> StepEvents<E> {
    /// The event of a step's run number `run`.
    fn of_run(&self, run: u64) -> Option<&E> {
        match self {
            Self::None => None,
            Self::One(event) => Some(event),
            Self::Two([even, odd]) => Some(if run & 1 == 0 { even } else { odd }),
        }
    }
}

impl<D: Device> Lanes<D> {
    /// Creates the events of a schedule for streams that exist.
    pub(crate) fn new(
        device: &D,
        schedule: &'static ScheduleTable,
        streams: Vec<D::Stream>,
    ) -> Result<Self, Error> {
        let (given, expected) = (streams.len(), schedule.streams.len());
        if given != expected {
            return Err(Error::StreamCount { given, expected });
        }
        for (stream, name) in streams.iter().zip(schedule.streams) {
            if !device.owns(stream) {
                return Err(Error::ForeignDevice { stream: name });
            }
        }
        let events = schedule
            .steps
            .iter()
            .map(|step| {
                Ok(match step.events {
                    0 => StepEvents::None,
                    1 => StepEvents::One(device.create_event()?),
                    _ => StepEvents::Two([device.create_event()?, device.create_event()?]),
                })
            })
            .collect::<Result<_, Error>>()?;
        let users = StreamUser::some(streams.len()).collect();
        Ok(Self { streams: streams.into(), users, events })
    }

    /// Creates the streams that a schedule names.
    pub(crate) fn create_streams(
        device: &D,
        schedule: &'static ScheduleTable,
    ) -> Result<Vec<D::Stream>, Error> {
        schedule.streams.iter().map(|name| device.create_stream(name)).collect()
    }

    /// All streams, in the schedule's order.
    pub(crate) fn streams(&self) -> &[D::Stream] {
        &self.streams
    }
}

/// The progress of one copy.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "pass, layer and step are open independently")]
pub(crate) struct Walk {
    /// Rows of the present pass.
    rows: usize,
    /// The open layer; where none is open, the first one not issued.
    layer: usize,
    /// Whether `layer` is open.
    in_layer: bool,
    /// The kind of the open layer.
    kind: &'static LayerKind,
    /// The first step of the open layer that is not closed.
    step: usize,
    /// Whether `step` is entered: its guard is held.
    in_step: bool,
    in_pass: bool,
    /// Whether some event could not be recorded or waited for.
    lost: bool,
    /// The failure that caused it, where a `Drop` could not return it: for the next call.
    late: Option<Error>,
    /// How often each step has run.
    runs: Box<[u64]>,
    /// Which waits and records would change nothing, where the device can tell of any stream.
    known: Option<Box<Known>>,
    /// Told of every step, for what executes them again.
    pub(crate) progress: Progress,
    /// Those of a sanitized pool, told of every wait, step and record.
    pub(crate) shadow: Option<Box<Clocks>>,
}

impl Walk {
    pub(crate) fn new<D: Device>(
        device: &D,
        schedule: &'static ScheduleTable,
        lanes: &Lanes<D>,
    ) -> Self {
        let tells = lanes.streams.iter().any(|stream| device.issued(stream).is_some());
        Self {
            rows: 0,
            layer: 0,
            in_layer: false,
            kind: NO_LAYER,
            step: 0,
            in_step: false,
            in_pass: false,
            lost: false,
            late: None,
            runs: schedule.steps.iter().map(|_| 0).collect(),
            known: tells.then(|| Box::new(Known::new(schedule))),
            progress: Progress::new(nodes(schedule)),
            shadow: None,
        }
    }

    /// Rows of the present pass.
    pub(crate) const fn rows(&self) -> usize {
        self.rows
    }

    /// The open layer.
    pub(crate) const fn layer(&self) -> usize {
        self.layer
    }

    /// The kind of the open layer.
    pub(crate) const fn kind(&self) -> &'static LayerKind {
        self.kind
    }

    /// Whether a pass is open.
    pub(crate) const fn in_pass(&self) -> bool {
        self.in_pass
    }

    /// Whether the order was lost, so that the next `begin` waits for everything.
    pub(crate) const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Fails with what an earlier `Drop` could not say.
    #[inline]
    fn check(&mut self) -> Result<(), Error> {
        if !self.lost {
            return Ok(());
        }
        Err(self.late.take().unwrap_or(Error::OrderLost))
    }

    /// What an earlier `Drop` could not say, once.
    pub(crate) fn late(&mut self) -> Result<(), Error> {
        self.late.take().map_or(Ok(()), Err)
    }

    /// Keeps a failure that left an event unrecorded or a wait unissued.
    pub(crate) fn lose(&mut self, error: Error) {
        self.lost = true;
        self.late.get_or_insert(error);
    }
}

/// A walk with what it needs to move: everything one call works with.
pub(crate) struct Walker<'l, 'w, D: Device> {
    pub(crate) device: &'l D,
    pub(crate) schedule: &'static ScheduleTable,
    pub(crate) lanes: &'l Lanes<D>,
    pub(crate) walk: &'w mut Walk,
}

/// A step of the open layer, looked up.
#[derive(Debug)]
pub(crate) struct Ready<'l, D: Device> {
    pub(crate) step: usize,
    pub(crate) row: &'static StepRow,
    here: &'static StepInLayer,
    pub(crate) stream: &'l D::Stream,
}

#[expect(clippy::inline_always, reason = "measured: a tenth of a layer's host time")]
impl<'l, D: Device> Walker<'l, '_, D> {
    /// Begins a pass of at most `max` rows, a number that `dim` sets where it is given at start-up.
    pub(crate) fn begin(
        &mut self,
        rows: usize,
        max: usize,
        dim: Option<&'static str>,
    ) -> Result<(), Error> {
        if rows > max {
            return Err(Error::TooManyRows { asked: rows, max, dim });
        }
        self.finish_pass();
        if let Some(error) = self.walk.late.take() {
            return Err(error);
        }
        if self.walk.lost {
            // Once all is done, no wait is needed: count runs anew.
            self.device.synchronize()?;
            self.walk.runs.fill(0);
            if let Some(clocks) = &mut self.walk.shadow {
                clocks.forget();
            }
            self.walk.lost = false;
        }
        self.walk.rows = rows;
        self.walk.layer = 0;
        self.walk.in_pass = true;
        self.walk.progress.begin();
        Ok(())
    }

    /// Opens a layer, after issuing the skipped ones before it.
    #[inline]
    pub(crate) fn open_layer(&mut self, layer: usize) -> Result<(), Error> {
        self.walk.check()?;
        let layers = self.schedule.layers.len();
        if layer >= layers {
            return Err(Error::NoSuchLayer { layer, layers });
        }
        if self.walk.in_layer {
            self.pass_steps_before(usize::MAX)?;
            self.leave_layer();
        }
        if layer < self.walk.layer {
            return Err(Error::LayerOrder { layer, issued: self.walk.layer - 1 });
        }
        while self.walk.layer < layer {
            self.enter_layer()?;
            self.pass_steps_before(usize::MAX)?;
            self.leave_layer();
        }
        self.enter_layer()
    }

    /// Issues the waits of a step, after issuing the skipped ones before it; `None` where it does
    /// not run in the open layer. [`enter`](Self::enter) follows.
    #[inline]
    pub(crate) fn prepare(&mut self, step: usize) -> Result<Option<Ready<'l, D>>, Error> {
        self.walk.check()?;
        if self.walk.progress.is_behind() {
            self.catch_up()?;
        }
        if self.walk.in_step || step != self.walk.step {
            self.go_to(step)?;
        }
        let ready = self.look_up(step)?;
        if !ready.here.runs {
            self.walk.step = step + 1;
            return Ok(None);
        }
        self.wait_for(&ready)?;
        Ok(Some(ready))
    }

    /// Enters the step that was prepared.
    #[inline]
    pub(crate) fn enter(&mut self, ready: &Ready<'l, D>) -> Result<(), Error> {
        let user = self.lanes.users.get(usize::from(ready.row.stream));
        let launch = match ready.row.launch {
            Launch::Full => Launch::Full,
            // Behind another pool's launch, "the launch before" is not the one that the proof means.
            kind if user.is_some_and(|user| self.device.take_turn(ready.stream, *user)) => kind,
            _ => Launch::Full,
        };
        // SAFETY: the proof holds for steps launched so, and this is the next step in its order. What
        // comes to the stream from elsewhere in the meantime was launched in full, or is another
        // pool's, and then `launch` is `Full`.
        unsafe { self.device.enter_step(ready.stream, launch)? };
        if let Some(clocks) = &mut self.walk.shadow {
            clocks.enter(usize::from(ready.row.stream), ready.row.launch);
        }
        self.walk.in_step = true;
        Ok(())
    }

    /// Ends the step that is entered: its guard was dropped.
    #[inline]
    pub(crate) fn drop_step(&mut self, ready: &Ready<'l, D>) {
        if let Err(error) = self.close(ready) {
            self.walk.lose(error);
        }
    }

    /// Issues what is left of the open layer: its guard was dropped.
    pub(crate) fn finish_layer(&mut self) {
        if self.walk.in_layer {
            if !self.walk.lost
                && let Err(error) = self.pass_steps_before(usize::MAX)
            {
                self.walk.lose(error);
            }
            self.leave_layer();
        }
    }

    /// Issues what is left of the pass: its guard was dropped.
    pub(crate) fn finish_pass(&mut self) {
        self.finish_layer();
        if !self.walk.in_pass {
            return;
        }
        while self.walk.layer < self.schedule.layers.len() && !self.walk.lost {
            match self.enter_layer() {
                Ok(()) => self.finish_layer(),
                Err(error) => self.walk.lose(error),
            }
        }
        self.walk.in_pass = false;
        self.walk.progress.finish();
    }

    #[inline]
    fn enter_layer(&mut self) -> Result<(), Error> {
        let layer = self.walk.layer;
        self.walk.kind = self
            .schedule
            .layers
            .get(layer)
            .and_then(|&kind| self.schedule.kinds.get(usize::from(kind)))
            .ok_or(Error::Schedule { what: "a layer of no kind", at: layer })?;
        self.walk.step = 0;
        self.walk.in_layer = true;
        Ok(())
    }

    #[inline]
    fn leave_layer(&mut self) {
        self.walk.in_layer = false;
        self.walk.in_step = false;
        self.walk.step = 0;
        self.walk.kind = NO_LAYER;
        self.walk.layer += 1;
    }

    /// Issues as empty ones the steps of this layer that a replay has done.
    #[cold]
    fn catch_up(&mut self) -> Result<(), Error> {
        self.close_forgotten()?;
        while self.walk.progress.is_behind() && self.walk.step < self.walk.kind.steps.len() {
            self.pass_steps_before(self.walk.step + 1)?;
        }
        Ok(())
    }

    /// Goes forward to a step other than the next one.
    fn go_to(&mut self, step: usize) -> Result<(), Error> {
        self.close_forgotten()?;
        if step < self.walk.step {
            return Err(self.out_of_order(step));
        }
        self.pass_steps_before(step)
    }

    #[cold]
    fn out_of_order(&self, step: usize) -> Error {
        let name = |at: usize| self.schedule.steps.get(at).map_or("", |row| row.name);
        Error::StepOrder {
            step: name(step),
            issued: name(self.walk.step - 1),
            layer: self.walk.layer,
        }
    }

    /// Issues skipped steps up to, not including, `end`, as empty ones.
    fn pass_steps_before(&mut self, end: usize) -> Result<(), Error> {
        self.close_forgotten()?;
        let end = end.min(self.walk.kind.steps.len());
        while self.walk.step < end {
            let ready = self.look_up(self.walk.step)?;
            if ready.here.runs {
                self.wait_for(&ready)?;
                self.enter(&ready)?;
                self.close(&ready)?;
            } else {
                self.walk.step += 1;
            }
        }
        Ok(())
    }

    /// Ends a step whose guard was forgotten.
    #[inline]
    fn close_forgotten(&mut self) -> Result<(), Error> {
        if self.walk.in_step {
            let ready = self.look_up(self.walk.step)?;
            self.close(&ready)?;
        }
        Ok(())
    }

    /// Leaves the open step and records its event. It counts as run even where that fails, and
    /// then the order is lost.
    #[inline(always)]
    fn close(&mut self, ready: &Ready<'l, D>) -> Result<(), Error> {
        self.walk.in_step = false;
        self.walk.step = ready.step + 1;
        self.walk.progress.issue();
        let closed = self.leave_and_record(ready);
        self.walk.lost |= closed.is_err();
        closed
    }

    #[inline(always)]
    fn leave_and_record(&mut self, ready: &Ready<'l, D>) -> Result<(), Error> {
        let Some(runs) = self.walk.runs.get_mut(ready.step) else {
            return Err(no_events(ready.step));
        };
        let run = *runs;
        *runs += 1;
        self.device.leave_step(ready.stream)?;
        if ready.here.records {
            let event = self.lanes.events.get(ready.step).and_then(|events| events.of_run(run));
            let Some(event) = event else { return Err(no_events(ready.step)) };
            if self.walk.known.is_none() {
                self.device.record(ready.stream, event)?;
            } else {
                self.record_what_is_new(ready, event, event_of(ready.step, ready.row, run))?;
            }
            if let Some(clocks) = &mut self.walk.shadow {
                clocks.record(usize::from(ready.row.stream), event_of(ready.step, ready.row, run));
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn wait_for(&mut self, ready: &Ready<'l, D>) -> Result<(), Error> {
        for wait in ready.here.waits {
            let step = usize::from(wait.step);
            let runs = self.walk.runs.get(step).copied().unwrap_or(0);
            // A run that has not happened is not waited for.
            let Some(run) = runs.checked_sub(1 + u64::from(wait.back)) else { continue };
            let event = self.lanes.events.get(step).and_then(|events| events.of_run(run));
            let Some(event) = event else { return Err(no_events(step)) };
            if self.walk.known.is_none() {
                self.device.wait(ready.stream, event)?;
            } else if let Some(row) = self.schedule.steps.get(step) {
                self.wait_for_what_is_new(ready, event, event_of(step, row, run))?;
            }
            if let Some(clocks) = &mut self.walk.shadow
                && let Some(row) = self.schedule.steps.get(step)
            {
                clocks.wait(usize::from(ready.row.stream), event_of(step, row, run));
            }
        }
        Ok(())
    }

    /// Records an event, unless it stands already for all that its stream holds.
    #[cold]
    #[inline(never)]
    fn record_what_is_new(
        &mut self,
        ready: &Ready<'l, D>,
        event: &D::Event,
        number: usize,
    ) -> Result<(), Error> {
        let (device, stream) = (self.device, usize::from(ready.row.stream));
        let Some(known) = &mut self.walk.known else { return device.record(ready.stream, event) };
        if known.changes(stream, number, device.issued(ready.stream)) {
            device.record(ready.stream, event)?;
            known.recorded(stream, number);
        }
        Ok(())
    }

    /// Waits for an event, unless the step comes after all that it stands for already.
    #[cold]
    #[inline(never)]
    fn wait_for_what_is_new(
        &mut self,
        ready: &Ready<'l, D>,
        event: &D::Event,
        number: usize,
    ) -> Result<(), Error> {
        let (device, stream) = (self.device, usize::from(ready.row.stream));
        let Some(known) = &mut self.walk.known else { return device.wait(ready.stream, event) };
        // Only a full step comes after all that its own stream holds.
        if ready.row.launch == Launch::Full && known.covers(stream, number) {
            return Ok(());
        }
        known.look(stream, device.issued(ready.stream));
        device.wait(ready.stream, event)?;
        known.waited(stream, number, device.issued(ready.stream));
        Ok(())
    }

    #[inline(always)]
    fn look_up(&self, step: usize) -> Result<Ready<'l, D>, Error> {
        let (Some(row), Some(here)) =
            (self.schedule.steps.get(step), self.walk.kind.steps.get(step))
        else {
            return Err(Error::Schedule { what: "a step that a kind of layer lacks", at: step });
        };
        let stream = usize::from(row.stream);
        let Some(stream) = self.lanes.streams.get(stream) else {
            return Err(Error::Schedule { what: "a step on a stream without a name", at: step });
        };
        Ok(Ready { step, row, here, stream })
    }
}

/// The steps that run in a pass.
fn nodes(schedule: &ScheduleTable) -> u64 {
    let kinds = schedule.layers.iter().filter_map(|kind| schedule.kinds.get(usize::from(*kind)));
    kinds.map(|kind| kind.steps.iter().filter(|step| step.runs).count() as u64).sum()
}

/// A number for the event of a run.
fn event_of(step: usize, row: &StepRow, run: u64) -> usize {
    2 * step + usize::from(row.events > 1 && run & 1 == 1)
}

#[cold]
fn no_events(step: usize) -> Error {
    Error::Schedule { what: "a step without its events", at: step }
}

/// Checks once what the walk would else find out on the way.
pub(crate) fn check(schedule: &ScheduleTable, buffers: usize) -> Result<(), Error> {
    let fault = |what, at| Err(Error::Schedule { what, at });
    for (at, step) in schedule.steps.iter().enumerate() {
        if usize::from(step.stream) >= schedule.streams.len() {
            return fault("a step on a stream without a name", at);
        }
        if step.events > 2 {
            return fault("a step of more than two events", at);
        }
        if step.writes.iter().chain(step.reads).any(|&buffer| usize::from(buffer) >= buffers) {
            return fault("a step that uses an unknown buffer", at);
        }
    }
    for (at, &kind) in schedule.layers.iter().enumerate() {
        if usize::from(kind) >= schedule.kinds.len() {
            return fault("a layer of no kind", at);
        }
    }
    for (at, kind) in schedule.kinds.iter().enumerate() {
        if kind.steps.len() != schedule.steps.len() {
            return fault("a kind of layer with another number of steps", at);
        }
        if kind.buffers.len() != buffers {
            return fault("a kind of layer with another number of buffers", at);
        }
        for (step, row) in kind.steps.iter().zip(schedule.steps) {
            if step.records && row.events == 0 {
                return fault("a recorded step without an event", at);
            }
            for wait in step.waits {
                let waited = schedule.steps.get(usize::from(wait.step));
                if waited.is_none_or(|waited| wait.back >= waited.events) {
                    return fault("a wait for a run whose event is not kept", at);
                }
            }
        }
    }
    Ok(())
}
