//! Where the bytes of one copy are: one arena, or an allocation for each live range.
//!
//! Both give a buffer's address to the same generated code. The arena is base plus offset. The
//! per-call storage is what code without a pool does, behind the same interface: the first write
//! of a buffer in a layer begins a live range and gets its own allocation of the pass's rows; reads
//! get the latest one.
//!
//! Invariant: the address handed out for a buffer has [`Plan::tensor_bytes`] behind it at the
//! pass's rows, and stays valid while the step's guard is held and until work issued under it is
//! done.

use super::plan::{Place, Plan};
use crate::device::Device;
use crate::error::Error;
use crate::tables::{LayerKind, ScheduleTable, StepRow};

/// How a pool gets its memory, chosen when it is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// One allocation, made once, in which buffers that are never live together overlay.
    #[default]
    Arena,
    /// One allocation for each live range, of just the rows of the pass: no pool at all. Slower and
    /// larger; the fallback, and the baseline to compare with.
    PerCall,
    /// An arena in which no buffers overlay, with guards between them, poison outside live ranges,
    /// and a check of every access to the pool's buffers against the schedule: slow, for finding
    /// faults. The variable `SCRATCHPOOL_SANITIZE=1` turns every `Arena` into this. What is found is
    /// [`Error::Violation`].
    ///
    /// It waits for the device at each step, and so hides races on memory that is not the pool's: look
    /// for those with `Arena` on [`Host::random`](crate::Host::random), under many seeds. A step that
    /// reads what a skipped one would have written is no violation: it reads poison, which is NaN in
    /// every float and -1 in every integer.
    Sanitized,
}

/// The alignment of a sanitized arena's base, at least.
const PAGE: u64 = 4096;

/// The alignment of memory that any element may lie in, whatever the plan asks for.
const ELEMENT: u64 = crate::element::LARGEST as u64;

/// Bytes between the buffers of a sanitized arena.
const GUARD: u64 = 4096;

/// Where the buffers lie when none overlays another.
pub(crate) struct Apart {
    pub(crate) offsets: Box<[usize]>,
    pub(crate) regions: Box<[usize]>,
    pub(crate) bytes: u64,
}

impl Apart {
    /// Places the buffers of a plan one after the other, with guards in between.
    pub(crate) fn of<P: Plan>(plan: &P) -> Result<Self, Error> {
        let align = plan.memory().base_align.max(GUARD);
        let too_large = || Error::TooLarge { bytes: u64::MAX, align };
        let mut end = GUARD;
        let (mut offsets, mut regions) = (Vec::new(), Vec::new());
        for buffer in 0..P::BUFFERS {
            let bytes = plan.tensor_bytes(buffer, plan.max_rows());
            let start = end.checked_next_multiple_of(align).ok_or_else(too_large)?;
            end = start
                .checked_add(bytes)
                .and_then(|it| it.checked_add(GUARD))
                .ok_or_else(too_large)?;
            offsets.push(usize::try_from(start).map_err(|_| too_large())?);
            regions.push(usize::try_from(end - start).map_err(|_| too_large())?);
        }
        Ok(Self { offsets: offsets.into(), regions: regions.into(), bytes: end })
    }
}

/// The bytes of one copy.
pub(crate) enum Storage<D: Device> {
    Arena {
        base: *mut u8,
        memory: D::Memory,
        bytes: u64,
    },
    PerCall(PerCall<D>),
    /// Each buffer at an offset of its own.
    Apart {
        base: *mut u8,
        memory: D::Memory,
        bytes: u64,
        offsets: Box<[usize]>,
    },
}

/// The live ranges of one copy.
pub(crate) struct PerCall<D: Device> {
    slots: Box<[Slot<D>]>,
    align: u64,
    /// Counts layers; a slot with this number was written in the present one.
    layer: u64,
}

/// The latest live range of a buffer.
struct Slot<D: Device> {
    memory: Option<D::Memory>,
    address: *mut u8,
    bytes: u64,
    written: u64,
    /// The streams whose steps touch it.
    users: Box<[usize]>,
    /// Whether some layer reads the buffer before it writes it. Such a value may be read in a
    /// later pass of more rows, so it is allocated at the maximum.
    carried: bool,
}

impl<D: Device> Storage<D> {
    pub(crate) fn new<P: Plan>(device: &D, plan: &P, backing: Backing) -> Result<Self, Error> {
        let memory = plan.memory();
        match backing {
            Backing::Arena => {
                let bytes = memory.bytes_per_copy;
                let align = memory.base_align.max(ELEMENT);
                let memory = device.allocate(bytes, align)?;
                Ok(Self::Arena { base: base_of::<D>(&memory, align)?, memory, bytes })
            }
            Backing::Sanitized => {
                let Apart { offsets, bytes, .. } = Apart::of(plan)?;
                let align = memory.base_align.max(PAGE);
                let memory = device.allocate(bytes, align)?;
                Ok(Self::Apart { base: base_of::<D>(&memory, align)?, memory, bytes, offsets })
            }
            Backing::PerCall => Ok(Self::PerCall(PerCall {
                slots: (0..P::BUFFERS)
                    .map(|buffer| Slot {
                        memory: None,
                        address: core::ptr::null_mut(),
                        bytes: 0,
                        written: 0,
                        users: users(P::SCHEDULE, buffer),
                        carried: is_carried(P::SCHEDULE, buffer),
                    })
                    .collect(),
                align: memory.base_align.max(ELEMENT),
                layer: 0,
            })),
        }
    }

