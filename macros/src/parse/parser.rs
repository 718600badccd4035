//! What all parts of the grammar share: the spec as far as it is read, and the errors found.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use scratchpool_planner::error::{Error, Fault, LeftOut, nearest};
use scratchpool_planner::spec::{self, Spec};
use syn::{Attribute, Meta};

use crate::places::{Places, plain};

pub(super) struct Parser {
    pub(super) places: Places,
    pub(super) errors: Vec<Error>,
    pub(super) spec: Spec,
    pub(super) krate: Option<TokenStream>,
    pub(super) config: Option<String>,
    pub(super) unread: Vec<spec::Span>,
    pub(super) left_out: LeftOut,
}

impl Parser {
    pub(super) fn error(&mut self, fault: Fault, span: Span) {
        let span = self.places.add(span);
        self.errors.push(Error::new(fault, span));
    }

    pub(super) fn malformed(&mut self, text: impl Into<String>, span: Span) {
        self.error(Fault::Syntax(text.into()), span);
    }

    pub(super) fn malformed_at(&mut self, text: &str, tokens: &[TokenTree], around: Span) {
        let span = self.places.add_all(tokens, around);
        self.errors.push(Error::new(Fault::Syntax(text.to_owned()), span));
    }

    pub(super) fn wrong_type(
        &mut self,
        key: &str,
        expected: &'static str,
        found: &[TokenTree],
        around: Span,
    ) {
        let text: TokenStream = found.iter().cloned().collect();
        // As people write it: the compiler prints parsed tokens with spaces between them.
        let found_text = match text.to_string().replace(" :: ", "::").replace("& ", "&") {
            text if text.is_empty() => "nothing".to_owned(),
            text => format!("`{text}`"),
        };
        let span = self.places.add_all(found, around);
        let fault = Fault::Type { key: key.to_owned(), expected, found: found_text };
        self.errors.push(Error::new(fault, span));
    }

    /// An attribute of ours, with what it holds. One that is unknown is reported and taken for the
    /// nearest.
    pub(super) fn attribute(
        &mut self,
        attribute: &Attribute,
        known: &[&'static str],
        place: &str,
    ) -> Option<(&'static str, Option<(TokenStream, Span)>)> {
        let path = attribute.path();
        let span = path.segments.first().map_or_else(Span::call_site, |first| first.ident.span());
        let word = path.to_token_stream().to_string().replace(' ', "");
        let key = match known.iter().find(|each| **each == word) {
            Some(key) => *key,
            None => {
                let near = nearest(&word, known.iter().copied());
                let (key, table) = (format!("#[{word}]"), place.to_owned());
                let shown = near.as_ref().map(|near| format!("#[{near}(…)]"));
                self.error(Fault::UnknownKey { key, table, nearest: shown }, span);
                return near
                    .and_then(|near| known.iter().find(|each| **each == near))
                    .map(|near| (*near, self.attribute_list(attribute, near, false)));
            }
        };
        Some((key, self.attribute_list(attribute, key, true)))
    }

    /// The tokens inside `#[name(…)]`, with the place of the name.
    pub(super) fn attribute_list(
        &mut self,
        attribute: &Attribute,
        name: &str,
        report: bool,
    ) -> Option<(TokenStream, Span)> {
        let first = attribute.path().segments.first();
        let span = first.map_or_else(Span::call_site, |first| first.ident.span());
        match &attribute.meta {
            Meta::List(list) => Some((plain(list.tokens.clone()), span)),
            Meta::Path(_) | Meta::NameValue(_) => {
                if report {
                    self.malformed(format!("write `#[{name}(…)]`"), span);
                }
                None
            }
        }
    }
}

/// Whether an attribute may stay on what is generated.
pub(super) fn is_inert(attribute: &Attribute) -> bool {
    ["doc", "allow", "expect", "warn", "deny", "forbid", "deprecated", "must_use"]
        .iter()
        .any(|name| attribute.path().is_ident(name))
}
