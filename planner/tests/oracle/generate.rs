//! Random specs that are well formed, and whose schedule may be wrong.
//!
//! Purely random accesses on several streams race nearly always. So a part of the specs is repaired: as long as the
//! oracle finds something, one finding is taken and a wait, a write or a dropped claim is put in its way. A repair may
//! fail, and is not tried for ever, so the result is accepted or not.

use std::collections::BTreeSet;

use serde_json::json;

use super::PASSES;
use super::expr::{Expr, Names, Op, Value};
use super::model::{After, Buffer, Column, Dim, Group, Launch, Layers, Spec, Step, element_bytes};
use super::rng::Rng;
use super::verdict::{Finding, Verdict, Witness, judge};

/// Which words of the language a random spec may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Words {
    /// Reads and writes of whole buffers, numbers, and memory that lives for a while.
    Few,
    /// All of them.
    All,
}

const STEPS: [&str; 8] = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"];
const STREAMS: [&str; 3] = ["main", "side", "tail"];
const GROUPS: [&str; 5] = ["red", "green", "blue", "amber", "violet"];
const BUFFERS: [&str; 4] = ["u", "v", "w", "x"];
const DIMS: [&str; 5] = ["tokens", "heads", "width", "slots", "pages"];
const MODES: [&str; 3] = ["decode", "prefill", "mixed"];
const STYLES: [&str; 3] = ["full", "linear", "none"];
const DTYPES: [&str; 17] = [
    "bool", "u8", "i8", "f8e4m3", "f8e5m2", "e8m0", "u16", "i16", "f16", "bf16", "u32", "i32",
    "f32", "u64", "i64", "f64", "u8",
];

/// The names that expressions may be made of.
struct Scope {
    /// Every mode's; what holds in all of them holds.
    modes: Vec<Names>,
    /// Those that no mode changes.
    fixed: Names,
}

/// A random spec.
pub(crate) fn spec(seed: u64, words: Words) -> Spec {
    let mut rng = Rng::new(seed);
    let rng = &mut rng;
    let all = words == Words::All;
    let mut spec = Spec {
        name: "Random".to_owned(),
        align: if rng.chance(15) { None } else { Some(1 << rng.range(0, 9)) },
        exclusive: vec![],
        rows: vec![],
        config: (all && rng.chance(40)).then(|| config(rng)),
        modes: vec![],
        dims: vec![],
        layers: None,
        steps: vec![],
        groups: vec![],
    };
    dims(rng, &mut spec);
    if all && rng.chance(30) {
        modes(rng, &mut spec);
    }
    if all && rng.chance(20) {
        rows(rng, &mut spec);
    }
    let mut scope = Scope { modes: vec![], fixed: spec.names().expect("the dims were tried") };
    layers(rng, &mut spec, &scope.fixed, all);
    // The layers may have brought lists.
    scope.modes.push(spec.names_in(None).expect("the dims were tried"));
    for mode in spec.every_mode() {
        scope.modes.push(spec.names_in(mode).expect("the modes were tried"));
    }
    let mut here = spec.layer_names().expect("the layers are sound");
    if !all {
        // Without lists and strings there is nothing to say of them.
        for names in here.iter_mut().chain([&mut scope.fixed]).chain(&mut scope.modes) {
            names.retain(|_, value| matches!(value, Value::Int(_)));
        }
    }
    let whens = (0..rng.range(1, 2)).map(|_| when(rng, &here, all)).collect::<Vec<_>>();

    groups(rng, &mut spec, &scope, &whens, all);
    steps(rng, &mut spec, &whens);
    accesses(rng, &mut spec, all);
    if words == Words::Few {
        never_both(&mut spec);
    }
    if rng.chance(40) {
        spec.exclusive = some_claims(rng, &spec, all);
    }
    if rng.chance(if all { 45 } else { 25 }) {
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
        spec.exclusive = provable(rng, &spec, &verdict, all);
    }
    spec
}

/// A config with everything that is a name and something of what is not.
fn config(rng: &mut Rng) -> serde_json::Value {
    let styles = (0..7).map(|_| *rng.pick(&STYLES)).collect::<Vec<_>>();
    let picks = (0..rng.range(0, 3)).map(|_| rng.below(6)).collect::<Vec<_>>();
    json!({
        "hidden": rng.range(1, 40),
        "quant": *rng.pick(&["fp8", "fp4"]),
        "tied": rng.chance(50),
        "nothing": null,
        "theta": 10_000.5,
        "text_config": {
            "inner": rng.range(1, 24),
            "layer_types": styles,
            "picks": picks,
            "deep": { "flag": rng.chance(50), "sizes": [rng.range(1, 9), rng.range(1, 9)] },
        },
        // Hidden by the dim.
        "tokens": 1_000_000,
        "odd": [1, null],
    })
}