    /// Tells the device whose the arena is.
    pub(crate) fn adopt(&self, device: &D, streams: &[D::Stream]) {
        if let Self::Arena { memory, .. } | Self::Apart { memory, .. } = self {
            device.adopt(streams, memory);
        }
    }

    /// Notes that another layer begins.
    pub(crate) fn enter_layer(&mut self) {
        if let Self::PerCall(ranges) = self {
            ranges.layer += 1;
        }
    }

    /// The live ranges, where they are allocated one by one.
    #[inline]
    pub(crate) fn per_call(&mut self) -> Option<&mut PerCall<D>> {
        match self {
            Self::Arena { .. } | Self::Apart { .. } => None,
            Self::PerCall(ranges) => Some(ranges),
        }
    }

    /// The base of an arena.
    pub(crate) fn base(&self) -> *mut u8 {
        match self {
            Self::Arena { base, .. } | Self::Apart { base, .. } => *base,
            Self::PerCall(_) => core::ptr::null_mut(),
        }
    }

    /// The address of a buffer.
    #[inline]
    pub(crate) fn address(&self, place: Place) -> *mut u8 {
        match self {
            Self::Arena { base, .. } => base.wrapping_add(place.offset),
            Self::Apart { base, offsets, .. } => {
                offsets.get(place.buffer).map_or(core::ptr::null_mut(), |at| base.wrapping_add(*at))
            }
            Self::PerCall(ranges) => {
                ranges.slots.get(place.buffer).map_or(core::ptr::null_mut(), |slot| slot.address)
            }
        }
    }

    /// Bytes allocated now.
    pub(crate) fn held_bytes(&self) -> u64 {
        match self {
            Self::Arena { bytes, .. } | Self::Apart { bytes, .. } => *bytes,
            Self::PerCall(ranges) => ranges.slots.iter().map(|slot| slot.bytes).sum(),
        }
    }
}

/// A step about to be entered.
pub(crate) struct Prepare<'p, D: Device, P> {
    pub(crate) device: &'p D,
    pub(crate) plan: &'p P,
    pub(crate) streams: &'p [D::Stream],
    pub(crate) step: &'static str,
    pub(crate) stream: &'p D::Stream,
    pub(crate) kind: &'static LayerKind,
    pub(crate) row: &'static StepRow,
}

impl<D: Device> PerCall<D> {
    /// Gets memory for a step whose waits have been issued.
    #[cold]
    pub(crate) fn prepare<P: Plan>(
        &mut self,
        step: &Prepare<'_, D, P>,
        rows: usize,
    ) -> Result<(), Error> {
        // A graph would keep to the addresses of this pass, and the next one has others.
        if step.device.is_capturing(step.stream) {
            return Err(Error::PerCallCaptured { step: step.step });
        }
        for (&buffer, writes) in step
            .row
            .writes
            .iter()
            .map(|buffer| (buffer, true))
            .chain(step.row.reads.iter().map(|buffer| (buffer, false)))
        {
            let buffer = usize::from(buffer);
            let exists = step.kind.buffers.get(buffer).copied().unwrap_or(false);
            let Some(slot) = self.slots.get_mut(buffer) else { continue };
            if !exists {
                continue;
            }
            let rows = if slot.carried { step.plan.max_rows() } else { rows };
            let bytes = step.plan.tensor_bytes(buffer, rows);
            let begins = writes && slot.written != self.layer;
            // A read finds too little only where the step that writes was skipped.
            if begins || slot.memory.is_none() || slot.bytes < bytes {
                let memory = step.device.allocate_on(step.stream, bytes, self.align)?;
                slot.address = base_of::<D>(&memory, self.align)?;
                slot.bytes = bytes;
                if let Some(former) = slot.memory.replace(memory) {
                    let users = slot.users.iter();
                    step.device.retire(former, users.filter_map(|user| step.streams.get(*user)))?;
                }
            }
            if writes {
                slot.written = self.layer;
            }
        }
        Ok(())
    }
}

/// The base of a block, if it is aligned as asked. Offsets are multiples of what elements need, so what
/// lies at one is aligned if the base is.
fn base_of<D: Device>(memory: &D::Memory, align: u64) -> Result<*mut u8, Error> {
    let base = D::base(memory);
    if align.is_power_of_two() && (base.addr() as u64).is_multiple_of(align) {
        return Ok(base);
    }
    Err(Error::Misaligned { base: base.addr() as u64, align })
}

/// The streams whose steps touch the buffer.
fn users(schedule: &ScheduleTable, buffer: usize) -> Box<[usize]> {
    let touches = |row: &&StepRow| {
        row.writes.iter().chain(row.reads).any(|touched| usize::from(*touched) == buffer)
    };
    let streams = schedule.steps.iter().filter(touches).map(|row| usize::from(row.stream));
    let distinct: std::collections::BTreeSet<usize> = streams.collect();
    distinct.into_iter().collect()
}

/// Whether some kind of layer reads the buffer before it writes it.
pub(crate) fn is_carried(schedule: &ScheduleTable, buffer: usize) -> bool {
    schedule.kinds.iter().any(|kind| {
        let exists = kind.buffers.get(buffer).copied().unwrap_or(false);
        let uses = |list: &[u16]| list.iter().any(|&it| usize::from(it) == buffer);
        let first = schedule
            .steps
            .iter()
            .zip(kind.steps)
            .find(|(row, here)| here.runs && (uses(row.writes) || uses(row.reads)));
        exists && first.is_some_and(|(row, _)| !uses(row.writes))
    })
}
