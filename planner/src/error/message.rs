//! What an error says was found and what was expected, and where.

use scratchpool_tables::layer_list;

use super::fault::{AccessAt, Error, Fault, Hint, Label, MOST_LAYERS};
use super::words::{agree, layers_of_pairs, list};
use crate::expr::{Function, Problem};

impl AccessAt {
    /// `step (layer 3, stream main)`, with the pass where it is not the first.
    pub fn place(&self) -> String {
        let Self { step, layer, stream, .. } = self;
        match self.pass {
            0 => format!("`{step}` (layer {layer}, stream {stream})"),
            1 => format!("`{step}` (layer {layer} of the next pass, stream {stream})"),
            _ => format!("`{step}` (layer {layer}, {} passes later, stream {stream})", self.pass),
        }
    }

    const fn verb(&self) -> &'static str {
        if self.write { "writes" } else { "reads" }
    }
}

impl Error {
    /// One line: what was found and what was expected.
    pub fn message(&self) -> String {
        match &self.fault {
            Fault::Syntax(text) => text.clone(),
            Fault::Unquoted { value, .. } => format!("`{value}` stands without quotes"),
            Fault::Unreadable { path, reason } => format!("cannot read `{path}`: {reason}"),
            Fault::Type { key, expected, found } => {
                format!("`{key}` must be {expected}, found {found}")
            }
            Fault::Missing { key, table } => format!("{table} has no `{key}`"),
            Fault::UnknownKey { key, table, .. } => format!("{table} has no key `{key}`"),
            Fault::NotAName { word } => format!("`{word}` is not a name"),
            Fault::UnknownName { kind, name, .. } => {
                let instead = self.hints.iter().find_map(|hint| match hint {
                    Hint::Ignored(found) => Some(format!(
                        "the configuration has `{name}`, but it is {found}; only integers, booleans, strings and lists of these are names"
                    )),
                    Hint::Nested(_) => {
                        Some(format!("the configuration has `{name}`, but not at its top"))
                    }
                    Hint::OfLayers => Some(format!("`{name}` is known only in `when`")),
                    _ => None,
                });
                instead.unwrap_or_else(|| format!("no {} is called `{name}`", kind.as_str()))
            }
            Fault::Expression { problem, layer } => {
                let text = problem_text(problem);
                layer.map_or_else(|| text.clone(), |layer| format!("{text}, in layer {layer}"))
            }
            Fault::NotConstant { name, place } => {
                format!("`{name}` is known only when the pool is allocated, but {place} needs it")
            }
            Fault::Cycle { names } => {
                format!("dims are defined by one another: {}", names.join(" -> "))
            }
            Fault::Dimension { buffer, axis, value } => {
                format!("dimension {axis} of `{buffer}` is {value}; it must be at least 1")
            }
            Fault::DimValue { dim, value } => {
                format!("dim `{dim}` is {value}; a size must be at least 1")
            }
            Fault::AttributeInShape { name } => {
                format!("`{name}` is a layer attribute, and a shape is the same in all layers")
            }
            Fault::Size { buffer } => format!("`{buffer}` takes more than 2^63 - 1 bytes"),
            Fault::TotalSize => "the buffers together take more than 2^63 - 1 bytes".into(),
            Fault::Rows { buffer, rows } => format!(
                "the leading dimension of `{buffer}` cannot follow `{rows}` from 0 to its maximum"
            ),
            Fault::AlignPower { value } => {
                format!("an alignment must be a power of two, found {value}")
            }
            Fault::AlignBelow { value, pool } => {
                format!("an alignment of {value} is below the pool's {pool}")
            }
            Fault::LayerCount { count } => {
                format!("a pool has 1 to {MOST_LAYERS} layers, found {count}")
            }
            Fault::ShortColumn { column, entries, count } => {
                format!("layer attribute `{column}` has {entries} entries for {count} layers")
            }
            Fault::NotAList { name, found } => {
                format!("`{name}` is {found}; a layer attribute needs a list")
            }
            Fault::ColumnType { column, found } => format!(
                "layer attribute `{column}` must be a list of integers or of strings, or the name of one, found {found}"
            ),
            Fault::TooManyNodes { nodes, most } => format!(
                "one pass has {nodes} nodes (a node is a step in a layer); the prover takes {most}"
            ),
            Fault::Duplicate { kind, name, .. } => format!("two {kind} are called `{name}`"),
            Fault::Order { step, after, .. } if step == after => {
                format!("step `{step}` cannot wait for itself")
            }
            Fault::Order { step, after, .. } => {
                format!("step `{step}` waits for `{after}`, which is not listed before it")
            }
            Fault::Config { path, reason } => {
                format!("cannot use the configuration `{path}`: {reason}")
            }
            Fault::Ubatches { value } => {
                format!(
                    "`ubatches` is the number of micro-batches in flight, 1 to 64, found {value}"
                )
            }
            Fault::Refused(found) => {
                format!("the layout failed its own check, please report this: {}", found.join("; "))
            }
            Fault::ReadBeforeWrite { buffers, read, .. } => {
                format!(
                    "{} {} read by {} before anything has written {}",
                    list(buffers),
                    agree(buffers, "is", "are"),
                    read.place(),
                    agree(buffers, "it", "them"),
                )
            }
            Fault::Race(conflict) => format!(
                "race on {}: {} {} {them}, and nothing orders that after {}, which {} {them}",
                list(&conflict.buffers),
                conflict.second.place(),
                conflict.second.verb(),
                conflict.first.place(),
                conflict.first.verb(),
                them = agree(&conflict.buffers, "it", "them"),
            ),
            Fault::Reuse(conflict) => format!(
                "{} {} reused too early: {} {} the next {value}, and nothing orders that after {}, which {} the {value} before",
                list(&conflict.buffers),
                agree(&conflict.buffers, "is", "are"),
                conflict.second.place(),
                conflict.second.verb(),
                conflict.first.place(),
                conflict.first.verb(),
                value = agree(&conflict.buffers, "value", "values"),
            ),
            Fault::NotExclusive { a, b, .. } => {
                format!(
                    "groups `{a}` and `{b}` are not exclusive: they can be live at the same time"
                )
            }
        }
    }

