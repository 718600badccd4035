//! `#[scratch_pool(…)]`, and which attributes stand on the struct.

use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use scratchpool_planner::config;
use scratchpool_planner::error::{Fault, LeftOut, NameKind};
use scratchpool_planner::expr::Expr;
use scratchpool_planner::spec::{Column, ColumnSource, Dim, DimValue, Layers, Name};
use syn::Attribute;

use super::entry::{Entry, EntryValue, List, unknown};
use super::parser::{Parser, is_inert};
use crate::places::split_at_commas;

/// The nominal value of a dim declared `runtime` without one.
const NOMINAL: i64 = 8192;

impl Parser {
    /// The arguments of `#[scratch_pool(…)]`.
    pub(super) fn arguments(&mut self, tokens: TokenStream, root: &Path) {
        const KEYS: [&str; 8] =
            ["align", "config", "rows", "ubatches", "crate", "dims", "layers", "exclusive"];
        let mut seen = Vec::new();
        for entry in self.entries(tokens, Span::call_site()) {
            let Some(key) = self.key(&entry, "`#[scratch_pool]`", &KEYS, &mut seen) else {
                continue;
            };
            match (key.as_str(), &entry.value) {
                ("align", _) => self.spec.align = self.integer_of(&entry),
                ("ubatches", _) => self.spec.ubatches = self.integer_of(&entry),
                ("rows", _) => {
                    let name = self.name_of(&entry, "the name of a dim");
                    // `begin` takes the rows whatever the dim should have been.
                    let unread = Name::new(String::new(), self.places.add(entry.key.span()));
                    self.spec.rows = Some(name.unwrap_or(unread));
                }
                ("config", _) => self.config(&entry, root),
                ("crate", value) => self.krate(value, entry.key.span()),
                ("dims", EntryValue::List(list)) => self.dims(list),
                ("layers", EntryValue::List(list)) => self.layers(list),
                ("exclusive", EntryValue::List(list)) => {
                    self.spec.exclusive = self.names("exclusive", list);
                }
                _ => {
                    self.malformed(format!("write `{key}(…)`"), entry.key.span());
                    self.left_out.unnamed(&LeftOut::VALUES);
                }
            }
        }
    }

    /// `crate = path`. The path is used inside the generated module, so it must not depend on the
    /// place where it is written.
    pub(super) fn krate(&mut self, value: &EntryValue, around: Span) {
        let tokens = match value {
            EntryValue::Is(tokens) => tokens.as_slice(),
            _ => &[],
        };
        let stream: TokenStream = tokens.iter().cloned().collect();
        let path = syn::parse::Parser::parse2(syn::Path::parse_mod_style, stream.clone());
        let relative = |path: &syn::Path| {
            path.segments.first().is_some_and(|s| s.ident == "self" || s.ident == "super")
        };
        match path {
            Ok(path) if !relative(&path) => self.krate = Some(stream),
            _ => {
                let expected =
                    "a path that holds in every module, such as `crate::renamed` or `::renamed`";
                self.wrong_type("crate", expected, tokens, around);
            }
        }
    }

    pub(super) fn names(&mut self, key: &str, list: &proc_macro2::Group) -> Vec<Name> {
        let mut names = Vec::new();
        for part in split_at_commas(list.stream()) {
            match part.as_slice() {
                [TokenTree::Ident(ident)] => names.push(self.name(ident)),
                other => self.wrong_type(key, "a list of groups", other, list.span()),
            }
        }
        names
    }

    pub(super) fn config(&mut self, entry: &Entry, root: &Path) {
        let tokens = match &entry.value {
            EntryValue::Is(tokens) => tokens.as_slice(),
            _ => &[],
        };
        let around = entry.key.span();
        let path = match tokens {
            [TokenTree::Literal(literal)] => {
                syn::parse2::<syn::LitStr>(literal.to_token_stream()).ok()
            }
            _ => None,
        };
        let Some(path) = path else {
            self.wrong_type("config", "the path of a file, as a string", tokens, around);
            self.left_out.unnamed(&LeftOut::VALUES);
            return;
        };
        let full: PathBuf = root.join(path.value());
        match config::load(&full) {
            Ok(config) => {
                self.spec.config = config.names;
                self.spec.config_ignored = config.ignored;
                self.config = Some(path.value());
            }
            Err(Fault::Config { reason, .. }) => {
                // As written: the folder it is relative to is the same for all of a crate, and
                // differs between machines.
                self.left_out.unnamed(&LeftOut::VALUES);
                let hint = " (paths are relative to the crate's `Cargo.toml`)";
                let reason = reason + if full.is_file() { "" } else { hint };
                self.error(Fault::Config { path: path.value(), reason }, path.span());
            }
            Err(fault) => self.error(fault, path.span()),
        }
    }

