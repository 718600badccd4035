//! What a sound declaration says without effect, and therefore probably not as meant.
//!
//! None of this is unsafe: a buffer that no step touches needs no bytes. But whoever declared it
//! believes that the pool keeps it, so it is worth a warning.

use crate::error::nearest;
use crate::plan::Plan;
use crate::spec::Span;

/// Something without effect, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What it is.
    pub text: String,
    /// Where it was declared.
    pub span: Span,
}

impl Plan {
    /// What the declaration says without effect, in order of place.
    pub fn warnings(&self) -> Vec<Warning> {
        let structure = &self.structure;
        let mut warnings = Vec::new();
        let mut warn = |text: String, span: Span| warnings.push(Warning { text, span });
        let layers = 0..structure.layers;
        for (buffer, info) in structure.buffers.iter().enumerate() {
            if !structure.accessed(buffer) {
                let name = &info.name;
                warn(
                    format!("no step touches `{name}` in any layer, so it gets no bytes"),
                    info.span,
                );
            }
        }
        for step in &structure.steps {
            let name = &step.name;
            if !step.runs.contains(&true) {
                warn(format!("step `{name}` runs in no layer"), step.span);
                continue;
            }
            for access in &step.accesses {
                let active = |layer| structure.active(step, access.buffer, layer);
                if !layers.clone().any(active)
                    && let Some(buffer) = structure.buffers.get(access.buffer)
                {
                    let text = format!(
                        "step `{name}` never touches `{}`: its group exists in no layer in which the step runs",
                        buffer.name
                    );
                    warn(text, access.span);
                }
            }
            // A stream that one step uses and that is named almost like another.
            let users = structure.steps.iter().filter(|other| other.stream == step.stream).count();
            let others = structure.streams.iter().enumerate();
            let others =
                others.filter(|(stream, _)| *stream != step.stream).map(|(_, other)| other);
            if let Some(stream) = structure.streams.get(step.stream).filter(|_| users == 1)
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

/// Whether two names differ in their digits only, as `aux0` and `aux1` do on purpose.
fn numbered(a: &str, b: &str) -> bool {
    let letters = |name: &str| name.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    letters(a) == letters(b)
}