    /// A short text for the place itself.
    pub fn label(&self) -> String {
        match &self.fault {
            Fault::UnknownKey { .. } => "no such key".into(),
            Fault::UnknownName { kind, .. } => {
                let instead = self.hints.iter().find_map(|hint| match hint {
                    Hint::Ignored(found) => Some((*found).to_owned()),
                    Hint::Nested(_) | Hint::OfLayers => Some("not known here".to_owned()),
                    _ => None,
                });
                instead.unwrap_or_else(|| format!("no such {}", kind.as_str()))
            }
            Fault::Missing { key, .. } => format!("`{key}` is missing"),
            Fault::Type { expected, .. } => format!("expected {expected}"),
            Fault::Duplicate { .. } => "declared again here".into(),
            Fault::Order { .. } => "not listed earlier".into(),
            Fault::NotExclusive { .. } => "claimed here".into(),
            Fault::Race(conflict) | Fault::Reuse(conflict) => {
                format!("{} {} here", conflict.second.verb(), list(&conflict.buffers))
            }
            Fault::ReadBeforeWrite { .. } => "read here".into(),
            _ => String::new(),
        }
    }

    /// Related places.
    pub fn labels(&self) -> Vec<Label> {
        let access = |access: &AccessAt, what: &str| Label {
            span: access.span,
            text: format!("{} {what}", access.verb()),
        };
        match &self.fault {
            Fault::Duplicate { first, .. } => {
                vec![Label { span: *first, text: "first declared here".into() }]
            }
            Fault::Order { declared, .. } => {
                vec![Label { span: *declared, text: "declared here".into() }]
            }
            Fault::Race(conflict) | Fault::Reuse(conflict) if conflict.first.span != self.span => {
                let what = agree(&conflict.buffers, "it here", "them here");
                vec![access(&conflict.first, what)]
            }
            Fault::NotExclusive { conflict, .. } => {
                let name =
                    |position: usize| conflict.buffers.get(position).map_or("it", String::as_str);
                vec![
                    access(&conflict.first, &format!("`{}` here", name(0))),
                    access(&conflict.second, &format!("`{}` here", name(1))),
                ]
            }
            _ => Vec::new(),
        }
    }

    /// Facts that explain the message, such as the layers in which it happens.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes_of_fault();
        notes.extend(self.hints.iter().filter_map(|hint| match hint {
            Hint::Argument(argument) => Some(format!("given as argument `{argument}`")),
            _ => None,
        }));
        notes
    }

    fn notes_of_fault(&self) -> Vec<String> {
        match &self.fault {
            Fault::ReadBeforeWrite { layers, .. } => {
                vec![format!("happens in {}", layer_list(layers))]
            }
            Fault::Race(conflict) | Fault::Reuse(conflict) => {
                vec![layers_of_pairs(&conflict.layers)]
            }
            Fault::NotExclusive { conflict, bytes, pairs, .. } => {
                let mut notes = vec![layers_of_pairs(&conflict.layers)];
                if pairs.len() > 1 {
                    let names: Vec<_> =
                        pairs.iter().map(|(a, b)| format!("`{a}` and `{b}`")).collect();
                    notes.push(format!("pairs that can be live together: {}", names.join(", ")));
                }
                notes.extend(bytes.map(|bytes| match bytes {
                    0 => "the claim saves nothing here: apart, the arena would be no larger".into(),
                    _ => format!(
                        "giving up the claim costs {bytes} bytes: the arena would be that much larger with these groups apart"
                    ),
                }));
                notes
            }
            Fault::Expression { problem: Problem::Inexact(..), .. } => {
                vec!["`/` must divide exactly, so that no size is rounded unseen".into()]
            }
            _ => Vec::new(),
        }
    }

    /// The order of execution that shows the fault, a line each; empty for faults of the text.
    pub fn trace(&self) -> &[String] {
        match &self.fault {
            Fault::Race(conflict)
            | Fault::Reuse(conflict)
            | Fault::NotExclusive { conflict, .. } => &conflict.trace,
            _ => &[],
        }
    }
}

