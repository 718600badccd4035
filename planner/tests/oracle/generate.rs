//! Random specs that are well formed, and whose schedule may be wrong.
//!
//! Purely random accesses on several streams race nearly always. So a part of the specs is repaired: as long as the
//! oracle finds something, one finding is taken and a wait, a write or a dropped claim is put in its way. A repair may
//! fail, and is not tried for ever, so the result is accepted or not.

use std::collections::BTreeSet;

use super::PASSES;
use super::expr::{Expr, Names, Op};
use super::model::{After, Buffer, Column, Dim, Group, Launch, Layers, Spec, Step};
use super::rng::Rng;
use super::verdict::{Finding, Verdict, Witness, judge};

const STEPS: [&str; 8] = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"];
const STREAMS: [&str; 3] = ["main", "side", "tail"];
const GROUPS: [&str; 5] = ["red", "green", "blue", "amber", "violet"];
const BUFFERS: [&str; 4] = ["u", "v", "w", "x"];
const DIMS: [&str; 5] = ["tokens", "heads", "width", "slots", "pages"];
const DTYPES: [&str; 17] = [
    "bool", "u8", "i8", "f8e4m3", "f8e5m2", "e8m0", "u16", "i16", "f16", "bf16", "u32", "i32",
    "f32", "u64", "i64", "f64", "u8",
];

/// A random spec.
pub(crate) fn spec(seed: u64) -> Spec {
    let mut rng = Rng::new(seed);
    let rng = &mut rng;
    let dims = dims(rng);
    let names = Spec {
        name: String::new(),
        align: None,
        exclusive: vec![],
        dims: dims.clone(),
        layers: None,
        steps: vec![],
        groups: vec![],
    }
    .names()
    .expect("the dims were tried");
    let mut spec = Spec {
        name: "Random".to_owned(),
        align: if rng.chance(15) { None } else { Some(1 << rng.range(0, 9)) },
        exclusive: vec![],
        dims,
        layers: None,
        steps: vec![],
        groups: vec![],
    };
    layers(rng, &mut spec, &names);
    let here = spec.layer_names().expect("the layers are sound");
    let whens = (0..rng.range(1, 2)).map(|_| when(rng, &here)).collect::<Vec<_>>();

    groups(rng, &mut spec, &names, &whens);
    steps(rng, &mut spec, &whens);
    accesses(rng, &mut spec);
    if rng.chance(40) {
        spec.exclusive = some_groups(rng, &spec);
    }
    if rng.chance(25) {
        for _ in 0..16 {
            let verdict = judge(&spec, PASSES).expect("the expressions were tried");
            if verdict.witnesses.is_empty() {
                break;
            }
            let witness = rng.pick(&verdict.witnesses).clone();
            repair(rng, &mut spec, &witness);
        }
    }
    if spec.exclusive.is_empty() && rng.chance(40) {
        let verdict = judge(&spec, PASSES).expect("the expressions were tried");
        spec.exclusive = provable(&spec, &verdict);
    }
    spec
}

fn dims(rng: &mut Rng) -> Vec<(String, Dim)> {
    let mut names = Names::new();
    let mut dims = Vec::new();
    for name in &DIMS[..rng.range(2, DIMS.len())] {
        let expr = if names.len() < 2 || rng.chance(40) {
            Expr::Int(rng.range(1, 40) as i64)
        } else {
            tried(rng, &names, 1..=40)
        };
        names.insert((*name).to_owned(), expr.value(&names).expect("it was tried"));
        dims.push(((*name).to_owned(), Dim::Value(expr)));
    }
    rng.shuffle(&mut dims);
    dims
}

fn layers(rng: &mut Rng, spec: &mut Spec, names: &Names) {
    if rng.chance(15) {
        return;
    }
    let count = rng.range(1, 6);
    let mut layers = Layers { count: None, columns: vec![] };
    let attributes: &[(&str, &[i64])] = &[("ratio", &[0, 4, 128]), ("kind", &[0, 1])];
    for (attribute, values) in &attributes[..rng.range(0, 2)] {
        // A column may be longer than the count.
        let length = count + if rng.chance(20) { rng.range(1, 2) } else { 0 };
        let column = (0..length).map(|_| *rng.pick(values)).collect::<Vec<_>>();
        if rng.chance(50) {
            spec.dims.push((format!("{attribute}s"), Dim::List(column)));
            layers.columns.push(((*attribute).to_owned(), Column::Named(format!("{attribute}s"))));
        } else {
            layers.columns.push(((*attribute).to_owned(), Column::List(column)));
        }
    }
    if layers.columns.is_empty() || rng.chance(50) {
        layers.count = Some(if rng.chance(50) {
            equal_to(rng, names, count as i64)
        } else {
            Expr::Int(count as i64)
        });
    }
    spec.layers = Some(layers);
}

