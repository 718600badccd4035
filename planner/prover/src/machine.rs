//! Streams, events and launch kinds, executed: which sets of nodes can have ended, and what can run then.
//!
//! See the [crate](super) for the rules and for why a state is a set of ended nodes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use scratchpool_planner::spec::Launch;

use super::program::Program;
use super::rng::Rng;

/// States that are looked at before orders are sampled instead.
pub const MOST_STATES: usize = 2_000_000;

/// Orders that are sampled beyond that.
pub const SAMPLES: usize = 400;

/// What executing a program in every order showed.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Sets of ended nodes that were seen.
    pub states: usize,
    /// Orders of execution that they stand for; saturating. Where orders were sampled, how many.
    pub orders: u128,
    /// Whether every order was looked at, rather than a sample.
    pub complete: bool,
    nodes: usize,
    /// For each node, a bit for each node that can run while it runs.
    together: Vec<u64>,
}

impl Reach {
    /// Whether two nodes can run at the same time; then they can also run in either order.
    pub fn together(&self, a: usize, b: usize) -> bool {
        let words = self.nodes.div_ceil(64);
        self.together[a * words + b / 64] >> (b % 64) & 1 == 1
    }

    /// Whether the same nodes can run at the same time as in another execution of the same nodes.
    pub fn same_order(&self, other: &Self) -> bool {
        self.together == other.together
    }
}

/// A set of nodes.
type Set<const W: usize> = [u64; W];

fn has<const W: usize>(set: &Set<W>, node: usize) -> bool {
    set[node / 64] >> (node % 64) & 1 == 1
}

fn add<const W: usize>(set: &mut Set<W>, node: usize) {
    set[node / 64] |= 1 << (node % 64);
}

fn within<const W: usize>(part: &Set<W>, whole: &Set<W>) -> bool {
    part.iter().zip(whole).all(|(part, whole)| part & !whole == 0)
}

/// A hasher for sets: multiply and fold, word by word.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.0 = mixed ^ (mixed >> 29);
        }
    }
}

/// The program, ready to run.
struct Machine<const W: usize> {
    /// For each node, what must have ended before it may start.
    gates: Vec<Set<W>>,
    /// For each stream, its nodes.
    streams: Vec<Vec<usize>>,
    full: Vec<bool>,
}

impl<const W: usize> Machine<W> {
    fn new(program: &Program) -> Self {
        let mut gates: Vec<Set<W>> = Vec::new();
        let mut streams: Vec<Vec<usize>> = vec![Vec::new(); program.streams];
        for (number, node) in program.nodes.iter().enumerate() {
            let mut gate = [0; W];
            let before = &streams[node.stream];
            match node.launch {
                Launch::Full => before.iter().for_each(|&each| add(&mut gate, each)),
                Launch::Dependent => {
                    if let Some(&just_before) = before.last() {
                        add(&mut gate, just_before);
                    }
                }
                Launch::Early => {
                    if let Some(&just_before) = before.last() {
                        gate = gates[just_before];
                    }
                }
            }
            for &recorded_after in &node.waits {
                let covered = &streams[program.nodes[recorded_after].stream];
                let covered = covered.iter().take_while(|&&each| each <= recorded_after);
                covered.for_each(|&each| add(&mut gate, each));
            }
            gates.push(gate);
            streams[node.stream].push(number);
        }
        let full = program.nodes.iter().map(|node| node.launch == Launch::Full).collect();
        Self { gates, streams, full }
    }

    /// The nodes that can be running when exactly these have ended; `from` is, for each stream, a place
    /// before which all have ended.
    fn running(&self, ended: &Set<W>, from: &[usize], into: &mut Vec<usize>) {
        into.clear();
        for (stream, &from) in self.streams.iter().zip(from) {
            for &node in &stream[from..] {
                if has(ended, node) {
                    continue;
                }
                if within(&self.gates[node], ended) {
                    into.push(node);
                } else if self.full[node] {
                    // Whatever comes later waits for this one, or for its gate.
                    break;
                }
            }
        }
    }