fn dims(rng: &mut Rng, spec: &mut Spec) {
    let mut names = spec.names().expect("a config has names");
    names.remove("tokens");
    for name in &DIMS[..rng.range(2, DIMS.len())] {
        let expr = if names.len() < 2 || rng.chance(40) {
            Expr::Int(rng.range(1, 40) as i64)
        } else {
            tried(rng, &[&names], 1..=40)
        };
        let value = expr.value(&names).expect("it was tried");
        names.insert((*name).to_owned(), Value::Int(value));
        spec.dims.push(((*name).to_owned(), Dim::Value(expr)));
    }
    rng.shuffle(&mut spec.dims);
}

/// Up to three modes, in each of which every dim has a value.
fn modes(rng: &mut Rng, spec: &mut Spec) {
    for mode in &MODES[..rng.range(1, MODES.len())] {
        let mut given = Vec::new();
        for (name, _) in &spec.dims {
            if rng.chance(40) {
                given.push((name.clone(), rng.range(1, 40) as i64));
            }
        }
        if given.is_empty() {
            continue;
        }
        spec.modes.push(((*mode).to_owned(), given));
        if spec.names_in(Some(spec.modes.len() - 1)).is_err() {
            spec.modes.pop();
        }
    }
}

/// Some of the dims that are plain numbers.
fn rows(rng: &mut Rng, spec: &mut Spec) {
    for (name, dim) in &spec.dims {
        if matches!(dim, Dim::Value(Expr::Int(_))) && rng.chance(60) {
            spec.rows.push(name.clone());
        }
    }
}

fn layers(rng: &mut Rng, spec: &mut Spec, names: &Names, all: bool) {
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
            let column = column.into_iter().map(Value::Int).collect();
            layers.columns.push(((*attribute).to_owned(), Column::List(column)));
        }
    }
    if all && rng.chance(40) {
        let column = if spec.config.is_some() && rng.chance(70) {
            Column::Named("text_config.layer_types".to_owned())
        } else {
            let style = |_| Value::Text((*rng.pick(&STYLES)).to_owned());
            Column::List((0..=count).map(style).collect())
        };
        layers.columns.push(("style".to_owned(), column));
    }
    if all && rng.chance(30) {
        let chosen = (0..rng.range(1, 3)).map(|_| rng.below(count) as i64).collect();
        spec.dims.push(("chosen".to_owned(), Dim::List(chosen)));
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

/// The names that are numbers.
fn numbers(names: &Names) -> Vec<(&String, i64)> {
    let number = |(name, value)| match value {
        &Value::Int(n) => Some((name, n)),
        _ => None,
    };
    names.iter().filter_map(number).collect()
}

/// An expression over `names` of a given value.
fn equal_to(rng: &mut Rng, names: &Names, value: i64) -> Expr {
    let numbers = numbers(names);
    if numbers.is_empty() {
        return Expr::Int(value);
    }
    let (name, other) = *rng.pick(&numbers);
    if other <= value {
        Expr::binary(Op::Add, Expr::name(name), Expr::Int(value - other))
    } else {
        Expr::binary(Op::Sub, Expr::name(name), Expr::Int(other - value))
    }
}

fn groups(rng: &mut Rng, spec: &mut Spec, scope: &Scope, whens: &[Expr], all: bool) {
    // Most specs are small enough for every order to be tried.
    let most = if rng.chance(15) { rng.range(8, 12) } else { rng.range(2, 7) };
    let mut left = most;
    let aligns_apart = rng.chance(40);
    let modes = scope.modes.iter().collect::<Vec<_>>();
    for name in GROUPS {
        if left == 0 {
            break;
        }
        let mut group = Group {
            name: name.to_owned(),
            when: None,
            keep: None,
            persistent: false,
            external: false,
            per_layer: false,
            buffers: vec![],
        };
        if rng.chance(25) {
            group.when = Some(rng.pick(whens).clone());
        }
        if rng.chance(15) {
            group.keep = Some(condition(rng, &scope.fixed, 2));
        }
        if all && rng.chance(20) {
            group.persistent = rng.chance(50);
            group.external = !group.persistent;
            group.per_layer = rng.chance(50);
        }
        if all && rng.chance(1) {
            // Not what there is.
            group.per_layer = true;
        }
        let members = if most > 7 { rng.range(2, 4) } else { rng.range(1, 3) };
        for buffer in &BUFFERS[..members.min(left)] {
            let mut shape =
                (0..rng.range(1, 3)).map(|_| tried(rng, &modes, 1..=24)).collect::<Vec<_>>();
            let parts = (all && rng.chance(25)).then(|| rng.range(2, 3) as i64);
            if let Some(parts) = parts {
                let first = Expr::binary(Op::Mul, Expr::Int(parts), tried(rng, &modes, 1..=8));
                shape[0] = first;
            }
            let dtype = *rng.pick(&DTYPES);
            let own = (aligns_apart && rng.chance(40) && !group.per_layer)
                .then(|| spec.pool_align() << rng.range(0, 4));
            // An element must be aligned to its size.
            let least = element_bytes(dtype);
            let align = match own {
                Some(own) => Some(own.max(least)),
                None => (spec.pool_align() < least).then_some(least),
            };
            group.buffers.push(Buffer {
                name: (*buffer).to_owned(),
                dtype: dtype.to_owned(),
                shape,
                align,
                parts,
            });
        }
        if group.per_layer && group.buffers.iter().any(|buffer| buffer.align.is_some()) {
            // Where the second copy lies then, the page leaves open.
            group.per_layer = false;
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
            uses: vec![],
        });
    }
}

