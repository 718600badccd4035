//! `#[step(…)]`.

use proc_macro2::{Span, TokenStream, TokenTree};
use scratchpool_planner::error::{Error, Fault, NameKind, nearest};
use scratchpool_planner::spec::{self, After, Launch, Step, Target};

use super::declaration::unraw;
use super::entry::{Entry, EntryValue};
use super::parser::Parser;
use crate::places::split_at_commas;

impl Parser {
    pub(super) fn step(&mut self, tokens: TokenStream, around: Span) {
        const KEYS: [&str; 6] = ["on", "when", "after", "launch", "writes", "reads"];
        let mut entries = self.entries(tokens, around).into_iter();
        let name = match entries.next() {
            Some(Entry { key, value: EntryValue::Bare }) => self.name(&key),
            other => {
                let span = other.map_or(around, |entry| entry.key.span());
                self.malformed("a step begins with its name: `#[step(name, …)]`", span);
                self.left_out.unnamed(&[NameKind::Step]);
                return;
            }
        };
        let mut step = Step {
            name,
            stream: None,
            when: None,
            after: Vec::new(),
            launch: Launch::Full,
            writes: Vec::new(),
            reads: Vec::new(),
        };
        let table = format!("step `{}`", step.name.value);
        let mut seen = Vec::new();
        for entry in entries {
            let Some(key) = self.key(&entry, &table, &KEYS, &mut seen) else { continue };
            match (key.as_str(), &entry.value) {
                ("on", _) => step.stream = self.name_of(&entry, "the name of a stream"),
                ("when", _) => step.when = Some(self.expr_of(&entry)),
                ("launch", _) => step.launch = self.launch(&entry),
                ("after", EntryValue::List(list)) => step.after = self.afters(list),
                ("writes", EntryValue::List(list)) => step.writes = self.targets("writes", list),
                ("reads", EntryValue::List(list)) => step.reads = self.targets("reads", list),
                _ => self.malformed(format!("write `{key}(…)`"), entry.key.span()),
            }
        }
        self.spec.steps.push(step);
    }

    pub(super) fn launch(&mut self, entry: &Entry) -> Launch {
        let Some(word) = self.name_of(entry, "`full`, `dependent` or `early`") else {
            return Launch::Full;
        };
        Launch::from_word(&word.value).unwrap_or_else(|| {
            let nearest = nearest(&word.value, Launch::ALL.map(Launch::as_str));
            let fault = Fault::UnknownName { kind: NameKind::Launch, name: word.value, nearest };
            self.errors.push(Error::new(fault, word.span));
            Launch::Full
        })
    }

    /// `name` or `first.second`, as parts of a list.
    pub(super) fn dotted(
        &mut self,
        key: &str,
        list: &proc_macro2::Group,
    ) -> Vec<(String, Option<String>, spec::Span)> {
        let mut found = Vec::new();
        for part in split_at_commas(list.stream()) {
            match part.as_slice() {
                [TokenTree::Ident(one)] => {
                    found.push((unraw(one), None, self.places.add(one.span())));
                }
                [TokenTree::Ident(one), TokenTree::Punct(dot), TokenTree::Ident(two)]
                    if dot.as_char() == '.' =>
                {
                    let span = self.places.add(one.span()).join(self.places.add(two.span()));
                    found.push((unraw(one), Some(unraw(two)), span));
                }
                other => {
                    let expected = if key == "after" {
                        "a list of steps, `step` or `prev.step`"
                    } else {
                        "a list of groups and buffers, `group` or `group.buffer`"
                    };
                    self.wrong_type(key, expected, other, list.span());
                }
            }
        }
        found
    }

    pub(super) fn afters(&mut self, list: &proc_macro2::Group) -> Vec<After> {
        let mut afters = Vec::new();
        for (first, second, span) in self.dotted("after", list) {
            match second {
                None => afters.push(After { prev: false, step: first, span }),
                Some(step) if first == "prev" => afters.push(After { prev: true, step, span }),
                Some(second) => {
                    let text = format!(
                        "`{first}.{second}` is no step; to wait for an earlier layer, write `prev.{second}`"
                    );
                    self.errors.push(Error::new(Fault::Syntax(text), span));
                }
            }
        }
        afters
    }

    pub(super) fn targets(&mut self, key: &str, list: &proc_macro2::Group) -> Vec<Target> {
        let dotted = self.dotted(key, list).into_iter();
        dotted.map(|(group, buffer, span)| Target { group, buffer, span }).collect()
    }
}
