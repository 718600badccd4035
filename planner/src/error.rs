//! Everything that can be wrong with a spec, and every text that says so.
//!
//! A [`Fault`] carries the numbers and names; the texts are made from it here and nowhere else, so
//! that the macro, the command and the JSON say the same thing. Each error has a [`Code`] of the
//! contract, a place ([`Error::span`]), related places, and a way to mend it.
//!
//! Stages collect errors and go on: a user sees all of them at once.

use std::fmt;

use scratchpool_tables::layer_list;

use crate::expr::Problem;
use crate::spec::{DEFAULT_ALIGN, DType, Launch, Span};

macro_rules! codes {
    ($($variant:ident $word:literal $doc:literal,)*) => {
        /// The stable name of a kind of error, as printed in JSON and in `error[…]`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $doc] $variant,)*
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The code as it is printed.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

codes! {
    Syntax "syntax" "The text is not a spec: malformed, a wrong type, a missing key.",
    UnknownKey "unknown_key" "A key that specs do not have.",
    UnknownName "unknown_name" "A name that nothing defines.",
    Expression "expression" "Malformed, inexact, zero divisor, overflow, or not known in time.",
    Shape "shape" "A dimension below 1 or a size beyond 63 bits.",
    Align "align" "Not a power of two, or below the pool's.",
    Layers "layers" "Columns shorter than the count, not a list, or no layer at all.",
    Duplicate "duplicate" "Two steps, groups or buffers of a group with one name.",
    Order "order" "An `after` that names a step which is not listed earlier.",
    Config "config" "The configuration file is missing, unreadable or not JSON.",
    ReadBeforeWrite "read_before_write" "A read, in the very first pass, of what nothing has written.",
    Race "race" "Two accesses of one live range, one of them a write, in no order.",
    Reuse "reuse" "A buffer written again while its former value may still be read.",
    NotExclusive "not_exclusive" "Groups claimed exclusive that can be live at the same time.",
    Internal "internal" "The planner's own check refused its layout: a fault of this crate.",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a name was expected to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A dim, a config integer or a layer attribute.
    Value,
    /// A list of integers.
    List,
    /// A step.
    Step,
    /// A group.
    Group,
    /// A buffer of a group.
    Buffer,
    /// An element type.
    DType,
    /// A launch kind.
    Launch,
    /// A function of the expression language.
    Function,
    /// A dim declared in `dims`.
    Dim,
}

impl NameKind {
    /// The noun used in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Value => "name",
            Self::List => "list",
            Self::Step => "step",
            Self::Group => "group",
            Self::Buffer => "buffer",
            Self::DType => "element type",
            Self::Launch => "launch kind",
            Self::Function => "function",
            Self::Dim => "dim",
        }
    }
}

/// One access of a step in a layer of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessAt {
    /// The step's name.
    pub step: String,
    /// Where the step is declared.
    pub span: Span,
    /// The stream it runs on.
    pub stream: String,
    /// The layer.
    pub layer: usize,
    /// The pass, counted from the first that the finding involves.
    pub pass: usize,
    /// Whether it writes.
    pub write: bool,
}

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

/// Two accesses in the wrong order or in none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The buffers with this conflict: one, or several that the same steps access in the same way.
    pub buffers: Vec<String>,
    /// The access issued first.
    pub first: AccessAt,
    /// The access issued second, which does not come after it.
    pub second: AccessAt,
    /// The layers of first and second in each place where it happens, passes apart.
    pub layers: Vec<(usize, usize)>,
    /// An order of execution that shows it, and why nothing forbids that order.
    pub trace: Vec<String>,
    /// What would mend it.
    pub mend: Option<Mend>,
}

/// Buffers that nothing has written when they are read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// The buffers.
    pub buffers: Vec<String>,
    /// Why.
    pub cause: Cause,
}

/// Why nothing has written a buffer when it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No step writes it.
    NoWriter,
    /// A step writes it in the same layer, but is listed after the reader.
    ListedLater {
        /// That step.
        writer: String,
        /// The layer.
        layer: usize,
    },
    /// The step that writes it does not run there.
    NotRun {
        /// That step.
        writer: String,
        /// Its `when`.
        when: String,
        /// The layers of the reads in which it does not run; empty where it runs in none at all.
        layers: Vec<usize>,
    },
}

