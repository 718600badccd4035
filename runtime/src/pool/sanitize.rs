//! The sanitizer: a pool that watches how it is used. Off unless asked for.
//!
//! Asked for by [`Backing::Sanitized`](crate::Backing::Sanitized), or for every arena of the process
//! by the variable `SCRATCHPOOL_SANITIZE=1`. The same model code then runs in an arena in which no
//! two buffers overlay:
//!
//! ```text
//!  | guard | buffer 0: rows of the pass … | rest | guard | buffer 1 … | guard |
//!                                            └ all but the rows of a live range is poison
//! ```
//!
//! | fault | how it is found | when |
//! | --- | --- | --- |
//! | a pointer kept after its step, written through | the poison changed | next live range, or end of the pass |
//! | the same, read through | NaN in every float, -1 in every integer, in the user's results | |
//! | rows written beyond those of the pass | the poison behind them changed | end of the step |
//! | a write through a read view's pointer | the digest of the buffer changed | end of the step |
//! | a view given to another stream | the device says so | end of the step |
//! | an edge that the schedule lacks | shadow clocks, over the planned offsets | start of the step |
//!
//! What is found is returned by the next call as [`Error::Violation`], one at a time; the pass goes
//! on. `finish` and `begin` return what dropping guards found.
//!
//! It reads memory back at each step, and so waits for the device: it looks for faults of order in
//! the clocks, not in the timing. While a graph is captured it cannot read; the clocks still run. A
//! buffer that a graph writes may change at any replay, so between live ranges it is not looked at.
//!
//! Invariant: what it writes, it writes between live ranges or outside the rows of the pass, in the
//! order of a stream that comes after all accesses before; so a correct program computes the same.

use std::collections::VecDeque;

use super::clock::{Clocks, Node, Past};
use super::plan::Plan;
use super::storage::{Apart, is_carried};
use crate::device::Device;
use crate::error::Error;
use crate::tables::{ScheduleTable, StepInLayer};
use crate::violation::{MissingEdge, Violation, ViolationKind};

/// What fills all bytes that are nobody's: a NaN in every float type.
const POISON: u8 = 0xff;

/// The variable that turns it on for every arena.
const VARIABLE: &str = "SCRATCHPOOL_SANITIZE";

/// Whether the environment asks for it.
pub(crate) fn is_asked_for() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty() && value != "0")
}

/// A step that is running, or ran.
#[derive(Clone, Copy, Debug)]
struct At {
    step: usize,
    layer: usize,
    node: Node,
}

/// The access that began a live range, and those since.
#[derive(Clone, Debug, Default)]
struct History {
    write: Option<At>,
    reads: Vec<At>,
}

#[derive(Clone, Debug)]
struct Buffer {
    name: String,
    /// Planned bytes; none where the plan does not say.
    planned: Option<(u64, u64)>,
    /// Where it lies here, and how many bytes up to the next guard's end.
    offset: usize,
    region: usize,
    carried: bool,
    /// Whether a live range holds it, and of how many bytes.
    live: Option<usize>,
    /// Whether some graph writes it.
    captured: bool,
    /// The content, as a step that only reads found it.
    digest: Option<u64>,
    last: Option<At>,
    history: History,
}

/// The watch over one copy.
pub(crate) struct Sanitizer<D: Device> {
    schedule: &'static ScheduleTable,
    buffers: Vec<Buffer>,
    base: *mut u8,
    /// One event for each stream, to end live ranges after all their readers.
    events: Vec<D::Event>,
    found: VecDeque<Violation>,
}

/// What a hook knows of the step it is called for.
pub(crate) struct Visit<'v, D: Device> {
    pub(crate) device: &'v D,
    pub(crate) streams: &'v [D::Stream],
    pub(crate) step: usize,
    pub(crate) layer: usize,
    pub(crate) rows: usize,
    pub(crate) clocks: &'v Clocks,
    /// Which buffers exist in the layer.
    pub(crate) exists: &'static [bool],
    /// Which steps run in it.
    pub(crate) runs: &'static [StepInLayer],
}

