//! The waits that the runtime issues: the declared order, without what the rest already implies.
//!
//! A wait stays only if what its event covers is not already covered by the node's stream and its
//! other waits (the transitive reduction of the declared order). The reduction is made on the last
//! unrolled pass, in which every earlier pass exists; a wait for a run that has not happened yet,
//! in the first pass, is not issued.

use crate::bits;
use crate::live::Liveness;
use crate::schedule::{Order, PASSES, Schedule, Wait};
use crate::structure::Structure;

/// The waits that remain, one list a node of the schedule.
pub(crate) fn reduce(schedule: &Schedule<'_>, order: &Order) -> Vec<Vec<Wait>> {
    // What the stream alone gives a node is its order without any of its own waits. Waits of
    // earlier nodes keep their effect, so one row is rebuilt at a time from the full order.
    (0..schedule.nodes.len()).map(|node| reduce_node(schedule, order, node)).collect()
}

fn reduce_node(schedule: &Schedule<'_>, order: &Order, node: usize) -> Vec<Wait> {
    let mut kept: Vec<Wait> = schedule.waits.get(node).cloned().unwrap_or_default();
    // Two entries for one event are one wait.
    kept.sort_by_key(|wait| (wait.source, wait.entry));
    kept.dedup_by_key(|wait| wait.source);
    let mut stream = vec![0; order.history(node).len()];
    if let Some(previous) = schedule.previous.get(node).copied().flatten() {
        match schedule.launch(node) {
            crate::spec::Launch::Full => bits::union(&mut stream, order.covered(previous)),
            crate::spec::Launch::Dependent => {
                bits::union(&mut stream, order.history(previous));
                bits::set(&mut stream, previous);
            }
            crate::spec::Launch::Early => bits::union(&mut stream, order.history(previous)),
        }
    }
    let mut position = 0;
    while let Some(wait) = kept.get(position).copied() {
        let mut others = stream.clone();
        for other in kept.iter().filter(|other| other.source != wait.source) {
            bits::union(&mut others, order.covered(other.source));
        }
        if bits::subset(order.covered(wait.source), &others) {
            kept.remove(position);
        } else {
            position += 1;
        }
    }
    kept.sort_by_key(|wait| wait.entry);
    kept
}

/// One declared `after` and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReport {
    /// The step that waits.
    pub step: String,
    /// What it waits for, as written: `fork` or `prev.fork`.
    pub after: String,
    /// The layers in which a wait is issued; empty if other waits and streams imply it everywhere.
    pub layers: Vec<usize>,
    /// The pairs of buffers that would collide without it (one buffer twice where its own next
    /// value would); empty if the pool does not need it and only the user's own data may.
    pub needed_for: Vec<(String, String)>,
}

/// What the pool needs each wait for: drops each in turn, in all layers, and looks for what breaks
/// among the pairs of buffers that share bytes (`sharing`).
pub(crate) fn reports(
    structure: &Structure,
    schedule: &Schedule<'_>,
    order: &Order,
    live: &Liveness,
    sharing: &[(usize, usize)],
) -> Vec<WaitReport> {
    let reduced = reduce(schedule, order);
    let name = |buffer: usize| {
        structure.buffers.get(buffer).map(|buffer| buffer.name.clone()).unwrap_or_default()
    };
    let mut reports = Vec::new();
    for (position, step) in structure.steps.iter().enumerate() {
        for (entry, after) in step.after.iter().enumerate() {
            let is_this = |node: usize, wait: &Wait| {
                wait.entry == entry
                    && schedule.nodes.get(node).is_some_and(|node| node.step == position)
            };
            let mut layers: Vec<usize> = Vec::new();
            let mut without = reduced.clone();
            for (node, waits) in without.iter_mut().enumerate() {
                let before = waits.len();
                waits.retain(|wait| !is_this(node, wait));
                if waits.len() < before
                    && let Some(at) = schedule.nodes.get(node).filter(|at| at.pass + 1 == PASSES)
                {
                    layers.push(at.layer);
                }
            }
            let mut needed_for = Vec::new();
            if !layers.is_empty() {
                let weaker = Order::of(schedule, &without);
                let mut own: Vec<usize> = live
                    .races(&weaker)
                    .into_iter()
                    .chain(live.reuses(&weaker))
                    .map(|(buffer, ..)| buffer)
                    .collect();
                own.sort_unstable();
                own.dedup();
                needed_for.extend(own.into_iter().map(|buffer| (name(buffer), name(buffer))));
                needed_for.extend(
                    sharing
                        .iter()
                        .filter(|(a, b)| live.interfere(&weaker, *a, *b))
                        .map(|(a, b)| (name(*a), name(*b))),
                );
            }
            let prefix = if after.prev { "prev." } else { "" };
            let target = structure.steps.get(after.step).map_or("", |step| &step.name);
            let after = format!("{prefix}{target}");
            reports.push(WaitReport { step: step.name.clone(), after, layers, needed_for });
        }
    }
    reports
}

/// What one step does in one layer, for the runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct StepPlan {
    /// Whether it runs.
    pub runs: bool,
    /// Whether an event is recorded after it.
    pub records: bool,
    /// The waits: step, and how many runs back (0: the latest).
    pub waits: Vec<(usize, u8)>,
}

/// The issue plan of one pass: for each layer, one entry a step.
pub(crate) fn issue_plan(
    schedule: &Schedule<'_>,
    reduced: &[Vec<Wait>],
    structure: &Structure,
) -> Vec<Vec<StepPlan>> {
    let steps = structure.steps.len();
    let mut plan = vec![vec![StepPlan::default(); steps]; structure.layers];
    let mut slot = |layer: usize, step: usize, change: &mut dyn FnMut(&mut StepPlan)| {
        if let Some(entry) = plan.get_mut(layer).and_then(|layer| layer.get_mut(step)) {
            change(entry);
        }
    };
    for (number, node) in schedule.nodes.iter().enumerate().filter(|(_, n)| n.pass + 1 == PASSES) {
        slot(node.layer, node.step, &mut |entry| entry.runs = true);
        for wait in reduced.get(number).into_iter().flatten() {
            let Some(source) = schedule.nodes.get(wait.source) else { continue };
            // A later run of the same step before this node: the event meant is the one before.
            let again = schedule
                .nodes
                .get(wait.source + 1..number)
                .into_iter()
                .flatten()
                .any(|between| between.step == source.step);
            slot(node.layer, node.step, &mut |entry| {
                entry.waits.push((source.step, u8::from(again)));
            });
            slot(source.layer, source.step, &mut |entry| entry.records = true);
        }
    }
    plan
}
