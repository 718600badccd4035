//! What a sound declaration says without effect, and therefore probably not as meant.
//!
//! None of this is unsafe: a buffer that no step touches needs no bytes. But whoever declared it
//! believes that the pool keeps it, so it is worth a warning. It is one beside an error of the
//! prover, too, where it is often the cause: what a step that never runs should have written is read.
//!
//! A buffer that one step writes and none reads may be that step's workspace, so it is no reason to
//! warn while its whole group is like that.

use std::collections::BTreeSet;

use crate::error::nearest;
use crate::expr::Expr;
use crate::spec::{ColumnSource, DimValue, Span, Spec};
use crate::structure::Structure;

/// Something without effect, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What it is.
    pub text: String,
    /// Where it was declared.
    pub span: Span,
}

impl Structure {
    /// What the declaration, which was resolved to this, says without effect, in order of place.
    pub fn warnings(&self, spec: &Spec) -> Vec<Warning> {
        let mut warnings = Vec::new();
        unused_dims(spec, &mut warnings);
        lonely_claim(spec, &mut warnings);
        never_read(self, &mut warnings);
        let mut warn = |text: String, span: Span| warnings.push(Warning { text, span });
        let layers = 0..self.layers;
        for (buffer, info) in self.buffers.iter().enumerate() {
            if !self.accessed(buffer) {
                let name = &info.name;
                warn(
                    format!("no step touches `{name}` in any layer, so it gets no bytes"),
                    info.span,
                );
            }
        }
        for step in &self.steps {
            let name = &step.name;
            if !step.runs.contains(&true) {
                warn(format!("step `{name}` runs in no layer"), step.span);
                continue;
            }
            for access in &step.accesses {
                let active = |layer| self.active(step, access.buffer, layer);
                if !layers.clone().any(active)
                    && let Some(buffer) = self.buffers.get(access.buffer)
                {
                    let text = format!(
                        "step `{name}` never touches `{}`: its group exists in no layer in which the step runs",
                        buffer.name
                    );
                    warn(text, access.span);
                }
            }
            // A stream that one step uses and that is named almost like another.
            let users = self.steps.iter().filter(|other| other.stream == step.stream).count();
            let others = self.streams.iter().enumerate();
            let others =
                others.filter(|(stream, _)| *stream != step.stream).map(|(_, other)| other);
            if let Some(stream) = self.streams.get(step.stream).filter(|_| users == 1)
                && let Some(other) = nearest(stream, others.map(String::as_str))
                && !numbered(stream, &other)
            {
                warn(
                    format!("only step `{name}` is on stream `{stream}`; did you mean `{other}`?"),
                    step.span,
                );
            }
        }
        warnings.sort_by_key(|warning| warning.span);
        warnings
    }
}

/// Dims that no expression, column or `rows` names.
fn unused_dims(spec: &Spec, warnings: &mut Vec<Warning>) {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let dims = spec.dims.iter().filter_map(|dim| match &dim.value {
        DimValue::Expr(expr) => Some(expr),
        DimValue::List(_) | DimValue::Runtime { .. } => None,
    });
    let groups = spec.groups.iter().flat_map(|group| {
        let shapes = group.buffers.iter().flat_map(|buffer| &buffer.shape);
        group.when.iter().chain(&group.condition).chain(shapes)
    });
    let steps = spec.steps.iter().filter_map(|step| step.when.as_ref());
    let exprs: Vec<&Expr> = dims.chain(groups).chain(steps).chain(&spec.layers.count).collect();
    for expr in exprs {
        expr.names(&mut |name, _| {
            used.insert(name);
        });
    }
    used.extend(spec.rows.iter().map(|rows| rows.value.as_str()));
    used.extend(spec.layers.columns.iter().filter_map(|column| match &column.source {
        ColumnSource::Name(name) => Some(name.value.as_str()),
        ColumnSource::List(_) | ColumnSource::Texts(_) => None,
    }));
    for dim in &spec.dims {
        // What the command line sets beside the spec has no place there.
        let name = &dim.name;
        if !used.contains(name.value.as_str()) && name.span != Span::default() {
            let text = format!("nothing uses dim `{}`", name.value);
            warnings.push(Warning { text, span: name.span });
        }
    }
}

/// A claim of one group alone, which is exclusive with nothing.
fn lonely_claim(spec: &Spec, warnings: &mut Vec<Warning>) {
    if let [first, rest @ ..] = spec.exclusive.as_slice()
        && rest.iter().all(|name| name.value == first.value)
    {
        let text =
            format!("`{}` alone is exclusive with nothing; name two groups or more", first.value);
        warnings.push(Warning { text, span: first.span });
    }
}

/// Buffers that are written and never read, in groups of which something is read.
fn never_read(structure: &Structure, warnings: &mut Vec<Warning>) {
    let read = |buffer: usize| {
        structure
            .steps
            .iter()
            .find(|step| step.accesses.iter().any(|access| access.buffer == buffer && access.read))
    };
    for group in &structure.groups {
        let Some(reader) = group.buffers.clone().find_map(read) else { continue };
        for buffer in group.buffers.clone().filter(|buffer| read(*buffer).is_none()) {
            if structure.accessed(buffer)
                && let Some(info) = structure.buffers.get(buffer)
            {
                let (name, reader) = (&info.name, &reader.name);
                let text = format!(
                    "no step reads `{name}`, though `{reader}` reads others of its group; if its writer does, list it in the `reads` there, too"
                );
                warnings.push(Warning { text, span: info.span });
            }
        }
    }
}

/// Whether two names differ in their digits only, as `aux0` and `aux1` do on purpose.
fn numbered(a: &str, b: &str) -> bool {
    let letters = |name: &str| name.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    letters(a) == letters(b)
}
