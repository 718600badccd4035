//! The pool spec: what a user declared, before anything is evaluated.
//!
//! Both front ends, the attribute macro and the TOML reader, lower to these types, so the same code
//! checks, proves and packs them. Every part that an error could point at carries a [`Span`];
//! what its numbers mean is the front end's affair (byte offsets into a TOML file, indices into a
//! list of Rust tokens).
//!
//! Invariant: a `Spec` is only well-formed as syntax. Names may be unknown, sizes impossible,
//! steps duplicated: [`crate::structure`] and [`crate::sizes`] find that out and return all of it at once.

pub use scratchpool_tables::{DType, Launch, Name, Span, Spanned};

use crate::expr::Expr;
pub use crate::value::{Value, is_name};

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
    /// What the model's configuration defines.
    pub config: Vec<(String, Value)>,
    /// What else the configuration has, and what each is: no names, but known to a message.
    pub config_ignored: Vec<(String, &'static str)>,
    /// Declared dims, in order of declaration.
    pub dims: Vec<Dim>,
    /// The layers and their attributes.
    pub layers: Layers,
    /// The steps, in the order in which the host issues them.
    pub steps: Vec<Step>,
    /// The groups of buffers.
    pub groups: Vec<Group>,
}

/// Alignment of a pool that does not state one: what `cuMemAlloc` guarantees for the base.
pub const DEFAULT_ALIGN: i64 = 256;

/// The stream of a step that does not state one.
pub const DEFAULT_STREAM: &str = "main";

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
    /// A list of integers written in place.
    List(Spanned<Vec<i64>>),
    /// A list of texts written in place.
    Texts(Spanned<Vec<String>>),
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

/// Whether a word can name a value: a name, or names joined by `.` for what a configuration nests.
///
/// ```
/// use scratchpool_planner::spec::is_path;
/// assert!(is_path("text_config.num_layers"));
/// assert!(!is_path("text_config."));
/// ```
pub fn is_path(word: &str) -> bool {
    word.split('.').all(is_name)
}
