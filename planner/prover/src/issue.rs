//! What a runtime issues, as a program: waits, steps and records in the order of the calls.
//!
//! A log says which event each stream waits for and when each event is recorded; what a wait then means is the event's
//! state at that call, and no schedule is asked. So a program made from a log is ordered by what was issued alone.

use std::collections::HashMap;

use scratchpool_planner::spec::Launch;
use scratchpool_planner::sync::StepPlan;

use super::declared::Declared;
use super::program::{Access, Node, Program};

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Whatever the stream is given next comes after the event.
    Wait {
        /// The stream.
        stream: usize,
        /// The event.
        event: usize,
    },
    /// A step.
    Step {
        /// The stream.
        stream: usize,
        /// How it is launched.
        launch: Launch,
    },
    /// The event stands for all that the stream holds.
    Record {
        /// The stream.
        stream: usize,
        /// The event.
        event: usize,
    },
}

/// Which step each step call is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The pass.
    pub pass: usize,
    /// The layer.
    pub layer: usize,
    /// The step.
    pub step: usize,
    /// Buffers, and whether they are written.
    pub accesses: Vec<(usize, bool)>,
}

/// Makes a program of the calls. `steps` says of each step call which one it is.
///
/// A wait for an event that was never recorded does nothing.
pub fn program(
    streams: usize,
    buffers: usize,
    calls: &[Call],
    steps: impl IntoIterator<Item = Issued>,
) -> Program {
    let mut program = Program { streams, buffers, nodes: Vec::new() };
    let mut recorded: HashMap<usize, usize> = HashMap::new();
    let mut last: Vec<Option<usize>> = vec![None; streams];
    let mut pending: Vec<Vec<usize>> = vec![Vec::new(); streams];
    let mut steps = steps.into_iter();
    for call in calls {
        match *call {
            Call::Wait { stream, event } => pending[stream].extend(recorded.get(&event)),
            Call::Record { stream, event } => match last[stream] {
                Some(node) => {
                    recorded.insert(event, node);
                }
                None => {
                    recorded.remove(&event);
                }
            },
            Call::Step { stream, launch } => {
                let Some(issued) = steps.next() else { break };
                last[stream] = Some(program.nodes.len());
                let accesses = issued.accesses.iter();
                program.nodes.push(Node {
                    pass: issued.pass,
                    layer: issued.layer,
                    step: issued.step,
                    stream,
                    launch,
                    waits: std::mem::take(&mut pending[stream]),
                    accesses: accesses.map(|(buffer, write)| Access::of(*buffer, *write)).collect(),
                });
            }
        }
    }
    program.find_live_ranges();
    program
}

/// A wait that an issue plan holds: in a layer, of a step, for a run of another step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The layer.
    pub layer: usize,
    /// The step that waits.
    pub step: usize,
    /// The step waited for.
    pub source: usize,
    /// How many runs back.
    pub back: u8,
}

impl Site {
    /// The declared `after` that it comes from: `step` or `prev.step`.
    pub fn after(&self, declared: &Declared, plan: &[Vec<StepPlan>]) -> String {
        let name = &declared.steps[self.source].name;
        let here = plan[self.layer][self.source].runs && self.source < self.step;
        if here && self.back == 0 { name.clone() } else { format!("prev.{name}") }
    }
}

/// All waits of an issue plan.
pub fn sites(plan: &[Vec<StepPlan>]) -> Vec<Site> {
    let mut sites = Vec::new();
    for (layer, steps) in plan.iter().enumerate() {
        for (step, here) in steps.iter().enumerate() {
            sites.extend(here.waits.iter().map(|&(source, back)| Site {
                layer,
                step,
                source,
                back,
            }));
        }
    }
    sites
}

/// The calls that an issue plan stands for, some waits left out, by the words of the planner's tables: each step has
/// two events that it alternates between by the number of its run; a wait for a run that has not happened is not made.
pub fn calls(
    declared: &Declared,
    plan: &[Vec<StepPlan>],
    passes: usize,
    without: &dyn Fn(&Site) -> bool,
) -> (Vec<Call>, Vec<Issued>) {
    let streams = declared.streams();
    let shape = Program::new(declared, 1);
    let (mut calls, mut steps) = (Vec::new(), Vec::new());
    let mut runs: Vec<usize> = vec![0; declared.steps.len()];
    let event = |step: usize, run: usize| 2 * step + run % 2;
    for pass in 0..passes {
        for (layer, here) in plan.iter().enumerate() {
            for (step, here) in here.iter().enumerate() {
                if !here.runs {
                    continue;
                }
                let own = &declared.steps[step];
                let stream = streams.iter().position(|each| *each == own.stream).unwrap_or(0);
                for &(source, back) in &here.waits {
                    let run = runs[source].checked_sub(1 + usize::from(back));
                    if let Some(run) = run
                        && !without(&Site { layer, step, source, back })
                    {
                        calls.push(Call::Wait { stream, event: event(source, run) });
                    }
                }
                calls.push(Call::Step { stream, launch: own.launch });
                if here.records {
                    calls.push(Call::Record { stream, event: event(step, runs[step]) });
                }
                runs[step] += 1;
                let node = shape.find(0, layer, step).map(|node| &shape.nodes[node].accesses);
                let accesses = node.into_iter().flatten();
                steps.push(Issued {
                    pass,
                    layer,
                    step,
                    accesses: accesses.map(|each| (each.buffer, each.write)).collect(),
                });
            }
        }
    }
    (calls, steps)
}
