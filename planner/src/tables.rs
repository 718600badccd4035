//! The plan as constant data: what the macro emits and the runtime executes.
//!
//! These types hold only `'static` references and integers, so that a whole schedule and layout is
//! a `const` in the user's crate. The schedule table *is* the proved schedule after transitive
//! reduction: the runtime issues its waits and records and nothing else.
//!
//! Layers that run the same steps, hold the same groups and issue the same waits share one
//! [`LayerKind`]; [`ScheduleTable::layers`] maps a layer to its kind.

use crate::spec::{DType, Launch};

/// The proved schedule of one pass.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleTable {
    /// Names of the streams; a step refers to one by index.
    pub streams: &'static [&'static str],
    /// The steps in the order in which the host issues them.
    pub steps: &'static [StepRow],
    /// The kind of each layer: an index into `kinds`.
    pub layers: &'static [u16],
    /// The distinct kinds of layer.
    pub kinds: &'static [LayerKind],
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct StepRow {
    /// Its name.
    pub name: &'static str,
    /// Its stream: an index into [`ScheduleTable::streams`].
    pub stream: u16,
    /// How its first kernel is launched.
    pub launch: Launch,
    /// How many events it alternates between: 0 where nothing waits for it, 2 where some wait is
    /// issued after the step has run again, else 1.
    pub events: u8,
    /// The buffers it writes, in the layers where they exist: indices into
    /// [`LayoutTable::buffers`]. A buffer that it reads as well is listed here only.
    pub writes: &'static [u16],
    /// The buffers it reads and does not write.
    pub reads: &'static [u16],
}

/// One kind of layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerKind {
    /// One entry a step of [`ScheduleTable::steps`].
    pub steps: &'static [StepInLayer],
    /// Whether each buffer of [`LayoutTable::buffers`] exists in the layer.
    pub buffers: &'static [bool],
}

/// What one step does in one kind of layer.
#[derive(Clone, Copy, Debug)]
pub struct StepInLayer {
    /// Whether it runs.
    pub runs: bool,
    /// Whether a later step waits for it, so that an event is recorded after it.
    pub records: bool,
    /// The events it waits for before it starts.
    pub waits: &'static [WaitRow],
}

/// One wait for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// The step after which the event was recorded: an index into [`ScheduleTable::steps`].
    pub step: u16,
    /// Which of its runs: 0 the latest, 1 the one before. A run that has not happened yet (in the
    /// first pass) is not waited for.
    pub back: u8,
}

/// The layout of an arena whose sizes are constants.
#[derive(Clone, Copy, Debug)]
pub struct LayoutTable {
    /// The pool's name.
    pub pool: &'static str,
    /// The pool's alignment in bytes.
    pub align: u64,
    /// The alignment that the arena's base needs: the largest of any buffer.
    pub base_align: u64,
    /// The arena's size in bytes.
    pub total_bytes: u64,
    /// What the buffers would take apart, in bytes.
    pub sum_bytes: u64,
    /// The heaviest set of pairwise interfering buffers, in bytes.
    pub lower_bound_bytes: u64,
    /// Whether no smaller arena exists.
    pub optimal: bool,
    /// A stable hash of everything that fixes the bytes.
    pub fingerprint: &'static str,
    /// The buffers in order of declaration.
    pub buffers: &'static [BufferRow],
}

/// One buffer of a layout.
#[derive(Clone, Copy, Debug)]
pub struct BufferRow {
    /// `group.buffer`.
    pub name: &'static str,
    /// Byte offset in the arena.
    pub offset: u64,
    /// Bytes reserved: the tensor's, rounded up to the pool's alignment; 0 if never accessed.
    pub bytes: u64,
    /// Bytes of the tensor itself.
    pub tensor_bytes: u64,
    /// Element type.
    pub dtype: DType,
    /// Extents, row-major.
    pub shape: &'static [u64],
    /// Alignment in bytes.
    pub align: u64,
}
