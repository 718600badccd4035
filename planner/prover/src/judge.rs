//! The planner's answer beside what was found by executing: both say the same, or there is a fault.
//!
//! | the planner says | executing must show |
//! | --- | --- |
//! | accepted, with a layout | no order corrupts that layout |
//! | `read_before_write` of a buffer | the first read of it finds nothing written; and the other way round |
//! | `race` of a buffer | two accesses of one live range that can happen at once; and the other way round |
//! | `reuse` of a buffer | the same of two live ranges, or a race that lets them overlap; and the other way round |
//! | two accesses of a trace | these two can run at once, or the one issued first is forced in between |
//! | two sound buffers interfere | sharing bytes, they are corrupt in some order; and the other way round |
//! | `not_exclusive` | some pair of the two groups is; and the other way round |
//!
//! Interference is compared where both buffers are sound by themselves: one that is corrupt alone is
//! corrupt whatever shares with it, so then the spec's wider definition has no other witness.

use std::collections::BTreeSet;

use scratchpool_planner::error::{Conflict, Error, Fault};
use scratchpool_planner::plan::{Plan, analyze, plan};

use super::PASSES;
use super::declared::Declared;
use super::machine::{Reach, SAMPLES, explore, explore_within};
use super::memory::{Findings, Layout, corruption};
use super::program::Program;

/// What both say of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Accepted, and no order corrupts it.
    Accepted,
    /// Refused, and for each reason there is an order that shows it.
    Refused,
}

/// What both say, and how much was executed to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What both say.
    pub outcome: Outcome,
    /// Orders of execution; saturating.
    pub orders: u128,
    /// States that stand for them.
    pub states: usize,
    /// Whether every order was looked at.
    pub complete: bool,
}

impl Judged {
    /// An outcome after an exploration.
    pub const fn new(outcome: Outcome, reach: &Reach) -> Self {
        let Reach { states, orders, complete, .. } = *reach;
        Self { outcome, orders, states, complete }
    }
}

/// Explores a declared schedule and compares.
///
/// # Errors
/// What the two do not agree about, in words.
pub fn judge(declared: &Declared) -> Result<Judged, String> {
    let program = Program::new(declared, PASSES);
    let reach = explore(&program);
    compare(declared, &program, &reach).map(|outcome| Judged::new(outcome, &reach))
}

/// As [`judge`], but with no more states than `most`, and beyond them with sampled orders. A sample shows that an order
/// corrupts, never that none does: then an accepted schedule is executed on its layout, and a refusal is taken as given.
///
/// # Errors
/// What the two do not agree about, in words.
pub fn judge_within(declared: &Declared, most: usize) -> Result<Judged, String> {
    let program = Program::new(declared, PASSES);
    let reach = explore_within(&program, most, SAMPLES);
    if reach.complete {
        return compare(declared, &program, &reach).map(|outcome| Judged::new(outcome, &reach));
    }
    let Ok(plan) = plan(&declared.spec()) else { return Ok(Judged::new(Outcome::Refused, &reach)) };
    match corruption(&program, &reach, &layout_of(&plan)) {
        None => Ok(Judged::new(Outcome::Accepted, &reach)),
        Some(found) => Err(format!("accepted, but\n{}", found.words(declared, &program))),
    }
}

/// Compares the planner's answer with an exploration.
///
/// # Errors
/// What the two do not agree about, in words.
pub fn compare(declared: &Declared, program: &Program, reach: &Reach) -> Result<Outcome, String> {
    let (plan, errors) = analyze(&declared.spec());
    compare_with(declared, program, reach, plan.as_ref(), &errors)
}

