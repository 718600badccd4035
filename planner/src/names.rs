//! The names of a spec and their values: configuration first, then dims, which may use one another
//! in any order.
//!
//! Invariant: after [`Names::resolve`] each name is either known or *poisoned* (its definition was
//! reported as an error); what uses a poisoned name is passed over in silence, so that one fault
//! gives one error.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Fault, Hint, NameKind};
use crate::expr::{Binary, Expr, Kind, Problem};
use crate::spec::{Dim, DimValue, Span, Spec, Value};

/// Values by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    known: BTreeMap<String, Known>,
    /// What the configuration has that is no name.
    ignored: BTreeMap<String, &'static str>,
    /// What has a value in each layer.
    of_layers: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Known {
    /// `None`: its definition was reported as an error.
    value: Option<Value>,
    /// The definition over dims that can change at run time (those declared `runtime`, and the
    /// rows), where it depends on any.
    varying: Option<Expr>,
    /// Whether it depends on a dim declared `runtime`.
    runtime: bool,
}

/// Names that exist beside the pool's: a layer's attributes.
pub(crate) type Extra<'e> = &'e dyn Fn(&str) -> Option<Value>;

/// Why an expression has no value.
pub(crate) enum NoValue {
    /// It uses a poisoned name; the fault has been reported.
    Poisoned,
    /// A fault of its own.
    Error(Box<Error>),
}

impl Names {
    /// Evaluates all dims of a spec, reporting what has no value.
    pub(crate) fn resolve(spec: &Spec, errors: &mut Vec<Error>) -> Self {
        let mut names = Self::default();
        for (name, value) in &spec.config {
            let known = Known { value: Some(value.clone()), varying: None, runtime: false };
            names.known.insert(name.clone(), known);
        }
        names.ignored = spec.config_ignored.iter().cloned().collect();
        let attributes = spec.layers.columns.iter().map(|column| column.name.value.as_str());
        names.of_layers = attributes.chain(["layer"]).map(str::to_owned).collect();
        let mut dims: BTreeMap<&str, &Dim> = BTreeMap::new();
        for dim in &spec.dims {
            if let Some(first) = dims.get(dim.name.value.as_str()) {
                let first = first.name.span;
                let name = dim.name.value.clone();
                errors.push(Error::new(
                    Fault::Duplicate { kind: "dims", name, first },
                    dim.name.span,
                ));
            } else {
                dims.insert(&dim.name.value, dim);
            }
        }
        names.evaluate(&dims, spec, errors);
        names
    }

