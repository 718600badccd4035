//! Nodes and their order: what streams and events guarantee, and nothing more.
//!
//! A node is one step in one layer of one pass. Passes repeat for ever with the same steps, so the
//! prover unrolls [`PASSES`] of them. That is enough, and exactly so:
//!
//! - Every edge goes from a node to one issued later, so whether `a` happens before `b` depends
//!   only on the nodes issued between them, and is the same for both moved by a whole pass.
//! - What a node comes after never shrinks along its stream (each launch kind comes after all that
//!   its predecessor comes after), so `a` before `b` implies `a` before `b` one pass later. Two
//!   live ranges that are ordered when they start one pass apart are ordered at any distance.
//! - A live range ends at the latest in the pass after the one it starts in, since the buffer is
//!   written again there. Ranges that start in the first two passes are therefore complete in three.
//!
//! Happens-before is kept as one row of bits a node ([`Order::before`]): with programmatic launches
//! it is no longer a prefix of each stream, so a vector clock would not do.

use crate::bits::{self, BitMatrix};
use crate::spec::Launch;
use crate::structure::{After, Structure};

/// Passes that the prover unrolls.
pub const PASSES: usize = 3;

/// A step in a layer of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The pass, below [`PASSES`].
    pub pass: usize,
    /// The layer.
    pub layer: usize,
    /// The step: an index into [`Structure::steps`].
    pub step: usize,
}

/// An event that a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The node after which the event was recorded.
    pub source: usize,
    /// Which of the step's `after` entries it is.
    pub entry: usize,
}

/// The nodes of [`PASSES`] passes in the order issued, with their waits.
#[derive(Clone, Debug)]
pub struct Schedule<'s> {
    /// What was resolved.
    pub structure: &'s Structure,
    /// The nodes; a node's number is its index.
    pub nodes: Vec<Node>,
    /// Nodes of one pass.
    pub per_pass: usize,
    /// For each node, the events it waits for.
    pub waits: Vec<Vec<Wait>>,
    /// For each node, the node issued just before it on its stream.
    pub previous: Vec<Option<usize>>,
}

impl<'s> Schedule<'s> {
    /// The schedule with the structure's own `after` entries.
    pub fn new(structure: &'s Structure) -> Self {
        Self::with_extra(structure, None)
    }

    /// The same with one more `after` entry, of the step given.
    pub(crate) fn with_extra(structure: &'s Structure, extra: Option<(usize, After)>) -> Self {
        let mut nodes = Vec::new();
        for pass in 0..PASSES {
            for layer in 0..structure.layers {
                for (step, info) in structure.steps.iter().enumerate() {
                    if info.runs.get(layer) == Some(&true) {
                        nodes.push(Node { pass, layer, step });
                    }
                }
            }
        }
        let mut previous = Vec::with_capacity(nodes.len());
        let mut waits = Vec::with_capacity(nodes.len());
        let mut last_on_stream: Vec<Option<usize>> = vec![None; structure.streams.len()];
        // The latest node of each step, and the latest in an earlier layer or pass.
        let mut latest: Vec<Option<usize>> = vec![None; structure.steps.len()];
        let mut earlier: Vec<Option<usize>> = latest.clone();
        let mut layer_of_latest: Option<(usize, usize)> = None;
        for (number, node) in nodes.iter().enumerate() {
            if layer_of_latest != Some((node.pass, node.layer)) {
                layer_of_latest = Some((node.pass, node.layer));
                earlier.clone_from(&latest);
            }
            let mut own: Vec<Wait> = Vec::new();
            if let Some(step) = structure.steps.get(node.step) {
                let added =
                    extra.as_ref().filter(|(waiter, _)| *waiter == node.step).map(|(_, a)| a);
                for (entry, after) in step.after.iter().chain(added).enumerate() {
                    let here = latest.get(after.step).copied().flatten();
                    let before = earlier.get(after.step).copied().flatten();
                    // A step of the same layer that did not run there leaves `latest` unchanged.
                    let source = if after.prev { before } else { here.filter(|_| here != before) };
                    own.extend(source.map(|source| Wait { source, entry }));
                }
                previous.push(last_on_stream.get(step.stream).copied().flatten());
                if let Some(last) = last_on_stream.get_mut(step.stream) {
                    *last = Some(number);
                }
            }
            waits.push(own);
            if let Some(last) = latest.get_mut(node.step) {
                *last = Some(number);
            }
        }
        let per_pass = nodes.len() / PASSES;
        Self { structure, nodes, per_pass, waits, previous }
    }

    /// A node's stream.
    pub fn stream(&self, node: usize) -> usize {
        let step = self.nodes.get(node).and_then(|node| self.structure.steps.get(node.step));
        step.map_or(0, |step| step.stream)
    }

    /// A node's launch kind.
    pub fn launch(&self, node: usize) -> Launch {
        let step = self.nodes.get(node).and_then(|node| self.structure.steps.get(node.step));
        step.map_or(Launch::Full, |step| step.launch)
    }
}

/// Happens-before over the nodes of a [`Schedule`].
#[derive(Clone, Debug)]
pub struct Order {
    /// Row n: the nodes that n comes after.
    before: BitMatrix,
    /// Row n: what an event recorded after n covers.
    covered: BitMatrix,
}

impl Order {
    /// The order that all declared waits give.
    pub fn new(schedule: &Schedule<'_>) -> Self {
        Self::of(schedule, &schedule.waits)
    }

