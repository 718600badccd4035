//! The schedule of a pool: its steps, its kinds of layer, and the waits that are issued.
//!
//! The table *is* the proved schedule after transitive reduction: the runtime issues its waits and
//! records its events, and nothing else.
//!
//! Layers that run the same steps, hold the same groups and issue the same waits share one
//! [`LayerKind`]; [`ScheduleTable::layers`] maps a layer to its kind.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::launch::Launch;
use crate::layers::layer_list;

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
    /// [`LayoutTable::buffers`](crate::LayoutTable::buffers). A buffer that it reads as well is listed here only.
    pub writes: &'static [u16],
    /// The buffers it reads and does not write.
    pub reads: &'static [u16],
}

/// One kind of layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerKind {
    /// One entry a step of [`ScheduleTable::steps`].
    pub steps: &'static [StepInLayer],
    /// Whether each buffer of [`LayoutTable::buffers`](crate::LayoutTable::buffers) exists in the layer.
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
    use alloc::string::ToString as _;

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
