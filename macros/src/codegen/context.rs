//! What all files of the code generator need.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;
use scratchpool_planner::plan::Plan;
use scratchpool_planner::spec::DimValue;
use scratchpool_tables::{DType, RustType};
use syn::{VisRestricted, Visibility};

use crate::api::{self, Api};
use crate::parse::Declaration;

/// What all files need.
pub(super) struct Context<'c> {
    pub(super) declaration: &'c Declaration,
    pub(super) api: &'c Api,
    /// `None` after an error.
    pub(super) plan: Option<&'c Plan>,
    /// Whether there was no error at all.
    pub(super) proved: bool,
    /// Path of the runtime crate.
    pub(super) krate: &'c TokenStream,
    /// The generated module.
    pub(super) module: Ident,
    /// Copies of the arena.
    pub(super) copies: usize,
}

/// The visibility of something in the generated module that is declared outside it.
fn inside(visibility: &Visibility) -> TokenStream {
    match visibility {
        Visibility::Public(_) => quote!(pub),
        Visibility::Inherited => quote!(pub(super)),
        Visibility::Restricted(VisRestricted { path, .. }) => {
            let first = path.segments.first().map(|segment| segment.ident.to_string());
            match first.as_deref() {
                Some("self") => quote!(pub(super)),
                Some("super") => quote!(pub(in super::#path)),
                _ => quote!(#visibility),
            }
        }
    }
}

impl Context<'_> {
    /// The visibility of the struct, from inside the module.
    pub(super) fn public(&self) -> TokenStream {
        inside(&self.declaration.visibility)
    }

    /// The type of an element.
    pub(super) fn element(&self, dtype: DType) -> TokenStream {
        let krate = self.krate;
        let name = |name: &str| Ident::new(name, proc_macro2::Span::call_site());
        match dtype.rust() {
            RustType::Primitive(word) => {
                let word = name(word);
                quote!(::core::primitive::#word)
            }
            RustType::Runtime(word) => {
                let word = name(word);
                quote!(#krate::#word)
            }
        }
    }

    /// What the constants of a field's buffer begin with: `INDEX_VALUES`, with underscores after it
    /// where that is the arena's or another field's.
    pub(super) fn constant(&self, field: &Ident) -> String {
        let mut taken: Vec<String> = ["TOTAL", "SUM", "LOWER_BOUND"].map(str::to_owned).to_vec();
        for each in &self.declaration.fields {
            let mut word = api::upper_case(&each.name);
            while taken.contains(&word) {
                word.push('_');
            }
            if each.name == *field {
                return word;
            }
            taken.push(word);
        }
        api::upper_case(field)
    }

    /// Whether some size is known only when the pool is allocated.
    pub(super) fn runtime_sized(&self) -> bool {
        self.declaration.spec.dims.iter().any(|dim| matches!(dim.value, DimValue::Runtime { .. }))
    }
}

/// A number as people read it: `37_748_736`.
pub(super) fn number(value: u64) -> Literal {
    let digits = value.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text.parse().unwrap_or_else(|_| Literal::u64_unsuffixed(value))
}

/// An index.
pub(super) fn index(value: usize) -> Literal {
    Literal::usize_unsuffixed(value)
}
