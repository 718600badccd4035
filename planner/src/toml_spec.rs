//! The TOML spelling of a spec.
//!
//! The text is parsed into a tree that knows the place of every key and value, and the tree is
//! walked by hand: so all that is wrong is found in one go, each with the exact bytes, and a
//! misspelt key is met with the nearest one that exists.
//!
//! Invariant: a part that is wrong is left out of the [`Spec`] and remembered in [`Read`], so that
//! a later stage can go on with the rest, and [`Read::stands`] can tell an error of that stage that
//! holds whatever the faulty part should have been from one that the gap may have caused.
//!
//! Spans are byte offsets into the text. Inside a string without escapes they point into it.

use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use crate::config::{self, Config};
use crate::error::{Error, Fault, Hint, LeftOut, NameKind};
use crate::expr::{Expr, Problem};
use crate::spec::{
    After, Buffer, Column, ColumnSource, DType, Dim, DimValue, Group, Launch, Layers, Name, Span,
    Spanned, Spec, Step, Target, is_name, is_path,
};

/// Most bytes of a spec.
pub const MOST_BYTES: u64 = 4 << 20;

/// Most errors that are kept; a text with more is not a spec with mistakes but something else.
pub const MOST_ERRORS: usize = 256;

/// A spec as far as it could be read, and all that is wrong with its text.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// What could be read. Whole only where there are no errors.
    pub spec: Spec,
    /// What is wrong, by place, at most [`MOST_ERRORS`].
    pub errors: Vec<Error>,
    left_out: LeftOut,
}

impl Read {
    /// The spec, if nothing is wrong with it.
    ///
    /// # Errors
    /// All that is wrong with the text, by place.
    pub fn whole(self) -> Result<Spec, Vec<Error>> {
        if self.errors.is_empty() { Ok(self.spec) } else { Err(self.errors) }
    }

    /// Whether an error of a later stage stands on its own: whether it would be there whatever the
    /// parts that were left out of the spec had said.
    pub fn stands(&self, later: &Error) -> bool {
        self.errors.is_empty() || later.stands_alone(&self.left_out)
    }
}

/// Reads the spec that a text declares. `base` is the folder that `config` is relative to.
///
/// ```
/// use scratchpool_planner::toml_spec;
/// let read = toml_spec::read("pool.name = 'Empty'", ".".as_ref());
/// assert_eq!(read.whole().map(|spec| spec.name.value), Ok("Empty".to_owned()));
///
/// let read = toml_spec::read("pool.nam = 'Empty'", ".".as_ref());
/// let unknown = read.errors.last().and_then(|error| error.help());
/// assert_eq!(unknown.as_deref(), Some("did you mean `name`?"));
/// ```
pub fn read(text: &str, base: &Path) -> Read {
    let too_long = u64::try_from(text.len()).map_or(true, |length| length > MOST_BYTES);
    if too_long {
        let reason = format!("a spec has at most {} MiB", MOST_BYTES >> 20);
        return nothing(vec![Error::new(Fault::Syntax(reason), Span::default())]);
    }
    // Most texts are well-formed, and of one that is not TOML at all the first error is enough;
    // looking for more is left to texts of a size that someone may have written.
    let (root, errors) = match DeTable::parse(text) {
        Ok(root) => (root, Vec::new()),
        Err(_) if text.len() <= 64 << 10 => DeTable::parse_recoverable(text),
        Err(error) => return nothing(vec![malformed(text, &error)]),
    };
    if !errors.is_empty() {
        let mut errors: Vec<_> = errors.iter().map(|error| malformed(text, error)).collect();
        errors.sort_by_key(|error| error.span);
        // After the first error of a line the parser is guessing.
        let mut line_end = 0;
        errors.retain(|error| {
            let start = index(error.span.start);
            let first = start >= line_end;
            if first {
                let rest = text.get(start..).and_then(|rest| rest.find('\n'));
                line_end = rest.map_or(text.len() + 1, |length| start + length + 1);
            }
            first
        });
        errors.truncate(MOST_ERRORS);
        return nothing(errors);
    }
    let mut reader = Reader { text, errors: Vec::new(), left_out: LeftOut::default() };
    let spec = reader.spec(root.get_ref(), base);
    let Reader { mut errors, left_out, .. } = reader;
    errors.sort_by_key(|error| error.span);
    Read { spec, errors, left_out }
}

fn nothing(errors: Vec<Error>) -> Read {
    Read { spec: Spec::default(), errors, left_out: LeftOut::everything() }
}

fn malformed(text: &str, error: &toml::de::Error) -> Error {
    let place = error.span().unwrap_or_default();
    unquoted(text, &place)
        .unwrap_or_else(|| Error::new(Fault::Syntax(short(error.message(), 400)), span(place)))
}

/// The error for a name or an expression that stands as a value without its quotes, if that is what
/// is at a place.
fn unquoted(text: &str, place: &Range<usize>) -> Option<Error> {
    let start = place.start;
    let line = text.get(..start)?.rfind('\n').map_or(0, |newline| newline + 1);
    let before = text.get(line..start)?.trim_end();
    let rest = text.get(start..)?.lines().next()?;
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let (key, value) = match before.strip_suffix('=') {
        Some(before) => {
            let inline = before.rsplit_once('{').is_some();
            let key = before.rsplit(['{', ',']).next()?.trim();
            let end = if inline { rest.find([',', '}']) } else { None };
            (Some(key.to_owned()), rest.get(..end.unwrap_or(rest.len()))?)
        }
        // An entry of a list, which may have begun in an earlier line.
        None => {
            let list = text.get(..start)?.trim_end().ends_with(['[', ',']);
            (None, rest.split([',', ']']).next().filter(|_| list)?)
        }
    };
    let value = value.trim();
    let is_name = |word: &str| word.split('.').all(is_name);
    if value.len() > 120
        || key.as_ref().is_some_and(|key| key.len() > 80 || !is_name(key))
        || !value.contains(char::is_alphabetic)
        || ["true", "false", "inf", "nan"].contains(&value.to_lowercase().as_str())
    {
        return None;
    }
    let written = is_name(value) || Expr::parse(value, &|_, _| Span::default()).is_ok();
    let fault = Fault::Unquoted { key, value: value.to_owned() };
    written.then(|| Error::new(fault, span(start..start + value.len())))
}

