//! The schedule's structure: which steps run in which layers, on which streams, what they wait for
//! and which buffers they touch. No size is known or needed here.
//!
//! Invariant: in a [`Structure`] all indices are in range (steps, streams, groups, buffers), every
//! `after` of the same layer names an earlier step, and each per-layer list has one entry a layer.
//! The proofs stand on this type alone; sizes come in beside it, in [`crate::sizes`].

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Fault, Hint, MOST_LAYERS, NameKind};
use crate::expr::Expr;
use crate::names::{Names, NoValue};
use crate::spec::{ColumnSource, DEFAULT_STREAM, Launch, Name, Span, Spec, Target, Value};

/// Most nodes (steps that run, over all layers) of one pass. The prover keeps one bit for each
/// pair of nodes of three passes.
pub const MOST_NODES: usize = 8192;

/// The resolved schedule of a pool.
#[derive(Clone, Debug)]
pub struct Structure {
    /// The pool's name.
    pub pool: String,
    /// Number of layers, at least 1.
    pub layers: usize,
    /// Names of the streams, in order of first use.
    pub streams: Vec<String>,
    /// The steps, in the order in which the host issues them.
    pub steps: Vec<Step>,
    /// The groups that were not removed by `if`.
    pub groups: Vec<Group>,
    /// The buffers of those groups.
    pub buffers: Vec<Buffer>,
    /// Groups claimed exclusive, with the place of the claim.
    pub exclusive: Vec<(usize, Span)>,
}

/// A resolved step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// Its stream: an index into [`Structure::streams`].
    pub stream: usize,
    /// How it is launched.
    pub launch: Launch,
    /// Whether it runs, for each layer.
    pub runs: Vec<bool>,
    /// What it waits for.
    pub after: Vec<After>,
    /// What it touches, at most one entry a buffer, in order of buffers.
    pub accesses: Vec<Access>,
}

/// A resolved `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// Of the latest earlier layer that ran the step.
    pub prev: bool,
    /// The step: an index into [`Structure::steps`].
    pub step: usize,
    /// Where it was written.
    pub span: Span,
}

/// A resolved access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The buffer: an index into [`Structure::buffers`].
    pub buffer: usize,
    /// Whether the step writes it; a step that writes and reads a buffer writes it.
    pub write: bool,
    /// Whether the step also reads it.
    pub read: bool,
    /// Where it was written.
    pub span: Span,
}

/// A resolved group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// Whether it exists, for each layer.
    pub exists: Vec<bool>,
    /// Its buffers: a range of [`Structure::buffers`].
    pub buffers: Range<usize>,
    /// Its index in [`Spec::groups`].
    pub declared: usize,
}

/// A resolved buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// `group.buffer`.
    pub name: String,
    /// Its group: an index into [`Structure::groups`].
    pub group: usize,
    /// Where it is declared.
    pub span: Span,
}

impl Structure {
    /// Whether a step touches a group's buffers in a layer: it runs there and the group exists.
    pub fn active(&self, step: &Step, buffer: usize, layer: usize) -> bool {
        let exists = self
            .buffers
            .get(buffer)
            .and_then(|buffer| self.groups.get(buffer.group))
            .and_then(|group| group.exists.get(layer));
        step.runs.get(layer) == Some(&true) && exists == Some(&true)
    }

    /// Whether any step ever touches the buffer.
    pub fn accessed(&self, buffer: usize) -> bool {
        self.steps.iter().any(|step| {
            step.accesses.iter().any(|access| access.buffer == buffer)
                && (0..self.layers).any(|layer| self.active(step, buffer, layer))
        })
    }

    /// Resolves a spec's schedule. `None` where an error makes the schedule unknown.
    pub(crate) fn resolve(spec: &Spec, names: &Names, errors: &mut Vec<Error>) -> Option<Self> {
        let before = errors.len();
        let layers = resolve_layers(spec, names, errors);
        let mut resolver = Resolver { spec, names, layers: layers.as_ref(), errors };
        let (groups, buffers, group_index) = resolver.groups();
        let (streams, steps) = resolver.steps(&group_index, &buffers);
        let exclusive = resolver.exclusive(&group_index);
        if errors.len() > before {
            return None;
        }
        let (layers, _) = layers?;
        let structure = Self {
            pool: spec.name.value.clone(),
            layers,
            streams,
            steps,
            groups,
            buffers,
            exclusive,
        };
        let nodes = structure.steps.iter().flat_map(|s| &s.runs).filter(|runs| **runs).count();
        if nodes > MOST_NODES {
            let fault = Fault::TooManyNodes { nodes, most: MOST_NODES };
            errors.push(Error::new(fault, spec.layers.span));
            return None;
        }
        Some(structure)
    }
}

