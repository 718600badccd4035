//! The pool spec: what a user declared, before anything is evaluated.
//!
//! Both front ends, the attribute macro and the TOML reader, lower to these types, so the same code
//! checks, proves and packs them. Every part that an error could point at carries a [`Span`];
//! what its numbers mean is the front end's affair (byte offsets into a TOML file, indices into a
//! list of Rust tokens).
//!
//! Invariant: a `Spec` is only well-formed as syntax. Names may be unknown, sizes impossible,
//! steps duplicated: [`crate::structure`] and [`crate::sizes`] find that out and return all of it at once.

use crate::expr::Expr;

/// A range in the front end's source: from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First position.
    pub start: u32,
    /// One past the last position.
    pub end: u32,
}

impl Span {
    /// A span from `start` up to, not including, `end`.
    pub const fn new(start: u32, end: u32) -> Self {
        Self { start, end }
    }

    /// The smallest span that holds both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// A value and where it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it was written.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Pairs a value with its place.
    pub const fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

/// A name and where it was written.
pub type Name = Spanned<String>;

/// Everything a user says about one pool.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// `pool.name`.
    pub name: Name,
    /// `pool.align` in bytes; [`DEFAULT_ALIGN`] when absent.
    pub align: Option<Spanned<i64>>,
    /// The dim that `begin` cuts: a leading extent that mentions it shrinks to the rows of a pass.
    pub rows: Option<Name>,
    /// How many disjoint copies of the arena there are, one for each micro-batch in flight.
    pub ubatches: Option<Spanned<i64>>,
    /// Groups claimed never to be live together: proven, or an error.
    pub exclusive: Vec<Name>,
    /// Integers and lists of integers of the model's configuration.
    pub config: Vec<(String, Value)>,
    /// Declared dims, in order of declaration.
    pub dims: Vec<Dim>,
    /// The layers and their attributes.
    pub layers: Layers,
    /// The steps, in the order in which the host issues them.
    pub steps: Vec<Step>,
    /// The groups of buffers.
    pub groups: Vec<Group>,
}

impl Default for Name {
    fn default() -> Self {
        Self::new(String::new(), Span::default())
    }
}

/// Alignment of a pool that does not state one: what `cuMemAlloc` guarantees for the base.
pub const DEFAULT_ALIGN: i64 = 256;

/// The stream of a step that does not state one.
pub const DEFAULT_STREAM: &str = "main";

/// A configuration value: an integer or a list of integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// One integer.
    Int(i64),
    /// A list of integers.
    List(Vec<i64>),
}

/// One entry of `dims`.
#[derive(Clone, Debug)]
pub struct Dim {
    /// The name it defines.
    pub name: Name,
    /// Its value.
    pub value: DimValue,
}

/// What a dim is set to.
#[derive(Clone, Debug)]
pub enum DimValue {
    /// An integer or an expression over other names.
    Expr(Expr),
    /// A list of integers, to be used as a layer column.
    List(Vec<i64>),
    /// Known only when the pool is allocated. The packing order is chosen at `nominal`.
    Runtime {
        /// A typical value.
        nominal: i64,
        /// Where `runtime` was written.
        span: Span,
    },
}

/// The `layers` table. With neither count nor columns there is one layer.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Number of layers; the length of the shortest column when absent.
    pub count: Option<Expr>,
    /// One column an attribute.
    pub columns: Vec<Column>,
    /// Where the table was written.
    pub span: Span,
}

/// One attribute of the layers.
#[derive(Clone, Debug)]
pub struct Column {
    /// The attribute's name, usable in `when`.
    pub name: Name,
    /// Its values.
    pub source: ColumnSource,
}

/// Where a column's values come from.
#[derive(Clone, Debug)]
pub enum ColumnSource {
    /// The name of a list.
    Name(Name),
    /// A list written in place.
    List(Spanned<Vec<i64>>),
}

