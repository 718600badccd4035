//! Shadow clocks: what happens before what, by the waits and records that were issued.
//!
//! A node is one run of a step, numbered on its stream from 1. What comes before a node is a prefix
//! of every stream, and, in a chain of programmatic launches, single nodes of its own stream beyond
//! the prefix. The rules are those of the pool spec: a *full* node comes after all of its stream, a
//! *dependent* one after the node in front of it and all that one comes after, an *early* one only
//! after the latter; an event covers all of its stream.
//!
//! Invariant: fed with every wait, step and record in the order of issue, and nothing else, so it
//! knows of no order that the device was not told of.

use crate::tables::Launch;

/// One run of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) stream: usize,
    pub(crate) number: u64,
}

/// Nodes that come before something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    /// Of each stream, all nodes up to this number.
    upto: Vec<u64>,
    /// Single nodes beyond that.
    single: Vec<Node>,
}

impl Past {
    fn of(streams: usize) -> Self {
        Self { upto: vec![0; streams], single: Vec::new() }
    }

    /// Whether a node is among them.
    pub(crate) fn covers(&self, node: Node) -> bool {
        self.upto.get(node.stream).is_some_and(|upto| node.number <= *upto)
            || self.single.contains(&node)
    }

    fn join(&mut self, other: &Self) {
        for (mine, theirs) in self.upto.iter_mut().zip(&other.upto) {
            *mine = (*mine).max(*theirs);
        }
        for node in &other.single {
            self.add(*node);
        }
    }

    fn add(&mut self, node: Node) {
        if !self.covers(node) {
            self.single.push(node);
        }
        // What has become part of a prefix is no single node any more.
        loop {
            let next = self.single.iter().position(|single| {
                self.upto.get(single.stream).is_some_and(|upto| single.number <= *upto + 1)
            });
            let Some(next) = next else { break };
            let Node { stream, number } = self.single.swap_remove(next);
            if let Some(upto) = self.upto.get_mut(stream) {
                *upto = number.max(*upto);
            }
        }
    }
}

/// What is known of a stream.
#[derive(Clone, Debug)]
struct Lane {
    /// Nodes issued.
    count: u64,
    /// All of its nodes and all that comes before them.
    all: Past,
    /// What comes before its latest node.
    latest: Past,
    /// What the next node waits for.
    waits: Past,
}

/// The clocks of one copy.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    lanes: Vec<Lane>,
    /// What each event covers; two for each step.
    events: Vec<Past>,
}

impl Clocks {
    pub(crate) fn new(streams: usize, steps: usize) -> Self {
        let past = Past::of(streams);
        let lane = Lane { count: 0, all: past.clone(), latest: past.clone(), waits: past.clone() };
        Self { lanes: vec![lane; streams], events: vec![past; 2 * steps] }
    }

    /// Everything was waited for: nothing is unordered.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.lanes.len(), self.events.len() / 2);
    }

    /// `stream` was told to wait for an event.
    #[cold]
    pub(crate) fn wait(&mut self, stream: usize, event: usize) {
        let Some(past) = self.events.get(event).cloned() else { return };
        if let Some(lane) = self.lanes.get_mut(stream) {
            lane.waits.join(&past);
            lane.all.join(&past);
        }
    }

    /// A step was entered on `stream`.
    #[cold]
    pub(crate) fn enter(&mut self, stream: usize, launch: Launch) {
        let Some(lane) = self.lanes.get_mut(stream) else { return };
        let front = Node { stream, number: lane.count };
        let mut past = match launch {
            Launch::Full => lane.all.clone(),
            Launch::Dependent | Launch::Early => lane.latest.clone(),
        };
        if launch == Launch::Dependent && front.number > 0 {
            past.add(front);
        }
        past.join(&lane.waits);
        lane.count += 1;
        lane.all.join(&past);
        if let Some(upto) = lane.all.upto.get_mut(stream) {
            *upto = lane.count;
        }
        lane.all.single.clear();
        lane.latest = past;
        lane.waits = Past::of(lane.latest.upto.len());
    }

    /// An event was recorded on `stream`.
    #[cold]
    pub(crate) fn record(&mut self, stream: usize, event: usize) {
        if let (Some(lane), Some(slot)) = (self.lanes.get(stream), self.events.get_mut(event)) {
            slot.clone_from(&lane.all);
        }
    }

    /// The latest node of a stream, and what comes before it.
    pub(crate) fn latest(&self, stream: usize) -> Option<(Node, &Past)> {
        let lane = self.lanes.get(stream)?;
        Some((Node { stream, number: lane.count }, &lane.latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(clocks: &mut Clocks, stream: usize, launch: Launch) -> (Node, Past) {
        clocks.enter(stream, launch);
        let (node, past) = clocks
            .latest(stream)
            .map(|(n, p)| (n, p.clone()))
            .unwrap_or((Node { stream, number: 0 }, Past::default()));
        (node, past)
    }

    #[test]
    fn launch_kinds_and_events_order_what_the_spec_says() {
        let mut clocks = Clocks::new(2, 2);
        let (a, _) = enter(&mut clocks, 0, Launch::Full);
        let (b, past_b) = enter(&mut clocks, 0, Launch::Full);
        let (c, past_c) = enter(&mut clocks, 0, Launch::Early);
        let (_, past_d) = enter(&mut clocks, 0, Launch::Dependent);
        assert!(past_b.covers(a));
        assert!(past_c.covers(a) && !past_c.covers(b));
        assert!(past_d.covers(c) && past_d.covers(a) && !past_d.covers(b));
        clocks.record(0, 0);
        let (other, before) = enter(&mut clocks, 1, Launch::Full);
        assert!(!before.covers(a));
        clocks.wait(1, 0);
        let (_, past) = enter(&mut clocks, 1, Launch::Full);
        assert!([a, b, c, other].into_iter().all(|node| past.covers(node)));
        let (_, past) = enter(&mut clocks, 0, Launch::Full);
        assert!(past.covers(b) && !past.covers(other));
    }
}