fn problem_text(problem: &Problem) -> String {
    match problem {
        Problem::Unfinished => "the expression ends where a value is expected".into(),
        Problem::Unexpected(text) => format!("`{text}` cannot stand here in an expression"),
        Problem::ChainedComparison => "comparisons do not chain".into(),
        Problem::Unclosed => "this parenthesis is never closed".into(),
        Problem::TooLarge => "the expression is too long or nests too deep".into(),
        Problem::Literal(text) => format!("the integer {text} is beyond 63 bits"),
        Problem::UnknownFunction(name) => format!("no function is called `{name}`"),
        Problem::Arguments(function, count) => {
            let takes = match function {
                Function::Min | Function::Max => "two or more arguments",
                _ => "two arguments",
            };
            format!("`{}` takes {takes}, found {count}", function.as_str())
        }
        Problem::UnknownName(name) => format!("no name is called `{name}`"),
        Problem::List(name) => format!("`{name}` is a list; an integer is expected"),
        Problem::Text(text) => format!("`{text}` is text; an integer is expected"),
        Problem::Mixed(text, integer) => {
            format!("text such as `{text}` cannot be compared with an integer such as {integer}")
        }
        Problem::NotAList(name) => {
            format!("`{name}` is no list; after `in` stands the name of one")
        }
        Problem::UnclosedText => "this text has no `\"` at its end".into(),
        Problem::Inexact(a, b) => format!("{a} / {b} is not exact"),
        Problem::Divisor(op, a, b) if op.len() == 1 => format!("{a} {op} {b} divides by zero"),
        Problem::Divisor(function, a, b) => {
            format!("{function}({a}, {b}): the second argument must be at least 1")
        }
        Problem::Overflow("-", 0, b) => format!("-({b}) is beyond 64 bits"),
        Problem::Overflow(op, a, b) if op.len() == 1 => format!("{a} {op} {b} is beyond 64 bits"),
        Problem::Overflow(function, a, b) => format!("{function}({a}, {b}) is beyond 64 bits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Conflict;
    use crate::spec::Span;

    fn conflict(buffers: &[&str]) -> Conflict {
        let at = |step: &str, write| AccessAt {
            step: step.into(),
            span: Span::default(),
            stream: "main".into(),
            layer: 0,
            pass: 0,
            write,
        };
        Conflict {
            buffers: buffers.iter().map(|&name| name.into()).collect(),
            first: at("fill", true),
            second: at("use", false),
            layers: vec![(0, 0)],
            trace: Vec::new(),
            fix: None,
        }
    }

    #[test]
    fn messages_agree_in_number_with_their_buffers() {
        let race = |buffers: &[&str]| {
            Error::new(Fault::Race(Box::new(conflict(buffers))), Span::new(1, 2))
        };
        let (fill, by) = ("`fill` (layer 0, stream main)", "`use` (layer 0, stream main)");
        assert_eq!(
            race(&["a"]).message(),
            format!(
                "race on `a`: {by} reads it, and nothing orders that after {fill}, which writes it"
            )
        );
        assert_eq!(
            race(&["a", "b"]).message(),
            format!(
                "race on `a` and `b`: {by} reads them, and nothing orders that after {fill}, which writes them"
            )
        );
        assert_eq!(race(&["a"]).labels()[0].text, "writes it here");
        assert_eq!(race(&["a", "b"]).labels()[0].text, "writes them here");
        let fault = Fault::Reuse(Box::new(conflict(&["a", "b"])));
        assert_eq!(
            Error::new(fault, Span::default()).message(),
            format!(
                "`a` and `b` are reused too early: {by} reads the next values, and nothing orders that after {fill}, which writes the values before"
            )
        );
    }

    #[test]
    fn a_claim_says_what_it_saves() {
        let note = |bytes| {
            let fault = Fault::NotExclusive {
                a: "a".into(),
                b: "b".into(),
                pairs: Vec::new(),
                conflict: Box::new(conflict(&[])),
                bytes: Some(bytes),
            };
            Error::new(fault, Span::default()).notes().pop().unwrap_or_default()
        };
        assert_eq!(note(0), "the claim saves nothing here: apart, the arena would be no larger");
        assert_eq!(
            note(512),
            "giving up the claim costs 512 bytes: the arena would be that much larger with these groups apart"
        );
    }
}
