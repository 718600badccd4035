//! First stage: the annotated struct becomes a planner spec.
//!
//! The grammar is small enough to be read off its own table:
//!
//! ```text
//! #[scratch_pool(align = 256, config = "config.json", rows = dim, ubatches = 2, crate = path,
//!                dims(name = expr | [list], name: runtime, name: runtime(8192)),
//!                layers(count = expr, attribute = list | [list]),
//!                exclusive(group, …))]
//! #[step(name, on = stream, when = expr, after(step, prev.step), launch = full | dependent | early,
//!        writes(group, group.buffer), reads(…))]
//! #[group(name, when = expr, if = expr)]
//! struct Name {
//!     #[group(name)] #[shape(expr, …)] #[align(1024)] field: dtype,     // buffer `name.field`
//!     #[group(name.buffer)] #[shape(expr, …)] field: dtype,             // buffer `name.buffer`
//! }
//! ```
//!
//! What can be read is kept even where other parts are in error, so that all errors come at once
//! and the code around still finds the struct's methods.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use scratchpool_planner::config;
use scratchpool_planner::error::{Code, Error, Fault, NameKind, nearest};
use scratchpool_planner::expr::{Expr, Kind, Problem};
use scratchpool_planner::spec::{
    After, Buffer, Column, ColumnSource, DType, Dim, DimValue, Group, Launch, Layers, Name,
    Spanned, Spec, Step, Target,
};
use syn::{Attribute, Data, DeriveInput, Fields, Meta, Visibility};

use crate::places::{Places, plain, split_at_commas, split_with_commas};

/// A struct as declared.
pub(crate) struct Declaration {
    /// What the planner proves.
    pub(crate) spec: Spec,
    /// Where its parts stand.
    pub(crate) places: Places,
    /// What the grammar did not take.
    pub(crate) errors: Vec<Error>,
    /// Where expressions stand that it did not take.
    pub(crate) unread: Vec<scratchpool_planner::spec::Span>,
    /// What else it left out.
    pub(crate) gaps: Gaps,
    /// Path of the runtime crate.
    pub(crate) krate: TokenStream,
    /// The configuration as written, for re-expansion when it changes.
    pub(crate) config: Option<String>,
    /// The struct's visibility.
    pub(crate) visibility: Visibility,
    /// The struct's name.
    pub(crate) name: Ident,
    /// Its doc comments and lint attributes.
    pub(crate) attributes: Vec<Attribute>,
    /// Its fields, in order.
    pub(crate) fields: Vec<Field>,
}

/// Of what kind something may have been left out of a spec.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gaps {
    /// Dims, names of the configuration, attributes of layers.
    pub(crate) values: bool,
    /// Steps.
    pub(crate) steps: bool,
    /// Groups and their buffers.
    pub(crate) groups: bool,
}

impl Gaps {
    const ALL: Self = Self { values: true, steps: true, groups: true };
}

/// One field: one buffer.
pub(crate) struct Field {
    pub(crate) name: Ident,
    pub(crate) attributes: Vec<Attribute>,
    /// The buffer's full name, `group.buffer`.
    pub(crate) buffer: String,
    pub(crate) dtype: DType,
    pub(crate) rank: usize,
}