    fn advance(&self, ended: &Set<W>, from: &mut [usize]) {
        for (stream, from) in self.streams.iter().zip(from) {
            while stream.get(*from).is_some_and(|&node| has(ended, node)) {
                *from += 1;
            }
        }
    }

    fn explore(&self, nodes: usize, most: usize, samples: usize) -> Reach {
        let words = nodes.div_ceil(64);
        let mut reach =
            Reach { states: 0, orders: 0, complete: true, nodes, together: vec![0; nodes * words] };
        let mut running = Vec::new();
        let mut from = vec![0; self.streams.len()];
        let mut level: HashMap<Set<W>, u128, BuildHasherDefault<Fold>> = HashMap::default();
        level.insert([0; W], 1);
        // A set of `size` nodes is reached only from sets one smaller, so two levels are enough.
        for _ in 0..nodes {
            let mut next: HashMap<Set<W>, u128, BuildHasherDefault<Fold>> = HashMap::default();
            reach.states += level.len();
            if reach.states > most {
                self.sample(&mut reach, samples);
                return reach;
            }
            for (ended, orders) in &level {
                from.fill(0);
                self.advance(ended, &mut from);
                self.running(ended, &from, &mut running);
                reach.note(&running);
                for &node in &running {
                    let mut after = *ended;
                    add(&mut after, node);
                    let sum = next.entry(after).or_insert(0);
                    *sum = sum.saturating_add(*orders);
                }
            }
            level = next;
        }
        reach.states += level.len();
        reach.orders = level.values().fold(0, |sum, each| sum.saturating_add(*each));
        reach
    }

    /// Random orders in which streams hold still for long at times, as under a slow kernel.
    fn sample(&self, reach: &mut Reach, samples: usize) {
        reach.complete = false;
        let mut running = Vec::new();
        for seed in 0..samples {
            let mut rng = Rng::new(seed as u64);
            let mut ended = [0; W];
            let mut from = vec![0; self.streams.len()];
            let mut held = usize::MAX;
            let mut left = 0;
            loop {
                self.advance(&ended, &mut from);
                self.running(&ended, &from, &mut running);
                if running.is_empty() {
                    break;
                }
                reach.note(&running);
                if left == 0 {
                    left = 1 << rng.below(10);
                    held = rng.below(self.streams.len() + 1);
                }
                left -= 1;
                let stream = self.streams.get(held);
                let free =
                    |node: &&usize| stream.is_none_or(|held| held.binary_search(node).is_err());
                let choices: Vec<usize> = running.iter().filter(free).copied().collect();
                let choices = if choices.is_empty() { &running } else { &choices };
                add(&mut ended, choices[rng.below(choices.len())]);
            }
            reach.orders += 1;
        }
    }
}

impl Reach {
    fn note(&mut self, running: &[usize]) {
        let words = self.nodes.div_ceil(64);
        for &a in running {
            for &b in running {
                if a != b {
                    self.together[a * words + b / 64] |= 1 << (b % 64);
                }
            }
        }
    }
}

/// Calls a function with the width of sets that a program needs.
macro_rules! with_width {
    ($nodes:expr, $width:ident => $call:expr) => {
        match $nodes {
            0..=64 => {
                const $width: usize = 1;
                $call
            }
            65..=128 => {
                const $width: usize = 2;
                $call
            }
            129..=256 => {
                const $width: usize = 4;
                $call
            }
            257..=512 => {
                const $width: usize = 8;
                $call
            }
            513..=1024 => {
                const $width: usize = 16;
                $call
            }
            _ => {
                const $width: usize = 64;
                $call
            }
        }
    };
}

/// The most nodes of a program.
pub const MOST_NODES: usize = 4096;