impl<D: Device> Sanitizer<D> {
    pub(crate) fn new<P: Plan>(
        device: &D,
        plan: &P,
        apart: &Apart,
        base: *mut u8,
        streams: &[D::Stream],
    ) -> Result<Self, Error> {
        let schedule = P::SCHEDULE;
        let buffers = (0..P::BUFFERS)
            .zip(apart.offsets.iter().zip(&apart.regions))
            .map(|(buffer, (&offset, &region))| {
                let said = plan.describe(buffer);
                let bytes = plan.tensor_bytes(buffer, plan.max_rows());
                Buffer {
                    name: said.map_or_else(|| format!("#{buffer}"), |it| it.name.to_owned()),
                    planned: said.map(|it| (it.offset as u64, it.offset as u64 + bytes)),
                    offset,
                    region,
                    carried: is_carried(schedule, buffer),
                    live: None,
                    captured: false,
                    digest: None,
                    last: None,
                    history: History::default(),
                }
            })
            .collect();
        let events = streams.iter().map(|_| device.create_event()).collect::<Result<_, _>>()?;
        if let Some(first) = streams.first() {
            let bytes = usize::try_from(apart.bytes).unwrap_or(0);
            // SAFETY: the whole arena, of which no view has been made.
            unsafe { device.fill_bytes(first, base, bytes, POISON) }?;
            device.synchronize()?;
        }
        Ok(Self { schedule, buffers, base, events, found: VecDeque::new() })
    }

    /// Returns what was found, once each.
    #[cold]
    pub(crate) fn report(&mut self) -> Result<(), Error> {
        self.found.pop_front().map_or(Ok(()), |found| Err(Error::Violation(Box::new(found))))
    }

    /// Everything was waited for after an order was lost: nothing that was is unordered.
    pub(crate) fn forget(&mut self) {
        for buffer in &mut self.buffers {
            buffer.history = History::default();
        }
    }

    fn stream_of(&self, step: usize) -> usize {
        self.schedule.steps.get(step).map_or(0, |row| usize::from(row.stream))
    }

    fn names(&self, step: usize) -> (&'static str, &'static str) {
        let name = self.schedule.steps.get(step).map_or("", |row| row.name);
        let stream = self.schedule.streams.get(self.stream_of(step)).copied().unwrap_or("");
        (name, stream)
    }

    fn find(&mut self, kind: ViolationKind, buffer: usize, at: At, missing: Option<(At, At)>) {
        let ((step, stream), layer) = (self.names(at.step), at.layer);
        let missing = missing.map(|(from, to)| {
            let ((from_step, from_stream), (to_step, to_stream)) =
                (self.names(from.step), self.names(to.step));
            MissingEdge {
                from: from_step,
                from_layer: from.layer,
                from_stream,
                to: to_step,
                to_layer: to.layer,
                to_stream,
            }
        });
        let buffer = self.buffers.get(buffer).map(|it| it.name.clone()).unwrap_or_default();
        let violation = Violation { kind, buffer, step, layer, stream, missing };
        if !self.found.contains(&violation) {
            self.found.push_back(violation);
        }
    }

    /// The buffers that a step writes (`true`) and reads in its layer.
    fn accesses(&self, visit: &Visit<'_, D>, step: usize) -> Vec<(usize, bool)> {
        let Some(row) = self.schedule.steps.get(step) else { return Vec::new() };
        let writes = row.writes.iter().map(|buffer| (usize::from(*buffer), true));
        let reads = row.reads.iter().map(|buffer| (usize::from(*buffer), false));
        let exists = |buffer: usize| visit.exists.get(buffer).copied().unwrap_or(false);
        writes.chain(reads).filter(|(buffer, _)| exists(*buffer)).collect()
    }

    /// A step was entered: its waits are issued, and its kernels are not.
    pub(crate) fn entered<P: Plan>(&mut self, plan: &P, visit: &Visit<'_, D>) -> Result<(), Error> {
        let stream = self.stream_of(visit.step);
        let Some((node, past)) = visit.clocks.latest(stream) else { return Ok(()) };
        let at = At { step: visit.step, layer: visit.layer, node };
        let accesses = self.accesses(visit, visit.step);
        for (buffer, write) in &accesses {
            self.check_order(*buffer, *write, at, past);
        }
        let Some(own) = visit.streams.get(stream) else { return Ok(()) };
        let can_read = !visit.device.is_capturing(own);
        for (buffer, write) in accesses {
            let begins = write && self.begins(visit, buffer);
            if begins && can_read {
                self.begin_range(visit, own, buffer, plan.tensor_bytes(buffer, visit.rows), at)?;
            }
            let digest = if !write && can_read { self.digest(visit, own, buffer)? } else { None };
            if let Some(state) = self.buffers.get_mut(buffer) {
                state.digest = digest;
                state.captured |= write && !can_read;
                state.last = Some(at);
            }
        }
        Ok(())
    }