/// How a step's first kernel is launched, which decides what it comes after on its own stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Launch {
    /// After every node issued earlier on its stream.
    #[default]
    Full,
    /// Programmatic dependent launch that waits for the preceding kernel before its first access:
    /// after that node and all which that node comes after, nothing more.
    Dependent,
    /// Programmatic dependent launch without that wait: after all that the preceding node comes
    /// after, but not after that node itself.
    Early,
}

impl Launch {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Full, Self::Dependent, Self::Early];

    /// The word used in specs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Dependent => "dependent",
            Self::Early => "early",
        }
    }

    /// The kind that a spec's word names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// One step of a layer.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name, unique in the pool.
    pub name: Name,
    /// The stream it is issued on; [`DEFAULT_STREAM`] when absent.
    pub stream: Option<Name>,
    /// The layers in which it runs; every layer when absent.
    pub when: Option<Expr>,
    /// What it waits for, beyond its own stream.
    pub after: Vec<After>,
    /// How it is launched.
    pub launch: Launch,
    /// What it writes: groups or single buffers.
    pub writes: Vec<Target>,
    /// What it reads: groups or single buffers.
    pub reads: Vec<Target>,
}

/// An event that a step waits for.
#[derive(Clone, Debug)]
pub struct After {
    /// `prev.`: of the latest earlier layer that ran the step, earlier passes included.
    pub prev: bool,
    /// The step after which the event is recorded.
    pub step: String,
    /// Where it was written.
    pub span: Span,
}

/// A group, or one buffer of a group, named by a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The group.
    pub group: String,
    /// The buffer; all of the group's when absent.
    pub buffer: Option<String>,
    /// Where it was written.
    pub span: Span,
}

/// Buffers declared together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name, unique in the pool.
    pub name: Name,
    /// The layers in which it exists; every layer when absent.
    pub when: Option<Expr>,
    /// Decided once: 0 removes the group.
    pub condition: Option<Expr>,
    /// Its buffers.
    pub buffers: Vec<Buffer>,
}

/// One tensor.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Its name, unique in its group.
    pub name: Name,
    /// Element type.
    pub dtype: Spanned<DType>,
    /// Extents, row-major.
    pub shape: Vec<Expr>,
    /// Alignment in bytes; the pool's when absent.
    pub align: Option<Spanned<i64>>,
}

macro_rules! dtypes {
    ($($variant:ident $word:literal $bytes:literal,)*) => {
        /// Element type of a buffer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DType {
            $(#[doc = concat!("`", $word, "`, ", $bytes, " byte(s) an element.")] $variant,)*
        }

        impl DType {
            /// All element types.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word used in specs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Bytes of one element.
            pub const fn bytes(self) -> u64 {
                match self { $(Self::$variant => $bytes,)* }
            }
        }
    };
}

dtypes! {
    Bool "bool" 1,
    U8 "u8" 1,
    I8 "i8" 1,
    F8E4M3 "f8e4m3" 1,
    F8E5M2 "f8e5m2" 1,
    E8M0 "e8m0" 1,
    U16 "u16" 2,
    I16 "i16" 2,
    F16 "f16" 2,
    BF16 "bf16" 2,
    U32 "u32" 4,
    I32 "i32" 4,
    F32 "f32" 4,
    U64 "u64" 8,
    I64 "i64" 8,
    F64 "f64" 8,
}

impl DType {
    /// The element type that a spec's word names.
    ///
    /// ```
    /// use scratchpool_planner::spec::DType;
    /// assert_eq!(DType::from_word("bf16").map(DType::bytes), Some(2));
    /// assert_eq!(DType::from_word("bf17"), None);
    /// ```
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.as_str() == word)
    }
}

/// Whether a word can name a step, group, buffer, dim, stream or attribute: a letter or `_`, then
/// letters, digits and `_`.
///
/// ```
/// use scratchpool_planner::spec::is_name;
/// assert!(is_name("index_q"));
/// assert!(!is_name("prev.fork"));
/// ```
pub fn is_name(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|first| first == '_' || first.is_alphabetic())
        && chars.all(|rest| rest == '_' || rest.is_alphanumeric())
}