/// The two spellings of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// A TOML file.
    Toml,
    /// An annotated struct.
    Rust,
}

/// One declaration that would mend a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mend {
    /// The step that would wait.
    pub waiter: String,
    /// What it would wait for, as written in `after`.
    pub after: String,
    /// How many errors it would mend, this one included.
    pub mends: usize,
    /// How many errors there are.
    pub of: usize,
}

/// What is wrong, with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Malformed text; what the reader of the format says.
    Syntax(String),
    /// A name or an expression that stands without quotes in a TOML file.
    Unquoted {
        /// The key, where it stands right before.
        key: Option<String>,
        /// The name or expression.
        value: String,
    },
    /// A value of a type that cannot stand there.
    Type {
        /// The key or place.
        key: String,
        /// What can stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A key that must be there.
    Missing {
        /// The key.
        key: &'static str,
        /// The table it belongs to.
        table: String,
    },
    /// A key that does not exist.
    UnknownKey {
        /// The key.
        key: String,
        /// The table it stands in.
        table: String,
        /// The nearest key that exists there.
        nearest: Option<String>,
    },
    /// A word that cannot be a name.
    NotAName {
        /// The word.
        word: String,
    },
    /// A name that nothing defines.
    UnknownName {
        /// What it should name.
        kind: NameKind,
        /// The name.
        name: String,
        /// The nearest name of that kind.
        nearest: Option<String>,
    },
    /// An expression that is malformed or has no value.
    Expression {
        /// What is wrong.
        problem: Problem,
        /// The first layer in which it is wrong, for expressions evaluated in each layer.
        layer: Option<usize>,
    },
    /// A dim known only when the pool is allocated, where the schedule needs its value.
    NotConstant {
        /// The dim.
        name: String,
        /// What needs it.
        place: &'static str,
    },
    /// Dims defined by one another.
    Cycle {
        /// The names in the cycle, in order.
        names: Vec<String>,
    },
    /// A dimension below 1.
    Dimension {
        /// The buffer.
        buffer: String,
        /// The axis, from 0.
        axis: usize,
        /// The value.
        value: i64,
    },
    /// A dim that counts rows, or that is given at start-up, below 1.
    DimValue {
        /// The dim.
        dim: String,
        /// Its value.
        value: i64,
    },
    /// A layer attribute where the size of a buffer is given.
    AttributeInShape {
        /// The attribute.
        name: String,
    },
    /// A buffer beyond 63 bits.
    Size {
        /// The buffer.
        buffer: String,
    },
    /// All buffers together beyond 63 bits.
    TotalSize,
    /// A leading extent that can shrink or fail as the rows of a pass change.
    Rows {
        /// The buffer.
        buffer: String,
        /// The dim of the rows.
        rows: String,
    },
    /// An alignment that is no power of two.
    AlignPower {
        /// The value.
        value: i64,
    },
    /// A buffer's alignment below its pool's.
    AlignBelow {
        /// The buffer's.
        value: i64,
        /// The pool's.
        pool: u64,
    },
    /// A number of layers that is below 1 or too large.
    LayerCount {
        /// The count.
        count: i64,
    },
    /// A column with fewer entries than there are layers.
    ShortColumn {
        /// The column.
        column: String,
        /// Its entries.
        entries: usize,
        /// The layers.
        count: usize,
    },
    /// A column that names an integer.
    NotAList {
        /// The name.
        name: String,
    },
    /// A column that is no list at all.
    ColumnType {
        /// The column.
        column: String,
        /// What stands there.
        found: String,
    },
    /// More nodes in one pass than the prover takes.
    TooManyNodes {
        /// The nodes.
        nodes: usize,
        /// The most it takes.
        most: usize,
    },
    /// Two things of one kind with one name.
    Duplicate {
        /// What they are.
        kind: &'static str,
        /// The name.
        name: String,
        /// Where the first one is.
        first: Span,
    },
    /// An `after` that names the step itself or a later one.
    Order {
        /// The step that would wait.
        step: String,
        /// The step it names.
        after: String,
        /// Where that one is declared.
        declared: Span,
    },
    /// A spec's file that cannot be read.
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// A configuration file that cannot be used.
    Config {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// What the independent verifier found wrong with a finished layout.
    Refused(Vec<String>),
    /// A number of micro-batches that is not in 1..=64.
    Ubatches {
        /// The number.
        value: i64,
    },
    /// A read of what nothing has written.
    ReadBeforeWrite {
        /// The buffers.
        buffers: Vec<String>,
        /// The read.
        read: Box<AccessAt>,
        /// The layers in which it happens.
        layers: Vec<usize>,
        /// Why nothing has written them, each cause once.
        causes: Vec<Unwritten>,
    },
    /// Two accesses of one live range in no order.
    Race(Box<Conflict>),
    /// Two consecutive live ranges of one buffer in no order.
    Reuse(Box<Conflict>),
    /// Groups claimed exclusive that are not.
    NotExclusive {
        /// The first group.
        a: String,
        /// The second group.
        b: String,
        /// All pairs of their buffers that interfere.
        pairs: Vec<(String, String)>,
        /// The clearest of the conflicts.
        conflict: Box<Conflict>,
        /// Bytes that the arena would need more without the claim: with these pairs kept apart
        /// against with them overlaid. `None` where the sizes are in error too.
        bytes: Option<u64>,
    },
}

/// What is known beside a fault and helps to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// All that could stand there, where it is few and none of it near.
    Known(Vec<String>),
    /// The configuration has the name, but as this, which is no name.
    Ignored(&'static str),
    /// The name is an attribute of the layers, so has a value only in `when`.
    OfLayers,
    /// The pool names no configuration that could define the name.
    NoConfig,
    /// The key stands at the top of a spec, not in a table.
    AtTop,
    /// It was given on the command line, as this argument.
    Argument(String),
    /// It is the value of a dim that was meant to be known at start-up.
    StartUp {
        /// The dim.
        dim: String,
        /// Its typical value, where one stands there.
        nominal: Option<i64>,
    },
}

/// A fault and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong.
    pub fault: Fault,
    /// Where.
    pub span: Span,
    /// What helps to mend it.
    pub hints: Vec<Hint>,
}