fn accesses(rng: &mut Rng, spec: &mut Spec, all: bool) {
    let count = spec.steps.len();
    let spare = rng.range(0, 12);
    let updates = if all { rng.range(0, 40) } else { 0 };
    for g in 0..spec.groups.len() {
        let group = spec.groups[g].clone();
        let mut targets = vec![group.name.clone()];
        let by_buffer = group.buffers.len() > 1 && rng.chance(40);
        if by_buffer || group.buffers.iter().any(|buffer| buffer.parts.is_some()) {
            targets.clear();
            for buffer in &group.buffers {
                let name = format!("{}.{}", group.name, buffer.name);
                match buffer.parts {
                    Some(parts) if rng.chance(80) => {
                        targets.extend((0..parts).map(|part| format!("{name}[{part}]")));
                    }
                    _ => targets.push(name),
                }
            }
        }
        let workspace = all && rng.chance(15) && (!kept_for_ever(&group) || rng.chance(5));
        let used_by = (0..rng.range(1, 3)).map(|_| rng.below(count)).collect::<Vec<_>>();
        let mut writer = rng.below(count);
        for (i, target) in targets.iter().enumerate() {
            if rng.chance(4) {
                continue;
            }
            if workspace {
                for step in &used_by {
                    add(&mut spec.steps[*step].uses, target);
                }
                if rng.chance(2) {
                    add(&mut spec.steps[writer].reads, target);
                }
                continue;
            }
            // The parts of a buffer are often written one by one.
            if i > 0 {
                writer = if target.contains('[') && rng.chance(60) {
                    (writer + 1).min(count - 1)
                } else {
                    rng.below(count)
                };
            }
            if rng.chance(50) && group.when.is_some() {
                spec.steps[writer].when.clone_from(&group.when);
            }
            if kept_for_ever(&group) && rng.chance(40) {
                add(&mut spec.steps[writer].reads, target);
            }
            if !kept_for_ever(&group) || rng.chance(70) {
                add(&mut spec.steps[writer].writes, target);
            }
            for _ in 0..rng.range(0, 2) {
                // Most readers come soon after the writer; a few read what an earlier layer left.
                let reader = if rng.chance(92) {
                    (writer + rng.range(0, 2)).min(count - 1)
                } else {
                    rng.below(count)
                };
                if reader != writer || rng.chance(20) {
                    // At times all of a buffer whose parts were written.
                    let whole = target.split('[').next().unwrap();
                    let target = if rng.chance(20) { whole } else { target };
                    add(&mut spec.steps[reader].reads, target);
                    if rng.chance(updates) {
                        add(&mut spec.steps[reader].writes, target);
                    }
                }
            }
            if rng.chance(spare) {
                let step = &mut spec.steps[rng.below(count)];
                add(if rng.chance(50) { &mut step.reads } else { &mut step.writes }, target);
            }
        }
    }
}

fn kept_for_ever(group: &Group) -> bool {
    group.persistent || group.external
}

fn add(list: &mut Vec<String>, target: &str) {
    if !list.iter().any(|item| item == target) {
        list.push(target.to_owned());
    }
}

/// Takes away each read of what the same step writes.
fn never_both(spec: &mut Spec) {
    let inside = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}."));
    for step in &mut spec.steps {
        let writes = &step.writes;
        step.reads.retain(|read| !writes.iter().any(|it| inside(read, it) || inside(it, read)));
    }
}

/// All that can be claimed: groups, and buffers.
fn claimable(rng: &mut Rng, spec: &Spec, all: bool) -> Vec<String> {
    let mut names = Vec::new();
    for group in &spec.groups {
        if all && rng.chance(25) {
            let of = |buffer: &Buffer| format!("{}.{}", group.name, buffer.name);
            names.extend(group.buffers.iter().map(of));
        } else {
            names.push(group.name.clone());
        }
    }
    names
}

