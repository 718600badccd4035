//! The plan as constant data: what the macro emits and the runtime executes.
//!
//! These types hold only `'static` references and integers, so that a whole schedule and layout is
//! a `const` in the user's crate. The schedule table *is* the proved schedule after transitive
//! reduction: the runtime issues its waits and records and nothing else.
//!
//! Layers that run the same steps, hold the same groups and issue the same waits share one
//! [`LayerKind`]; [`ScheduleTable::layers`] maps a layer to its kind.

use std::fmt;

use crate::error::layer_list;
use crate::spec::{DType, Launch};

/// The proved schedule of one pass. Printed, it lists the steps of each kind of layer in the order
/// issued, with their streams and the waits that are issued.
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

/// The layout of an arena whose sizes are constants. Printed, it is a map of the arena.
///
/// ```
/// use scratchpool_planner::spec::DType;
/// use scratchpool_planner::tables::{BufferRow, LayoutTable};
///
/// const fn row(name: &'static str, offset: u64, shape: &'static [u64]) -> BufferRow {
///     let bytes = shape[0] * 4;
///     BufferRow { name, offset, bytes, tensor_bytes: bytes, dtype: DType::F32, shape, align: 256 }
/// }
/// const LAYOUT: LayoutTable = LayoutTable {
///     pool: "Small",
///     align: 256,
///     base_align: 256,
///     total_bytes: 1536,
///     sum_bytes: 2048,
///     lower_bound_bytes: 1536,
///     optimal: true,
///     fingerprint: "",
///     buffers: &[row("b.x", 512, &[256]), row("a.x", 0, &[128]), row("c.x", 0, &[128])],
/// };
/// assert_eq!(
///     LAYOUT.to_string(),
///     "\
/// Small: an arena of 1536 bytes, aligned to 256; apart 2048, 512 saved; no smaller arena exists
/// offset  bytes  buffer  tensor    shares bytes with
///      0    512  a.x     f32[128]  c.x
///      0    512  c.x     f32[128]  a.x
///    512   1024  b.x     f32[256]  none
/// "
/// );
/// ```
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

impl fmt::Display for LayoutTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, total_bytes, sum_bytes, lower_bound_bytes, align, .. } = self;
        let saved = sum_bytes.saturating_sub(*total_bytes);
        write!(
            f,
            "{pool}: an arena of {total_bytes} bytes, aligned to {align}; apart {sum_bytes}, {saved} saved; "
        )?;
        if self.optimal {
            writeln!(f, "no smaller arena exists")?;
        } else {
            writeln!(f, "none is smaller than {lower_bound_bytes}")?;
        }
        let mut rows: Vec<&BufferRow> = self.buffers.iter().collect();
        rows.sort_by_key(|row| row.offset);
        let cells = rows.iter().map(|row| {
            let others = rows.iter().filter(|other| other.name != row.name && row.overlaps(other));
            let others: Vec<&str> = others.map(|other| other.name).collect();
            let sharing = match others.as_slice() {
                _ if row.bytes == 0 => "never accessed".to_owned(),
                [] => "none".to_owned(),
                others => others.join(", "),
            };
            let tensor = format!("{}{:?}", row.dtype.as_str(), row.shape);
            [row.offset.to_string(), row.bytes.to_string(), row.name.to_owned(), tensor, sharing]
        });
        let head = ["offset", "bytes", "buffer", "tensor", "shares bytes with"].map(str::to_owned);
        let lines: Vec<[String; 5]> = std::iter::once(head).chain(cells).collect();
        let width = |cell: fn(&[String; 5]) -> &String| {
            lines.iter().map(|line| cell(line).chars().count()).max().unwrap_or(0)
        };
        let [offsets, bytes, names, tensors] = [
            width(|[it, ..]| it),
            width(|[_, it, ..]| it),
            width(|[_, _, it, ..]| it),
            width(|[.., it, _]| it),
        ];
        for [offset, size, name, tensor, sharing] in &lines {
            writeln!(
                f,
                "{offset:>offsets$}  {size:>bytes$}  {name:names$}  {tensor:tensors$}  {sharing}"
            )?;
        }
        Ok(())
    }
}

impl BufferRow {
    /// Whether two buffers have bytes in common.
    const fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes
    }
}

impl fmt::Display for ScheduleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "streams: {}", self.streams.join(", "))?;
        let names = self.steps.iter().map(|step| step.name.chars().count()).max().unwrap_or(0);
        let streams = self.streams.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for (number, kind) in self.kinds.iter().enumerate() {
            let layers = self.layers.iter().enumerate();
            let layers = layers.filter(|(_, each)| usize::from(**each) == number);
            let layers: Vec<usize> = layers.map(|(layer, _)| layer).collect();
            writeln!(f, "{}", layer_list(&layers))?;
            for (position, (step, here)) in self.steps.iter().zip(kind.steps).enumerate() {
                if !here.runs {
                    continue;
                }
                let stream = self.streams.get(usize::from(step.stream)).copied().unwrap_or("");
                let mut waits: Vec<String> =
                    here.waits.iter().map(|wait| self.wait(kind, position, *wait)).collect();
                if step.launch != Launch::Full {
                    waits.insert(0, format!("{} launch", step.launch.as_str()));
                }
                let line =
                    format!("  {:names$}  {stream:streams$}  {}", step.name, waits.join(", "));
                writeln!(f, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }
}

impl ScheduleTable {
    /// A wait of the step at `position`, as it is declared: `after fork`, or `after prev.fork` for a
    /// run in an earlier layer or pass.
    fn wait(&self, kind: &LayerKind, position: usize, wait: WaitRow) -> String {
        let source = usize::from(wait.step);
        let runs = kind.steps.get(source).is_some_and(|step| step.runs);
        let here = source < position && runs && wait.back == 0;
        let name = self.steps.get(source).map_or("", |step| step.name);
        format!("after {}{name}", if here { "" } else { "prev." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_printed_as_they_are_declared() {
        const fn row(name: &'static str, stream: u16, launch: Launch) -> StepRow {
            StepRow { name, stream, launch, events: 1, writes: &[], reads: &[] }
        }
        const fn runs(waits: &'static [WaitRow]) -> StepInLayer {
            StepInLayer { runs: true, records: true, waits }
        }
        const ABSENT: StepInLayer = StepInLayer { runs: false, records: false, waits: &[] };
        const SCHEDULE: ScheduleTable = ScheduleTable {
            streams: &["main", "aux"],
            steps: &[
                row("fork", 0, Launch::Full),
                row("work", 1, Launch::Dependent),
                row("join", 0, Launch::Full),
            ],
            layers: &[0, 1, 0],
            kinds: &[
                LayerKind {
                    steps: &[
                        runs(&[]),
                        runs(&[WaitRow { step: 0, back: 0 }, WaitRow { step: 2, back: 0 }]),
                        runs(&[WaitRow { step: 1, back: 1 }]),
                    ],
                    buffers: &[],
                },
                LayerKind {
                    steps: &[runs(&[]), ABSENT, runs(&[WaitRow { step: 1, back: 0 }])],
                    buffers: &[],
                },
            ],
        };
        assert_eq!(
            SCHEDULE.to_string(),
            "\
streams: main, aux
layers 0, 2
  fork  main
  work  aux   dependent launch, after fork, after prev.join
  join  main  after prev.work
layer 1
  fork  main
  join  main  after prev.work
"
        );
    }
}
