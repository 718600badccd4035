//! What is executed: nodes in the order of issue, each with its stream, launch kind, waits and accesses.
//!
//! Written from the spec format's paragraphs "Nodes" and "Live ranges". A wait names the node that the event was
//! recorded after; what that covers is the [`machine`](super::machine)'s business.

use scratchpool_planner::spec::Launch;

use super::declared::{Declared, split_after};

/// Nodes in the order of issue.
#[derive(Clone, Debug)]
pub struct Program {
    /// How many streams there are.
    pub streams: usize,
    /// How many buffers there are.
    pub buffers: usize,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// A step in a layer of a pass.
#[derive(Clone, Debug)]
pub struct Node {
    /// The pass.
    pub pass: usize,
    /// The layer.
    pub layer: usize,
    /// The step.
    pub step: usize,
    /// Its stream.
    pub stream: usize,
    /// How it is launched.
    pub launch: Launch,
    /// For each event that it waits for, the node after which it was recorded.
    pub waits: Vec<usize>,
    /// What it touches, at most once a buffer.
    pub accesses: Vec<Access>,
}

/// An access of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The buffer.
    pub buffer: usize,
    /// Whether it writes. A step that writes and reads a buffer makes one access, a write.
    pub write: bool,
    /// Its live range, counted by buffer from 0; `None` for a read of what nothing has written.
    pub range: Option<usize>,
    /// How many writes of its live range were issued before it.
    pub writes_before: usize,
}

impl Access {
    /// Whether it starts its live range: then it expects nothing of the bytes it finds.
    pub const fn starts(&self) -> bool {
        self.write && self.writes_before == 0
    }
}

impl Program {
    /// Unrolls a declared schedule.
    pub fn new(declared: &Declared, passes: usize) -> Self {
        let streams = declared.streams();
        let buffers = declared.buffers();
        let mut nodes: Vec<Node> = Vec::new();
        for pass in 0..passes {
            for (layer, attribute) in declared.layers.iter().enumerate() {
                let first_here = nodes.len();
                for (number, step) in declared.steps.iter().enumerate() {
                    if step.when.is_some_and(|when| when != *attribute) {
                        continue;
                    }
                    let waits = step.after.iter().filter_map(|after| {
                        let (prev, name) = split_after(after);
                        let is_it = |node: &&Node| declared.steps[node.step].name == name;
                        if prev {
                            let earlier = nodes[..first_here].iter().rev().find(is_it)?;
                            position(&nodes, earlier)
                        } else {
                            position(&nodes, nodes[first_here..].iter().find(is_it)?)
                        }
                    });
                    let waits = waits.collect();
                    let touches = |list: &[String], buffer: usize| {
                        let (name, group) = &buffers[buffer];
                        let exists = group.when.is_none_or(|when| when == *attribute);
                        exists && list.iter().any(|item| item == name || *item == group.name)
                    };
                    let accesses = (0..buffers.len()).filter_map(|buffer| {
                        let write = touches(&step.writes, buffer);
                        (write || touches(&step.reads, buffer)).then_some((buffer, write))
                    });
                    nodes.push(Node {
                        pass,
                        layer,
                        step: number,
                        stream: streams.iter().position(|each| *each == step.stream).unwrap_or(0),
                        launch: step.launch,
                        waits,
                        accesses: accesses
                            .map(|(buffer, write)| Access::of(buffer, write))
                            .collect(),
                    });
                }
            }
        }
        let mut program = Self { streams: streams.len(), buffers: buffers.len(), nodes };
        program.find_live_ranges();
        program
    }

    /// Gives each access its live range.
    pub fn find_live_ranges(&mut self) {
        struct Latest {
            range: usize,
            writes: usize,
            written_in: (usize, usize),
        }
        let mut latest: Vec<Option<Latest>> = (0..self.buffers).map(|_| None).collect();
        for node in &mut self.nodes {
            let here = (node.pass, node.layer);
            for access in &mut node.accesses {
                let latest = &mut latest[access.buffer];
                let written_here = latest.as_ref().is_some_and(|range| range.written_in == here);
                if access.write && !written_here {
                    let range = latest.as_ref().map_or(0, |range| range.range + 1);
                    *latest = Some(Latest { range, writes: 0, written_in: here });
                }
                access.range = latest.as_ref().map(|range| range.range);
                access.writes_before = latest.as_ref().map_or(0, |range| range.writes);
                if let (true, Some(range)) = (access.write, latest) {
                    range.writes += 1;
                }
            }
        }
    }

    /// The accesses of a buffer in the order of issue.
    pub fn accesses_of(&self, buffer: usize) -> Vec<(usize, Access)> {
        let of = |(number, node): (usize, &Node)| {
            let access = node.accesses.iter().find(|access| access.buffer == buffer);
            access.map(|access| (number, *access))
        };
        self.nodes.iter().enumerate().filter_map(of).collect()
    }

    /// The node of a step in a layer of a pass.
    pub fn find(&self, pass: usize, layer: usize, step: usize) -> Option<usize> {
        self.nodes.iter().position(|n| (n.pass, n.layer, n.step) == (pass, layer, step))
    }
}

impl Access {
    /// An access whose live range is still to be found.
    pub const fn of(buffer: usize, write: bool) -> Self {
        Self { buffer, write, range: None, writes_before: 0 }
    }
}

fn position(nodes: &[Node], node: &Node) -> Option<usize> {
    nodes.iter().position(|each| std::ptr::eq(each, node))
}
