//! The pipeline: spec → names → structure and sizes → order and live ranges → layout.
//!
//! [`plan`] either returns a [`Plan`], whose every pair of overlapping buffers is proved never to be
//! live together, or all errors found. Stages that do not depend on a faulty one still run.

use std::collections::BTreeMap;

use crate::error::{Conflict, Error, Fault, Fix};
use crate::explain::{Facts, Proof};
use crate::fix::{Open, What, fixes};
use crate::layout::{Layout, LayoutError, total_with};
use crate::live::Liveness;
use crate::names::Names;
use crate::schedule::{Order, Schedule};
use crate::sizes::Sizes;
use crate::spec::Spec;
use crate::structure::Structure;
use crate::sync::{self, StepPlan, WaitReport};

/// A proved and packed pool.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The schedule's structure.
    pub structure: Structure,
    /// The sizes.
    pub sizes: Sizes,
    /// The layout.
    pub layout: Layout,
    /// The pairs of buffers that interfere, each with the lower index first, sorted.
    pub interference: Vec<(usize, usize)>,
}

/// Checks, proves and packs a spec.
///
/// # Errors
/// All errors found, those of the text first.
pub fn plan(spec: &Spec) -> Result<Plan, Vec<Error>> {
    let (plan, errors) = analyze(spec);
    match plan {
        Some(plan) if errors.is_empty() => Ok(plan),
        _ => Err(errors),
    }
}

/// As [`plan`], but with the plan also where a claim or the schedule's own order is refused. Such a
/// plan must not be run; it has the shape of the one that was meant, for tools that go on after an
/// error.
pub fn analyze(spec: &Spec) -> (Option<Plan>, Vec<Error>) {
    let mut errors = Vec::new();
    let names = Names::resolve(spec, &mut errors);
    let structure = Structure::resolve(spec, &names, &mut errors);
    let sizes = Sizes::resolve(spec, structure.as_ref(), &names, &mut errors);
    let Some(structure) = structure else {
        return (None, errors);
    };
    let schedule = Schedule::new(&structure);
    let order = Order::new(&schedule);
    let live = Liveness::new(&schedule);
    let interference = interference(&structure, &live, &order);
    let layout = match &sizes {
        None => None,
        Some(sizes) => match Layout::new(&structure, sizes, &interference) {
            Ok(layout) => Some(layout),
            Err(error) => {
                let fault = match error {
                    LayoutError::TooLarge => Fault::TotalSize,
                    LayoutError::Refused(found) => {
                        Fault::Refused(found.iter().map(ToString::to_string).collect())
                    }
                };
                errors.push(Error::new(fault, spec.name.span));
                None
            }
        },
    };
    let facts = Facts { structure: &structure, schedule: &schedule, order: &order, live: &live };
    unwritten_errors(&facts, spec, &mut errors);
    let mut open: Vec<(usize, Open)> = Vec::new();
    schedule_errors(&facts, &mut errors, &mut open);
    exclusive_errors(&facts, &interference, layout.as_ref(), &mut errors, &mut open);
    offer_fixes(&facts, open, &mut errors);
    let plan = sizes.zip(layout).map(|(sizes, layout)| Plan {
        structure: structure.clone(),
        sizes,
        layout,
        interference,
    });
    (plan, errors)
}

impl Plan {
    /// Recomputes the order, to answer questions about it.
    pub fn explain(&self) -> Explainer<'_> {
        let schedule = Schedule::new(&self.structure);
        let order = Order::new(&schedule);
        let live = Liveness::new(&schedule);
        Explainer { plan: self, schedule, order, live }
    }

    /// A buffer's index by its full name.
    pub fn buffer(&self, name: &str) -> Option<usize> {
        self.structure.buffers.iter().position(|buffer| buffer.name == name)
    }

    /// Whether two buffers interfere.
    pub fn interferes(&self, a: usize, b: usize) -> bool {
        self.interference.binary_search(&(a.min(b), a.max(b))).is_ok()
    }

    /// The bytes that two buffers have in common in the arena.
    pub fn shared_bytes(&self, a: usize, b: usize) -> u64 {
        let range = |buffer: usize| {
            let placed = self.layout.buffers.get(buffer);
            placed.map_or((0, 0), |placed| (placed.offset, placed.offset + placed.bytes))
        };
        let ((a_start, a_end), (b_start, b_end)) = (range(a), range(b));
        a_end.min(b_end).saturating_sub(a_start.max(b_start))
    }

    /// The pairs of buffers whose bytes overlap in the arena.
    pub fn sharing(&self) -> Vec<(usize, usize)> {
        let count = self.layout.buffers.len();
        let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        pairs.filter(|(a, b)| self.shared_bytes(*a, *b) > 0).collect()
    }
}

