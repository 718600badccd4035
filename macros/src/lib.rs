//! The attribute macro `#[scratch_pool]`: a declared schedule in, proven offsets and a typed pool
//! out. Users get it through the crate `scratchpool`, which documents it.
//!
//! Four stages, each in its own file, each taking what the one before returned:
//!
//! | stage | file | what it does |
//! | --- | --- | --- |
//! | parse | `parse` | the struct and its attributes become a planner spec, with places |
//! | analyze | `expand` | the planner checks, proves and packs; its errors get their places |
//! | model | `api` | which step hands out which views, and where they may be absent |
//! | codegen | `codegen` | layout, schedule, pool, guards, documentation |

mod api;
mod codegen;
mod expand;
mod parse;
mod places;

use std::path::PathBuf;

/// Declares a scratch pool; see the documentation of the crate `scratchpool`.
#[proc_macro_attribute]
pub fn scratch_pool(
    arguments: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    // The configuration is named relative to the manifest of the crate that declares the pool.
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    expand::expand(arguments.into(), item.into(), &root).into()
}
