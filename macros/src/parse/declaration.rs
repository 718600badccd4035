//! What a declaration says, once it is read.

use proc_macro2::{Ident, TokenStream};
use scratchpool_planner::error::{Error, LeftOut};
use scratchpool_planner::spec::{DType, Span, Spec};
use syn::{Attribute, Visibility};

use crate::places::Places;

/// A struct as declared.
pub(crate) struct Declaration {
    /// What the planner proves.
    pub(crate) spec: Spec,
    /// Where its parts stand.
    pub(crate) places: Places,
    /// What the grammar did not take.
    pub(crate) errors: Vec<Error>,
    /// Where expressions stand that it did not take.
    pub(crate) unread: Vec<Span>,
    /// What else it left out.
    pub(crate) left_out: LeftOut,
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

/// One field: one buffer.
pub(crate) struct Field {
    pub(crate) name: Ident,
    pub(crate) attributes: Vec<Attribute>,
    /// The buffer's full name, `group.buffer`.
    pub(crate) buffer: String,
    pub(crate) dtype: DType,
    pub(crate) rank: usize,
}

/// A name without `r#`.
pub(crate) fn unraw(ident: &Ident) -> String {
    let word = ident.to_string();
    word.strip_prefix("r#").map(str::to_owned).unwrap_or(word)
}
