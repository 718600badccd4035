//! What can be wrong, with its numbers and names, and the code of each.

use super::code::Code;
use super::nearest::nearest;
use crate::expr::Problem;
use crate::spec::Span;

/// What a name was expected to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// What would fix it.
    pub fix: Option<Fix>,
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

/// One declaration that would fix a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// The step that would wait.
    pub waiter: String,
    /// What it would wait for, as written in `after`.
    pub after: String,
    /// How many errors it would fix, this one included.
    pub fixes: usize,
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
    /// A column that names what is no list.
    NotAList {
        /// The name.
        name: String,
        /// What it stands for.
        found: &'static str,
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

/// What is known beside a fault and helps to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// All that could stand there, where it is few and none of it near.
    Known(Vec<String>),
    /// The configuration has the name, but as this, which is no name.
    Ignored(&'static str),
    /// The configuration has the name only inside other objects: the full names.
    Nested(Vec<String>),
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
    /// What helps to fix it.
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
}

/// Hints that a configuration could define unknown names, at the first of them, where there are
/// several and none is near to one that exists. For a pool that names no configuration.
pub fn hint_at_config(errors: &mut [Error]) {
    let far = |error: &&mut Error| {
        let Fault::UnknownName { kind, name, nearest: None } = &error.fault else { return false };
        let other =
            |hint: &Hint| matches!(hint, Hint::OfLayers | Hint::Ignored(_) | Hint::Nested(_));
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
pub(super) const RUNTIME: &str = "runtime";

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

/// Most layers of a pool.
pub(crate) const MOST_LAYERS: usize = 4096;