/// A related place and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// The text.
    pub text: String,
}

impl Error {
    /// A fault at a place.
    pub const fn new(fault: Fault, span: Span) -> Self {
        Self { fault, span, hints: Vec::new() }
    }

    /// The error with one hint more.
    #[must_use]
    pub fn with(mut self, hint: Hint) -> Self {
        self.hints.push(hint);
        self
    }

    /// The error as one in the value of a dim, of which `text` is what was written.
    #[must_use]
    pub fn in_dim(self, dim: &str, text: &str) -> Self {
        let is_runtime = match &self.fault {
            Fault::UnknownName { name, .. }
            | Fault::Expression { problem: Problem::UnknownFunction(name), .. } => name == RUNTIME,
            _ => false,
        };
        if !is_runtime {
            return self;
        }
        let text: String = text.split_whitespace().collect();
        let inner = text.strip_prefix("runtime(").and_then(|rest| rest.strip_suffix(')'));
        let nominal = inner.and_then(|inner| inner.replace('_', "").parse().ok());
        self.with(Hint::StartUp { dim: dim.to_owned(), nominal })
    }

    /// A name that is not among those `known`, with the nearest of them or, where none is near and
    /// there are few, all.
    pub fn unknown_name<'n>(
        kind: NameKind,
        name: &str,
        known: impl IntoIterator<Item = &'n str> + Clone,
        span: Span,
    ) -> Self {
        let nearest = nearest(name, known.clone());
        let few = few(known).filter(|_| nearest.is_none());
        let error = Self::new(Fault::UnknownName { kind, name: name.to_owned(), nearest }, span);
        few.into_iter().fold(error, Self::with)
    }

    /// A key that is not among those `known` in its table, with the nearest of them or all.
    pub fn unknown_key(key: &str, table: &str, known: &[&str], span: Span) -> Self {
        let nearest = nearest(key, known.iter().copied());
        let few = few(known.iter().copied()).filter(|_| nearest.is_none());
        let (key, table) = (key.to_owned(), table.to_owned());
        let error = Self::new(Fault::UnknownKey { key, table, nearest }, span);
        few.into_iter().fold(error, Self::with)
    }

    /// The stable code.
    pub const fn code(&self) -> Code {
        match &self.fault {
            Fault::Syntax(_)
            | Fault::Unquoted { .. }
            | Fault::Unreadable { .. }
            | Fault::Type { .. }
            | Fault::Missing { .. }
            | Fault::NotAName { .. }
            | Fault::Ubatches { .. } => Code::Syntax,
            Fault::UnknownKey { .. } => Code::UnknownKey,
            Fault::UnknownName { .. } | Fault::AttributeInShape { .. } => Code::UnknownName,
            Fault::Expression { problem, .. } => match problem {
                Problem::UnknownName(_) | Problem::UnknownFunction(_) => Code::UnknownName,
                _ => Code::Expression,
            },
            Fault::NotConstant { .. } | Fault::Cycle { .. } => Code::Expression,
            Fault::Dimension { .. }
            | Fault::DimValue { .. }
            | Fault::Size { .. }
            | Fault::TotalSize
            | Fault::Rows { .. } => Code::Shape,
            Fault::AlignPower { .. } | Fault::AlignBelow { .. } => Code::Align,
            Fault::LayerCount { .. }
            | Fault::ShortColumn { .. }
            | Fault::NotAList { .. }
            | Fault::ColumnType { .. }
            | Fault::TooManyNodes { .. } => Code::Layers,
            Fault::Duplicate { .. } => Code::Duplicate,
            Fault::Order { .. } => Code::Order,
            Fault::Config { .. } => Code::Config,
            Fault::Refused(_) => Code::Internal,
            Fault::ReadBeforeWrite { .. } => Code::ReadBeforeWrite,
            Fault::Race(_) => Code::Race,
            Fault::Reuse(_) => Code::Reuse,
            Fault::NotExclusive { .. } => Code::NotExclusive,
        }
    }

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
                        "the configuration has `{name}`, but it is {found}; only integers and lists of integers are names"
                    )),
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
            Fault::NotAList { name } => {
                format!("`{name}` is an integer; a layer attribute needs a list")
            }
            Fault::ColumnType { column, found } => format!(
                "layer attribute `{column}` must be a list of integers or the name of one, found {found}"
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
                    Hint::OfLayers => Some("not known here".to_owned()),
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
            Fault::Race(conflict) | Fault::Reuse(conflict) => vec![pair_layers(&conflict.layers)],
            Fault::NotExclusive { conflict, bytes, pairs, .. } => {
                let mut notes = vec![pair_layers(&conflict.layers)];
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

    /// How to mend it, in the words of a TOML spec.
    pub fn help(&self) -> Option<String> {
        self.help_in(Spelling::Toml)
    }

    /// How to mend it, in the words of one of the two spellings.
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
                Problem::Unexpected(text) if text.starts_with('"') => Some(match spelling {
                    Spelling::Toml => "an expression stands in one pair of quotes".into(),
                    Spelling::Rust => "expressions are written without quotes".into(),
                }),
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
            | Fault::NotExclusive { conflict, .. } => conflict.mend.as_ref().map(|mend| {
                let Mend { after, waiter, mends, of } = mend;
                let after = match spelling {
                    Spelling::Toml => format!("after = [\"{after}\"]"),
                    Spelling::Rust => format!("after({after})"),
                };
                let added = format!("`{after}` on step `{waiter}`");
                match (mends, of) {
                    (2, 2) => format!("{added} would mend both errors"),
                    (2.., _) if mends == of => format!("{added} would mend all {of} errors"),
                    (2.., _) => format!("{added} would mend this error and {} more", mends - 1),
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
                Hint::NoConfig => Some("the pool names no `config`".to_owned()),
                _ => None,
            })
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
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

/// Hints that a configuration could define unknown names, at the first of them, where there are
/// several and none is near to one that exists. For a pool that names no configuration.
pub fn hint_at_config(errors: &mut [Error]) {
    let far = |error: &&mut Error| {
        let Fault::UnknownName { kind, name, nearest: None } = &error.fault else { return false };
        let other = |hint: &Hint| matches!(hint, Hint::OfLayers | Hint::Ignored(_));
        matches!(kind, NameKind::Value | NameKind::List)
            && name != RUNTIME
            && !error.hints.iter().any(other)
    };
    let mut unknown = errors.iter_mut().filter(far);
    if let (Some(first), Some(_)) = (unknown.next(), unknown.next()) {
        first.hints.push(Hint::NoConfig);
    }
}

/// The word that says that a dim is known at start-up.
const RUNTIME: &str = "runtime";

/// Most names that are told in place of one that is unknown.
const MOST_KNOWN: usize = 8;

/// All of the names, where they are few and short enough to tell.
fn few<'n>(known: impl IntoIterator<Item = &'n str>) -> Option<Hint> {
    let mut names: Vec<String> = Vec::new();
    for name in known {
        if names.iter().all(|each| each != name) {
            if names.len() == MOST_KNOWN || name.len() > 80 {
                return None;
            }
            names.push(name.to_owned());
        }
    }
    (!names.is_empty()).then_some(Hint::Known(names))
}

fn there_are<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    format!("there {} {}", agree(&names, "is only", "are"), list(&names))
}

/// A word that agrees in number with what it is about.
const fn agree<'w>(about: &[String], one: &'w str, more: &'w str) -> &'w str {
    if about.len() == 1 { one } else { more }
}

/// `64 or 128` for 100; what is no size at all gets the default.
fn powers_around(value: i64) -> String {
    let Some(below) = value.checked_ilog2().map(|log| 1_i64 << log) else {
        return DEFAULT_ALIGN.to_string();
    };
    below.checked_mul(2).map_or_else(|| below.to_string(), |above| format!("{below} or {above}"))
}

/// Most layers of a pool.
pub const MOST_LAYERS: usize = 4096;

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
                crate::expr::Function::Min | crate::expr::Function::Max => "two or more arguments",
                _ => "two arguments",
            };
            format!("`{}` takes {takes}, found {count}", function.as_str())
        }
        Problem::UnknownName(name) => format!("no name is called `{name}`"),
        Problem::List(name) => format!("`{name}` is a list; an integer is expected"),
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