fn some_claims(rng: &mut Rng, spec: &Spec, all: bool) -> Vec<String> {
    let mut names = claimable(rng, spec, all);
    rng.shuffle(&mut names);
    names.truncate(rng.range(2, 3));
    if names.len() < 2 { vec![] } else { names }
}

/// Claims that hold, if there are two.
fn provable(rng: &mut Rng, spec: &Spec, verdict: &Verdict, all: bool) -> Vec<String> {
    let mut clash = BTreeSet::new();
    for (a, b) in &verdict.interference {
        let (a, b) = (&verdict.buffers[*a], &verdict.buffers[*b]);
        for x in [&a.group, &a.name] {
            for y in [&b.group, &b.name] {
                clash.insert((x, y));
                clash.insert((y, x));
            }
        }
    }
    let mut chosen: Vec<String> = Vec::new();
    for name in claimable(rng, spec, all) {
        if chosen.iter().all(|other| !clash.contains(&(other, &name))) {
            chosen.push(name);
        }
    }
    if chosen.len() < 2 { vec![] } else { chosen }
}

fn repair(rng: &mut Rng, spec: &mut Spec, witness: &Witness) {
    let later = witness.later.step;
    match (&witness.finding, witness.earlier) {
        (Finding::NotExclusive(one, two), Some(_)) if rng.chance(60) => {
            let drop = if rng.chance(50) { one } else { two };
            spec.exclusive.retain(|claim| claim != drop);
            if spec.exclusive.len() < 2 {
                spec.exclusive.clear();
            }
        }
        (Finding::ReadBeforeWrite(buffer), _) => {
            // Without the read, or by a write in its place.
            let group = buffer.split('.').next().unwrap();
            let parts = format!("{buffer}[");
            let step = &mut spec.steps[later];
            step.reads.retain(|read| read != buffer && read != group && !read.starts_with(&parts));
            if rng.chance(50) {
                add(&mut step.writes, buffer);
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

/// A random expression whose value is in a range, whichever of the names stand.
fn tried(rng: &mut Rng, modes: &[&Names], range: std::ops::RangeInclusive<i64>) -> Expr {
    for _ in 0..40 {
        let depth = rng.range(0, 3);
        let expr = number(rng, modes[0], depth);
        let fits = |names: &&Names| expr.value(names).is_ok_and(|value| range.contains(&value));
        if modes.iter().all(fits) {
            return expr;
        }
    }
    Expr::Int(*range.start() + rng.below(4) as i64)
}

fn number(rng: &mut Rng, names: &Names, depth: usize) -> Expr {
    if depth == 0 || rng.chance(15) {
        let known = numbers(names);
        return if known.is_empty() || rng.chance(40) {
            Expr::Int(1 << rng.range(0, 5))
        } else {
            Expr::name(rng.pick(&known).0)
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
    if rng.chance(30)
        && let Some(expr) = about_words(rng, names)
    {
        return expr;
    }
    let op = *rng.pick(&[Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge]);
    Expr::binary(op, number(rng, names, depth.min(1)), number(rng, names, depth.min(1)))
}

/// A comparison of a string, or whether something is in a list, if there are any.
fn about_words(rng: &mut Rng, names: &Names) -> Option<Expr> {
    let is_list = |value: &Value| matches!(value, Value::List(_));
    let lists = names.iter().filter(|(_, value)| is_list(value)).collect::<Vec<_>>();
    let texts = names.iter().filter(|(_, value)| matches!(value, Value::Text(_)));
    let texts = texts.collect::<Vec<_>>();
    if !lists.is_empty() && rng.chance(40) {
        let (list, items) = *rng.pick(&lists);
        let of_texts = matches!(items, Value::List(items) if items.iter().any(|it| matches!(it, Value::Text(_))));
        let of_numbers = matches!(items, Value::List(items) if items.iter().any(|it| matches!(it, Value::Int(_))));
        let fits = |value: &Value| match value {
            Value::Text(_) => of_texts,
            Value::Int(_) => of_numbers,
            Value::List(_) => false,
        };
        let left = names.iter().filter(|(_, value)| fits(value)).collect::<Vec<_>>();
        if !left.is_empty() {
            return Some(Expr::In(rng.pick(&left).0.clone(), list.clone()));
        }
    }
    if texts.is_empty() {
        return None;
    }
    let op = *rng.pick(&[Op::Eq, Op::Ne]);
    let text = Expr::Text((*rng.pick(&["full", "linear", "fp8"])).to_owned());
    Some(Expr::binary(op, Expr::name(rng.pick(&texts).0), text))
}

/// A condition on layers that has a value in each of them, and mostly differs among them.
fn when(rng: &mut Rng, layers: &[Names], all: bool) -> Expr {
    for _ in 0..30 {
        let expr = if all
            && rng.chance(50)
            && let Some(expr) = layers.first().and_then(|names| about_words(rng, names))
        {
            expr
        } else if rng.chance(60) {
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