/// An expression over `names` of a given value.
fn equal_to(rng: &mut Rng, names: &Names, value: i64) -> Expr {
    let (name, other) = rng.pick(&names.iter().collect::<Vec<_>>()).to_owned();
    if *other <= value {
        Expr::binary(Op::Add, Expr::name(name), Expr::Int(value - other))
    } else {
        Expr::binary(Op::Sub, Expr::name(name), Expr::Int(other - value))
    }
}

fn groups(rng: &mut Rng, spec: &mut Spec, names: &Names, whens: &[Expr]) {
    // Most specs are small enough for every order to be tried.
    let most = if rng.chance(15) { rng.range(8, 12) } else { rng.range(2, 7) };
    let mut left = most;
    let aligns_apart = rng.chance(40);
    for name in GROUPS {
        if left == 0 {
            break;
        }
        let mut group = Group { name: name.to_owned(), when: None, keep: None, buffers: vec![] };
        if rng.chance(25) {
            group.when = Some(rng.pick(whens).clone());
        }
        if rng.chance(15) {
            group.keep = Some(condition(rng, names, 2));
        }
        let members = if most > 7 { rng.range(2, 4) } else { rng.range(1, 3) };
        for buffer in &BUFFERS[..members.min(left)] {
            let shape = (0..rng.range(1, 3)).map(|_| tried(rng, names, 1..=24)).collect();
            let align =
                (aligns_apart && rng.chance(40)).then(|| spec.pool_align() << rng.range(0, 4));
            group.buffers.push(Buffer {
                name: (*buffer).to_owned(),
                dtype: (*rng.pick(&DTYPES)).to_owned(),
                shape,
                align,
            });
        }
        left -= group.buffers.len();
        spec.groups.push(group);
    }
}

fn steps(rng: &mut Rng, spec: &mut Spec, whens: &[Expr]) {
    let streams = rng.range(1, 3);
    let only_full = rng.chance(60);
    let waits = rng.range(0, 50);
    let count = rng.range(2, STEPS.len()).max(rng.range(2, STEPS.len()));
    for (i, name) in STEPS[..count].iter().enumerate() {
        let mut after = Vec::new();
        for (j, other) in STEPS[..count].iter().enumerate() {
            if j < i && rng.chance(waits) && rng.chance(50) {
                after.push(After { prev: false, step: (*other).to_owned() });
            }
            if rng.chance(waits) && rng.chance(15) {
                after.push(After { prev: true, step: (*other).to_owned() });
            }
        }
        let launch = if only_full {
            Launch::Full
        } else {
            *rng.pick(&[Launch::Full, Launch::Dependent, Launch::Early])
        };
        spec.steps.push(Step {
            name: (*name).to_owned(),
            stream: STREAMS[rng.below(streams)].to_owned(),
            when: rng.chance(25).then(|| rng.pick(whens).clone()),
            after,
            launch,
            writes: vec![],
            reads: vec![],
        });
    }
}

fn accesses(rng: &mut Rng, spec: &mut Spec) {
    let count = spec.steps.len();
    let spare = rng.range(0, 12);
    for g in 0..spec.groups.len() {
        let group = spec.groups[g].clone();
        let mut targets = vec![group.name.clone()];
        if group.buffers.len() > 1 && rng.chance(40) {
            targets = group
                .buffers
                .iter()
                .map(|buffer| format!("{}.{}", group.name, buffer.name))
                .collect();
        }
        for target in targets {
            if rng.chance(4) {
                continue;
            }
            let writer = rng.below(count);
            if rng.chance(50) && group.when.is_some() {
                spec.steps[writer].when.clone_from(&group.when);
            }
            add(&mut spec.steps[writer].writes, &target);
            for _ in 0..rng.range(0, 2) {
                // Most readers come soon after the writer; a few read what an earlier layer left.
                let reader = if rng.chance(92) {
                    (writer + rng.range(0, 2)).min(count - 1)
                } else {
                    rng.below(count)
                };
                if reader != writer || rng.chance(20) {
                    add(&mut spec.steps[reader].reads, &target);
                }
            }
            if rng.chance(spare) {
                let step = &mut spec.steps[rng.below(count)];
                add(if rng.chance(50) { &mut step.reads } else { &mut step.writes }, &target);
            }
        }
    }
}

fn add(list: &mut Vec<String>, target: &str) {
    if !list.iter().any(|item| item == target) {
        list.push(target.to_owned());
    }
}

fn some_groups(rng: &mut Rng, spec: &Spec) -> Vec<String> {
    let mut names = spec.groups.iter().map(|group| group.name.clone()).collect::<Vec<_>>();
    rng.shuffle(&mut names);
    names.truncate(rng.range(2, 3));
    if names.len() < 2 { vec![] } else { names }
}

/// Groups of which no two have interfering buffers, if there are two.
fn provable(spec: &Spec, verdict: &Verdict) -> Vec<String> {
    let mut clash = BTreeSet::new();
    for (a, b) in &verdict.interference {
        clash.insert((&verdict.buffers[*a].group, &verdict.buffers[*b].group));
    }
    let mut chosen: Vec<String> = Vec::new();
    for group in &spec.groups {
        if chosen.iter().all(|other| !clash.contains(&(other, &group.name))) {
            chosen.push(group.name.clone());
        }
    }
    if chosen.len() < 2 { vec![] } else { chosen }
}