/// Adds an error for each later entry with the name of an earlier one.
fn duplicates<'n>(
    kind: &'static str,
    names: impl IntoIterator<Item = &'n Name>,
    errors: &mut Vec<Error>,
) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for name in names {
        if let Some(first) = seen.get(name.value.as_str()) {
            let fault = Fault::Duplicate { kind, name: name.value.clone(), first: *first };
            errors.push(Error::new(fault, name.span));
        } else {
            seen.insert(&name.value, name.span);
        }
    }
}

/// The number of layers, and the layers' attributes, each with at least one entry a layer.
type LayerTable = (usize, Vec<(String, Value)>);

/// The entries of a list of either kind.
fn entries(list: &Value) -> usize {
    match list {
        Value::List(items) => items.len(),
        Value::Texts(items) => items.len(),
        Value::Int(_) | Value::Text(_) => 0,
    }
}

/// An entry of a list of either kind.
fn entry(list: &Value, position: usize) -> Option<Value> {
    match list {
        Value::List(items) => items.get(position).copied().map(Value::Int),
        Value::Texts(items) => items.get(position).cloned().map(Value::Text),
        Value::Int(_) | Value::Text(_) => None,
    }
}

fn resolve_layers(spec: &Spec, names: &Names, errors: &mut Vec<Error>) -> Option<LayerTable> {
    let before = errors.len();
    let mut poisoned = false;
    duplicates("layer attributes", spec.layers.columns.iter().map(|c| &c.name), errors);
    let mut columns: Vec<(String, Value)> = Vec::new();
    for column in &spec.layers.columns {
        if column.name.value == "layer" {
            let fault = Fault::Duplicate {
                kind: "layer attributes",
                name: "layer".into(),
                first: column.name.span,
            };
            errors.push(Error::new(fault, column.name.span));
        }
        let list = match &column.source {
            ColumnSource::List(list) => Some(Value::List(list.value.clone())),
            ColumnSource::Texts(list) => Some(Value::Texts(list.value.clone())),
            ColumnSource::Name(name) => match names.list(&name.value, name.span) {
                Ok(list) => {
                    poisoned |= list.is_none();
                    list.cloned()
                }
                Err(error) => {
                    errors.push(*error);
                    None
                }
            },
        };
        if let Some(list) = list {
            columns.push((column.name.value.clone(), list));
        }
    }
    if errors.len() > before || poisoned {
        return None;
    }
    let shortest = columns.iter().map(|(_, list)| entries(list)).min();
    let (count, span) = match &spec.layers.count {
        Some(expr) => {
            if let Some(name) = names.runtime_name(expr) {
                let fault = Fault::NotConstant { name, place: "the number of layers" };
                errors.push(Error::new(fault, expr.span));
                return None;
            }
            match names.eval(expr, &|_| None) {
                Ok(count) => (count, expr.span),
                Err(NoValue::Poisoned) => return None,
                Err(NoValue::Error(error)) => {
                    errors.push(*error);
                    return None;
                }
            }
        }
        None => (i64::try_from(shortest.unwrap_or(1)).unwrap_or(i64::MAX), spec.layers.span),
    };
    let layers = usize::try_from(count).ok().filter(|count| (1..=MOST_LAYERS).contains(count));
    let Some(layers) = layers else {
        errors.push(Error::new(Fault::LayerCount { count }, span));
        return None;
    };
    for ((_, list), column) in columns.iter().zip(&spec.layers.columns) {
        if entries(list) < layers {
            let fault = Fault::ShortColumn {
                column: column.name.value.clone(),
                entries: entries(list),
                count: layers,
            };
            errors.push(Error::new(fault, column.name.span));
        }
    }
    (errors.len() == before).then_some((layers, columns))
}

struct Resolver<'r> {
    spec: &'r Spec,
    names: &'r Names,
    /// `None` where the layers are in error: conditions are then checked for names only.
    layers: Option<&'r LayerTable>,
    errors: &'r mut Vec<Error>,
}