/// `` `a`, `b` and `c` ``.
pub(crate) fn list(names: &[String]) -> String {
    match names {
        [] => "nothing".into(),
        [one] => format!("`{one}`"),
        [rest @ .., last] => {
            let rest: Vec<_> = rest.iter().map(|name| format!("`{name}`")).collect();
            format!("{} and `{last}`", rest.join(", "))
        }
    }
}

/// `happens in layers 2, 4; between layers 2 and 3, 3 and 0 of the next pass`, of which either part
/// may be absent.
pub(crate) fn pair_layers(layers: &[(usize, usize)]) -> String {
    let within: Vec<usize> = layers.iter().filter(|(a, b)| a == b).map(|(a, _)| *a).collect();
    let between: Vec<_> = layers.iter().filter(|(a, b)| a != b).collect();
    let mut parts = Vec::new();
    if !within.is_empty() {
        parts.push(format!("in {}", layer_list(&within)));
    }
    let pair = |(a, b): &(usize, usize)| {
        let next = if b < a { " of the next pass" } else { "" };
        format!("{a} and {b}{next}")
    };
    let shown: Vec<String> = between.iter().take(6).map(|each| pair(each)).collect();
    if !shown.is_empty() {
        let tail = match between.len().saturating_sub(shown.len()) {
            0 => String::new(),
            1 => " and 1 more pair".into(),
            more => format!(" and {more} more pairs"),
        };
        parts.push(format!("between layers {}{tail}", shown.join(", ")));
    }
    format!("happens {}", parts.join("; "))
}

