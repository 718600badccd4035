//! Random schedules, larger than can be enumerated, and the smallest part of one that still shows a fault.

use scratchpool_planner::spec::Launch;

use super::declared::{Declared, DeclaredGroup, DeclaredStep, split_after};
use super::rng::Rng;

/// A random schedule: up to seven steps on up to three streams, up to four layers of up to three kinds, and up to five
/// buffers of several sizes. About half of them are meant to be sound: their waits follow their accesses.
pub fn declared(seed: u64) -> Declared {
    let mut rng = Rng::new(seed);
    let rng = &mut rng;
    let kinds = 1 + rng.below(3);
    let kind = |rng: &mut Rng| i64::try_from(rng.below(kinds)).unwrap_or(0);
    let layers: Vec<i64> = (0..=rng.below(4)).map(|_| kind(rng)).collect();
    let (count, streams) = (2 + rng.below(6), 1 + rng.below(3));
    let careful = rng.chance(60);
    let only_full = rng.chance(55);
    let bound = rng.below(40);
    let mut steps: Vec<DeclaredStep> = (0..count)
        .map(|step| {
            let mut each =
                DeclaredStep::new(&format!("s{step}"), &format!("stream{}", rng.below(streams)));
            if rng.chance(bound) {
                each.when = Some(kind(rng));
            }
            if !only_full {
                each.launch = Launch::ALL[rng.below(3)];
            }
            each
        })
        .collect();
    let mut groups = Vec::new();
    for group in 0..=rng.below(4) {
        let name = format!("g{group}");
        let buffers = if rng.chance(20) { 2 } else { 1 };
        let mut buffers: Vec<(String, u64)> =
            (0..buffers).map(|b| (format!("b{b}"), 1 + rng.word() % 1500)).collect();
        buffers.truncate(2);
        let when = rng.chance(bound).then(|| kind(rng));
        let writer = rng.below(count);
        if rng.chance(60) && when.is_some() {
            steps[writer].when = when;
        }
        steps[writer].writes.push(name.clone());
        for _ in 0..rng.below(3) {
            let later = if careful { writer + rng.below(count - writer) } else { rng.below(count) };
            if later == writer {
                continue;
            }
            let list =
                if rng.chance(12) { &mut steps[later].writes } else { &mut steps[later].reads };
            if !list.contains(&name) {
                list.push(name.clone());
            }
            if careful && steps[later].stream != steps[writer].stream && later > writer {
                let after = steps[writer].name.clone();
                if !steps[later].after.contains(&after) {
                    steps[later].after.push(after);
                }
                // And the next value waits for the reader.
                if rng.chance(75) {
                    let after = format!("prev.{}", steps[later].name);
                    if !steps[writer].after.contains(&after) {
                        steps[writer].after.push(after);
                    }
                }
            }
        }
        groups.push(DeclaredGroup { name, when, buffers });
    }
    let waits = rng.below(25);
    for (number, step) in steps.iter_mut().enumerate() {
        for other in 0..count {
            let prev = other >= number || rng.chance(40);
            if rng.chance(waits) {
                let after = format!("{}s{other}", if prev { "prev." } else { "" });
                if !step.after.contains(&after) {
                    step.after.push(after);
                }
            }
        }
    }
    let mut declared = Declared { layers, steps, groups, exclusive: Vec::new() };
    if rng.chance(30) {
        declared.exclusive = declared.groups.iter().map(|group| group.name.clone()).collect();
        declared.exclusive.truncate(1 + rng.below(3));
    }
    declared
}

/// Takes parts away from a schedule for as long as `fails` holds.
pub fn shrink(declared: &Declared, fails: &dyn Fn(&Declared) -> bool) -> Declared {
    let mut small = declared.clone();
    while let Some(smaller) = smaller(&small).into_iter().find(|each| fails(each)) {
        small = smaller;
    }
    small
}

/// All schedules that lack one part of this one.
fn smaller(of: &Declared) -> Vec<Declared> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Declared)| {
        let mut other = of.clone();
        change(&mut other);
        all.push(other);
    };
    for at in 0..of.steps.len() {
        with(&|other| {
            let gone = other.steps.remove(at).name;
            for step in &mut other.steps {
                step.after.retain(|after| split_after(after).1 != gone);
            }
        });
    }
    for at in 0..of.groups.len() {
        with(&|other| {
            let gone = other.groups.remove(at).name;
            for step in &mut other.steps {
                let keep = |item: &String| item.split('.').next() != Some(&gone);
                step.writes.retain(keep);
                step.reads.retain(keep);
            }
            other.exclusive.retain(|group| *group != gone);
        });
        if of.groups[at].buffers.len() > 1 {
            with(&|other| other.groups[at].buffers.truncate(1));
        }
        if of.groups[at].when.is_some() {
            with(&|other| other.groups[at].when = None);
        }
        if of.groups[at].buffers.iter().any(|(_, bytes)| *bytes != 256) {
            with(&|other| other.groups[at].buffers.iter_mut().for_each(|(_, bytes)| *bytes = 256));
        }
    }
    if of.layers.len() > 1 {
        for at in 0..of.layers.len() {
            with(&|other| {
                other.layers.remove(at);
            });
        }
    }
    for at in 0..of.steps.len() {
        let step = &of.steps[at];
        if step.when.is_some() {
            with(&|other| other.steps[at].when = None);
        }
        if step.launch != Launch::Full {
            with(&|other| other.steps[at].launch = Launch::Full);
        }
        for wait in 0..step.after.len() {
            with(&|other| {
                other.steps[at].after.remove(wait);
            });
        }
        for item in 0..step.writes.len() {
            with(&|other| {
                other.steps[at].writes.remove(item);
            });
        }
        for item in 0..step.reads.len() {
            with(&|other| {
                other.steps[at].reads.remove(item);
            });
        }
    }
    if !of.exclusive.is_empty() {
        with(&|other| other.exclusive.clear());
    }
    all
}