/// Answers about a plan's order.
#[derive(Debug)]
pub struct Explainer<'p> {
    plan: &'p Plan,
    schedule: Schedule<'p>,
    order: Order,
    live: Liveness,
}

impl Explainer<'_> {
    fn facts(&self) -> Facts<'_> {
        Facts {
            structure: &self.plan.structure,
            schedule: &self.schedule,
            order: &self.order,
            live: &self.live,
        }
    }

    /// Why two buffers may share bytes; `None` if they must not.
    pub fn proof(&self, a: usize, b: usize) -> Option<Proof> {
        (a != b && !self.plan.interferes(a, b)).then(|| self.facts().proof(a, b))
    }

    /// Why two buffers must not share bytes, with what would change that; `None` if they may.
    pub fn counterexample(&self, a: usize, b: usize) -> Option<Conflict> {
        if a == b || !self.plan.interferes(a, b) {
            return None;
        }
        let facts = self.facts();
        let mut conflict = facts.counterexample(a, b)?;
        let open = Open::new(&facts, &conflict, What::Interference(vec![(a, b)]))?;
        conflict.fix = fixes(&facts, &[open]).pop().flatten();
        Some(conflict)
    }

    /// Bytes by which the arena would change if the pair did (not) interfere: what a shared pair
    /// saves, or what a pair kept apart costs.
    pub fn stake(&self, a: usize, b: usize) -> u64 {
        let pair = (a.min(b), a.max(b));
        let mut changed = self.plan.interference.clone();
        match changed.binary_search(&pair) {
            Ok(position) => {
                changed.remove(position);
            }
            Err(position) => changed.insert(position, pair),
        }
        let layout = &self.plan.layout;
        total_with(layout, &changed).map_or(0, |total| total.abs_diff(layout.total_bytes))
    }

    /// Each declared `after` and what becomes of it.
    pub fn waits(&self) -> Vec<WaitReport> {
        let sharing = self.plan.sharing();
        sync::reports(&self.plan.structure, &self.schedule, &self.order, &self.live, &sharing)
    }

    /// What the runtime issues: for each layer, one entry a step.
    pub fn issue_plan(&self) -> Vec<Vec<StepPlan>> {
        let reduced = sync::reduce(&self.schedule, &self.order);
        sync::issue_plan(&self.schedule, &reduced, &self.plan.structure)
    }
}

fn interference(structure: &Structure, live: &Liveness, order: &Order) -> Vec<(usize, usize)> {
    let count = structure.buffers.len();
    let mut pairs = Vec::new();
    for a in 0..count {
        for b in a + 1..count {
            if live.interfere(order, a, b) {
                pairs.push((a, b));
            }
        }
    }
    pairs
}

/// A buffer, the access issued first, the access issued second.
type Found = (usize, usize, usize);
type Find = fn(&Liveness, &Order) -> Vec<Found>;
type MakeFault = fn(Box<Conflict>) -> Fault;
type MakeWhat = fn(Vec<usize>) -> What;

/// Reads of what nothing has written, one error for each step.
fn unwritten_errors(facts: &Facts<'_>, spec: &Spec, errors: &mut Vec<Error>) {
    let nodes = &facts.schedule.nodes;
    let step_of = |node: usize| nodes.get(node).map_or(0, |node| node.step);
    let mut reads: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (buffer, node) in &facts.live.unwritten {
        reads.entry(step_of(*node)).or_default().push((*buffer, *node));
    }
    for found in reads.values() {
        let Some((_, node)) = found.first() else { continue };
        let read = facts.access(*node, false, 0);
        let mut buffers: Vec<usize> = found.iter().map(|(buffer, _)| *buffer).collect();
        buffers.sort_unstable();
        buffers.dedup();
        let layers = found.iter().filter_map(|(_, node)| nodes.get(*node)).map(|n| n.layer);
        let span = read.span;
        let fault = Fault::ReadBeforeWrite {
            buffers: buffers.iter().map(|b| facts.buffer_name(*b).to_owned()).collect(),
            read: Box::new(read),
            layers: layers.collect(),
            causes: facts.unwritten(spec, found),
        };
        errors.push(Error::new(fault, span));
    }
}