    /// A step ends: its kernels are issued, and its event is not recorded.
    pub(crate) fn leaving(&mut self, visit: &Visit<'_, D>) -> Result<(), Error> {
        let stream = self.stream_of(visit.step);
        let Some(own) = visit.streams.get(stream) else { return Ok(()) };
        let Some((node, _)) = visit.clocks.latest(stream) else { return Ok(()) };
        let at = At { step: visit.step, layer: visit.layer, node };
        while let Some(address) = visit.device.take_foreign_use(own) {
            let buffer = self.at_address(address);
            self.find(ViolationKind::WrongStream, buffer.unwrap_or(usize::MAX), at, None);
        }
        if visit.device.is_capturing(own) {
            return Ok(());
        }
        for (buffer, write) in self.accesses(visit, visit.step) {
            let Some(state) = self.buffers.get(buffer) else { continue };
            let (Some(live), before) = (state.live, state.digest) else { continue };
            let region = state.region;
            if !write && before != self.digest(visit, own, buffer)? {
                self.find(ViolationKind::WriteThroughReadView, buffer, at, None);
            }
            if let Some(byte) = self.disturbed(visit.device, own, buffer, live, region)? {
                self.find(ViolationKind::RowOverrun { byte: live + byte }, buffer, at, None);
                self.poison(visit.device, own, buffer, live, region)?;
            }
            if self.ends(visit, buffer) {
                self.join_users(visit, buffer, stream)?;
                self.poison(visit.device, own, buffer, 0, region)?;
                if let Some(state) = self.buffers.get_mut(buffer) {
                    state.live = None;
                }
            }
        }
        Ok(())
    }

    /// A pass ends: nobody's bytes are looked at.
    pub(crate) fn pass_ends(&mut self, device: &D, streams: &[D::Stream]) -> Result<(), Error> {
        let Some(first) = streams.first() else { return Ok(()) };
        if streams.iter().any(|stream| device.is_capturing(stream)) {
            return Ok(());
        }
        device.synchronize()?;
        for buffer in 0..self.buffers.len() {
            let Some(state) = self.buffers.get(buffer) else { continue };
            let (region, Some(last)) = (state.region, state.last) else { continue };
            match state.live {
                Some(live) => {
                    if let Some(byte) = self.disturbed(device, first, buffer, live, region)? {
                        let kind = ViolationKind::RowOverrun { byte: live + byte };
                        self.find(kind, buffer, last, None);
                        self.poison(device, first, buffer, live, region)?;
                    }
                }
                None if state.captured => {}
                None => {
                    if self.disturbed(device, first, buffer, 0, region)?.is_some() {
                        self.find(ViolationKind::UseAfterStep, buffer, last, None);
                        self.poison(device, first, buffer, 0, region)?;
                    }
                }
            }
        }
        device.synchronize()
    }

    /// Looks for an access that conflicts with this one and does not come before it.
    fn check_order(&mut self, buffer: usize, write: bool, at: At, past: &Past) {
        let mut conflicts = Vec::new();
        for (other, state) in self.buffers.iter().enumerate() {
            if !self.overlap(buffer, other) {
                continue;
            }
            let reads = state.history.reads.iter().filter(|_| write);
            let unordered = state.history.write.iter().chain(reads);
            conflicts.extend(
                unordered
                    .filter(|it| it.node != at.node && !past.covers(it.node))
                    .map(|it| (other, *it)),
            );
        }
        for (other, from) in conflicts {
            self.find(ViolationKind::LostEdge, other, at, Some((from, at)));
        }
        let Some(state) = self.buffers.get_mut(buffer) else { return };
        if write {
            state.history = History { write: Some(at), reads: Vec::new() };
        } else {
            // A later read on the same stream says the same, unless launches are programmatic.
            state.history.reads.retain(|read| !past.covers(read.node));
            state.history.reads.push(at);
        }
    }

    /// Whether two buffers share planned bytes.
    fn overlap(&self, a: usize, b: usize) -> bool {
        let planned = |at: usize| self.buffers.get(at).and_then(|buffer| buffer.planned);
        a == b
            || match (planned(a), planned(b)) {
                (Some((a, a_end)), Some((b, b_end))) => a < b_end && b < a_end,
                _ => false,
            }
    }

    /// Whether a write in this step begins a live range: none of the layer's steps before wrote.
    fn begins(&self, visit: &Visit<'_, D>, buffer: usize) -> bool {
        !(0..visit.step).any(|step| self.touches(visit, step, buffer, true))
    }