/// The candidate nearest to `word` by edit distance, if it is near enough to be a slip. A full name
/// `group.buffer` is nearest to its last part.
///
/// ```
/// use scratchpool_planner::error::nearest;
/// assert_eq!(nearest("mpl", ["attention", "mlp"]), Some("mlp".to_owned()));
/// assert_eq!(nearest("qkv", ["attention", "attention.qkv"]), Some("attention.qkv".to_owned()));
/// assert_eq!(nearest("streem", ["stream", "name"]), Some("stream".to_owned()));
/// assert_eq!(nearest("zebra", ["stream", "name"]), None);
/// ```
pub fn nearest<'n>(word: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<String> {
    // No name that anyone wrote by hand is that long or has that many others beside it; what a
    // program wrote wrongly is not worth the comparisons.
    if word.len() > 256 {
        return None;
    }
    let word = word.to_lowercase();
    let length = word.chars().count();
    let limit = length.div_ceil(3).max(1);
    candidates
        .into_iter()
        .take(300)
        .filter_map(|candidate| {
            let lower = candidate.to_lowercase();
            if lower.rsplit_once('.').is_some_and(|(_, last)| last == word) {
                return Some((0, candidate));
            }
            // A word cut short or drawn out is a slip too, however long the rest.
            let shorter = lower.len().min(word.len());
            let part = shorter >= 3 && (lower.starts_with(&word) || word.starts_with(&lower));
            let near = part || lower.chars().count().abs_diff(length) <= limit;
            let most = if part { limit } else { usize::MAX };
            near.then(|| (distance(&word, &lower).min(most), candidate))
        })
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.to_owned())
}