    /// Evaluates dims in an order in which each comes after what it uses (Kahn's algorithm, so that
    /// no chain of dims is too long for the stack).
    fn evaluate(&mut self, dims: &BTreeMap<&str, &Dim>, spec: &Spec, errors: &mut Vec<Error>) {
        let uses_of = |dim: &Dim| {
            let mut used = Vec::new();
            if let DimValue::Expr(expr) = &dim.value {
                expr.names(&mut |name, _| {
                    if dims.contains_key(name) {
                        used.push(name.to_owned());
                    }
                });
            }
            used.sort_unstable();
            used.dedup();
            used
        };
        let mut waiting: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut open: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, dim) in dims {
            let used = uses_of(dim);
            open.insert(name, used.len());
            for each in used {
                waiting.entry(each).or_default().push(name);
            }
        }
        let mut ready: Vec<&str> =
            open.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
        while let Some(name) = ready.pop() {
            open.remove(name);
            if let Some(dim) = dims.get(name) {
                let known = self.define(dim, spec, errors);
                self.known.insert(name.to_owned(), known);
            }
            for user in waiting.get(name).into_iter().flatten() {
                if let Some(count) = open.get_mut(user) {
                    *count -= 1;
                    if *count == 0 {
                        ready.push(user);
                    }
                }
            }
        }
        // What is left is in a cycle or behind one.
        let mut reported: Vec<String> = Vec::new();
        for start in open.keys() {
            let mut path: Vec<String> = vec![(*start).to_owned()];
            while let Some(next) = path.last().and_then(|last| dims.get(last.as_str())) {
                let Some(next) = uses_of(next).into_iter().find(|name| open.contains_key(&**name))
                else {
                    break;
                };
                if let Some(position) = path.iter().position(|name| *name == next) {
                    let mut cycle = path.split_off(position);
                    if !cycle.iter().any(|name| reported.contains(name)) {
                        reported.extend(cycle.iter().cloned());
                        let span =
                            dims.get(next.as_str()).map_or_else(Default::default, |d| d.name.span);
                        cycle.push(next);
                        errors.push(Error::new(Fault::Cycle { names: cycle }, span));
                    }
                    break;
                }
                path.push(next);
            }
        }
        for name in open.into_keys() {
            let known = Known { value: None, varying: None, runtime: false };
            self.known.insert(name.to_owned(), known);
        }
    }

    fn define(&self, dim: &Dim, spec: &Spec, errors: &mut Vec<Error>) -> Known {
        let is_rows = spec.rows.as_ref().is_some_and(|rows| rows.value == dim.name.value);
        let itself = Expr { kind: Kind::Name(dim.name.value.clone()), span: dim.name.span };
        match &dim.value {
            DimValue::List(list) => {
                Known { value: Some(Value::List(list.clone())), varying: None, runtime: false }
            }
            DimValue::Runtime { nominal, .. } => {
                Known { value: Some(Value::Int(*nominal)), varying: Some(itself), runtime: true }
            }
            DimValue::Expr(expr) => {
                let value = match self.eval(expr, &|_| None) {
                    Ok(value) => Some(Value::Int(value)),
                    Err(NoValue::Poisoned) => None,
                    Err(NoValue::Error(error)) => {
                        errors.push(error.in_dim(&dim.name.value, &expr.to_string()));
                        None
                    }
                };
                let varying = if is_rows {
                    Some(itself)
                } else {
                    self.varies(expr).then(|| self.reduce(expr))
                };
                Known { value, varying, runtime: self.runtime_name(expr).is_some() }
            }
        }
    }

    /// Evaluates an expression, with the names in `extra` before the pool's.
    pub(crate) fn eval(&self, expr: &Expr, extra: Extra<'_>) -> Result<i64, NoValue> {
        let mut outcome = Ok(());
        expr.names(&mut |name, span| {
            if outcome.is_ok() && extra(name).is_none() {
                outcome = match self.known.get(name) {
                    Some(Known { value: Some(_), .. }) => Ok(()),
                    Some(_) => Err(NoValue::Poisoned),
                    None => Err(NoValue::Error(Box::new(self.unknown(name, &[], span)))),
                };
            }
        });
        outcome?;
        let scope = |name: &str| {
            extra(name).or_else(|| self.known.get(name).and_then(|known| known.value.clone()))
        };
        expr.eval(&scope).map_err(|error| {
            NoValue::Error(Box::new(match error.problem {
                Problem::UnknownName(name) => self.unknown(&name, &[], error.span),
                problem => Error::new(Fault::Expression { problem, layer: None }, error.span),
            }))
        })
    }

    /// The error for an unknown name, with what is near among the pool's names and `more`.
    pub(crate) fn unknown(&self, name: &str, more: &[&str], span: Span) -> Error {
        let known = self.known.keys().map(String::as_str).chain(more.iter().copied());
        self.unknown_among(NameKind::Value, name, known, span)
    }

    fn unknown_among<'n>(
        &self,
        kind: NameKind,
        name: &str,
        known: impl IntoIterator<Item = &'n str> + Clone,
        span: Span,
    ) -> Error {
        // A configuration that nests may have the name, one level down or more.
        let nested: Vec<String> = self
            .known
            .keys()
            .filter(|full| full.rsplit_once('.').is_some_and(|(_, last)| last == name))
            .cloned()
            .collect();
        if !nested.is_empty() {
            let fault = Fault::UnknownName { kind, name: name.to_owned(), nearest: None };
            return Error::new(fault, span).with(Hint::Nested(nested));
        }
        let ignored = self.ignored.get(name).map(|found| Hint::Ignored(found));
        // A column may well be called like the list that it was meant to name.
        let of_layers = kind == NameKind::Value && self.of_layers.contains(name);
        match ignored.or(of_layers.then_some(Hint::OfLayers)) {
            Some(hint) => {
                let fault = Fault::UnknownName { kind, name: name.to_owned(), nearest: None };
                Error::new(fault, span).with(hint)
            }
            None => Error::unknown_name(kind, name, known, span),
        }
    }

    /// A list by name, of integers or of texts. `Ok(None)`: poisoned.
    pub(crate) fn list(&self, name: &str, span: Span) -> Result<Option<&Value>, Box<Error>> {
        let no_list = |found| {
            Err(Box::new(Error::new(Fault::NotAList { name: name.to_owned(), found }, span)))
        };
        match self.known.get(name) {
            None => {
                let is_list = |(_, known): &(&String, &Known)| {
                    matches!(known.value, Some(Value::List(_) | Value::Texts(_)))
                };
                let lists = self.known.iter().filter(is_list).map(|(name, _)| name.as_str());
                Err(Box::new(self.unknown_among(NameKind::List, name, lists, span)))
            }
            Some(Known { value: None, .. }) => Ok(None),
            Some(Known { value: Some(Value::Int(_)), .. }) => no_list("an integer"),
            Some(Known { value: Some(Value::Text(_)), .. }) => no_list("text"),
            Some(Known { value: Some(list), .. }) => Ok(Some(list)),
        }
    }

    /// The first name in the expression whose value is known only at run time.
    pub(crate) fn runtime_name(&self, expr: &Expr) -> Option<String> {
        let mut found = None;
        expr.names(&mut |name, _| {
            if found.is_none() && self.known.get(name).is_some_and(|known| known.runtime) {
                found = Some(name.to_owned());
            }
        });
        found
    }

    /// Whether the expression depends on a dim that can change at run time, the rows included.
    pub(crate) fn varies(&self, expr: &Expr) -> bool {
        let mut found = false;
        expr.names(&mut |name, _| {
            found |= self.known.get(name).is_some_and(|known| known.varying.is_some());
        });
        found
    }

    /// The expression with everything constant replaced by its value, so that only dims that can
    /// change at run time remain as names.
    pub(crate) fn reduce(&self, expr: &Expr) -> Expr {
        let folded = match &expr.kind {
            Kind::Name(name) => {
                let varying = self.known.get(name).and_then(|known| known.varying.clone());
                varying.unwrap_or_else(|| expr.clone())
            }
            Kind::Int(_) | Kind::Text(_) => expr.clone(),
            // The list is known, so what is left to ask is whether the value is one of its entries.
            Kind::In(value, list) => {
                let value = self.reduce(value);
                let items = match self.known.get(&list.value).and_then(|known| known.value.clone())
                {
                    Some(Value::List(items)) => items,
                    _ => Vec::new(),
                };
                let binary = |op, left, right| Expr {
                    kind: Kind::Binary(op, Box::new(left), Box::new(right)),
                    span: expr.span,
                };
                items
                    .into_iter()
                    .map(|item| binary(Binary::Eq, value.clone(), Expr::int(item, list.span)))
                    .reduce(|any, one| binary(Binary::Or, any, one))
                    .unwrap_or_else(|| Expr::int(0, expr.span))
            }
            Kind::Unary(op, operand) => {
                Expr { kind: Kind::Unary(*op, Box::new(self.reduce(operand))), span: expr.span }
            }
            Kind::Binary(op, left, right) => {
                let (left, right) = (Box::new(self.reduce(left)), Box::new(self.reduce(right)));
                Expr { kind: Kind::Binary(*op, left, right), span: expr.span }
            }
            Kind::Call(function, arguments) => {
                let arguments = arguments.iter().map(|each| self.reduce(each)).collect();
                Expr { kind: Kind::Call(*function, arguments), span: expr.span }
            }
        };
        match self.eval(expr, &|_| None) {
            Ok(value) if !self.varies(expr) => Expr::int(value, expr.span),
            _ => folded,
        }
    }
}
