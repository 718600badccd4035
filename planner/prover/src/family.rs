//! All schedules of a few shapes, each once: streams by order of first use, buffers in order of their accesses.
//!
//! A family bounds the number of steps, streams, layers, edges and groups, and then leaves nothing out. Two schedules
//! that differ only in the names of streams or buffers are one: streams are numbered by first use, and of the two
//! orders of the buffers' access columns only the sorted one is tried.

use scratchpool_planner::spec::Launch;

use super::PASSES;
use super::declared::{Declared, DeclaredGroup, DeclaredStep};
use super::judge::{Judged, Outcome, compare};
use super::machine::explore;
use super::program::Program;

/// A bound on schedules.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// Steps, exactly.
    pub steps: usize,
    /// Streams, at most.
    pub streams: usize,
    /// Layers, exactly. With more than one, each has its own attribute, and steps may be bound to one of them.
    pub layers: usize,
    /// Buffers, each in a group of its own, exactly.
    pub buffers: usize,
    /// Whether groups may be bound to a layer too.
    pub bound_groups: bool,
    /// Whether a buffer may be one that no step writes; else such schedules, all refused or idle, are left out.
    pub unwritten: bool,
    /// The launch kinds to choose from.
    pub launches: &'static [Launch],
    /// Waits for a step of the same layer, at most.
    pub after: usize,
    /// Waits for a step of an earlier layer, at most.
    pub prev: usize,
}

const FULL: &[Launch] = &[Launch::Full];
const KINDS: &[Launch] = &Launch::ALL;

/// The families that are enumerated in whole.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "two steps, every edge",
        steps: 2,
        streams: 2,
        layers: 1,
        buffers: 2,
        bound_groups: false,
        unwritten: true,
        launches: KINDS,
        after: 1,
        prev: 4,
    },
    Family {
        name: "three steps",
        steps: 3,
        streams: 3,
        layers: 1,
        buffers: 2,
        bound_groups: false,
        unwritten: false,
        launches: FULL,
        after: 3,
        prev: 2,
    },
    Family {
        name: "three steps, launch kinds",
        steps: 3,
        streams: 2,
        layers: 1,
        buffers: 2,
        bound_groups: false,
        unwritten: false,
        launches: KINDS,
        after: 1,
        prev: 1,
    },
    Family {
        name: "two steps, two layers",
        steps: 2,
        streams: 2,
        layers: 2,
        buffers: 2,
        bound_groups: true,
        unwritten: false,
        launches: KINDS,
        after: 1,
        prev: 2,
    },
    Family {
        name: "three steps, two layers",
        steps: 3,
        streams: 3,
        layers: 2,
        buffers: 2,
        bound_groups: false,
        unwritten: false,
        launches: FULL,
        after: 2,
        prev: 1,
    },
    Family {
        name: "two steps, three layers",
        steps: 2,
        streams: 2,
        layers: 3,
        buffers: 2,
        bound_groups: true,
        unwritten: false,
        launches: FULL,
        after: 1,
        prev: 3,
    },
    Family {
        name: "four steps",
        steps: 4,
        streams: 2,
        layers: 1,
        buffers: 1,
        bound_groups: false,
        unwritten: false,
        launches: KINDS,
        after: 2,
        prev: 0,
    },
];

/// What came of a family.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Schedules that were judged.
    pub specs: u64,
    /// Orders of execution explored, in all.
    pub orders: u128,
    /// States that stand for them.
    pub states: u64,
    /// Accepted by both.
    pub accepted: u64,
    /// Refused by both.
    pub refused: u64,
    /// Of both, those of too many states, of which a sample of orders was executed.
    pub sampled: u64,
    /// Disagreements, with the schedule; the first few.
    pub disagreements: Vec<(Declared, String)>,
}

impl Tally {
    /// Adds what came of a schedule.
    pub fn add(&mut self, declared: &Declared, judged: Result<Judged, String>) {
        self.specs += 1;
        if let Ok(judged) = &judged {
            self.orders = self.orders.saturating_add(judged.orders);
            self.states += judged.states as u64;
            self.sampled += u64::from(!judged.complete);
        }
        let outcome = judged.map(|judged| judged.outcome);
        match outcome {
            Ok(Outcome::Accepted) => self.accepted += 1,
            Ok(Outcome::Refused) => self.refused += 1,
            Err(words) => {
                if self.disagreements.len() < 16 {
                    self.disagreements.push((declared.clone(), words));
                }
            }
        }
    }

    /// Adds another tally.
    pub fn join(&mut self, other: Self) {
        self.specs += other.specs;
        self.orders = self.orders.saturating_add(other.orders);
        self.states += other.states;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.sampled += other.sampled;
        self.disagreements.extend(other.disagreements);
    }
}