/// Edit distance with insertions, deletions, substitutions and swaps of two neighbouring letters,
/// no letter edited twice (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    // The row above that one, and the letter that it stands for.
    let mut two_above: Vec<usize> = Vec::new();
    let mut a_before = None;
    for (i, a_char) in a.chars().enumerate() {
        let mut row = Vec::with_capacity(above.len());
        let mut left = i + 1;
        row.push(left);
        let mut b_before = None;
        for (j, (edges, b_char)) in above.windows(2).zip(&b).enumerate() {
            let &[diagonal, up] = edges else { continue };
            let substituted = diagonal + usize::from(a_char != *b_char);
            left = substituted.min(left + 1).min(up + 1);
            let swap = a_before == Some(*b_char) && b_before == Some(a_char);
            if let Some(before) = j.checked_sub(1).and_then(|j| two_above.get(j)).filter(|_| swap) {
                left = left.min(before + 1);
            }
            row.push(left);
            b_before = Some(*b_char);
        }
        two_above = std::mem::replace(&mut above, row);
        a_before = Some(a_char);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_single_changes() {
        for (a, b, steps) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("abc", "abc", 0),
            ("mpl", "mlp", 1),
            ("ab", "ba", 1),
            ("abcd", "badc", 2),
            ("ca", "abc", 3),
        ] {
            assert_eq!(distance(a, b), steps, "{a} {b}");
        }
    }

    #[test]
    fn a_word_cut_short_or_drawn_out_is_near() {
        assert_eq!(nearest("alignment", ["name", "align"]).as_deref(), Some("align"));
        assert_eq!(nearest("indices", ["indices_of_topk"]).as_deref(), Some("indices_of_topk"));
        assert_eq!(nearest("a", ["align"]), None);
    }

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
    fn a_buffer_is_near_to_its_name_without_its_group() {
        let known = ["attention", "mlp", "attention.qkv"];
        assert_eq!(nearest("qkv", known).as_deref(), Some("attention.qkv"));
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
        let problem = Problem::Unexpected("\"layer == 31\"".into());
        let error = Error::new(Fault::Expression { problem, layer: None }, Span::default());
        let help = |spelling| error.help_in(spelling).unwrap_or_default();
        assert_eq!(help(Spelling::Rust), "expressions are written without quotes");
        assert_eq!(help(Spelling::Toml), "an expression stands in one pair of quotes");
    }

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
            mend: None,
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

    #[test]
    fn pairs_of_layers_are_told_apart_by_whether_they_are_one_layer() {
        for (pairs, text) in [
            (&[(3, 3)][..], "happens in layer 3"),
            (&[(0, 0), (2, 2), (3, 4)], "happens in layers 0, 2; between layers 3 and 4"),
            (&[(2, 3), (3, 0)], "happens between layers 2 and 3, 3 and 0 of the next pass"),
            (
                &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)],
                "happens between layers 0 and 1, 1 and 2, 2 and 3, 3 and 4, 4 and 5, 5 and 6 and 1 more pair",
            ),
        ] {
            assert_eq!(pair_layers(pairs), text);
        }
    }
}