impl Resolver<'_> {
    fn push(&mut self, fault: Fault, span: Span) {
        self.errors.push(Error::new(fault, span));
    }

    /// Evaluates a condition in each layer; an empty list where that is impossible.
    fn condition(&mut self, when: Option<&Expr>, place: &'static str) -> Vec<bool> {
        let Some((layers, attributes)) = self.layers else {
            return Vec::new();
        };
        let Some(when) = when else {
            return vec![true; *layers];
        };
        let is_attribute =
            |name: &str| name == "layer" || attributes.iter().any(|(each, _)| each == name);
        if let Some(name) = self.names.runtime_name(when)
            && !is_attribute(&name)
        {
            self.push(Fault::NotConstant { name, place }, when.span);
            return Vec::new();
        }
        let mut holds = Vec::with_capacity(*layers);
        for layer in 0..*layers {
            let extra = |name: &str| {
                if name == "layer" {
                    return i64::try_from(layer).ok().map(Value::Int);
                }
                let (_, list) = attributes.iter().find(|(each, _)| each == name)?;
                entry(list, layer)
            };
            match self.names.eval(when, &extra) {
                Ok(value) => holds.push(value != 0),
                Err(NoValue::Poisoned) => return Vec::new(),
                Err(NoValue::Error(mut error)) => {
                    match &mut error.fault {
                        Fault::Expression { layer: at, .. } => *at = Some(layer),
                        Fault::UnknownName { name, .. } => {
                            let more: Vec<&str> = attributes
                                .iter()
                                .map(|(name, _)| name.as_str())
                                .chain(["layer"])
                                .collect();
                            *error = self.names.unknown(&name.clone(), &more, error.span);
                        }
                        _ => {}
                    }
                    self.errors.push(*error);
                    return Vec::new();
                }
            }
        }
        holds
    }

    /// The groups that are not removed, their buffers, and for each declared name its index
    /// (`None`: removed).
    fn groups(&mut self) -> (Vec<Group>, Vec<Buffer>, BTreeMap<String, Option<usize>>) {
        let spec = self.spec;
        duplicates("groups", spec.groups.iter().map(|group| &group.name), self.errors);
        let (mut groups, mut buffers) = (Vec::new(), Vec::new());
        let mut index = BTreeMap::new();
        for (declared, group) in spec.groups.iter().enumerate() {
            duplicates("buffers", group.buffers.iter().map(|buffer| &buffer.name), self.errors);
            let removed = self.removed(group.condition.as_ref());
            let exists = self.condition(group.when.as_ref(), "the `when` of a group");
            if removed {
                index.entry(group.name.value.clone()).or_insert(None);
                continue;
            }
            index.entry(group.name.value.clone()).or_insert(Some(groups.len()));
            let first = buffers.len();
            for buffer in &group.buffers {
                buffers.push(Buffer {
                    name: format!("{}.{}", group.name.value, buffer.name.value),
                    group: groups.len(),
                    span: buffer.name.span,
                });
            }
            groups.push(Group {
                name: group.name.value.clone(),
                span: group.name.span,
                exists,
                buffers: first..buffers.len(),
                declared,
            });
        }
        (groups, buffers, index)
    }

    fn removed(&mut self, condition: Option<&Expr>) -> bool {
        let Some(condition) = condition else {
            return false;
        };
        if let Some(name) = self.names.runtime_name(condition) {
            self.push(Fault::NotConstant { name, place: "the `if` of a group" }, condition.span);
            return false;
        }
        match self.names.eval(condition, &|_| None) {
            Ok(value) => value == 0,
            Err(NoValue::Poisoned) => false,
            Err(NoValue::Error(error)) => {
                self.errors.push(*error);
                false
            }
        }
    }

    fn steps(
        &mut self,
        groups: &BTreeMap<String, Option<usize>>,
        buffers: &[Buffer],
    ) -> (Vec<String>, Vec<Step>) {
        let spec = self.spec;
        duplicates("steps", spec.steps.iter().map(|step| &step.name), self.errors);
        let mut index: BTreeMap<&str, usize> = BTreeMap::new();
        for (position, step) in spec.steps.iter().enumerate() {
            index.entry(step.name.value.as_str()).or_insert(position);
        }
        let mut streams: Vec<String> = Vec::new();
        let mut steps = Vec::new();
        for (position, step) in spec.steps.iter().enumerate() {
            let name = step.stream.as_ref().map_or(DEFAULT_STREAM, |stream| &stream.value);
            let stream = streams.iter().position(|each| each == name).unwrap_or_else(|| {
                streams.push(name.to_owned());
                streams.len() - 1
            });
            let runs = self.condition(step.when.as_ref(), "the `when` of a step");
            let mut after = Vec::new();
            for each in &step.after {
                let Some(target) = index.get(each.step.as_str()).copied() else {
                    let (kind, known) = (NameKind::Step, index.keys().copied());
                    self.errors.push(Error::unknown_name(kind, &each.step, known, each.span));
                    continue;
                };
                if !each.prev && target >= position {
                    let declared = spec.steps.get(target).map_or(each.span, |t| t.name.span);
                    let fault = Fault::Order {
                        step: step.name.value.clone(),
                        after: each.step.clone(),
                        declared,
                    };
                    self.push(fault, each.span);
                    continue;
                }
                after.push(After { prev: each.prev, step: target, span: each.span });
            }
            let mut accesses: BTreeMap<usize, Access> = BTreeMap::new();
            for (targets, write) in [(&step.writes, true), (&step.reads, false)] {
                for target in targets {
                    for buffer in self.target(target, groups, buffers) {
                        let access = accesses.entry(buffer).or_insert(Access {
                            buffer,
                            write,
                            read: !write,
                            span: target.span,
                        });
                        access.write |= write;
                        access.read |= !write;
                    }
                }
            }
            steps.push(Step {
                name: step.name.value.clone(),
                span: step.name.span,
                stream,
                launch: step.launch,
                runs,
                after,
                accesses: accesses.into_values().collect(),
            });
        }
        (streams, steps)
    }

    /// The buffers that a `writes` or `reads` entry names; none if its group was removed.
    fn target(
        &mut self,
        target: &Target,
        groups: &BTreeMap<String, Option<usize>>,
        buffers: &[Buffer],
    ) -> Vec<usize> {
        let Some(group) = groups.get(&target.group).copied() else {
            // A buffer's name without its group.
            let mut full = Vec::new();
            for group in self.spec.groups.iter().filter(|_| target.buffer.is_none()) {
                if group.buffers.iter().any(|buffer| buffer.name.value == target.group) {
                    full.push(format!("{}.{}", group.name.value, target.group));
                }
            }
            let known = groups.keys().chain(&full).map(String::as_str);
            let error = Error::unknown_name(NameKind::Group, &target.group, known, target.span);
            self.errors.push(error);
            return Vec::new();
        };
        if let Some(wanted) = &target.buffer {
            let declared = self.spec.groups.iter().find(|each| each.name.value == target.group);
            let names: Vec<&str> = declared
                .map(|group| group.buffers.iter().map(|each| each.name.value.as_str()).collect())
                .unwrap_or_default();
            if !names.contains(&wanted.as_str()) {
                let full = |name: &str| format!("{}.{name}", target.group);
                let names = names.iter().copied();
                let kind = NameKind::Buffer;
                let mut error = Error::unknown_name(kind, wanted, names, target.span);
                if let Fault::UnknownName { name, nearest, .. } = &mut error.fault {
                    *name = full(wanted);
                    *nearest = nearest.as_deref().map(full);
                }
                for hint in &mut error.hints {
                    if let Hint::Known(names) = hint {
                        for name in names.iter_mut() {
                            *name = full(name);
                        }
                    }
                }
                self.errors.push(error);
                return Vec::new();
            }
        }
        let Some(group) = group else {
            return Vec::new();
        };
        let full = target.buffer.as_ref().map(|buffer| format!("{}.{buffer}", target.group));
        buffers
            .iter()
            .enumerate()
            .filter(|(_, each)| each.group == group)
            .filter(|(_, each)| full.as_ref().is_none_or(|full| *full == each.name))
            .map(|(position, _)| position)
            .collect()
    }

    fn exclusive(&mut self, groups: &BTreeMap<String, Option<usize>>) -> Vec<(usize, Span)> {
        let mut claimed: Vec<(usize, Span)> = Vec::new();
        for name in &self.spec.exclusive {
            match groups.get(&name.value) {
                Some(Some(group)) => {
                    if claimed.iter().all(|(each, _)| each != group) {
                        claimed.push((*group, name.span));
                    }
                }
                Some(None) => {}
                None => {
                    let (kind, known) = (NameKind::Group, groups.keys().map(String::as_str));
                    self.errors.push(Error::unknown_name(kind, &name.value, known, name.span));
                }
            }
        }
        claimed
    }
}
