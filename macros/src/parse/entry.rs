//! Lists of entries, `key = value` and the like, and the values that they hold.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use scratchpool_planner::error::{Error, Fault, LeftOut, nearest};
use scratchpool_planner::expr::{Expr, Kind, Problem};
use scratchpool_planner::spec::{self, Name, Spanned};

use super::declaration::unraw;
use super::parser::Parser;
use crate::places::{split_at_commas, split_with_commas};

/// One entry of a list: `key`, `key = value`, `key: value` or `key(list)`.
pub(super) struct Entry {
    pub(super) key: Ident,
    pub(super) value: EntryValue,
}

pub(super) enum EntryValue {
    Bare,
    Is(Vec<TokenTree>),
    Typed(Vec<TokenTree>),
    List(proc_macro2::Group),
}

/// What tokens are as a list of integers.
pub(super) enum List {
    Of(Spanned<Vec<i64>>),
    /// A list with other entries, reported.
    InError,
    /// No list.
    None,
}

impl Entry {
    pub(super) fn word(&self) -> String {
        unraw(&self.key)
    }
}

impl Parser {
    /// The key of an entry. One that is unknown is reported and taken for the nearest, so that what
    /// depends on it is no error too; one that was given before is reported and passed over.
    pub(super) fn key(
        &mut self,
        entry: &Entry,
        table: &str,
        known: &[&'static str],
        seen: &mut Vec<(String, Span)>,
    ) -> Option<String> {
        let mut word = entry.word();
        if !known.contains(&word.as_str()) {
            // The other spelling's word for it.
            let found = match word.as_str() {
                "stream" if known.contains(&"on") => Some("on".to_owned()),
                _ => nearest(&word, known.iter().copied()),
            };
            let (key, nearest) = (word, found.clone());
            let fault = Fault::UnknownKey { key, table: table.to_owned(), nearest };
            self.error(fault, entry.key.span());
            word = found?;
            if seen.iter().any(|(each, _)| *each == word) {
                return None;
            }
        }
        (!self.again(seen, "keys", &word, entry.key.span())).then_some(word)
    }

    /// Reports a word that was given before; the first one counts.
    pub(super) fn again(
        &mut self,
        seen: &mut Vec<(String, Span)>,
        kind: &'static str,
        word: &str,
        span: Span,
    ) -> bool {
        if let Some((_, first)) = seen.iter().find(|(each, _)| *each == word) {
            let first = self.places.add(*first);
            self.error(Fault::Duplicate { kind, name: word.to_owned(), first }, span);
            return true;
        }
        seen.push((word.to_owned(), span));
        false
    }

    pub(super) fn entries(&mut self, tokens: TokenStream, around: Span) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (part, comma) in split_with_commas(tokens) {
            let mut rest = part.into_iter();
            let key = match rest.next() {
                Some(TokenTree::Ident(key)) => key,
                Some(other) => {
                    self.malformed(format!("expected a name, found `{other}`"), other.span());
                    self.left_out.unnamed(&LeftOut::NAMES);
                    continue;
                }
                None => {
                    let span = comma.unwrap_or(around);
                    self.malformed("expected a name before this comma", span);
                    continue;
                }
            };
            let value = match rest.next() {
                None => EntryValue::Bare,
                Some(TokenTree::Punct(punct)) if punct.as_char() == '=' => {
                    EntryValue::Is(rest.collect())
                }
                Some(TokenTree::Punct(punct)) if punct.as_char() == ':' => {
                    EntryValue::Typed(rest.collect())
                }
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                    if let Some(extra) = rest.next() {
                        self.left_out.unnamed(&LeftOut::NAMES);
                        self.malformed(
                            format!("expected a comma after `{key}(…)`, found `{extra}`"),
                            extra.span(),
                        );
                    }
                    EntryValue::List(group)
                }
                Some(other) => {
                    self.left_out.unnamed(&LeftOut::NAMES);
                    self.malformed(
                        format!("expected `=`, `(` or a comma after `{key}`, found `{other}`"),
                        other.span(),
                    );
                    continue;
                }
            };
            entries.push(Entry { key, value });
        }
        entries
    }

    pub(super) fn name(&mut self, ident: &Ident) -> Name {
        let word = unraw(ident);
        // Words that not even `r#` makes a name.
        if matches!(word.as_str(), "self" | "Self" | "super" | "crate" | "_") {
            let text = format!("`{word}` is not a name: Rust keeps the word for itself");
            self.malformed(text, ident.span());
            self.left_out.unnamed(&LeftOut::NAMES);
        }
        Name::new(word, self.places.add(ident.span()))
    }

    /// `key = expr`.
    pub(super) fn expr_of(&mut self, entry: &Entry) -> Expr {
        let EntryValue::Is(tokens) = &entry.value else {
            let word = entry.word();
            self.malformed(format!("`{word}` needs a value: `{word} = …`"), entry.key.span());
            return self.unread(&[], entry.key.span());
        };
        let expr = self.expr(tokens, entry.key.span());
        expr.unwrap_or_else(|| self.unread(tokens, entry.key.span()))
    }

    /// Stands where an expression in error was written: that there is one matters to what is
    /// generated.
    pub(super) fn unread(&mut self, tokens: &[TokenTree], around: Span) -> Expr {
        let span = self.places.add_all(tokens, around);
        self.unread.push(span);
        unknown(span)
    }

    pub(super) fn expr(&mut self, tokens: &[TokenTree], around: Span) -> Option<Expr> {
        match self.places.expr(tokens, around) {
            Ok(expr) => Some(expr),
            Err(error) => {
                let fault = Fault::Expression { problem: error.problem, layer: None };
                self.errors.push(Error::new(fault, error.span));
                None
            }
        }
    }

    /// `key = name`.
    pub(super) fn name_of(&mut self, entry: &Entry, expected: &'static str) -> Option<Name> {
        match &entry.value {
            EntryValue::Is(tokens) => match tokens.as_slice() {
                [TokenTree::Ident(ident)] => Some(self.name(ident)),
                other => {
                    self.wrong_type(&entry.word(), expected, other, entry.key.span());
                    None
                }
            },
            _ => {
                self.wrong_type(&entry.word(), expected, &[], entry.key.span());
                None
            }
        }
    }

    /// `key = 256`.
    pub(super) fn integer_of(&mut self, entry: &Entry) -> Option<Spanned<i64>> {
        let tokens = match &entry.value {
            EntryValue::Is(tokens) => tokens.as_slice(),
            _ => &[],
        };
        self.integer(&entry.word(), tokens, entry.key.span())
    }

    pub(super) fn integer(
        &mut self,
        key: &str,
        tokens: &[TokenTree],
        around: Span,
    ) -> Option<Spanned<i64>> {
        self.number(key, "an integer", tokens, around)
    }

    pub(super) fn number(
        &mut self,
        key: &str,
        expected: &'static str,
        tokens: &[TokenTree],
        around: Span,
    ) -> Option<Spanned<i64>> {
        let text: String = tokens.iter().map(ToString::to_string).collect();
        let text = text.replace('_', "");
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit());
        match text.parse() {
            Ok(value) if is_number => {
                Some(Spanned::new(value, self.places.add_all(tokens, around)))
            }
            Err(_) if is_number => {
                let span = self.places.add_all(tokens, around);
                let fault = Fault::Expression { problem: Problem::Literal(text), layer: None };
                self.errors.push(Error::new(fault, span));
                None
            }
            _ => {
                self.wrong_type(key, expected, tokens, around);
                None
            }
        }
    }

    /// `[0, 4, 128]`.
    pub(super) fn list(&mut self, key: &str, tokens: &[TokenTree]) -> List {
        let [TokenTree::Group(group)] = tokens else { return List::None };
        if group.delimiter() != Delimiter::Bracket {
            return List::None;
        }
        let span = self.places.add(group.span());
        let parts = split_at_commas(group.stream());
        let values: Vec<Option<i64>> = parts
            .iter()
            .map(|part| self.number(key, "a list of integers", part, group.span()))
            .map(|value| value.map(|value| value.value))
            .collect();
        let values: Option<Vec<i64>> = values.into_iter().collect();
        values.map_or(List::InError, |values| List::Of(Spanned::new(values, span)))
    }
}

/// An expression without a value: a name that no spec can define. What depends on it is passed
/// over.
pub(super) fn unknown(span: spec::Span) -> Expr {
    Expr { kind: Kind::Name(String::new()), span }
}
