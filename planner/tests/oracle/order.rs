//! Nodes and happens-before, as the page's paragraphs "Nodes" and "Edges" say them.

use super::expr::Fault;
use super::model::{Launch, Spec};

/// One step in one layer of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) pass: usize,
    pub(crate) layer: usize,
    /// Index in [`Spec::steps`].
    pub(crate) step: usize,
}

/// A set of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set(Vec<u64>);

impl Set {
    fn empty(nodes: usize) -> Self {
        Self(vec![0; nodes.div_ceil(64)])
    }

    fn insert(&mut self, node: usize) {
        self.0[node / 64] |= 1 << (node % 64);
    }

    fn insert_all(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }

    pub(crate) fn contains(&self, node: usize) -> bool {
        self.0[node / 64] >> (node % 64) & 1 == 1
    }
}

/// The unrolled schedule.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// In the order of issue.
    pub(crate) nodes: Vec<Node>,
    /// For each node, all nodes that happen before it.
    pub(crate) before: Vec<Set>,
}

impl Order {
    /// Unrolls `passes` passes.
    pub(crate) fn new(spec: &Spec, passes: usize) -> Result<Self, Fault> {
        let nodes = nodes(spec, passes)?;
        let mut before: Vec<Set> = Vec::new();
        for (n, node) in nodes.iter().enumerate() {
            let step = &spec.steps[node.step];
            let stream_of = |m: usize| &spec.steps[nodes[m].step].stream;
            let mut comes_after = Set::empty(nodes.len());
            // `comes after m` includes all that m comes after; the sets of earlier nodes are complete by now.
            let mut after = |m: usize| {
                comes_after.insert(m);
                comes_after.insert_all(&before[m]);
            };
            // An event covers its stream.
            let mut after_event = |t: usize| {
                after(t);
                for m in 0..t {
                    if stream_of(m) == stream_of(t) {
                        after(m);
                    }
                }
            };
            for wait in &step.after {
                let is_t = |m: &usize| spec.steps[nodes[*m].step].name == wait.step;
                let now = (node.pass, node.layer);
                let at = |m: usize| (nodes[m].pass, nodes[m].layer);
                let target = if wait.prev {
                    (0..n).rev().find(|m| is_t(m) && at(*m) < now)
                } else {
                    (0..n).rev().find(|m| is_t(m) && at(*m) == now)
                };
                if let Some(t) = target {
                    after_event(t);
                }
            }
            let just_before = (0..n).rev().find(|m| stream_of(*m) == &step.stream);
            match step.launch {
                Launch::Full => {
                    for m in 0..n {
                        if stream_of(m) == &step.stream {
                            after(m);
                        }
                    }
                }
                Launch::Dependent => {
                    if let Some(p) = just_before {
                        after(p);
                    }
                }
                Launch::Early => {
                    if let Some(p) = just_before {
                        comes_after.insert_all(&before[p]);
                    }
                }
            }
            before.push(comes_after);
        }
        Ok(Self { nodes, before })
    }

    /// Whether node `a` happens before node `b`.
    pub(crate) fn happens_before(&self, a: usize, b: usize) -> bool {
        self.before[b].contains(a)
    }
}

fn nodes(spec: &Spec, passes: usize) -> Result<Vec<Node>, Fault> {
    let layers = spec.layer_names()?;
    let mut nodes = Vec::new();
    for pass in 0..passes {
        for (layer, names) in layers.iter().enumerate() {
            for (step, it) in spec.steps.iter().enumerate() {
                let runs = match &it.when {
                    Some(when) => when.value(names)? != 0,
                    None => true,
                };
                if runs {
                    nodes.push(Node { pass, layer, step });
                }
            }
        }
    }
    Ok(nodes)
}