/// The races and the reuses, one error for each pair of steps; `open` gets each with its index
/// among the errors.
fn schedule_errors(facts: &Facts<'_>, errors: &mut Vec<Error>, open: &mut Vec<(usize, Open)>) {
    let nodes = &facts.schedule.nodes;
    let step_of = |node: usize| nodes.get(node).map_or(0, |node| node.step);
    let kinds: [(Find, MakeFault, MakeWhat); 2] =
        [(Liveness::races, Fault::Race, What::Race), (Liveness::reuses, Fault::Reuse, What::Reuse)];
    for (find, fault, what) in kinds {
        let mut grouped: BTreeMap<(usize, usize), Vec<Found>> = BTreeMap::new();
        for found in find(facts.live, facts.order) {
            grouped.entry((step_of(found.1), step_of(found.2))).or_default().push(found);
        }
        for (key, found) in grouped {
            let Some((buffer, first, second)) =
                found.iter().min_by_key(|(_, first, second)| (second - first, *first)).copied()
            else {
                continue;
            };
            let mut conflict = facts.conflict(buffer, first, second);
            let mut buffers: Vec<usize> = found.iter().map(|(buffer, ..)| *buffer).collect();
            buffers.sort_unstable();
            buffers.dedup();
            conflict.buffers = buffers.iter().map(|b| facts.buffer_name(*b).to_owned()).collect();
            let layer = |node: usize| nodes.get(node).map_or(0, |node| node.layer);
            conflict.layers = found.iter().map(|(_, x, y)| (layer(*x), layer(*y))).collect();
            conflict.layers.sort_unstable();
            conflict.layers.dedup();
            open.push((errors.len(), Open { steps: key, what: what(buffers) }));
            let span = conflict.second.span;
            errors.push(Error::new(fault(Box::new(conflict)), span));
        }
    }
}

fn exclusive_errors(
    facts: &Facts<'_>,
    interference: &[(usize, usize)],
    layout: Option<&Layout>,
    errors: &mut Vec<Error>,
    open: &mut Vec<(usize, Open)>,
) {
    let structure = facts.structure;
    for (position, (b, span_b)) in structure.exclusive.iter().enumerate() {
        for (a, span_a) in structure.exclusive.iter().take(position) {
            let (Some(group_a), Some(group_b)) =
                (structure.groups.get(*a), structure.groups.get(*b))
            else {
                continue;
            };
            let across = |pair: &(usize, usize)| {
                let inside = |x: usize, y: usize| {
                    group_a.buffers.contains(&x) && group_b.buffers.contains(&y)
                };
                inside(pair.0, pair.1) || inside(pair.1, pair.0)
            };
            let colliding: Vec<(usize, usize)> =
                interference.iter().copied().filter(|pair| across(pair)).collect();
            let clearest = colliding
                .iter()
                .filter_map(|(x, y)| facts.counterexample(*x, *y))
                .min_by_key(|conflict| (conflict.trace.len() < 3, conflict.second.pass));
            let Some(conflict) = clearest else { continue };
            let what = What::Interference(colliding.clone());
            open.extend(Open::new(facts, &conflict, what).map(|open| (errors.len(), open)));
            let bytes = layout.and_then(|layout| {
                let overlaid: Vec<(usize, usize)> =
                    interference.iter().copied().filter(|pair| !across(pair)).collect();
                Some(layout.total_bytes.saturating_sub(total_with(layout, &overlaid)?))
            });
            let named = |(x, y): &(usize, usize)| {
                let name = |buffer: usize| facts.buffer_name(buffer).to_owned();
                if group_a.buffers.contains(x) {
                    (name(*x), name(*y))
                } else {
                    (name(*y), name(*x))
                }
            };
            let fault = Fault::NotExclusive {
                a: group_a.name.clone(),
                b: group_b.name.clone(),
                pairs: colliding.iter().map(named).collect(),
                conflict: Box::new(conflict),
                bytes,
            };
            errors.push(Error::new(fault, span_a.join(*span_b)));
        }
    }
}

/// Tells each conflict among the errors what would fix it.
fn offer_fixes(facts: &Facts<'_>, open: Vec<(usize, Open)>, errors: &mut [Error]) {
    let (positions, open): (Vec<usize>, Vec<Open>) = open.into_iter().unzip();
    let of = errors.len();
    for (position, found) in positions.into_iter().zip(fixes(facts, &open)) {
        let Some(error) = errors.get_mut(position) else { continue };
        if let Fault::Race(conflict)
        | Fault::Reuse(conflict)
        | Fault::NotExclusive { conflict, .. } = &mut error.fault
        {
            conflict.fix = found.map(|fix| Fix { of, ..fix });
        }
    }
}
