//! How an error is fixed, in the words of either spelling.

use scratchpool_tables::layer_list;

use super::fault::{Cause, Error, Fault, Fix, Hint, NameKind, RUNTIME, Unwritten};
use super::words::{agree, either, list, there_are};
use crate::expr::Problem;
use crate::spec::{DEFAULT_ALIGN, DType, Launch};

/// The two spellings of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// A TOML file.
    Toml,
    /// An annotated struct.
    Rust,
}

impl Error {
    /// How to fix it, in the words of a TOML spec.
    pub fn help(&self) -> Option<String> {
        self.help_in(Spelling::Toml)
    }

    /// How to fix it, in the words of one of the two spellings.
    pub fn help_in(&self, spelling: Spelling) -> Option<String> {
        match &self.fault {
            Fault::UnknownName { kind: NameKind::Value, name, .. }
            | Fault::Expression { problem: Problem::UnknownFunction(name), .. }
                if name == RUNTIME =>
            {
                Some(self.at_start_up(spelling))
            }
            Fault::UnknownKey { key, .. } if self.hints.contains(&Hint::AtTop) => {
                Some(format!("`{key}` stands at the top of the spec, before all tables"))
            }
            Fault::UnknownKey { nearest: Some(name), .. }
            | Fault::UnknownName { nearest: Some(name), .. } => {
                Some(format!("did you mean `{name}`?"))
            }
            Fault::UnknownKey { .. } => self.instead(),
            Fault::UnknownName { kind, .. } => match kind {
                NameKind::DType => Some(there_are(DType::ALL.iter().map(|dtype| dtype.as_str()))),
                NameKind::Launch => Some(there_are(Launch::ALL.map(Launch::as_str))),
                _ => self.instead(),
            },
            Fault::Unquoted { key, value } => {
                let key = key.as_ref().map_or_else(String::new, |key| format!("{key} = "));
                Some(format!("a name or an expression stands in quotes: `{key}\"{value}\"`"))
            }
            Fault::AlignPower { value } => Some(format!("such as {}", powers_around(*value))),
            Fault::NotAName { .. } => {
                Some("a name is a letter or `_`, then letters, digits and `_`".into())
            }
            Fault::Expression { problem, .. } => match problem {
                Problem::ChainedComparison => {
                    Some("join two comparisons with `&&`, or put one in parentheses".into())
                }
                Problem::Inexact(..) => Some("to round up, write `ceil_div(a, b)`".into()),
                Problem::UnknownFunction(_) => {
                    Some("there are `min`, `max`, `ceil_div` and `align_up`".into())
                }
                Problem::Unexpected(text) if text == "=" => Some("to compare, write `==`".into()),
                Problem::Unexpected(text) if text == "&" => Some("write `&&`".into()),
                Problem::Unexpected(text) if text == "|" => Some("write `||`".into()),
                Problem::Text(text) if text.starts_with('"') => Some(match spelling {
                    Spelling::Toml => "an expression stands in one pair of quotes".into(),
                    Spelling::Rust => "expressions are written without quotes".into(),
                }),
                Problem::Text(text) => {
                    Some(format!("text can be compared with text: `{text} == \"…\"`"))
                }
                Problem::Unexpected(text) if text == "'" => {
                    Some("text stands in double quotes".into())
                }
                Problem::Unexpected(text) if text.starts_with('"') => {
                    Some("text has no escapes".into())
                }
                Problem::TooLarge => Some("give a part of it a name in `dims`".into()),
                _ => None,
            },
            Fault::NotConstant { .. } => Some(
                "the proof is made before any size is known: give the dim a constant, or let only shapes use it".into(),
            ),
            Fault::Rows { rows, .. } => Some(format!(
                "build it from `{rows}`, constants, `+`, `*`, `ceil_div`, `align_up`, `min` and `max`, so that fewer rows never need more"
            )),
            Fault::AttributeInShape { .. } => Some(
                "declare a group for each kind of layer, with `when`, and give each its shape".into(),
            ),
            Fault::AlignBelow { pool, .. } => {
                Some(format!("leave it out to get the pool's {pool}, or state a larger power of two"))
            }
            Fault::ShortColumn { .. } => {
                Some("add the missing entries, or set `count` to the number of layers".into())
            }
            Fault::Order { .. } => Some(
                "list the step it waits for first, or write `prev.` before its name to wait for an earlier layer".into(),
            ),
            Fault::ReadBeforeWrite { causes, read, .. } => {
                let parts = causes.iter().map(|unwritten| {
                    let help = unwritten.help(&read.step, spelling);
                    // With one cause there is no doubt what "it" is.
                    if causes.len() == 1 {
                        help
                    } else {
                        format!("{}: {help}", list(&unwritten.buffers))
                    }
                });
                Some(parts.collect::<Vec<_>>().join("; "))
            }
            Fault::Race(conflict)
            | Fault::Reuse(conflict)
            | Fault::NotExclusive { conflict, .. } => conflict.fix.as_ref().map(|fix| {
                let Fix { after, waiter, fixes, of } = fix;
                let after = match spelling {
                    Spelling::Toml => format!("after = [\"{after}\"]"),
                    Spelling::Rust => format!("after({after})"),
                };
                let added = format!("`{after}` on step `{waiter}`");
                match (fixes, of) {
                    (2, 2) => format!("{added} would fix both errors"),
                    (2.., _) if fixes == of => format!("{added} would fix all {of} errors"),
                    (2.., _) => format!("{added} would fix this error and {} more", fixes - 1),
                    _ => format!("it would hold with {added}"),
                }
            }),
            _ => None,
        }
    }

