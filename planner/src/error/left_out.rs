//! Which errors stand alone where the text of a spec was read only in part.
//!
//! A part that is in error is left out, and the later stages go on with the rest, so that a user
//! sees their errors too. But some of those would only follow from the gap: what a lost step would
//! have written is never written. Such errors are not shown.

use std::collections::BTreeSet;

use super::fault::{Error, Fault, NameKind};
use crate::expr::Problem;

/// What was left out of a spec because its text was in error.
///
/// ```
/// use scratchpool_planner::error::{Error, LeftOut, NameKind};
/// use scratchpool_planner::spec::Span;
///
/// let error = Error::unknown_name(NameKind::Step, "fork", [], Span::default());
/// let mut left_out = LeftOut::default();
/// assert!(error.stands_alone(&left_out));
/// left_out.unnamed(&[NameKind::Step]);
/// assert!(!error.stands_alone(&left_out), "the step left out may be the one called `fork`");
/// ```
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    names: BTreeSet<String>,
    unnamed: BTreeSet<NameKind>,
    align: bool,
    layers: bool,
    everything: bool,
}

impl LeftOut {
    /// The kinds of what has a value.
    pub const VALUES: [NameKind; 3] = [NameKind::Value, NameKind::List, NameKind::Dim];

    /// The kinds of what holds tensors.
    pub const GROUPS: [NameKind; 2] = [NameKind::Group, NameKind::Buffer];

    /// All kinds of names that a spec defines.
    pub const NAMES: [NameKind; 6] = [
        NameKind::Value,
        NameKind::List,
        NameKind::Dim,
        NameKind::Step,
        NameKind::Group,
        NameKind::Buffer,
    ];

    /// Nothing was read.
    pub fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// A name was declared, but wrongly.
    pub fn name(&mut self, name: &str) {
        self.names.insert(name.to_owned());
    }

    /// Something of each of these kinds may have been declared whose name could not be read.
    pub fn unnamed(&mut self, kinds: &[NameKind]) {
        self.unnamed.extend(kinds);
    }

    /// The pool's alignment.
    pub fn align(&mut self) {
        self.align = true;
    }

    /// The number or an attribute of the layers.
    pub fn layers(&mut self) {
        self.layers = true;
    }

    /// Whether a name was declared, but wrongly.
    pub fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether nothing of this kind that was left out can be what `name` names.
    fn knows(&self, kind: NameKind, name: &str) -> bool {
        !self.names.contains(name) && !self.unnamed.contains(&kind)
    }
}

impl Error {
    /// Whether an error of a later stage stands alone: whether it would be there whatever the parts
    /// that were left out of the spec had said. To be asked where the text was in error.
    pub fn stands_alone(&self, left_out: &LeftOut) -> bool {
        if left_out.everything {
            return false;
        }
        match &self.fault {
            // The name that stands for an expression that was not read.
            Fault::UnknownName { name, .. } if name.is_empty() => false,
            Fault::UnknownName { kind, name, .. } => left_out.knows(*kind, name),
            Fault::Expression { problem: Problem::UnknownName(name), .. } => {
                left_out.knows(NameKind::Value, name)
            }
            Fault::Expression { layer: Some(_), .. } | Fault::LayerCount { .. } => !left_out.layers,
            Fault::AlignBelow { .. } => !left_out.align,
            // What runs when, and touches what, is not known while any part is missing.
            Fault::TooManyNodes { .. }
            | Fault::ReadBeforeWrite { .. }
            | Fault::Race(_)
            | Fault::Reuse(_)
            | Fault::NotExclusive { .. } => false,
            // What the place itself says is enough; and a refused layout is a fault of this crate,
            // to be reported whatever the spec says.
            Fault::Refused(_)
            | Fault::Syntax(_)
            | Fault::Unquoted { .. }
            | Fault::Type { .. }
            | Fault::Missing { .. }
            | Fault::UnknownKey { .. }
            | Fault::NotAName { .. }
            | Fault::Expression { layer: None, .. }
            | Fault::NotConstant { .. }
            | Fault::Cycle { .. }
            | Fault::Dimension { .. }
            | Fault::DimValue { .. }
            | Fault::AttributeInShape { .. }
            | Fault::Size { .. }
            | Fault::TotalSize
            | Fault::Rows { .. }
            | Fault::AlignPower { .. }
            | Fault::ShortColumn { .. }
            | Fault::NotAList { .. }
            | Fault::ColumnType { .. }
            | Fault::Duplicate { .. }
            | Fault::Order { .. }
            | Fault::Unreadable { .. }
            | Fault::Config { .. }
            | Fault::Ubatches { .. } => true,
        }
    }
}
