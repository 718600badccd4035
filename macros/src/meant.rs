//! What a declaration in error was meant to be, as far as what is generated depends on it.
//!
//! The code around a declaration in error should not fail a second time, so its steps and views
//! must have the types that they will have once the error is fixed: which steps may be absent from
//! a layer, and which views. That is found by planning a repaired copy of the spec: what an error
//! points at is replaced by the nearest name or left out, and sizes, which do not matter, are all 1.
//!
//! Nothing of a repaired spec is ever run, and none of its numbers are emitted.

use std::collections::BTreeSet;

use scratchpool_planner::error::{Error, Fault};
use scratchpool_planner::expr::Expr;
use scratchpool_planner::plan::{Plan, analyze};
use scratchpool_planner::spec::{Dim, DimValue, Group, Span, Spec, Step, Target};

/// A repaired declaration.
pub(crate) struct Meant {
    /// The spec, without what was in error.
    pub(crate) spec: Spec,
    /// Its plan, if the repair was enough.
    pub(crate) plan: Option<Plan>,
    /// Where the errors are.
    errors: Vec<Span>,
    /// Dims whose value is not known.
    dims: BTreeSet<String>,
}

impl Meant {
    /// Repairs a spec. `unread` are the places of expressions that the grammar did not take.
    pub(crate) fn new(spec: &Spec, errors: &[Error], unread: &[Span]) -> Self {
        let mut spec = spec.clone();
        let spans = errors.iter().map(|error| error.span).chain(unread.iter().copied());
        let mut meant = Self {
            spec: Spec::default(),
            plan: None,
            errors: spans.collect(),
            dims: BTreeSet::new(),
        };
        meant.repair_names(&mut spec, errors);
        meant.repair_structure(&mut spec, errors);
        meant.plan = analyze(&spec).0;
        meant.spec = spec;
        meant
    }

    /// Whether the value of an expression is not known: it is in error, or uses what is.
    pub(crate) fn is_vague(&self, expr: &Expr) -> bool {
        let mut vague = self.is_in_error(expr.span);
        expr.names(&mut |name, _| vague |= self.dims.contains(name));
        vague
    }

    /// Whether some error points into a span.
    fn is_in_error(&self, span: Span) -> bool {
        self.errors.iter().any(|error| span.start <= error.start && error.end <= span.end)
    }

    fn repair_names(&mut self, spec: &mut Spec, errors: &[Error]) {
        let duplicate = |span| {
            let at = |error: &Error| {
                error.span == span && matches!(error.fault, Fault::Duplicate { .. })
            };
            errors.iter().any(at)
        };
        for error in errors {
            if let Fault::Cycle { names } = &error.fault {
                self.dims.extend(names.iter().cloned());
            }
        }
        spec.dims.retain(|dim| !duplicate(dim.name.span));
        for dim in &mut spec.dims {
            let Dim { name, value } = dim;
            if let DimValue::Expr(expr) = value
                && (self.dims.contains(&name.value) || self.is_vague(expr))
            {
                self.dims.insert(name.value.clone());
                *value = DimValue::Expr(Expr::int(1, expr.span));
            }
        }
        spec.layers.columns.retain(|column| !duplicate(column.name.span));
        let short = |error: &Error| matches!(error.fault, Fault::ShortColumn { .. });
        let in_error = |count: &Expr| self.is_vague(count) || errors.iter().any(short);
        if spec.layers.count.as_ref().is_some_and(in_error) {
            spec.layers.count = None;
        }
        spec.steps.retain(|step| !duplicate(step.name.span));
        spec.groups.retain(|group| !duplicate(group.name.span));
        for group in &mut spec.groups {
            group.buffers.retain(|buffer| !duplicate(buffer.name.span));
        }
    }

    fn repair_structure(&self, spec: &mut Spec, errors: &[Error]) {
        spec.align = None;
        spec.ubatches = None;
        spec.rows = None;
        spec.exclusive.clear();
        for Group { when, condition, buffers, .. } in &mut spec.groups {
            when.take_if(|when| self.is_vague(when));
            condition.take_if(|condition| self.is_vague(condition));
            for buffer in buffers {
                buffer.align = None;
                buffer.shape.clear();
            }
        }
        let repaired = |target: &Target| {
            let fault = errors.iter().find(|error| error.span == target.span);
            let Some(Error { fault, .. }) = fault else { return Some(target.clone()) };
            let Fault::UnknownName { nearest: Some(nearest), .. } = fault else { return None };
            let (group, buffer) = match nearest.split_once('.') {
                Some((group, buffer)) => (group, Some(buffer.to_owned())),
                None => (nearest.as_str(), target.buffer.clone()),
            };
            Some(Target { group: group.to_owned(), buffer, span: target.span })
        };
        for Step { when, after, writes, reads, .. } in &mut spec.steps {
            when.take_if(|when| self.is_vague(when));
            after.retain(|after| !errors.iter().any(|error| error.span == after.span));
            *writes = writes.iter().filter_map(repaired).collect();
            *reads = reads.iter().filter_map(repaired).collect();
        }
    }
}