    /// How a dim is written whose value is known only at start-up.
    fn at_start_up(&self, spelling: Spelling) -> String {
        let meant = self.hints.iter().find_map(|hint| match hint {
            Hint::StartUp { dim, nominal } => Some((dim.as_str(), nominal.unwrap_or(8192))),
            _ => None,
        });
        let (dim, nominal) = meant.unwrap_or(("name", 8192));
        let written = match spelling {
            Spelling::Toml => format!("{dim} = {{ runtime = {nominal} }}"),
            Spelling::Rust => format!("{dim}: runtime({nominal})"),
        };
        format!("for a size known at start-up write `{written}` among the dims")
    }

    /// What could stand in place of an unknown name or key, or define it.
    fn instead(&self) -> Option<String> {
        let parts: Vec<String> = self
            .hints
            .iter()
            .filter_map(|hint| match hint {
                Hint::Known(names) => Some(there_are(names.iter().map(String::as_str))),
                Hint::Nested(names) => {
                    Some(format!("write the path that leads to it: {}", either(names)))
                }
                Hint::NoConfig => Some("the pool names no `config`".to_owned()),
                _ => None,
            })
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

impl Unwritten {
    /// What would give the buffers a value before `reader` reads them.
    fn help(&self, reader: &str, spelling: Spelling) -> String {
        let them = agree(&self.buffers, "it", "them");
        match &self.cause {
            Cause::NoWriter => format!(
                "no step writes {them}: add {them} to the `writes` of the step that fills {them}"
            ),
            Cause::ListedLater { writer, layer } => format!(
                "a value read before `{writer}` in the same layer is carried from an earlier layer, and layer {layer} of the first pass has none: list `{reader}` after `{writer}`, or write {them} earlier"
            ),
            Cause::NotRun { writer, when, layers } => {
                let when = match spelling {
                    Spelling::Toml => format!("`when = \"{when}\"`"),
                    Spelling::Rust => format!("`when = {when}`"),
                };
                if layers.is_empty() {
                    return format!(
                        "`{writer}`, which writes {them}, runs in no layer: its {when} holds in none"
                    );
                }
                let mut groups: Vec<String> = self
                    .buffers
                    .iter()
                    .map(|name| name.split('.').next().unwrap_or(name).to_owned())
                    .collect();
                groups.dedup();
                format!(
                    "`{writer}`, which writes {them}, does not run in {} ({when}): give {} {} or step `{reader}` the same `when`",
                    layer_list(layers),
                    agree(&groups, "group", "groups"),
                    list(&groups),
                )
            }
        }
    }
}

/// `64 or 128` for 100; what is no size at all gets the default.
fn powers_around(value: i64) -> String {
    let Some(below) = value.checked_ilog2().map(|log| 1_i64 << log) else {
        return DEFAULT_ALIGN.to_string();
    };
    below.checked_mul(2).map_or_else(|| below.to_string(), |above| format!("{below} or {above}"))
}

#[cfg(test)]
mod tests {
    use super::super::fault::hint_at_config;
    use super::*;
    use crate::spec::Span;

    #[test]
    fn a_word_without_a_near_one_is_met_with_the_few_that_there_are() {
        let help = |known: &[&str]| {
            let known = known.iter().copied();
            Error::unknown_name(NameKind::Group, "zebra", known, Span::default()).help()
        };
        assert_eq!(help(&["a", "b", "c", "b"]).as_deref(), Some("there are `a`, `b` and `c`"));
        assert_eq!(help(&["a"]).as_deref(), Some("there is only `a`"));
        assert_eq!(help(&["a", "zebras"]).as_deref(), Some("did you mean `zebras`?"));
        assert_eq!(help(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]), None);
        assert_eq!(help(&[]), None);
    }

    #[test]
    fn only_the_first_of_several_unknown_names_hints_at_a_configuration() {
        let unknown = |kind, name, known: &[&str]| {
            Error::unknown_name(kind, name, known.iter().copied(), Span::default())
        };
        let near = unknown(NameKind::Value, "tokenz", &["tokens"]);
        let step = unknown(NameKind::Step, "attend", &[]);
        let (hidden, heads) = (
            unknown(NameKind::Value, "hidden_size", &["tokens"]),
            unknown(NameKind::List, "ratios", &[]),
        );
        let mut errors = [near.clone(), step.clone(), hidden.clone(), heads.clone()];
        hint_at_config(&mut errors);
        let expected = [near.clone(), step.clone(), hidden.clone().with(Hint::NoConfig), heads];
        assert_eq!(errors, expected);
        let help = "there is only `tokens`; the pool names no `config`";
        assert_eq!(errors[2].help().as_deref(), Some(help));
        let mut errors = [near.clone(), step.clone(), hidden.clone()];
        hint_at_config(&mut errors);
        assert_eq!(errors, [near, step, hidden], "one name may be a slip");
    }

    #[test]
    fn alignments_around_a_wrong_one_are_offered() {
        for (value, help) in [
            (100, "such as 64 or 128"),
            (3, "such as 2 or 4"),
            (0, "such as 256"),
            (-8, "such as 256"),
            (i64::MAX, "such as 4611686018427387904"),
        ] {
            let error = Error::new(Fault::AlignPower { value }, Span::default());
            assert_eq!(error.help().as_deref(), Some(help), "{value}");
        }
    }

    #[test]
    fn help_against_quotes_is_in_the_words_of_each_spelling() {
        let problem = Problem::Text("\"layer == 31\"".into());
        let error = Error::new(Fault::Expression { problem, layer: None }, Span::default());
        let help = |spelling| error.help_in(spelling).unwrap_or_default();
        assert_eq!(help(Spelling::Rust), "expressions are written without quotes");
        assert_eq!(help(Spelling::Toml), "an expression stands in one pair of quotes");
    }
}
