//! A small machine that runs a schedule in every order, and knows nothing of live ranges or happens-before.
//!
//! A node may start once its *gate* is open, runs for as long as it likes, and ends. The gate of a `full` launch is open
//! when all nodes issued earlier on its stream have ended; of a `dependent` one, when the node just before it has; of an
//! `early` one, when the gate of the node just before it is open. A wait adds that the event's node and all nodes issued
//! before it on its stream have ended.
//!
//! One memory cell is watched at a time: a part of a buffer, or what two parts hold in common. Accesses change values:
//!
//! | access | at the start of its node | at the end |
//! | --- | --- | --- |
//! | read | finds what it should | finds the same |
//! | write | leaves a value of its own | finds it |
//! | write, in a layer that wrote or updated before | finds what it should, and adds to it | finds what it left |
//! | update | the same | the same |
//! | use | leaves a value of its own | finds it |
//!
//! What an access *should* find is what it finds when the nodes run one by one in the order of issue and each part has
//! memory of its own. Memory that is kept for ever holds something from the start, and a write of it adds to that, since
//! whoever keeps it may look at any time; that is also what the last look is for, after everything has ended.

use std::collections::HashSet;

use super::model::{Group, Launch, Spec};
use super::order::Node;

/// The nodes of a schedule, ready to run; at most 32.
pub(crate) struct Machine {
    gates: Vec<u32>,
}

/// One part of a buffer, of one layer where each has its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) buffer: String,
    pub(crate) external: bool,
    kept: bool,
    /// In the order of issue.
    accesses: Vec<(usize, Does)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Look,
    /// Leaves a new value.
    Begin,
    /// Makes another value of what is there.
    Change,
}

/// What a node leaves, given what was there.
fn mixed(node: usize, part: usize, old: u64) -> u64 {
    let word = old ^ (node as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9 + 2 * part as u64);
    word ^ (word >> 32)
}

impl Machine {
    pub(crate) fn new(spec: &Spec, nodes: &[Node]) -> Self {
        assert!(nodes.len() <= 32, "too many nodes to run in every order");
        let mut gates: Vec<u32> = Vec::new();
        for (n, node) in nodes.iter().enumerate() {
            let step = &spec.steps[node.step];
            let on = |stream: &str| -> Vec<usize> {
                (0..n).filter(|m| spec.steps[nodes[*m].step].stream == stream).collect()
            };
            let before = on(&step.stream);
            let mut gate = match (step.launch, before.last()) {
                (_, None) => 0,
                (Launch::Full, _) => before.iter().map(|m| 1 << m).sum(),
                (Launch::Dependent, Some(last)) => 1 << last,
                (Launch::Early, Some(last)) => gates[*last],
            };
            for wait in &step.after {
                let here = (node.pass, node.layer);
                let source = (0..n).rev().find(|m| {
                    let layer = (nodes[*m].pass, nodes[*m].layer);
                    spec.steps[nodes[*m].step].name == wait.step
                        && if wait.prev { layer != here } else { layer == here }
                });
                if let Some(source) = source {
                    let stream = &spec.steps[nodes[source].step].stream;
                    for m in on(stream).into_iter().filter(|m| *m <= source) {
                        gate |= 1 << m;
                    }
                }
            }
            gates.push(gate);
        }
        Self { gates }
    }