    pub(super) fn dims(&mut self, list: &proc_macro2::Group) {
        for entry in self.entries(list.stream(), list.span()) {
            let name = self.name(&entry.key);
            let value = match &entry.value {
                EntryValue::Is(tokens) => match self.list(&entry.word(), tokens) {
                    List::Of(list) => Some(DimValue::List(list.value)),
                    List::InError => None,
                    List::None => self.dim_expr(tokens, &entry).map(DimValue::Expr),
                },
                EntryValue::Typed(tokens) => self.runtime(tokens, &entry),
                _ => {
                    let word = entry.word();
                    self.malformed(
                        format!("dim `{word}` needs a value: `{word} = …`, or `{word}: runtime`"),
                        entry.key.span(),
                    );
                    None
                }
            };
            // A dim in error stays known, so that its uses are no errors too.
            let value = value.unwrap_or_else(|| match &entry.value {
                EntryValue::Typed(_) => DimValue::Runtime { nominal: NOMINAL, span: name.span },
                _ => DimValue::Expr(unknown(name.span)),
            });
            self.spec.dims.push(Dim { name, value });
        }
    }

    /// An expression as the value of a dim.
    pub(super) fn dim_expr(&mut self, tokens: &[TokenTree], entry: &Entry) -> Option<Expr> {
        let found = self.expr(tokens, entry.key.span());
        if found.is_none() {
            let text: String = tokens.iter().map(ToString::to_string).collect();
            let error = self.errors.pop().map(|error| error.in_dim(&entry.word(), &text));
            self.errors.extend(error);
        }
        found
    }

    /// `runtime` or `runtime(8192)`.
    pub(super) fn runtime(&mut self, tokens: &[TokenTree], entry: &Entry) -> Option<DimValue> {
        let nominal = match tokens {
            [TokenTree::Ident(word)] if word == "runtime" => Some(NOMINAL),
            [TokenTree::Ident(word), TokenTree::Group(group)] if word == "runtime" => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                Some(self.integer("runtime", &inner, group.span())?.value)
            }
            _ => None,
        };
        let Some(nominal) = nominal else {
            let expected = "`runtime`, or `runtime(8192)` with a typical value";
            self.wrong_type(&entry.word(), expected, tokens, entry.key.span());
            return None;
        };
        let span = self.places.add_all(tokens, entry.key.span());
        Some(DimValue::Runtime { nominal, span })
    }

    pub(super) fn layers(&mut self, list: &proc_macro2::Group) {
        let mut layers = Layers { span: self.places.add(list.span()), ..Layers::default() };
        let mut counts = Vec::new();
        for entry in self.entries(list.stream(), list.span()) {
            let EntryValue::Is(tokens) = &entry.value else {
                let word = entry.word();
                self.malformed(format!("write `{word} = …`"), entry.key.span());
                self.left_out.unnamed(&LeftOut::VALUES);
                self.left_out.layers();
                continue;
            };
            if entry.word() == "count" {
                if self.again(&mut counts, "keys", "count", entry.key.span()) {
                    continue;
                }
                layers.count = self.expr(tokens, entry.key.span());
                if layers.count.is_none() {
                    self.left_out.layers();
                }
                continue;
            }
            let source = match (self.list(&entry.word(), tokens), tokens.as_slice()) {
                (List::Of(list), _) => ColumnSource::List(list),
                (List::InError, _) => {
                    self.left_out.unnamed(&LeftOut::VALUES);
                    self.left_out.layers();
                    continue;
                }
                (List::None, [TokenTree::Ident(ident)]) => ColumnSource::Name(self.name(ident)),
                (List::None, other) => {
                    let expected = "the name of a list, or a list";
                    self.left_out.unnamed(&LeftOut::VALUES);
                    self.left_out.layers();
                    self.wrong_type(&entry.word(), expected, other, entry.key.span());
                    continue;
                }
            };
            let name = self.name(&entry.key);
            layers.columns.push(Column { name, source });
        }
        self.spec.layers = layers;
    }

    /// `#[step]` and `#[group]` on the struct; gives back what belongs to the generated struct.
    pub(super) fn struct_attributes(&mut self, attributes: &[Attribute]) -> Vec<Attribute> {
        let mut kept = Vec::new();
        for attribute in attributes {
            if is_inert(attribute) {
                kept.push(attribute.clone());
                continue;
            }
            let key = self.attribute(attribute, &["step", "group"], "a pool's struct");
            let Some((key, list)) = key else { continue };
            match (key, list) {
                ("step", Some((tokens, span))) => self.step(tokens, span),
                (_, Some((tokens, span))) => self.group(tokens, span),
                ("step", None) => self.left_out.unnamed(&[NameKind::Step]),
                (_, None) => self.left_out.unnamed(&LeftOut::GROUPS),
            }
        }
        kept
    }
}