fn repair(rng: &mut Rng, spec: &mut Spec, witness: &Witness) {
    let later = witness.later.step;
    match (&witness.finding, witness.earlier) {
        (Finding::NotExclusive(one, two), Some(_)) if rng.chance(60) => {
            let drop = if rng.chance(50) { one } else { two };
            spec.exclusive.retain(|group| group != drop);
            if spec.exclusive.len() < 2 {
                spec.exclusive.clear();
            }
        }
        (Finding::ReadBeforeWrite(buffer), _) => {
            if rng.chance(50) {
                spec.steps[later].writes.push(buffer.clone());
            } else {
                let group = buffer.split('.').next().unwrap();
                spec.steps[later].reads.retain(|read| read != buffer && read != group);
            }
        }
        (_, Some(earlier)) => {
            let same_layer =
                (earlier.pass, earlier.layer) == (witness.later.pass, witness.later.layer);
            let prev = !same_layer || earlier.step >= later;
            let after = After { prev, step: spec.steps[earlier.step].name.clone() };
            if spec.steps[later].after.contains(&after) {
                spec.steps[later].launch = Launch::Full;
            } else {
                spec.steps[later].after.push(after);
            }
        }
        (_, None) => {}
    }
}

/// A random expression whose value is in a range.
fn tried(rng: &mut Rng, names: &Names, range: std::ops::RangeInclusive<i64>) -> Expr {
    for _ in 0..40 {
        let depth = rng.range(0, 3);
        let expr = number(rng, names, depth);
        if expr.value(names).is_ok_and(|value| range.contains(&value)) {
            return expr;
        }
    }
    Expr::Int(*range.start() + rng.below(4) as i64)
}

fn number(rng: &mut Rng, names: &Names, depth: usize) -> Expr {
    if depth == 0 || rng.chance(15) {
        return if names.is_empty() || rng.chance(40) {
            Expr::Int(1 << rng.range(0, 5))
        } else {
            let keys = names.keys().collect::<Vec<_>>();
            Expr::name(rng.pick::<&String>(&keys))
        };
    }
    if rng.chance(25) {
        let function = *rng.pick(&["min", "max", "ceil_div", "align_up"]);
        let a = number(rng, names, depth - 1);
        let b = if function == "align_up" {
            Expr::Int(1 << rng.range(0, 4))
        } else {
            number(rng, names, depth - 1)
        };
        return Expr::Call(function.to_owned(), vec![a, b]);
    }
    if rng.chance(6) {
        return condition(rng, names, depth - 1);
    }
    let op = *rng.pick(&[Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Rem]);
    Expr::binary(op, number(rng, names, depth - 1), number(rng, names, depth - 1))
}

/// A condition that has a value.
fn condition(rng: &mut Rng, names: &Names, depth: usize) -> Expr {
    for _ in 0..20 {
        let expr = boolean(rng, names, depth);
        if expr.value(names).is_ok() {
            return expr;
        }
    }
    Expr::Int(1)
}

fn boolean(rng: &mut Rng, names: &Names, depth: usize) -> Expr {
    if depth > 0 && rng.chance(40) {
        return match rng.below(3) {
            0 => Expr::Not(Box::new(boolean(rng, names, depth - 1))),
            1 => Expr::binary(
                Op::And,
                boolean(rng, names, depth - 1),
                boolean(rng, names, depth - 1),
            ),
            _ => {
                Expr::binary(Op::Or, boolean(rng, names, depth - 1), boolean(rng, names, depth - 1))
            }
        };
    }
    if rng.chance(15) {
        return number(rng, names, depth.min(1));
    }
    let op = *rng.pick(&[Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge]);
    Expr::binary(op, number(rng, names, depth.min(1)), number(rng, names, depth.min(1)))
}

/// A condition on layers that has a value in each of them, and mostly differs among them.
fn when(rng: &mut Rng, layers: &[Names]) -> Expr {
    for _ in 0..30 {
        let expr = if rng.chance(60) {
            let attribute = *rng.pick(&["ratio", "kind", "layer"]);
            let value = Expr::Int(*rng.pick(&[0, 1, 4, 128]));
            Expr::binary(*rng.pick(&[Op::Eq, Op::Ne, Op::Lt]), Expr::name(attribute), value)
        } else {
            boolean(rng, &layers[0], 2)
        };
        let values = layers
            .iter()
            .map(|names| expr.value(names).map(|value| value != 0))
            .collect::<Vec<_>>();
        if values.iter().all(Result::is_ok)
            && (values.iter().any(|value| *value != values[0]) || rng.chance(10))
        {
            return expr;
        }
    }
    Expr::binary(Op::Ge, Expr::name("layer"), Expr::Int(0))
}
