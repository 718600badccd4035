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
mod context;
mod docs;
mod guards;
mod layout;
mod pool;
mod schedule;
mod sizes;

use std::path::Path;

use proc_macro2::TokenStream;
use quote::quote;
use scratchpool_planner::plan::Plan;

use context::Context;

use crate::api::{self, Api};
use crate::parse::{Declaration, unraw};

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
