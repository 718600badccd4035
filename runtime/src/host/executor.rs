//! Runs kernels in a random order that streams and events allow.
//!
//! Work is kept as **nodes**: one a step, or one a launch outside a step. A node comes after
//! others by the rules of the pool spec:
//!
//! | launch kind | the node comes after |
//! | --- | --- |
//! | full | every node given earlier to its stream |
//! | dependent | the node before it on its stream, and all that one comes after |
//! | early | all that the node before it comes after, not that node itself |
//!
//! and after every event its stream was told to wait for. An event stands for all nodes that its
//! stream held at the record.
//!
//! Invariant: a node's kernels run only when every node it comes after has completed. `deps` holds
//! the *direct* predecessors; those complete only after theirs, so the closure follows. A stream's
//! `frontier` is a set of nodes whose completion implies that of all nodes of the stream: a full
//! node replaces it, a dependent node replaces the node before it, an early node joins it.
//!
//! The order is chosen to hurt: streams get random priorities that change from time to time, and
//! now and then one stream is starved for long, as by a slow kernel.

use std::collections::VecDeque;

use super::block::Block;
use crate::tables::Launch;

/// One kernel with its arguments.
pub(super) type Task = Box<dyn FnOnce()>;

/// A node's number, in the order of issue.
type NodeId = u64;

/// How many nodes may wait before some are run at once, so that memory stays bounded.
const MAX_PENDING: usize = 1024;

#[derive(Debug)]
pub(super) struct Executor {
    rng: Rng,
    mood: Mood,
    lanes: Vec<Lane>,
    /// Nodes from `first` on; `None` is complete, as is everything before `first`. The first one
    /// kept is pending.
    nodes: VecDeque<Option<Node>>,
    first: NodeId,
    pending: usize,
    /// Blocks given back while nodes that may touch them were pending, in the order of `until`.
    retired: VecDeque<Retired>,
}

/// What the executor knows of a stream.
#[derive(Debug, Default)]
struct Lane {
    name: &'static str,
    frontier: Vec<NodeId>,
    last: Option<NodeId>,
    /// What the next node comes after besides its stream.
    waits: Vec<NodeId>,
    /// The node that takes launches, while a step is entered.
    open: Option<NodeId>,
    entered: bool,
    ready: Vec<NodeId>,
}