/// Executes a program in every order; beyond [`MOST_STATES`] states in some.
///
/// # Panics
/// With more than [`MOST_NODES`] nodes.
pub fn explore(program: &Program) -> Reach {
    explore_within(program, MOST_STATES, SAMPLES)
}

/// As [`explore`], with other bounds.
///
/// # Panics
/// With more than [`MOST_NODES`] nodes.
pub fn explore_within(program: &Program, most: usize, samples: usize) -> Reach {
    let nodes = program.nodes.len();
    assert!(nodes <= MOST_NODES, "{nodes} nodes");
    with_width!(nodes, W => Machine::<W>::new(program).explore(nodes, most, samples))
}

/// Whether an order can be executed as far as it goes, each node ending before the next one starts.
pub fn allows(program: &Program, order: &[usize]) -> bool {
    with_width!(program.nodes.len(), W => {
        let machine = Machine::<W>::new(program);
        let mut ended = [0; W];
        order.iter().all(|&node| {
            let may = !has(&ended, node) && within(&machine.gates[node], &ended);
            add(&mut ended, node);
            may
        })
    })
}

/// The shortest start of an execution after which both nodes can run at once, in the order of issue; `None` if they
/// never can.
pub fn lead_up(program: &Program, a: usize, b: usize) -> Option<Vec<usize>> {
    with_width!(program.nodes.len(), W => {
        let machine = Machine::<W>::new(program);
        // What must have ended before either: gates, and gates of what they ask for.
        let mut needed = [0; W];
        for (word, (a, b)) in
            needed.iter_mut().zip(machine.gates[a].iter().zip(&machine.gates[b]))
        {
            *word = a | b;
        }
        for node in (0..program.nodes.len()).rev() {
            if has(&needed, node) {
                for (word, gate) in needed.iter_mut().zip(&machine.gates[node]) {
                    *word |= gate;
                }
            }
        }
        (!has(&needed, a) && !has(&needed, b))
            .then(|| (0..program.nodes.len()).filter(|&node| has(&needed, node)).collect())
    })
}

/// Calls `visit` with every order of execution, one by one, until it returns false. No reduction: for tests of the
/// rest on small programs of at most 64 nodes.
pub fn every_order(program: &Program, visit: &mut dyn FnMut(&[usize]) -> bool) {
    fn go(
        machine: &Machine<1>,
        ended: Set<1>,
        order: &mut Vec<usize>,
        visit: &mut dyn FnMut(&[usize]) -> bool,
    ) -> bool {
        let mut running = Vec::new();
        machine.running(&ended, &vec![0; machine.streams.len()], &mut running);
        if running.is_empty() {
            return visit(order);
        }
        running.into_iter().all(|node| {
            let mut after = ended;
            add(&mut after, node);
            order.push(node);
            let on = go(machine, after, order, visit);
            order.pop();
            on
        })
    }
    go(&Machine::new(program), [0], &mut Vec::new(), visit);
}

/// All pairs that overlap when starts and ends are enumerated separately. No reduction but the memory of states; for
/// tests on small programs of at most 32 nodes.
pub fn overlapping_intervals(program: &Program) -> Vec<(usize, usize)> {
    let machine = Machine::<1>::new(program);
    let nodes = program.nodes.len();
    let mut seen = std::collections::HashSet::new();
    let mut pairs = std::collections::BTreeSet::new();
    let mut todo = vec![(0_u64, 0_u64)];
    while let Some((started, ended)) = todo.pop() {
        if !seen.insert((started, ended)) {
            continue;
        }
        let running = started & !ended;
        for a in 0..nodes {
            if running >> a & 1 == 1 {
                pairs.extend((0..a).filter(|b| running >> b & 1 == 1).map(|b| (b, a)));
                todo.push((started, ended | 1 << a));
            } else if started >> a & 1 == 0 && within(&machine.gates[a], &[ended]) {
                todo.push((started | 1 << a, ended));
            }
        }
    }
    pairs.into_iter().collect()
}