/// Reads a declaration. `Err` only where the item is no type at all.
pub(crate) fn parse(
    arguments: TokenStream,
    item: TokenStream,
    root: &Path,
) -> Result<Declaration, syn::Error> {
    let first = item.clone().into_iter().next().map_or_else(Span::call_site, |first| first.span());
    let item: DeriveInput = syn::parse2(item)
        .map_err(|_| syn::Error::new(first, format!("{ON_A_STRUCT} [{}]", Code::Syntax)))?;
    let mut parser = Parser {
        places: Places::default(),
        errors: Vec::new(),
        spec: Spec::default(),
        krate: None,
        config: None,
        unread: Vec::new(),
        gaps: Gaps::default(),
    };
    let name = unraw(&item.ident);
    parser.spec.name = Name::new(name, parser.places.add(item.ident.span()));
    if let Some(parameter) = item.generics.params.first() {
        let text = "a pool has no generic parameters; the device is added by `#[scratch_pool]`";
        let tokens: Vec<TokenTree> = parameter.to_token_stream().into_iter().collect();
        parser.malformed_at(text, &tokens, item.ident.span());
    }
    parser.arguments(plain(arguments), root);
    let attributes = parser.struct_attributes(&item.attrs);
    let mut fields: Vec<Field> = Vec::new();
    match &item.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(named) => {
                for field in &named.named {
                    fields.extend(parser.field(field, &fields));
                }
            }
            Fields::Unit => {}
            Fields::Unnamed(unnamed) => {
                let text = "the fields of a pool are its buffers, and buffers have names";
                let tokens: Vec<TokenTree> = unnamed.to_token_stream().into_iter().collect();
                parser.malformed_at(text, &tokens, item.ident.span());
                parser.gaps.groups = true;
            }
        },
        Data::Enum(_) | Data::Union(_) => {
            parser.malformed(ON_A_STRUCT, item.ident.span());
            parser.gaps.groups = true;
        }
    }
    Ok(Declaration {
        spec: parser.spec,
        places: parser.places,
        errors: parser.errors,
        unread: parser.unread,
        gaps: parser.gaps,
        krate: parser.krate.unwrap_or_else(|| quote::quote!(::scratchpool)),
        config: parser.config,
        visibility: item.vis,
        name: item.ident,
        attributes,
        fields,
    })
}

const ON_A_STRUCT: &str = "`#[scratch_pool]` stands on a struct";

/// A name without `r#`.
pub(crate) fn unraw(ident: &Ident) -> String {
    let word = ident.to_string();
    word.strip_prefix("r#").map(str::to_owned).unwrap_or(word)
}

struct Parser {
    places: Places,
    errors: Vec<Error>,
    spec: Spec,
    krate: Option<TokenStream>,
    config: Option<String>,
    unread: Vec<scratchpool_planner::spec::Span>,
    gaps: Gaps,
}

/// One entry of a list: `key`, `key = value`, `key: value` or `key(list)`.
struct Entry {
    key: Ident,
    value: EntryValue,
}

enum EntryValue {
    Bare,
    Is(Vec<TokenTree>),
    Typed(Vec<TokenTree>),
    List(proc_macro2::Group),
}

/// What tokens are as a list of integers.
enum List {
    Of(Spanned<Vec<i64>>),
    /// A list with other entries, reported.
    InError,
    /// No list.
    None,
}

impl Entry {
    fn word(&self) -> String {
        unraw(&self.key)
    }
}

impl Parser {
    fn error(&mut self, fault: Fault, span: Span) {
        let span = self.places.add(span);
        self.errors.push(Error::new(fault, span));
    }

    fn malformed(&mut self, text: impl Into<String>, span: Span) {
        self.error(Fault::Syntax(text.into()), span);
    }

    fn malformed_at(&mut self, text: &str, tokens: &[TokenTree], around: Span) {
        let span = self.places.add_all(tokens, around);
        self.errors.push(Error::new(Fault::Syntax(text.to_owned()), span));
    }