struct Node {
    lane: usize,
    deps: Vec<NodeId>,
    /// How many of `deps` are not complete.
    blockers: usize,
    dependents: Vec<NodeId>,
    tasks: VecDeque<Task>,
    /// Whether more tasks may come.
    open: bool,
    /// Whether one of its tasks is being run.
    running: bool,
    queued: bool,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("lane", &self.lane)
            .field("deps", &self.deps)
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Retired {
    _block: Block,
    /// The block is free once all nodes before this one are complete.
    until: NodeId,
}

/// The present way of choosing.
#[derive(Debug)]
struct Mood {
    /// Kernels run after each launch, at most.
    pace: u64,
    starved: Option<usize>,
    priorities: Vec<u64>,
    /// Choices left until it changes.
    left: u64,
}

impl Executor {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng(seed),
            mood: Mood { pace: 0, starved: None, priorities: Vec::new(), left: 0 },
            lanes: Vec::new(),
            nodes: VecDeque::new(),
            first: 0,
            pending: 0,
            retired: VecDeque::new(),
        }
    }

    pub(super) fn add_lane(&mut self, name: &'static str) -> usize {
        self.lanes.push(Lane { name, ..Lane::default() });
        self.mood.left = 0;
        self.lanes.len() - 1
    }

    /// The nodes that an event recorded now stands for.
    pub(super) fn record(&mut self, lane: usize) -> Vec<NodeId> {
        self.cut(lane);
        let Some(state) = self.lanes.get(lane) else { return Vec::new() };
        let mut covered = state.frontier.clone();
        covered.extend(&state.waits);
        self.incomplete(covered)
    }

    pub(super) fn wait(&mut self, lane: usize, covered: &[NodeId]) {
        self.cut(lane);
        if let Some(state) = self.lanes.get_mut(lane) {
            state.waits.extend(covered);
        }
    }

    pub(super) fn enter(&mut self, lane: usize, launch: Launch) {
        self.leave(lane);
        let node = self.add_node(lane, launch);
        if let Some(state) = self.lanes.get_mut(lane) {
            state.open = Some(node);
            state.entered = true;
        }
    }

    pub(super) fn leave(&mut self, lane: usize) {
        self.cut(lane);
        if let Some(state) = self.lanes.get_mut(lane) {
            state.entered = false;
        }
    }

    pub(super) fn enqueue(&mut self, lane: usize, task: Task) {
        let (open, entered) =
            self.lanes.get(lane).map_or((None, false), |state| (state.open, state.entered));
        let node = open.unwrap_or_else(|| {
            // Later launches of a step that was cut follow its earlier ones, and no more.
            self.add_node(lane, if entered { Launch::Dependent } else { Launch::Full })
        });
        if let Some(node) = self.node(node) {
            node.tasks.push_back(task);
            node.open = entered;
        }
        if let Some(state) = self.lanes.get_mut(lane) {
            state.open = entered.then_some(node);
        }
        self.settle(node);
    }

    /// Ends the node that takes launches, so that an event, a wait or a synchronisation inside a
    /// step divides its launches into those before and those after.
    fn cut(&mut self, lane: usize) {
        let Some(id) = self.lanes.get_mut(lane).and_then(|state| state.open.take()) else { return };
        if let Some(node) = self.node(id) {
            node.open = false;
        }
        self.settle(id);
    }

    /// Prepares for running everything.
    pub(super) fn cut_all(&mut self) {
        for lane in 0..self.lanes.len() {
            self.cut(lane);
        }
    }

    fn add_node(&mut self, lane: usize, launch: Launch) -> NodeId {
        let id = self.first + self.nodes.len() as NodeId;
        let Some(state) = self.lanes.get_mut(lane) else { return id };
        let last = state.last.replace(id);
        let waits = std::mem::take(&mut state.waits);
        let mut deps = match launch {
            Launch::Full => std::mem::take(&mut state.frontier),
            Launch::Dependent => last.into_iter().collect(),
            Launch::Early => Vec::new(),
        };
        state.frontier.retain(|&node| launch == Launch::Early || Some(node) != last);
        state.frontier.push(id);
        if launch == Launch::Early {
            // A complete node is not found here, and then its predecessors are complete too.
            deps.extend(
                last.and_then(|last| self.node(last))
                    .map(|node| node.deps.clone())
                    .unwrap_or_default(),
            );
        }
        deps.extend(waits);
        deps.sort_unstable();
        deps.dedup();
        let deps = self.incomplete(deps);
        for &dep in &deps {
            if let Some(node) = self.node(dep) {
                node.dependents.push(id);
            }
        }
        self.nodes.push_back(Some(Node {
            lane,
            blockers: deps.len(),
            deps,
            dependents: Vec::new(),
            tasks: VecDeque::new(),
            open: true,
            running: false,
            queued: false,
        }));
        self.pending += 1;
        let frontier = self.lanes.get_mut(lane).map(|state| std::mem::take(&mut state.frontier));
        let frontier = self.incomplete(frontier.unwrap_or_default());
        if let Some(state) = self.lanes.get_mut(lane) {
            state.frontier = frontier;
        }
        id
    }

    /// How many kernels to run now, after an enqueue.
    pub(super) fn turns(&mut self) -> u64 {
        if self.pending > MAX_PENDING {
            return 4;
        }
        match self.mood.pace {
            0 => 0,
            pace => self.rng.below(pace + 1),
        }
    }

    /// The next kernel, if one may run. `drain` lets a starved stream run when no other can.
    pub(super) fn pick(&mut self, drain: bool) -> Option<(NodeId, Task)> {
        if self.mood.left == 0 {
            self.change_mood();
        }
        self.mood.left -= 1;
        let lane = self.choose_lane(self.mood.starved).or_else(|| {
            if drain || self.pending > MAX_PENDING { self.choose_lane(None) } else { None }
        })?;
        let ready = &self.lanes.get(lane)?.ready;
        let at = self.rng.index(ready.len());
        let id = *ready.get(at)?;
        let node = self.node(id)?;
        let task = node.tasks.pop_front()?;
        node.running = true;
        node.queued = false;
        if let Some(state) = self.lanes.get_mut(lane) {
            state.ready.swap_remove(at);
        }
        Some((id, task))
    }

    fn choose_lane(&mut self, starved: Option<usize>) -> Option<usize> {
        let may = |lane: usize, state: &Lane| !state.ready.is_empty() && Some(lane) != starved;
        if self.rng.below(4) == 0 {
            let count =
                self.lanes.iter().enumerate().filter(|(lane, state)| may(*lane, state)).count();
            let at = self.rng.index(count);
            return (0..self.lanes.len())
                .filter(|&lane| self.lanes.get(lane).is_some_and(|state| may(lane, state)))
                .nth(at);
        }
        (0..self.lanes.len())
            .filter(|&lane| self.lanes.get(lane).is_some_and(|state| may(lane, state)))
            .max_by_key(|&lane| self.mood.priorities.get(lane))
    }

    fn change_mood(&mut self) {
        let lanes = self.lanes.len();
        self.mood = Mood {
            pace: self.rng.below(4),
            starved: if self.rng.below(2) == 0 { Some(self.rng.index(lanes)) } else { None },
            priorities: (0..lanes).map(|_| self.rng.next()).collect(),
            left: 1 << self.rng.below(9),
        };
    }

    /// Says that the task picked last from this node has run; gives the name of its stream.
    pub(super) fn ran(&mut self, id: NodeId) -> &'static str {
        let lane = self.node(id).map(|node| {
            node.running = false;
            node.lane
        });
        self.settle(id);
        lane.and_then(|lane| self.lanes.get(lane)).map_or("", |lane| lane.name)
    }

    /// Forgets all that was given and has not run: every node is complete, and blocks that were kept
    /// for them are free. The kernels are the caller's to drop, when the executor is not borrowed.
    pub(super) fn throw_away(&mut self) -> Vec<Task> {
        let nodes = std::mem::take(&mut self.nodes);
        self.first += nodes.len() as NodeId;
        self.pending = 0;
        for lane in &mut self.lanes {
            lane.frontier.clear();
            lane.waits.clear();
            lane.ready.clear();
            lane.open = None;
        }
        self.retired.clear();
        nodes.into_iter().flatten().flat_map(|node| node.tasks).collect()
    }

    /// Queues a node that can run, completes one that has run, and so on to those after it.
    fn settle(&mut self, id: NodeId) {
        let mut todo = vec![id];
        while let Some(id) = todo.pop() {
            let Some(node) = self.node(id) else { continue };
            if node.blockers > 0 || node.running {
                continue;
            }
            if !node.tasks.is_empty() {
                let lane = node.lane;
                if !std::mem::replace(&mut node.queued, true)
                    && let Some(state) = self.lanes.get_mut(lane)
                {
                    state.ready.push(id);
                }
            } else if !node.open {
                let dependents = std::mem::take(&mut node.dependents);
                self.complete(id);
                for &dependent in &dependents {
                    if let Some(node) = self.node(dependent) {
                        node.blockers -= 1;
                    }
                }
                todo.extend(dependents);
            }
        }
    }

    fn complete(&mut self, id: NodeId) {
        if let Some(slot) = self.slot(id) {
            *slot = None;
            self.pending -= 1;
        }
        while let Some(None) = self.nodes.front() {
            self.nodes.pop_front();
            self.first += 1;
        }
        while self.retired.front().is_some_and(|block| block.until <= self.first) {
            self.retired.pop_front();
        }
    }

    /// Frees a block once every node given so far, to whatever stream, is complete. (The proof
    /// would allow less, but then memory safety would rest on it.)
    pub(super) fn retire(&mut self, block: Block) {
        if self.pending > 0 {
            let until = self.first + self.nodes.len() as NodeId;
            self.retired.push_back(Retired { _block: block, until });
        }
    }

    fn slot(&mut self, id: NodeId) -> Option<&mut Option<Node>> {
        let at = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.nodes.get_mut(at)
    }

    fn node(&mut self, id: NodeId) -> Option<&mut Node> {
        self.slot(id)?.as_mut()
    }

    fn is_pending(&self, id: NodeId) -> bool {
        id.checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| self.nodes.get(at))
            .is_some_and(Option::is_some)
    }

    fn incomplete(&self, mut nodes: Vec<NodeId>) -> Vec<NodeId> {
        nodes.retain(|&node| self.is_pending(node));
        nodes
    }
}

/// `SplitMix64`: small, seedable, the same everywhere.
#[derive(Debug)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}