    /// The order that the given waits give, one list a node.
    pub(crate) fn of(schedule: &Schedule<'_>, waits: &[Vec<Wait>]) -> Self {
        let count = schedule.nodes.len();
        let mut before = BitMatrix::new(count, count);
        let mut covered = BitMatrix::new(count, count);
        let mut row: Vec<u64> = vec![0; before.row(0).len()];
        for node in 0..count {
            row.fill(0);
            if let Some(previous) = schedule.previous.get(node).copied().flatten() {
                match schedule.launch(node) {
                    Launch::Full => bits::union(&mut row, covered.row(previous)),
                    Launch::Dependent => {
                        bits::union(&mut row, before.row(previous));
                        bits::set(&mut row, previous);
                    }
                    Launch::Early => bits::union(&mut row, before.row(previous)),
                }
            }
            for wait in waits.get(node).into_iter().flatten() {
                bits::union(&mut row, covered.row(wait.source));
            }
            before.row_mut(node).copy_from_slice(&row);
            // An event covers its stream: the node, all issued there before it, and all that they
            // come after.
            bits::set(&mut row, node);
            if let Some(previous) = schedule.previous.get(node).copied().flatten() {
                bits::union(&mut row, covered.row(previous));
            }
            covered.row_mut(node).copy_from_slice(&row);
        }
        Self { before, covered }
    }

    /// Whether node `a` happens before node `b`.
    pub fn before(&self, a: usize, b: usize) -> bool {
        self.before.get(b, a)
    }

    /// How many pairs of nodes are in order.
    pub(crate) fn pairs(&self) -> usize {
        self.before.count()
    }

    /// The nodes that `node` comes after, as bits.
    pub(crate) fn history(&self, node: usize) -> &[u64] {
        self.before.row(node)
    }

    /// What an event recorded after `node` covers, as bits.
    pub(crate) fn covered(&self, node: usize) -> &[u64] {
        self.covered.row(node)
    }
}

/// One edge of a path that proves an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The node that comes first.
    pub from: usize,
    /// The node that comes after it.
    pub to: usize,
    /// Why.
    pub by: EdgeKind,
}

/// Why an edge holds.
///
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// By the place of `to` on its stream: after a node issued before it there or, launched early,
    /// after what such a node comes after.
    Stream,
    /// By an event recorded after `from`, or after a later node on the stream of `from`.
    Event,
}

/// A shortest path of edges that shows that `from` happens before `to`; `None` if it does not.
///
/// Breadth first, backwards from `to`, through nodes issued in between.
pub fn path(schedule: &Schedule<'_>, order: &Order, from: usize, to: usize) -> Option<Vec<Edge>> {
    if !order.before(from, to) {
        return None;
    }
    // `next[n - from]`: the edge that leads from n towards `to`.
    let mut next: Vec<Option<Edge>> = vec![None; to - from + 1];
    let mut queue = std::collections::VecDeque::from([to]);
    'search: while let Some(node) = queue.pop_front() {
        for edge in edges_into(schedule, order, node, from) {
            // Only what `from` happens before can be on the way.
            if edge.from != from && !order.before(from, edge.from) {
                continue;
            }
            let Some(slot) = next.get_mut(edge.from - from) else { continue };
            if slot.is_none() && edge.from != to {
                *slot = Some(edge);
                if edge.from == from {
                    break 'search;
                }
                queue.push_back(edge.from);
            }
        }
    }
    let mut edges = Vec::new();
    let mut at = from;
    while at != to {
        let edge = next.get(at.checked_sub(from)?).copied().flatten()?;
        edges.push(edge);
        at = edge.to;
    }
    Some(edges)
}

/// The edges into `node` from nodes not before `first`.
fn edges_into(schedule: &Schedule<'_>, order: &Order, node: usize, first: usize) -> Vec<Edge> {
    let mut edges = Vec::new();
    // An early node comes after what its predecessor comes after: walk back to a node that is not.
    let mut at = node;
    loop {
        for wait in schedule.waits.get(at).into_iter().flatten() {
            // An early node has it by its place on the stream, not by an event of its own.
            let by = if at == node { EdgeKind::Event } else { EdgeKind::Stream };
            back_along_stream(schedule, wait.source, first, |from| {
                // What comes before the event's step is on the path through that step. An event
                // covers what it does not come after, too; that is an edge of its own.
                if !order.before(from, wait.source) {
                    edges.push(Edge { from, to: node, by });
                }
            });
        }
        let Some(previous) = schedule.previous.get(at).copied().flatten() else { break };
        if previous < first {
            break;
        }
        let by = EdgeKind::Stream;
        match schedule.launch(at) {
            Launch::Full => {
                back_along_stream(schedule, previous, first, |from| {
                    edges.push(Edge { from, to: node, by });
                });
                break;
            }
            Launch::Dependent => {
                edges.push(Edge { from: previous, to: node, by });
                break;
            }
            Launch::Early => at = previous,
        }
    }
    edges
}

fn back_along_stream(
    schedule: &Schedule<'_>,
    last: usize,
    first: usize,
    mut visit: impl FnMut(usize),
) {
    let mut at = Some(last);
    while let Some(each) = at.filter(|each| *each >= first) {
        visit(each);
        at = schedule.previous.get(each).copied().flatten();
    }
}