    fn wrong_type(&mut self, key: &str, expected: &'static str, found: &[TokenTree], around: Span) {
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

    /// The key of an entry. One that is unknown is reported and taken for the nearest, so that what
    /// depends on it is no error too; one that was given before is reported and passed over.
    fn key(
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
    fn again(
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

    fn entries(&mut self, tokens: TokenStream, around: Span) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (part, comma) in split_with_commas(tokens) {
            let mut rest = part.into_iter();
            let key = match rest.next() {
                Some(TokenTree::Ident(key)) => key,
                Some(other) => {
                    self.malformed(format!("expected a name, found `{other}`"), other.span());
                    self.gaps = Gaps::ALL;
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
                        self.gaps = Gaps::ALL;
                        self.malformed(
                            format!("expected a comma after `{key}(…)`, found `{extra}`"),
                            extra.span(),
                        );
                    }
                    EntryValue::List(group)
                }
                Some(other) => {
                    self.gaps = Gaps::ALL;
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

    fn name(&mut self, ident: &Ident) -> Name {
        let word = unraw(ident);
        // Words that not even `r#` makes a name.
        if matches!(word.as_str(), "self" | "Self" | "super" | "crate" | "_") {
            let text = format!("`{word}` is not a name: Rust keeps the word for itself");
            self.malformed(text, ident.span());
            self.gaps = Gaps::ALL;
        }
        Name::new(word, self.places.add(ident.span()))
    }

    /// `key = expr`.
    fn expr_of(&mut self, entry: &Entry) -> Expr {
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
    fn unread(&mut self, tokens: &[TokenTree], around: Span) -> Expr {
        let span = self.places.add_all(tokens, around);
        self.unread.push(span);
        unknown(span)
    }

    fn expr(&mut self, tokens: &[TokenTree], around: Span) -> Option<Expr> {
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
    fn name_of(&mut self, entry: &Entry, expected: &'static str) -> Option<Name> {
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
    fn integer_of(&mut self, entry: &Entry) -> Option<Spanned<i64>> {
        let tokens = match &entry.value {
            EntryValue::Is(tokens) => tokens.as_slice(),
            _ => &[],
        };
        self.integer(&entry.word(), tokens, entry.key.span())
    }

    fn integer(&mut self, key: &str, tokens: &[TokenTree], around: Span) -> Option<Spanned<i64>> {
        self.number(key, "an integer", tokens, around)
    }

    fn number(
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
    fn list(&mut self, key: &str, tokens: &[TokenTree]) -> List {
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

    /// The arguments of `#[scratch_pool(…)]`.
    fn arguments(&mut self, tokens: TokenStream, root: &Path) {
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
                    self.gaps.values = true;
                }
            }
        }
    }

    /// `crate = path`. The path is used inside the generated module, so it must not depend on the
    /// place where it is written.
    fn krate(&mut self, value: &EntryValue, around: Span) {
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

    fn names(&mut self, key: &str, list: &proc_macro2::Group) -> Vec<Name> {
        let mut names = Vec::new();
        for part in split_at_commas(list.stream()) {
            match part.as_slice() {
                [TokenTree::Ident(ident)] => names.push(self.name(ident)),
                other => self.wrong_type(key, "a list of groups", other, list.span()),
            }
        }
        names
    }

    fn config(&mut self, entry: &Entry, root: &Path) {
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
            self.gaps.values = true;
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
                self.gaps.values = true;
                let hint = " (paths are relative to the crate's `Cargo.toml`)";
                let reason = reason + if full.is_file() { "" } else { hint };
                self.error(Fault::Config { path: path.value(), reason }, path.span());
            }
            Err(fault) => self.error(fault, path.span()),
        }
    }

    fn dims(&mut self, list: &proc_macro2::Group) {
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
    fn dim_expr(&mut self, tokens: &[TokenTree], entry: &Entry) -> Option<Expr> {
        let found = self.expr(tokens, entry.key.span());
        if found.is_none() {
            let text: String = tokens.iter().map(ToString::to_string).collect();
            let error = self.errors.pop().map(|error| error.in_dim(&entry.word(), &text));
            self.errors.extend(error);
        }
        found
    }

    /// `runtime` or `runtime(8192)`.
    fn runtime(&mut self, tokens: &[TokenTree], entry: &Entry) -> Option<DimValue> {
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

    fn layers(&mut self, list: &proc_macro2::Group) {
        let mut layers = Layers { span: self.places.add(list.span()), ..Layers::default() };
        let mut counts = Vec::new();
        for entry in self.entries(list.stream(), list.span()) {
            let EntryValue::Is(tokens) = &entry.value else {
                let word = entry.word();
                self.malformed(format!("write `{word} = …`"), entry.key.span());
                self.gaps.values = true;
                continue;
            };
            if entry.word() == "count" {
                if self.again(&mut counts, "keys", "count", entry.key.span()) {
                    continue;
                }
                layers.count = self.expr(tokens, entry.key.span());
                continue;
            }
            let source = match (self.list(&entry.word(), tokens), tokens.as_slice()) {
                (List::Of(list), _) => ColumnSource::List(list),
                (List::InError, _) => {
                    self.gaps.values = true;
                    continue;
                }
                (List::None, [TokenTree::Ident(ident)]) => ColumnSource::Name(self.name(ident)),
                (List::None, other) => {
                    let expected = "the name of a list, or a list";
                    self.gaps.values = true;
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
    fn struct_attributes(&mut self, attributes: &[Attribute]) -> Vec<Attribute> {
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
                ("step", None) => self.gaps.steps = true,
                (_, None) => self.gaps.groups = true,
            }
        }
        kept
    }

    /// An attribute of ours, with what it holds. One that is unknown is reported and taken for the
    /// nearest.
    fn attribute(
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
    fn attribute_list(
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

    fn step(&mut self, tokens: TokenStream, around: Span) {
        const KEYS: [&str; 6] = ["on", "when", "after", "launch", "writes", "reads"];
        let mut entries = self.entries(tokens, around).into_iter();
        let name = match entries.next() {
            Some(Entry { key, value: EntryValue::Bare }) => self.name(&key),
            other => {
                let span = other.map_or(around, |entry| entry.key.span());
                self.malformed("a step begins with its name: `#[step(name, …)]`", span);
                self.gaps.steps = true;
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

    fn launch(&mut self, entry: &Entry) -> Launch {
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
    fn dotted(
        &mut self,
        key: &str,
        list: &proc_macro2::Group,
    ) -> Vec<(String, Option<String>, scratchpool_planner::spec::Span)> {
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

    fn afters(&mut self, list: &proc_macro2::Group) -> Vec<After> {
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

    fn targets(&mut self, key: &str, list: &proc_macro2::Group) -> Vec<Target> {
        let dotted = self.dotted(key, list).into_iter();
        dotted.map(|(group, buffer, span)| Target { group, buffer, span }).collect()
    }

    /// `#[group(name, when = …, if = …)]` on the struct.
    fn group(&mut self, tokens: TokenStream, around: Span) {
        let mut entries = self.entries(tokens, around).into_iter();
        let name = match entries.next() {
            Some(Entry { key, value: EntryValue::Bare }) => self.name(&key),
            other => {
                let span = other.map_or(around, |entry| entry.key.span());
                self.malformed("a group begins with its name: `#[group(name, …)]`", span);
                self.gaps.groups = true;
                return;
            }
        };
        let table = format!("group `{}`", name.value);
        let mut group = Group { name, when: None, condition: None, buffers: Vec::new() };
        let mut seen = Vec::new();
        for entry in entries {
            let Some(key) = self.key(&entry, &table, &["when", "if"], &mut seen) else { continue };
            let expr = Some(self.expr_of(&entry));
            if key == "when" {
                group.when = expr;
            } else {
                group.condition = expr;
            }
        }
        self.spec.groups.push(group);
    }

    fn field(&mut self, field: &syn::Field, before: &[Field]) -> Option<Field> {
        let ident = field.ident.clone()?;
        let word = unraw(&ident);
        if let Some(first) = before.iter().find(|each| unraw(&each.name) == word) {
            let first = self.places.add(first.name.span());
            self.error(Fault::Duplicate { kind: "fields", name: word, first }, ident.span());
            return None;
        }
        let place = format!("field `{word}`");
        let mut attributes = Vec::new();
        let mut given: Vec<(String, Span)> = Vec::new();
        let (mut group, mut shape, mut align) = (None, None, None);
        for attribute in &field.attrs {
            if is_inert(attribute) {
                attributes.push(attribute.clone());
                continue;
            }
            let key = self.attribute(attribute, &["group", "shape", "align"], &place);
            let Some((key, list)) = key else { continue };
            let span = list.as_ref().map_or(ident.span(), |(_, span)| *span);
            if self.again(&mut given, "attributes", key, span) {
                continue;
            }
            match key {
                "group" => group = list,
                "shape" => shape = list,
                _ => align = list,
            }
        }
        let dtype = self.dtype(&field.ty, &word);
        for (name, key) in [("group", "#[group(…)]"), ("shape", "#[shape(…)]")] {
            if !given.iter().any(|(each, _)| each == name) {
                self.error(Fault::Missing { key, table: place.clone() }, ident.span());
            }
        }
        let group = group.and_then(|(tokens, span)| self.field_group(tokens, span, &ident));
        let shape = shape.map(|(tokens, span)| self.shape(tokens, span));
        let align = align.and_then(|(tokens, span)| {
            let tokens: Vec<TokenTree> = tokens.into_iter().collect();
            self.integer("align", &tokens, span)
        });
        // A field in error keeps its place, so that its uses are no errors too.
        let (group, buffer) = match group {
            Some(names) => names,
            None => {
                self.gaps.groups = true;
                (self.name(&ident), self.name(&ident))
            }
        };
        let shape = shape.unwrap_or_else(|| vec![Expr::int(1, buffer.span)]);
        let dtype = dtype.unwrap_or(Spanned::new(DType::U8, buffer.span));
        let full = format!("{}.{}", group.value, buffer.value);
        let rank = shape.len();
        let element = dtype.value;
        let added = Buffer { name: buffer, dtype, shape, align };
        match self.spec.groups.iter_mut().find(|each| each.name.value == group.value) {
            Some(known) => known.buffers.push(added),
            None => self.spec.groups.push(Group {
                name: group,
                when: None,
                condition: None,
                buffers: vec![added],
            }),
        }
        Some(Field { name: ident, attributes, buffer: full, dtype: element, rank })
    }

    /// `#[group(name)]` or `#[group(name.buffer)]` on a field.
    fn field_group(
        &mut self,
        tokens: TokenStream,
        around: Span,
        field: &Ident,
    ) -> Option<(Name, Name)> {
        let parts: Vec<TokenTree> = tokens.into_iter().collect();
        let comma = parts
            .iter()
            .position(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ','));
        let (parts, rest) = parts.split_at(comma.unwrap_or(parts.len()));
        let names = match parts {
            [TokenTree::Ident(group)] => Some((self.name(group), self.name(field))),
            [TokenTree::Ident(group), TokenTree::Punct(dot), TokenTree::Ident(buffer)]
                if dot.as_char() == '.' =>
            {
                Some((self.name(group), self.name(buffer)))
            }
            other => {
                let expected = "a group, or `group.buffer`";
                self.wrong_type("group", expected, other, around);
                None
            }
        };
        if let (Some((group, _)), [_, extra, ..]) = (&names, rest) {
            let text = format!(
                "what holds for the whole group stands on the struct: `#[group({}, …)]`",
                group.value
            );
            self.malformed(text, extra.span());
        }
        names
    }

    /// As many extents as are written, also where some are in error.
    fn shape(&mut self, tokens: TokenStream, around: Span) -> Vec<Expr> {
        let parts = split_at_commas(tokens);
        let extent = |part: &Vec<TokenTree>| {
            self.expr(part, around).unwrap_or_else(|| self.unread(part, around))
        };
        parts.iter().map(extent).collect()
    }

    fn dtype(&mut self, ty: &syn::Type, field: &str) -> Option<Spanned<DType>> {
        let tokens: Vec<TokenTree> = plain(ty.to_token_stream()).into_iter().collect();
        let [TokenTree::Ident(word)] = tokens.as_slice() else {
            self.wrong_type(field, "an element type, such as `bf16`", &tokens, Span::call_site());
            return None;
        };
        let mut found = DType::from_word(&unraw(word));
        if found.is_none() {
            let nearest = nearest(&unraw(word), DType::ALL.iter().map(|each| each.as_str()));
            found = nearest.as_deref().and_then(DType::from_word);
            let fault = Fault::UnknownName { kind: NameKind::DType, name: unraw(word), nearest };
            self.error(fault, word.span());
        }
        found.map(|dtype| Spanned::new(dtype, self.places.add(word.span())))
    }
}

/// An expression without a value: a name that no spec can define. What depends on it is passed over.
fn unknown(span: scratchpool_planner::spec::Span) -> Expr {
    Expr { kind: Kind::Name(String::new()), span }
}

/// The nominal value of a dim declared `runtime` without one.
const NOMINAL: i64 = 8192;

/// Whether an attribute may stay on what is generated.
fn is_inert(attribute: &Attribute) -> bool {
    ["doc", "allow", "expect", "warn", "deny", "forbid", "deprecated", "must_use"]
        .iter()
        .any(|name| attribute.path().is_ident(name))
}