/// Compares an answer with an exploration.
///
/// # Errors
/// What the two do not agree about, in words.
pub fn compare_with(
    declared: &Declared,
    program: &Program,
    reach: &Reach,
    plan: Option<&Plan>,
    errors: &[Error],
) -> Result<Outcome, String> {
    let Some(plan) = plan else { return Err(format!("no plan at all: {errors:?}")) };
    let findings = Findings::new(program, reach);
    let named = declared.buffers();
    let number = |name: &String| named.iter().position(|(each, _)| each == name);
    let numbers = |names: &[String]| names.iter().filter_map(number).collect::<Vec<_>>();

    let (mut unwritten, mut races, mut reuses) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut not_exclusive = BTreeSet::new();
    for error in errors {
        match &error.fault {
            Fault::ReadBeforeWrite { buffers, .. } => unwritten.extend(numbers(buffers)),
            Fault::Race(conflict) => {
                races.extend(numbers(&conflict.buffers));
                can_happen(declared, program, reach, conflict)?;
            }
            Fault::Reuse(conflict) => {
                reuses.extend(numbers(&conflict.buffers));
                can_happen(declared, program, reach, conflict)?;
            }
            Fault::NotExclusive { a, b, conflict, .. } => {
                can_happen(declared, program, reach, conflict)?;
                not_exclusive.insert((a.clone().min(b.clone()), a.clone().max(b.clone())));
            }
            other => return Err(format!("an error of another kind: {other:?}")),
        }
    }
    let same = |what: &str, planner: &BTreeSet<usize>, found: &[usize]| {
        let found: BTreeSet<usize> = found.iter().copied().collect();
        (*planner == found)
            .then_some(())
            .ok_or(format!("{what}: the planner says {planner:?}, executing shows {found:?}"))
    };
    same("read_before_write", &unwritten, &findings.unwritten)?;
    same("race", &races, &findings.races)?;
    if let Some(missed) = findings.reuses.iter().find(|buffer| !reuses.contains(buffer)) {
        return Err(format!("reuse of {missed} is not reported"));
    }
    let explained = |buffer: &&usize| findings.reuses.contains(buffer) || races.contains(buffer);
    if let Some(wrong) = reuses.iter().find(|buffer| !explained(buffer)) {
        return Err(format!("reuse of {wrong} is reported, and no order shows it"));
    }

    for y in 0..program.buffers {
        for x in (0..y).filter(|&x| findings.sound(x) && findings.sound(y)) {
            let (said, shown) = (plan.interferes(x, y), findings.collisions.contains(&(x, y)));
            if said != shown {
                return Err(format!(
                    "{} and {}: the planner says that they {}, executing shows that sharing is {}",
                    named[x].0,
                    named[y].0,
                    if said { "interfere" } else { "may share" },
                    if shown { "corrupt" } else { "sound" },
                ));
            }
        }
    }
    if findings.all_sound() {
        exclusive(declared, &findings, &not_exclusive)?;
    }
    if !errors.is_empty() {
        return if findings.all_sound() && not_exclusive.is_empty() {
            Err(format!("refused, and no order shows why: {errors:?}"))
        } else {
            Ok(Outcome::Refused)
        };
    }
    match corruption(program, reach, &layout_of(plan)) {
        None => Ok(Outcome::Accepted),
        Some(found) => Err(format!("accepted, but\n{}", found.words(declared, program))),
    }
}

/// The offsets of a plan.
pub fn layout_of(plan: &Plan) -> Layout {
    plan.layout.buffers.iter().map(|each| each.offset..each.offset + each.bytes).collect()
}

/// The groups claimed exclusive, against the pairs that collide.
fn exclusive(
    declared: &Declared,
    findings: &Findings,
    said: &BTreeSet<(String, String)>,
) -> Result<(), String> {
    let group_of: Vec<&str> =
        declared.buffers().iter().map(|(_, group)| group.name.as_str()).collect();
    let claimed = |group: &str| declared.exclusive.iter().any(|each| each == group);
    let mut found = BTreeSet::new();
    for &(x, y) in &findings.collisions {
        let (a, b) = (group_of[x].min(group_of[y]), group_of[x].max(group_of[y]));
        if a != b && claimed(a) && claimed(b) {
            found.insert((a.to_owned(), b.to_owned()));
        }
    }
    (*said == found)
        .then_some(())
        .ok_or(format!("not_exclusive: the planner says {said:?}, executing shows {found:?}"))
}

/// The two accesses of a conflict can run at once, in the layers and passes that the planner names; or they are one
/// step's, or the second is issued before the first, so that streams and events force it in between.
fn can_happen(
    declared: &Declared,
    program: &Program,
    reach: &Reach,
    conflict: &Conflict,
) -> Result<(), String> {
    let step = |name: &str| declared.steps.iter().position(|step| step.name == name);
    let (first, second) = (&conflict.first, &conflict.second);
    let shown = (0..PASSES).any(|base| {
        let node = |at: &scratchpool_planner::error::AccessAt| {
            program.find(base + at.pass, at.layer, step(&at.step)?)
        };
        node(first).zip(node(second)).is_some_and(|(a, b)| a >= b || reach.together(a, b))
    });
    shown.then_some(()).ok_or_else(|| {
        let pair = format!("{} and {}", first.place(), second.place());
        format!("the planner says that {pair} can happen in either order; no execution shows it")
    })
}