/// A byte range as a span. Texts are at most [`MOST_BYTES`] long, so nothing saturates.
fn span(range: Range<usize>) -> Span {
    let position = |at| u32::try_from(at).unwrap_or(u32::MAX);
    Span::new(position(range.start), position(range.end))
}

/// A position of a span as an index.
fn index(position: u32) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

/// Text from the input, fit to stand in one line of a message.
fn short(word: &str, most: usize) -> String {
    let line = |c: char| if c.is_control() { ' ' } else { c };
    let mut cut: String = word.chars().take(most).map(line).collect();
    if cut.len() < word.len() {
        cut.push('…');
    }
    cut
}

type Node<'i> = toml::Spanned<DeValue<'i>>;

struct Reader<'t> {
    text: &'t str,
    errors: Vec<Error>,
    left_out: LeftOut,
}

impl<'t> Reader<'t> {
    fn fault(&mut self, fault: Fault, span: Span) {
        self.error(Error::new(fault, span));
    }

    fn error(&mut self, error: Error) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(error);
        }
    }

    // ---- tables ----

    fn spec(&mut self, root: &DeTable<'t>, base: &Path) -> Spec {
        let known = ["config", "pool", "dims", "layers", "step", "group"];
        self.keys(root, "the spec", &known);
        let mut spec = Spec::default();
        match root.get("pool") {
            None => {
                let (key, table) = ("[pool]", "the spec".into());
                self.fault(Fault::Missing { key, table }, Span::default());
            }
            Some(node) => {
                if let Some(table) = self.table("pool", node) {
                    self.pool(table, span(node.span()), &mut spec);
                }
            }
        }
        if let Some(node) = root.get("config") {
            let Config { names, ignored } = self.config(node, base);
            (spec.config, spec.config_ignored) = (names, ignored);
        }
        if let Some(node) = root.get("dims") {
            spec.dims = self.dims(node);
        }
        if let Some(node) = root.get("layers") {
            spec.layers = self.layers(node);
        }
        if let Some(node) = root.get("step") {
            let tables = self.tables("step", "a list of tables (`[[step]]`)", node);
            spec.steps =
                tables.into_iter().filter_map(|(table, place)| self.step(table, place)).collect();
        }
        if let Some(node) = root.get("group") {
            let tables = self.tables("group", "a list of tables (`[[group]]`)", node);
            spec.groups =
                tables.into_iter().filter_map(|(table, place)| self.group(table, place)).collect();
        }
        // A dim that was left out must not give way to a value of the configuration.
        spec.config.retain(|(name, _)| !self.left_out.has_name(name));
        spec.config_ignored.retain(|(name, _)| !self.left_out.has_name(name));
        spec
    }

    fn pool(&mut self, table: &DeTable<'t>, place: Span, spec: &mut Spec) {
        let what = "`[pool]`";
        self.keys(table, what, &["name", "align", "exclusive", "rows", "ubatches"]);
        if let Some(node) = self.required(table, "name", what, place) {
            spec.name = self.name("name", node).unwrap_or_default();
        }
        if let Some(node) = table.get("align") {
            spec.align = self.integer("align", node);
            if spec.align.is_none() {
                self.left_out.align();
            }
        }
        if let Some(node) = table.get("exclusive") {
            spec.exclusive = self.words("exclusive", "a list of groups", node, Self::word_name);
        }
        if let Some(node) = table.get("rows") {
            spec.rows = self.name("rows", node);
        }
        if let Some(node) = table.get("ubatches") {
            spec.ubatches = self.integer("ubatches", node);
        }
    }

    fn config(&mut self, node: &Node<'t>, base: &Path) -> Config {
        let config = match self.string("config", "the path of a file", node) {
            None => None,
            Some(path) => match config::load(&base.join(&path.value)) {
                Ok(config) => Some(config),
                Err(fault) => {
                    self.fault(fault, path.span);
                    None
                }
            },
        };
        config.unwrap_or_else(|| {
            self.left_out.unnamed(&LeftOut::VALUES);
            Config::default()
        })
    }

    fn dims(&mut self, node: &Node<'t>) -> Vec<Dim> {
        let Some(table) = self.table("dims", node) else {
            self.left_out.unnamed(&LeftOut::VALUES);
            return Vec::new();
        };
        let mut dims = Vec::new();
        for (key, node) in in_order(table) {
            let name = self.key_name(key);
            let value = self.dim(key.get_ref(), node);
            match (name, value) {
                (Some(name), Some(value)) => dims.push(Dim { name, value }),
                _ => self.left_out.name(key.get_ref()),
            }
        }
        dims
    }

    fn dim(&mut self, key: &str, node: &Node<'t>) -> Option<DimValue> {
        let expected = "an integer, an expression, a list of integers or `{ runtime = … }`";
        match node.get_ref() {
            DeValue::Array(_) => self.integers(key, expected, node).map(DimValue::List),
            DeValue::Table(table) => {
                let what = format!("dim `{}`", short(key, 80));
                self.keys(table, &what, &["runtime"]);
                let node = self.required(table, "runtime", &what, span(node.span()))?;
                let nominal = self.integer("runtime", node)?;
                Some(DimValue::Runtime { nominal: nominal.value, span: nominal.span })
            }
            _ => {
                let found = self.expr(key, expected, node).map(DimValue::Expr);
                if let (None, DeValue::String(text)) = (&found, node.get_ref()) {
                    let error = self.errors.pop().map(|error| error.in_dim(key, text));
                    self.errors.extend(error);
                }
                found
            }
        }
    }

    fn layers(&mut self, node: &Node<'t>) -> Layers {
        let place = span(node.span());
        let Some(table) = self.table("layers", node) else {
            self.left_out.layers();
            self.left_out.unnamed(&[NameKind::Value]);
            return Layers { span: place, ..Layers::default() };
        };
        let mut layers = Layers { span: place, ..Layers::default() };
        for (key, node) in in_order(table) {
            let key_text = key.get_ref();
            if key_text == "count" {
                layers.count = self.expr(key_text, EXPRESSION, node);
                if layers.count.is_none() {
                    self.left_out.layers();
                }
                continue;
            }
            let (name, source) = (self.key_name(key), self.column(key_text, node));
            if let (Some(name), Some(source)) = (name, source) {
                layers.columns.push(Column { name, source });
            } else {
                self.left_out.name(key_text);
                self.left_out.layers();
            }
        }
        layers
    }

    fn column(&mut self, key: &str, node: &Node<'t>) -> Option<ColumnSource> {
        let place = span(node.span());
        match node.get_ref() {
            DeValue::String(_) => {
                let name = self.string(key, "a name", node)?;
                if is_path(&name.value) {
                    return Some(ColumnSource::Name(name));
                }
                self.fault(Fault::NotAName { word: short(&name.value, 80) }, name.span);
                None
            }
            DeValue::Array(items) if items.iter().all(|item| item.get_ref().is_integer()) => {
                let list = self.integers(key, "a list of integers", node)?;
                Some(ColumnSource::List(Spanned::new(list, place)))
            }
            DeValue::Array(items) if items.iter().all(|item| item.get_ref().is_str()) => {
                let texts = items.iter().filter_map(|item| item.get_ref().as_str());
                let texts = texts.map(str::to_owned).collect();
                Some(ColumnSource::Texts(Spanned::new(texts, place)))
            }
            DeValue::Array(items) => {
                for item in items.iter().filter(|item| !item.get_ref().is_integer()) {
                    let found = format!("a list with {}", describe(item.get_ref()));
                    let column = short(key, 80);
                    self.fault(Fault::ColumnType { column, found }, span(item.span()));
                }
                None
            }
            other => {
                let (column, found) = (short(key, 80), describe(other).into());
                self.fault(Fault::ColumnType { column, found }, place);
                None
            }
        }
    }

    fn step(&mut self, table: &DeTable<'t>, place: Span) -> Option<Step> {
        let what = titled("step", table);
        let known = ["name", "stream", "when", "after", "launch", "writes", "reads"];
        self.keys(table, &what, &known);
        let name = self.declared(table, &what, place, NameKind::Step);
        let stream = table.get("stream").and_then(|node| self.name("stream", node));
        let when = table.get("when").and_then(|node| self.expr("when", EXPRESSION, node));
        let after = table.get("after").map(|node| {
            self.words("after", "a list of steps", node, |reader, word| {
                let (prev, step) = match word.value.strip_prefix("prev.") {
                    Some(step) => (true, step),
                    None => (false, word.value.as_str()),
                };
                let step = reader.checked(step, word.span)?.to_owned();
                Some(After { prev, step, span: word.span })
            })
        });
        let launch = table.get("launch").and_then(|node| {
            let words = Launch::ALL.map(Launch::as_str);
            self.one_of("launch", NameKind::Launch, &words, node, Launch::from_word)
        });
        let mut targets = |key| {
            let node = table.get(key)?;
            Some(self.words(key, "a list of groups and buffers", node, Self::target))
        };
        let (writes, reads) = (targets("writes"), targets("reads"));
        Some(Step {
            name: name?,
            stream,
            when,
            after: after.unwrap_or_default(),
            launch: launch.map(|launch| launch.value).unwrap_or_default(),
            writes: writes.unwrap_or_default(),
            reads: reads.unwrap_or_default(),
        })
    }

    fn target(&mut self, word: &Name) -> Option<Target> {
        let (group, buffer) = match word.value.split_once('.') {
            Some((group, buffer)) => (group, Some(buffer)),
            None => (word.value.as_str(), None),
        };
        let group = self.checked(group, word.span)?.to_owned();
        let buffer = match buffer {
            Some(buffer) => Some(self.checked(buffer, word.span)?.to_owned()),
            None => None,
        };
        Some(Target { group, buffer, span: word.span })
    }

    fn group(&mut self, table: &DeTable<'t>, place: Span) -> Option<Group> {
        let what = titled("group", table);
        self.keys(table, &what, &["name", "when", "if", "buffer"]);
        let name = self.declared(table, &what, place, NameKind::Group);
        let when = table.get("when").and_then(|node| self.expr("when", EXPRESSION, node));
        let condition = table.get("if").and_then(|node| self.expr("if", EXPRESSION, node));
        let buffers = table.get("buffer").map(|node| {
            let tables = self.tables("buffer", "a list of tables (`[[group.buffer]]`)", node);
            let buffers = tables.into_iter();
            buffers.filter_map(|(table, place)| self.buffer(table, place)).collect()
        });
        Some(Group { name: name?, when, condition, buffers: buffers.unwrap_or_default() })
    }

    fn buffer(&mut self, table: &DeTable<'t>, place: Span) -> Option<Buffer> {
        let what = titled("buffer", table);
        self.keys(table, &what, &["name", "dtype", "shape", "align"]);
        let name = self.declared(table, &what, place, NameKind::Buffer);
        let dtype = self.required(table, "dtype", &what, place).and_then(|node| {
            let words: Vec<_> = DType::ALL.iter().map(|dtype| dtype.as_str()).collect();
            self.one_of("dtype", NameKind::DType, &words, node, DType::from_word)
        });
        let shape = self
            .required(table, "shape", &what, place)
            .and_then(|node| self.list("shape", "a list of integers and expressions", node))
            .map(|items| {
                // A wrong extent keeps its place, so that later messages count axes rightly, and
                // counts as 1, which can be too large for nothing.
                let expected = "a list of integers and expressions";
                let extent = |item: &Node<'t>| {
                    let extent = self.expr("shape", expected, item);
                    extent.unwrap_or_else(|| Expr::int(1, span(item.span())))
                };
                items.iter().map(extent).collect()
            });
        let align = table.get("align").and_then(|node| self.integer("align", node));
        Some(Buffer {
            name: name?,
            // The smallest, which can be too large for nothing either.
            dtype: dtype.unwrap_or(Spanned::new(DType::U8, place)),
            shape: shape.unwrap_or_default(),
            align,
        })
    }

    // ---- keys ----

    fn keys(&mut self, table: &DeTable<'t>, what: &str, known: &[&str]) {
        for (key, _) in in_order(table) {
            let word: &str = key.get_ref();
            if !known.contains(&word) {
                let error = Error::unknown_key(&short(word, 80), what, known, span(key.span()));
                self.error(meant(word, known, error));
            }
        }
    }

    fn required<'r>(
        &mut self,
        table: &'r DeTable<'t>,
        key: &'static str,
        what: &str,
        place: Span,
    ) -> Option<&'r Node<'t>> {
        let node = table.get(key);
        if node.is_none() {
            self.fault(Fault::Missing { key, table: what.to_owned() }, place);
        }
        node
    }

    /// The name that a step, group or buffer must have. What is left out for want of one is noted.
    fn declared(
        &mut self,
        table: &DeTable<'t>,
        what: &str,
        place: Span,
        kind: NameKind,
    ) -> Option<Name> {
        let name =
            self.required(table, "name", what, place).and_then(|node| self.name("name", node));
        if name.is_none() {
            self.left_out.unnamed(&[kind]);
        }
        name
    }

    fn key_name(&mut self, key: &toml::Spanned<std::borrow::Cow<'t, str>>) -> Option<Name> {
        let place = span(key.span());
        self.checked(key.get_ref(), place).map(|name| Name::new(name.to_owned(), place))
    }

    // ---- values ----

    fn wrong_type(&mut self, key: &str, expected: &'static str, found: String, place: Span) {
        self.fault(Fault::Type { key: short(key, 80), expected, found }, place);
    }

    fn table<'r>(&mut self, key: &str, node: &'r Node<'t>) -> Option<&'r DeTable<'t>> {
        let table = node.get_ref().as_table();
        if table.is_none() {
            let found = describe(node.get_ref()).into();
            self.wrong_type(key, "a table", found, span(node.span()));
        }
        table
    }

    fn tables<'r>(
        &mut self,
        key: &str,
        expected: &'static str,
        node: &'r Node<'t>,
    ) -> Vec<(&'r DeTable<'t>, Span)> {
        let kind = match key {
            "step" => NameKind::Step,
            "group" => NameKind::Group,
            _ => NameKind::Buffer,
        };
        let Some(items) = self.list(key, expected, node) else {
            self.left_out.unnamed(&[kind]);
            return Vec::new();
        };
        let mut tables = Vec::with_capacity(items.len());
        for item in items {
            let place = span(item.span());
            if let Some(table) = item.get_ref().as_table() {
                tables.push((table, place));
            } else {
                self.left_out.unnamed(&[kind]);
                let found = format!("a list with {}", describe(item.get_ref()));
                self.wrong_type(key, expected, found, place);
            }
        }
        tables
    }

    fn list<'r>(
        &mut self,
        key: &str,
        expected: &'static str,
        node: &'r Node<'t>,
    ) -> Option<&'r [Node<'t>]> {
        if let DeValue::Array(items) = node.get_ref() {
            return Some(items);
        }
        self.wrong_type(key, expected, describe(node.get_ref()).into(), span(node.span()));
        None
    }

    /// The entries of a list of strings, each turned into something by `read`.
    fn words<T>(
        &mut self,
        key: &str,
        expected: &'static str,
        node: &Node<'t>,
        mut read: impl FnMut(&mut Self, &Name) -> Option<T>,
    ) -> Vec<T> {
        let mut words = Vec::new();
        for item in self.list(key, expected, node).unwrap_or_default() {
            if let DeValue::String(word) = item.get_ref() {
                let place = self.inside(item, word).unwrap_or_else(|| span(item.span()));
                let word = Name::new(word.clone().into_owned(), place);
                words.extend(read(self, &word));
            } else {
                let found = format!("a list with {}", describe(item.get_ref()));
                self.wrong_type(key, expected, found, span(item.span()));
            }
        }
        words
    }

    fn word_name(&mut self, word: &Name) -> Option<Name> {
        self.checked(&word.value, word.span).map(|_| word.clone())
    }

    fn integers(&mut self, key: &str, expected: &'static str, node: &Node<'t>) -> Option<Vec<i64>> {
        let items = self.list(key, expected, node)?;
        let mut whole = true;
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            if item.get_ref().is_integer() {
                let value = self.integer(key, item);
                whole &= value.is_some();
                list.extend(value.map(|value| value.value));
            } else {
                whole = false;
                let found = format!("a list with {}", describe(item.get_ref()));
                self.wrong_type(key, expected, found, span(item.span()));
            }
        }
        whole.then_some(list)
    }

    fn integer(&mut self, key: &str, node: &Node<'t>) -> Option<Spanned<i64>> {
        let place = span(node.span());
        let DeValue::Integer(integer) = node.get_ref() else {
            self.wrong_type(key, "an integer", describe(node.get_ref()).into(), place);
            return None;
        };
        if let Ok(value) = i64::from_str_radix(integer.as_str(), integer.radix()) {
            return Some(Spanned::new(value, place));
        }
        let problem = Problem::Literal(short(&integer.to_string(), 80));
        self.fault(Fault::Expression { problem, layer: None }, place);
        None
    }

    fn string(
        &mut self,
        key: &str,
        expected: &'static str,
        node: &Node<'t>,
    ) -> Option<Spanned<String>> {
        if let DeValue::String(text) = node.get_ref() {
            let place = self.inside(node, text).unwrap_or_else(|| span(node.span()));
            return Some(Spanned::new(text.clone().into_owned(), place));
        }
        self.wrong_type(key, expected, describe(node.get_ref()).into(), span(node.span()));
        None
    }

    fn name(&mut self, key: &str, node: &Node<'t>) -> Option<Name> {
        let name = self.string(key, "a name", node)?;
        self.word_name(&name)
    }

    fn checked<'w>(&mut self, word: &'w str, place: Span) -> Option<&'w str> {
        if is_name(word) {
            return Some(word);
        }
        self.fault(Fault::NotAName { word: short(word, 80) }, place);
        None
    }

    fn one_of<T>(
        &mut self,
        key: &str,
        kind: NameKind,
        words: &[&str],
        node: &Node<'t>,
        find: impl Fn(&str) -> Option<T>,
    ) -> Option<Spanned<T>> {
        let word = self.string(key, "a word", node)?;
        let found = find(&word.value);
        if found.is_none() {
            let (name, known) = (short(&word.value, 80), words.iter().copied());
            self.error(Error::unknown_name(kind, &name, known, word.span));
        }
        found.map(|value| Spanned::new(value, word.span))
    }

    fn expr(&mut self, key: &str, expected: &'static str, node: &Node<'t>) -> Option<Expr> {
        let whole = span(node.span());
        let text = match node.get_ref() {
            DeValue::Integer(_) => {
                return self.integer(key, node).map(|value| Expr::int(value.value, value.span));
            }
            DeValue::String(text) => text,
            other => {
                self.wrong_type(key, expected, describe(other).into(), whole);
                return None;
            }
        };
        let inside = self.inside(node, text);
        let place = |start: usize, end: usize| match inside {
            Some(inside) => {
                let start = span(start..end);
                Span::new(inside.start + start.start, inside.start + start.end)
            }
            None => whole,
        };
        match Expr::parse(text, &place) {
            Ok(expr) => Some(expr),
            Err(error) => {
                let fault = Fault::Expression { problem: error.problem, layer: None };
                self.fault(fault, error.span);
                None
            }
        }
    }

    /// The place of a string's text without its quotes. None where escapes make the text differ
    /// from what is written, or where there is no text to point at.
    fn inside(&self, node: &Node<'t>, text: &str) -> Option<Span> {
        let range = node.span();
        let raw = self.text.get(range.clone())?;
        let quotes = raw.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        let open = raw.len() - raw.trim_start_matches(quotes).len();
        let open = if open >= 3 { 3 } else { 1 };
        // A newline right after three quotes is not part of the text.
        let rest = raw.get(open..)?;
        let newline = ["\r\n", "\n"].into_iter().find(|newline| rest.starts_with(newline));
        let open = open + newline.filter(|_| open == 3).map_or(0, str::len);
        let start = range.start + open;
        let end = start + text.len();
        let same = !text.is_empty() && self.text.get(start..end) == Some(text);
        same.then(|| span(start..end))
    }
}