impl Family {
    /// Calls `visit` with every schedule without accesses: streams, conditions, launch kinds and waits.
    pub fn frames(&self, visit: &mut dyn FnMut(Declared)) {
        let steps = self.steps;
        let streams = streams(steps, self.streams);
        let whens = words(steps, if self.layers == 1 { 1 } else { self.layers + 1 });
        let launches = words(steps, self.launches.len());
        let pairs: Vec<String> =
            (0..steps).flat_map(|b| (0..b).map(move |a| format!("{b} s{a}"))).collect();
        let afters = subsets(&pairs, self.after);
        let pairs: Vec<String> =
            (0..steps).flat_map(|b| (0..steps).map(move |a| format!("{b} prev.s{a}"))).collect();
        let prevs = subsets(&pairs, self.prev);
        for streams in &streams {
            for whens in &whens {
                for launches in &launches {
                    for after in &afters {
                        for prev in &prevs {
                            let mut declared = Declared {
                                layers: (0..self.layers).map(layer_attribute).collect(),
                                steps: Vec::new(),
                                groups: Vec::new(),
                                exclusive: Vec::new(),
                            };
                            for step in 0..steps {
                                let mut each = DeclaredStep::new(
                                    &format!("s{step}"),
                                    &format!("stream{}", streams[step]),
                                );
                                each.when = when(whens[step]);
                                each.launch = self.launches[launches[step]];
                                let own = format!("{step} ");
                                let waits = after.iter().chain(prev);
                                each.after.extend(
                                    waits
                                        .filter_map(|wait| wait.strip_prefix(&own))
                                        .map(str::to_owned),
                                );
                                declared.steps.push(each);
                            }
                            visit(declared);
                        }
                    }
                }
            }
        }
    }

    /// Calls `visit` with every way to give a schedule its accesses.
    pub fn accesses(&self, frame: &Declared, visit: &mut dyn FnMut(&Declared)) {
        let written = |column: &Vec<usize>| self.unwritten || column.contains(&2);
        let columns: Vec<_> = words(self.steps, 3).into_iter().filter(written).collect();
        let bounds = if self.bound_groups { self.layers + 1 } else { 1 };
        // A buffer: where it exists and, for each step, nothing, a read, or a write.
        let kinds: Vec<(usize, &Vec<usize>)> = (0..bounds)
            .flat_map(|bound| columns.iter().map(move |column| (bound, column)))
            .collect();
        let mut chosen = vec![0; self.buffers];
        loop {
            if chosen.windows(2).all(|pair| pair[0] <= pair[1]) {
                let mut declared = frame.clone();
                for (buffer, &kind) in chosen.iter().enumerate() {
                    let (bound, column) = kinds[kind];
                    let name = format!("b{buffer}");
                    for (step, access) in declared.steps.iter_mut().zip(column) {
                        match access {
                            0 => {}
                            1 => step.reads.push(name.clone()),
                            _ => step.writes.push(name.clone()),
                        }
                    }
                    declared.groups.push(DeclaredGroup {
                        name,
                        when: when(bound),
                        buffers: vec![("x".to_owned(), 256)],
                    });
                }
                visit(&declared);
            }
            let Some(next) = chosen.iter().rposition(|&kind| kind + 1 < kinds.len()) else {
                return;
            };
            chosen[next] += 1;
            chosen[next + 1..].fill(0);
        }
    }

    /// Judges every schedule whose number is `first` modulo `stride`.
    pub fn judge(&self, first: usize, stride: usize) -> Tally {
        let mut tally = Tally::default();
        let mut number = 0;
        self.frames(&mut |frame| {
            let mut explored = None;
            self.accesses(&frame, &mut |declared| {
                number += 1;
                if number % stride != first % stride {
                    return;
                }
                // The states depend on the frame alone.
                let reach = explored.get_or_insert_with(|| explore(&Program::new(&frame, PASSES)));
                let program = Program::new(declared, PASSES);
                let outcome = compare(declared, &program, reach);
                tally.add(declared, outcome.map(|outcome| Judged::new(outcome, reach)));
            });
        });
        tally
    }
}

/// Layer 0 has attribute 1, and so on, so that 0 is free for *every layer*.
fn layer_attribute(layer: usize) -> i64 {
    i64::try_from(layer).map_or(i64::MAX, |layer| layer + 1)
}

fn when(choice: usize) -> Option<i64> {
    choice.checked_sub(1).map(layer_attribute)
}

/// All words of a length over `letters` letters.
fn words(length: usize, letters: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..length {
        let longer = |word: Vec<usize>| {
            (0..letters).map(move |letter| word.iter().copied().chain([letter]).collect())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

/// All ways to put steps on streams that are numbered by first use.
fn streams(steps: usize, most: usize) -> Vec<Vec<usize>> {
    let by_first_use = |word: &Vec<usize>| {
        let mut used = 0;
        word.iter().all(|&stream| {
            let fits = stream <= used;
            used = used.max(stream + 1);
            fits
        })
    };
    words(steps, most).into_iter().filter(by_first_use).collect()
}

/// All subsets of at most `most` elements.
fn subsets(of: &[String], most: usize) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    for each in of {
        let with: Vec<Vec<String>> = all
            .iter()
            .filter(|subset| subset.len() < most)
            .map(|subset| subset.iter().chain([each]).cloned().collect())
            .collect();
        all.extend(with);
    }
    all
}
