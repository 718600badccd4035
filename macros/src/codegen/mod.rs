//! Fourth stage: the code. One file for each thing that is generated.
//!
//! For a struct `Name` this is the struct itself, with a device parameter, and a module `name`
//! beside it:
//!
//! ```text
//! pub struct Name<D>                allocate, begin or split, memory        pool.rs
//! pub mod name
//!   pub mod layout                  numbers and const assertions            layout.rs
//!   pub const LAYOUT, SCHEDULE      the same as tables                      layout.rs, schedule.rs
//!   const _                         the order derived again, by rustc       check.rs
//!   pub struct Dims                 sizes given at start-up, if any         sizes.rs
//!   pub struct Plan                 ties the tables to the runtime          sizes.rs
//!   pub struct Pass, Layer, …Step   guards                                  guards.rs
//! ```
//!
//! All paths are absolute, and names of the prelude are never relied on.

mod check;
mod docs;
mod guards;
mod layout;
mod pool;
mod schedule;
mod sizes;

use std::path::Path;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;
use scratchpool_planner::plan::Plan;
use scratchpool_tables::{DType, RustType};
use syn::{VisRestricted, Visibility};

use crate::api::{self, Api};
use crate::parse::{Declaration, unraw};

/// What all files need.
pub(crate) struct Context<'c> {
    declaration: &'c Declaration,
    api: &'c Api,
    /// `None` after an error.
    plan: Option<&'c Plan>,
    /// Whether there was no error at all.
    proved: bool,
    /// Path of the runtime crate.
    krate: &'c TokenStream,
    /// The generated module.
    module: Ident,
    /// Copies of the arena.
    copies: usize,
}

/// All code for a declaration.
pub(crate) fn emit(
    declaration: &Declaration,
    api: &Api,
    plan: Option<&Plan>,
    proved: bool,
) -> TokenStream {
    let word = unraw(&declaration.name);
    let mut module = api::snake_case(&word);
    if module == word {
        // A module and a struct share one namespace.
        module.push('_');
    }
    let copies = declaration.spec.ubatches.map_or(1, |copies| copies.value);
    let context = Context {
        declaration,
        api,
        plan,
        proved,
        krate: &declaration.krate,
        module: api::identifier(&module, declaration.name.span()),
        copies: usize::try_from(copies).unwrap_or(1).clamp(1, 64),
    };
    let pool = pool::emit(&context);
    let layout = layout::emit(&context);
    let schedule = schedule::emit(&context);
    let check = check::emit(&context);
    let sizes = sizes::emit(&context);
    let guards = guards::emit(&context);
    let name = &declaration.name;
    let module = &context.module;
    let visibility = &declaration.visibility;
    let module_doc = docs::line(format!("Layout, schedule and guards of [`{name}`]."));
    // The compiler rebuilds the crate when a file that it includes changes.
    let rebuild = declaration.config.as_ref().map(|path| {
        let path = if Path::new(path).is_absolute() {
            quote!(#path)
        } else {
            let path = format!("/{path}");
            quote!(::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), #path))
        };
        quote! {
            const _: &[::core::primitive::u8] = ::core::include_bytes!(#path);
        }
    });
    quote! {
        #pool

        #module_doc
        #[allow(dead_code, unused_imports, clippy::all, clippy::pedantic)]
        #visibility mod #module {
            #layout
            #schedule
            #check
            #sizes
            #guards
            #rebuild
        }
    }
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
    fn public(&self) -> TokenStream {
        inside(&self.declaration.visibility)
    }

    /// The type of an element.
    fn element(&self, dtype: DType) -> TokenStream {
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
    fn constant(&self, field: &Ident) -> String {
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
    fn runtime_sized(&self) -> bool {
        self.declaration
            .spec
            .dims
            .iter()
            .any(|dim| matches!(dim.value, scratchpool_planner::spec::DimValue::Runtime { .. }))
    }
}

/// A number as people read it: `37_748_736`.
fn number(value: u64) -> Literal {
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
fn index(value: usize) -> Literal {
    Literal::usize_unsuffixed(value)
}