/// The error for an unknown key, where it is one of the Rust spelling or of another table.
fn meant(key: &str, known: &[&str], mut error: Error) -> Error {
    let table = |table| known.contains(&table);
    let key = match key {
        "on" if table("stream") => "stream",
        "name" | "align" | "exclusive" | "rows" | "ubatches" if table("pool") => {
            &format!("pool.{key}")
        }
        "dims" | "layers" if !table("pool") => &format!("[{key}]"),
        "step" | "group" if !table("pool") => &format!("[[{key}]]"),
        "config" if !table("pool") => return error.with(Hint::AtTop),
        _ => return error,
    };
    if let Fault::UnknownKey { nearest, .. } = &mut error.fault {
        *nearest = Some(key.to_owned());
    }
    error
}

const EXPRESSION: &str = "an integer or an expression";

/// Entries in the order in which they are written.
fn in_order<'r, 'i>(
    table: &'r DeTable<'i>,
) -> Vec<(&'r toml::Spanned<std::borrow::Cow<'i, str>>, &'r Node<'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// What a table is called in messages.
fn titled(kind: &str, table: &DeTable<'_>) -> String {
    match table.get("name").and_then(|node| node.get_ref().as_str()) {
        Some(name) if is_name(name) => format!("{kind} `{}`", short(name, 80)),
        _ if kind == "buffer" => "`[[group.buffer]]`".into(),
        _ => format!("`[[{kind}]]`"),
    }
}

const fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::spec::Value;

    const WHOLE: &str = r#"
        [pool]
        name = "Scratch"
        align = 512
        exclusive = ["a", "b"]
        rows = "n"
        ubatches = 2
        [dims]
        z = 8
        n = { runtime = 8192 }
        half = "n / 2"
        ratios = [0, 4, -1]
        [layers]
        count = "z - 5"
        ratio = "ratios"
        kind = [1, 2, 3]
        [[step]]
        name = "first"
        writes = ["a", "b.y"]
        [[step]]
        name = "second"
        stream = "aux"
        when = "ratio == 4"
        after = ["first", "prev.second"]
        launch = "early"
        reads = ["a.x"]
        [[group]]
        name = "a"
        when = 1
        if = "z > 4"
        [[group.buffer]]
        name = "x"
        dtype = "bf16"
        shape = ["n", "half", 3]
        align = 1024
        [[group]]
        name = "b"
        buffer = [{ name = "y", dtype = "u8", shape = [] }]
    "#;

    #[test]
    fn every_part_of_a_spec_is_read() {
        let spec = read(WHOLE, Path::new(".")).whole().unwrap();
        let at = |span: Span| &WHOLE[index(span.start)..index(span.end)];
        assert_eq!((spec.name.value.as_str(), at(spec.name.span)), ("Scratch", "Scratch"));
        let number = |value: Option<Spanned<i64>>| value.map(|value| (value.value, at(value.span)));
        assert_eq!(number(spec.align), Some((512, "512")));
        assert_eq!(number(spec.ubatches), Some((2, "2")));
        assert_eq!(spec.rows.map(|rows| rows.value).as_deref(), Some("n"));
        assert_eq!(spec.exclusive.iter().map(|name| at(name.span)).collect::<Vec<_>>(), ["a", "b"]);

        let dims: Vec<_> = spec.dims.iter().map(|dim| dim.name.value.as_str()).collect();
        assert_eq!(dims, ["z", "n", "half", "ratios"], "in the order of the text");
        assert!(matches!(&spec.dims[0].value, DimValue::Expr(expr) if at(expr.span) == "8"));
        let runtime = &spec.dims[1].value;
        assert!(
            matches!(runtime, DimValue::Runtime { nominal: 8192, span } if at(*span) == "8192")
        );
        assert!(matches!(&spec.dims[2].value, DimValue::Expr(expr) if at(expr.span) == "n / 2"));
        assert!(matches!(&spec.dims[3].value, DimValue::List(list) if *list == [0, 4, -1]));

        assert_eq!(spec.layers.count.unwrap().to_string(), "z - 5");
        let columns = &spec.layers.columns;
        assert!(matches!(&columns[0].source, ColumnSource::Name(name) if name.value == "ratios"));
        assert!(matches!(&columns[1].source, ColumnSource::List(list) if list.value == [1, 2, 3]));

        let [first, second] = spec.steps.as_slice() else { panic!("{:?}", spec.steps) };
        assert_eq!((first.stream.as_ref(), first.launch), (None, Launch::Full));
        assert_eq!((first.writes[1].group.as_str(), at(first.writes[1].span)), ("b", "b.y"));
        assert_eq!(first.writes[1].buffer.as_deref(), Some("y"));
        assert_eq!(second.stream.as_ref().map(|name| name.value.as_str()), Some("aux"));
        assert_eq!(second.when.as_ref().map(ToString::to_string).as_deref(), Some("ratio == 4"));
        assert_eq!(second.launch, Launch::Early);
        let after = &second.after[1];
        assert_eq!(
            (after.prev, after.step.as_str(), at(after.span)),
            (true, "second", "prev.second")
        );
        assert!(!second.after[0].prev);

        let [a, b] = spec.groups.as_slice() else { panic!("{:?}", spec.groups) };
        assert_eq!(a.when, Some(Expr::int(1, a.when.as_ref().unwrap().span)));
        assert_eq!(a.condition.as_ref().map(ToString::to_string).as_deref(), Some("z > 4"));
        assert_eq!((a.buffers[0].dtype.value, at(a.buffers[0].dtype.span)), (DType::BF16, "bf16"));
        let shape: Vec<_> = a.buffers[0].shape.iter().map(|extent| at(extent.span)).collect();
        assert_eq!(shape, ["n", "half", "3"]);
        assert_eq!(number(a.buffers[0].align), Some((1024, "1024")));
        assert!(b.buffers[0].shape.is_empty());
    }

    /// Each error as `code: message @ the text it points at`, after a pool that is right.
    fn errors(text: &str) -> Vec<String> {
        let text = format!("pool.name = 'P'\n{text}");
        let read = read(&text, Path::new("/no such folder"));
        let line = |error: &Error| {
            let at = &text[index(error.span.start)..index(error.span.end)];
            format!("{}: {} @ {at}", error.code(), error.message())
        };
        read.errors.iter().map(line).collect()
    }

    #[test]
    fn each_mistake_is_named_at_its_exact_place() {
        let mut wrong = vec![];
        for (text, expected) in [
            // Keys.
            ("stepp = 1", "unknown_key: the spec has no key `stepp` @ stepp"),
            ("pool.alignn = 1", "unknown_key: `[pool]` has no key `alignn` @ alignn"),
            (
                "[[step]]\nname = 's'\nwrite = []",
                "unknown_key: step `s` has no key `write` @ write",
            ),
            (
                "[[group]]\nname = 'g'\nbufer = []",
                "unknown_key: group `g` has no key `bufer` @ bufer",
            ),
            (
                "dims.n = { runtime = 1, typical = 2 }",
                "unknown_key: dim `n` has no key `typical` @ typical",
            ),
            ("[[step]]", "syntax: `[[step]]` has no `name` @ [[step]]"),
            ("dims.n = {}", "syntax: dim `n` has no `runtime` @ {}"),
            // Types.
            ("config = 3", "syntax: `config` must be the path of a file, found an integer @ 3"),
            ("dims = 3", "syntax: `dims` must be a table, found an integer @ 3"),
            ("pool.align = '8'", "syntax: `align` must be an integer, found a string @ '8'"),
            (
                "pool.exclusive = 'a'",
                "syntax: `exclusive` must be a list of groups, found a string @ 'a'",
            ),
            (
                "pool.exclusive = [1]",
                "syntax: `exclusive` must be a list of groups, found a list with an integer @ 1",
            ),
            (
                "dims.n = true",
                "syntax: `n` must be an integer, an expression, a list of integers or `{ runtime = … }`, found a boolean @ true",
            ),
            (
                "dims.n = [1, 2.5]",
                "syntax: `n` must be an integer, an expression, a list of integers or `{ runtime = … }`, found a list with a float @ 2.5",
            ),
            (
                "[step]",
                "syntax: `step` must be a list of tables (`[[step]]`), found a table @ [step]",
            ),
            (
                "step = [1]",
                "syntax: `step` must be a list of tables (`[[step]]`), found a list with an integer @ 1",
            ),
            (
                "[[step]]\nname = 1979-05-27",
                "syntax: `name` must be a name, found a date @ 1979-05-27",
            ),
            (
                "[[step]]\nname = 's'\nwhen = true",
                "syntax: `when` must be an integer or an expression, found a boolean @ true",
            ),
            (
                "[[step]]\nname = 's'\nafter = 'r'",
                "syntax: `after` must be a list of steps, found a string @ 'r'",
            ),
            (
                "[[step]]\nname = 's'\nreads = [['a']]",
                "syntax: `reads` must be a list of groups and buffers, found a list with a list @ ['a']",
            ),
            // Layers.
            (
                "layers.ratio = 4",
                "layers: layer attribute `ratio` must be a list of integers or of strings, or the name of one, found an integer @ 4",
            ),
            (
                "layers.ratio = [4, '4']",
                "layers: layer attribute `ratio` must be a list of integers or of strings, or the name of one, found a list with a string @ '4'",
            ),
            (
                "layers.count = [4]",
                "syntax: `count` must be an integer or an expression, found a list @ [4]",
            ),
            // Names.
            ("dims.'a b' = 1", "syntax: `a b` is not a name @ 'a b'"),
            ("layers.ratio = 'a + b'", "syntax: `a + b` is not a name @ a + b"),
            ("[[step]]\nname = 'prev.s'", "syntax: `prev.s` is not a name @ prev.s"),
            ("[[step]]\nname = ''", "syntax: `` is not a name @ ''"),
            ("[[step]]\nname = 's'\nstream = 'a-b'", "syntax: `a-b` is not a name @ a-b"),
            (
                "[[step]]\nname = 's'\nafter = ['prev.prev.s']",
                "syntax: `prev.s` is not a name @ prev.prev.s",
            ),
            ("[[step]]\nname = 's'\nreads = ['a.b.c']", "syntax: `b.c` is not a name @ a.b.c"),
            (
                "[[step]]\nname = 's'\nlaunch = 'erly'",
                "unknown_name: no launch kind is called `erly` @ erly",
            ),
            // Numbers and expressions.
            (
                "pool.align = 0x8000000000000000",
                "expression: the integer 0x8000000000000000 is beyond 63 bits @ 0x8000000000000000",
            ),
            (
                "dims.n = 9223372036854775808",
                "expression: the integer 9223372036854775808 is beyond 63 bits @ 9223372036854775808",
            ),
            ("dims.n = 'm +'", "expression: the expression ends where a value is expected @ +"),
            ("dims.n = ''", "expression: the expression ends where a value is expected @ ''"),
            ("dims.n = 'm = 1'", "expression: `=` cannot stand here in an expression @ ="),
            ("dims.n = '''\nm ** 2'''", "expression: `*` cannot stand here in an expression @ *"),
            (
                "dims.n = \"\"\"m ** 2\"\"\"",
                "expression: `*` cannot stand here in an expression @ *",
            ),
            (
                "dims.n = \"m \\u002a* 2\"",
                "expression: `*` cannot stand here in an expression @ \"m \\u002a* 2\"",
            ),
            ("dims.n = 'floor(1, 2)'", "unknown_name: no function is called `floor` @ floor"),
            // The configuration.
            (
                "config = 'c.json'",
                "config: cannot use the configuration `/no such folder/c.json`: there is no such file @ c.json",
            ),
            // Text that is no TOML.
            ("dims.n = 1\ndims.n = 2", "syntax: duplicate key @ n"),
            ("dims.n = ", "syntax: string values must be quoted, expected literal string @ "),
            (
                "dims.n = 256k",
                "syntax: string values must be quoted, expected literal string @ 256k",
            ),
            ("dims.n = True", "syntax: invalid boolean, expected `true` @ True"),
        ] {
            if errors(text) != [expected] {
                wrong.push((errors(text), expected));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn all_mistakes_of_a_buffer_are_found_at_once_in_order() {
        let text = "[[group]]\nname = 'g'\n[[group.buffer]]\nalign = 1.5\nshape = ['n +', 2, false]\ndtype = 'bf61'\nnam = 'x'";
        assert_eq!(
            errors(text),
            [
                "syntax: `[[group.buffer]]` has no `name` @ [[group.buffer]]",
                "syntax: `align` must be an integer, found a float @ 1.5",
                "expression: the expression ends where a value is expected @ +",
                "syntax: `shape` must be a list of integers and expressions, found a boolean @ false",
                "unknown_name: no element type is called `bf61` @ bf61",
                "unknown_key: `[[group.buffer]]` has no key `nam` @ nam",
            ]
        );
    }

    #[test]
    fn a_spec_without_a_pool_says_so() {
        let errors = read("", Path::new(".")).errors;
        assert_eq!(errors[0].message(), "the spec has no `[pool]`");
        let errors = read("[pool]", Path::new(".")).errors;
        assert_eq!(errors[0].message(), "`[pool]` has no `name`");
    }

    #[test]
    fn the_nearest_key_or_word_is_offered() {
        for (text, expected) in [
            ("[[step]]\nname = 's'\nstreem = 'x'", Some("did you mean `stream`?")),
            ("[[step]]\nname = 's'\nlaunch = 'Early'", Some("did you mean `early`?")),
            ("groups = []", Some("did you mean `group`?")),
            ("zebra = 1", Some("there are `config`, `pool`, `dims`, `layers`, `step` and `group`")),
            // Words of the Rust spelling, and of other tables.
            ("[[step]]\nname = 's'\non = 'x'", Some("did you mean `stream`?")),
            ("rows = 'n'", Some("did you mean `pool.rows`?")),
            ("pool.dims = { n = 1 }", Some("did you mean `[dims]`?")),
            ("pool.layers = { count = 1 }", Some("did you mean `[layers]`?")),
            ("pool.step = []", Some("did you mean `[[step]]`?")),
            (
                "pool.config = 'c'",
                Some("`config` stands at the top of the spec, before all tables"),
            ),
        ] {
            let text = format!("pool.name = 'P'\n{text}");
            let errors = read(&text, Path::new(".")).errors;
            assert_eq!(errors[0].help().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn names_and_expressions_without_quotes_are_told_as_such() {
        let mut wrong = vec![];
        for (text, value, written) in [
            ("layers.count = num_layers", "num_layers", "layers.count = \"num_layers\""),
            ("[dims]\nn = m / 2  # half", "m / 2", "n = \"m / 2\""),
            ("[dims]\nn = 4 * m", "4 * m", "n = \"4 * m\""),
            ("[dims]\nn = max(m, 2)", "max(m, 2)", "n = \"max(m, 2)\""),
            ("dims = { n = no, m = 1 }", "no", "n = \"no\""),
            ("[[step]]\nwhen = layer == 3", "layer == 3", "when = \"layer == 3\""),
            ("shape = [m, 4]", "m", "\"m\""),
            ("shape = [4, m / 2]", "m / 2", "\"m / 2\""),
            ("after = [\n  prev.q,\n]", "prev.q", "\"prev.q\""),
        ] {
            let found = errors(text);
            let expected = format!("syntax: `{value}` stands without quotes @ {value}");
            let help = read(&format!("pool.name = 'P'\n{text}"), Path::new(".")).errors[0].help();
            let expected_help = format!("a name or an expression stands in quotes: `{written}`");
            if found != [expected] || help != Some(expected_help) {
                wrong.push((text, found, help));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn text_that_is_not_toml_gives_one_error_a_line_and_nothing_else() {
        let found = errors("a b c\n= = =\n[pool]\nname = 3");
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found.iter().all(|line| line.starts_with("syntax: ")), "{found:#?}");
    }

    #[test]
    fn hostile_text_ends_with_few_short_errors() {
        let deep = format!("pool.name = 'P'\nx = {}", "[".repeat(50_000));
        assert_eq!(read(&deep, Path::new(".")).errors[0].code(), Code::Syntax);
        let many: Vec<_> = (0..100_000).map(|key| format!("k{key} = 1")).collect();
        let many = many.join("\n");
        assert_eq!(read(&many, Path::new(".")).errors.len(), MOST_ERRORS);
        let long = "x".repeat(5 << 20);
        let errors = read(&long, Path::new(".")).errors;
        assert_eq!(errors[0].message(), "a spec has at most 4 MiB");
        let key = format!("pool.name = 'P'\n{} = 1", "x".repeat(1 << 20));
        let errors = read(&key, Path::new(".")).errors;
        assert!(errors[0].message().len() < 200);
    }

    #[test]
    fn a_configuration_is_relative_to_the_base() {
        let folder = std::env::temp_dir().join(format!("scratchpool-read-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("c.json"), r#"{"head_dim": 512}"#).unwrap();
        let spec = read("config = 'c.json'\npool.name = 'P'", &folder).whole().unwrap();
        assert_eq!(spec.config, [("head_dim".to_owned(), Value::Int(512))]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_errors_that_no_gap_may_have_caused_stand() {
        let unknown = |kind, name: &str| {
            let fault = Fault::UnknownName { kind, name: name.into(), nearest: None };
            Error::new(fault, Span::default())
        };
        let order = Fault::Order { step: "a".into(), after: "b".into(), declared: Span::default() };
        let order = Error::new(order, Span::default());
        let read_after_pool =
            |text: &str| read(&format!("pool.name = 'P'\n{text}"), Path::new("/"));

        let whole = read_after_pool("dims.n = 1");
        assert!(whole.stands(&unknown(NameKind::Value, "m")));
        let one_dim = read_after_pool("dims.n = 'm +'");
        assert!(!one_dim.stands(&unknown(NameKind::Value, "n")));
        assert!(one_dim.stands(&unknown(NameKind::Value, "m")));
        assert!(one_dim.stands(&order));
        let no_config = read("config = 'no such file'\npool.name = 'P'", Path::new("/"));
        assert!(!no_config.stands(&unknown(NameKind::Value, "m")));
        assert!(no_config.stands(&unknown(NameKind::Step, "m")));
        let no_step = read_after_pool("[[step]]\nnam = 's'");
        assert!(!no_step.stands(&unknown(NameKind::Step, "s")));
        assert!(no_step.stands(&unknown(NameKind::Group, "s")));
        let not_toml = read_after_pool("x");
        assert!(!not_toml.stands(&order));
    }
}