    /// Whether the live range ends with this step: no later step of the layer touches the buffer,
    /// and no layer carries it over.
    fn ends(&self, visit: &Visit<'_, D>, buffer: usize) -> bool {
        let carried = self.buffers.get(buffer).is_none_or(|state| state.carried);
        let after = visit.step + 1..self.schedule.steps.len();
        !carried && !after.into_iter().any(|step| self.touches(visit, step, buffer, false))
    }

    fn touches(&self, visit: &Visit<'_, D>, step: usize, buffer: usize, writes_only: bool) -> bool {
        visit.runs.get(step).is_some_and(|here| here.runs)
            && self
                .accesses(visit, step)
                .iter()
                .any(|(it, write)| *it == buffer && (*write || !writes_only))
    }

    fn begin_range(
        &mut self,
        visit: &Visit<'_, D>,
        own: &D::Stream,
        buffer: usize,
        bytes: u64,
        at: At,
    ) -> Result<(), Error> {
        let Some(state) = self.buffers.get(buffer) else { return Ok(()) };
        let (live, last, region) = (state.live, state.last, state.region);
        if live.is_some() || state.captured {
            // A value that layers carried over, or whose readers were skipped, or a graph's: it
            // ends here.
            self.poison(visit.device, own, buffer, 0, region)?;
        } else if self.disturbed(visit.device, own, buffer, 0, region)?.is_some() {
            self.find(ViolationKind::UseAfterStep, buffer, last.unwrap_or(at), None);
            self.poison(visit.device, own, buffer, 0, region)?;
        }
        if let Some(state) = self.buffers.get_mut(buffer) {
            state.live = Some(usize::try_from(bytes).unwrap_or(region).min(region));
        }
        Ok(())
    }

    /// Orders the stream after all others that read or wrote in the live range.
    fn join_users(&self, visit: &Visit<'_, D>, buffer: usize, stream: usize) -> Result<(), Error> {
        let Some(state) = self.buffers.get(buffer) else { return Ok(()) };
        let Some(own) = visit.streams.get(stream) else { return Ok(()) };
        let users = state.history.write.iter().chain(&state.history.reads);
        for user in users.map(|at| at.node.stream).filter(|user| *user != stream) {
            if let (Some(other), Some(event)) = (visit.streams.get(user), self.events.get(user)) {
                visit.device.record(other, event)?;
                visit.device.wait(own, event)?;
            }
        }
        Ok(())
    }

    fn start(&self, buffer: usize, from: usize) -> *mut u8 {
        let offset = self.buffers.get(buffer).map_or(0, |state| state.offset);
        self.base.wrapping_add(offset).wrapping_add(from)
    }

    fn at_address(&self, address: u64) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.base.addr() as u64)?).ok()?;
        let inside = |state: &Buffer| (state.offset..state.offset + state.region).contains(&offset);
        self.buffers.iter().position(inside)
    }

    /// The first byte of `from..to` of a buffer's region that is not poison, from `from` on.
    fn disturbed(
        &self,
        device: &D,
        stream: &D::Stream,
        buffer: usize,
        from: usize,
        to: usize,
    ) -> Result<Option<usize>, Error> {
        let bytes = to.saturating_sub(from);
        // SAFETY: inside the buffer's region of the arena, which the pool keeps alive.
        unsafe { device.find_other(stream, self.start(buffer, from), bytes, POISON) }
    }

    fn poison(
        &self,
        device: &D,
        stream: &D::Stream,
        buffer: usize,
        from: usize,
        to: usize,
    ) -> Result<(), Error> {
        let bytes = to.saturating_sub(from);
        // SAFETY: inside the buffer's region, of bytes that no live range holds: no view that may
        // be used covers them, since those of the step that ends are gone with its guard.
        unsafe { device.fill_bytes(stream, self.start(buffer, from), bytes, POISON) }
    }

    /// A digest of a live buffer's rows.
    fn digest(
        &self,
        visit: &Visit<'_, D>,
        stream: &D::Stream,
        buffer: usize,
    ) -> Result<Option<u64>, Error> {
        let Some(live) = self.buffers.get(buffer).and_then(|state| state.live) else {
            return Ok(None);
        };
        // SAFETY: as in `disturbed`.
        unsafe { visit.device.digest(stream, self.start(buffer, 0), live) }.map(Some)
    }
}