    /// Whether in some order an access of these parts, all in one cell, finds what it should not.
    pub(crate) fn breaks(&self, parts: &[&Part]) -> bool {
        // Kept memory is filled before anything runs, one part after the other.
        let mut start = 0;
        let mut filled: Vec<(usize, u64)> = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            if part.kept {
                start = mixed(31, i, 7);
                filled.push((i, start));
            }
        }
        if filled.iter().any(|(_, value)| *value != start) {
            return true;
        }
        // What each access should find and leave, with memory of its own.
        let expected = parts.iter().enumerate().map(|(i, part)| {
            let mut value = if part.kept { mixed(31, i, 7) } else { 0 };
            let run = part.accesses.iter().map(|(node, does)| {
                let found = value;
                value = match does {
                    Does::Look => value,
                    Does::Begin => mixed(*node, i, 0),
                    Does::Change => mixed(*node, i, value),
                };
                (*node, *does, found, value)
            });
            let run = run.collect::<Vec<_>>();
            (run, part.kept.then_some(value))
        });
        let expected = expected.collect::<Vec<_>>();
        let of = |node: usize| {
            expected.iter().flat_map(move |(run, _)| run.iter().filter(move |(n, ..)| *n == node))
        };

        let everything = (1_u64 << self.gates.len()) - 1;
        let mut seen = HashSet::new();
        let mut todo = vec![(0_u32, 0_u32, start)];
        while let Some(state @ (started, ended, value)) = todo.pop() {
            if !seen.insert(state) {
                continue;
            }
            if u64::from(ended) == everything
                && expected.iter().any(|(_, last)| last.is_some_and(|last| last != value))
            {
                return true;
            }
            for (node, gate) in self.gates.iter().enumerate() {
                let bit = 1 << node;
                if started & bit == 0 && gate & !ended == 0 {
                    let mut value = value;
                    for (_, does, found, _) in of(node) {
                        if *does != Does::Begin && value != *found {
                            return true;
                        }
                    }
                    for (_, does, _, left) in of(node) {
                        if *does != Does::Look {
                            value = *left;
                        }
                    }
                    todo.push((started | bit, ended, value));
                } else if started & !ended & bit != 0 {
                    if of(node).any(|(_, _, _, left)| value != *left) {
                        return true;
                    }
                    todo.push((started, ended | bit, value));
                }
            }
        }
        false
    }
}

/// All parts of a schedule's buffers that something accesses, each with its copies apart.
pub(crate) fn parts(spec: &Spec, nodes: &[Node]) -> Vec<Part> {
    let mut all = Vec::new();
    let layers = spec.layer_names().unwrap();
    let holds = |group: &Group, layer: usize| {
        group.when.as_ref().is_none_or(|when| when.value(&layers[layer]).unwrap() != 0)
    };
    for group in &spec.groups {
        for buffer in &group.buffers {
            let name = format!("{}.{}", group.name, buffer.name);
            for part in 0..buffer.parts.unwrap_or(1) {
                let spelled = [group.name.clone(), name.clone(), format!("{name}[{part}]")];
                let listed = |list: &[String]| list.iter().any(|item| spelled.contains(item));
                let copies = if group.per_layer { layers.len() } else { 1 };
                for copy in 0..copies {
                    let kept = group.persistent || group.external;
                    let mut one = Part {
                        buffer: name.clone(),
                        external: group.external,
                        kept,
                        accesses: vec![],
                    };
                    let mut written_in = None;
                    for (n, node) in nodes.iter().enumerate() {
                        if !holds(group, node.layer) || group.per_layer && node.layer != copy {
                            continue;
                        }
                        let step = &spec.steps[node.step];
                        let here = Some((node.pass, node.layer));
                        let (reads, writes) = (listed(&step.reads), listed(&step.writes));
                        let does = if listed(&step.uses) {
                            Does::Begin
                        } else if writes && (reads || kept || written_in == here) {
                            Does::Change
                        } else if writes {
                            Does::Begin
                        } else if reads {
                            Does::Look
                        } else {
                            continue;
                        };
                        if writes {
                            written_in = here;
                        }
                        one.accesses.push((n, does));
                    }
                    if !one.accesses.is_empty() {
                        all.push(one);
                    }
                }
            }
        }
    }
    all
}

impl Part {
    /// Whether the order of issue itself looks at what nothing has written.
    pub(crate) fn looks_at_nothing(&self) -> bool {
        !self.kept && self.accesses.first().is_some_and(|(_, does)| *does != Does::Begin)
    }
}
