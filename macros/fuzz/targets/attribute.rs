//! Any tokens as the arguments of `#[scratch_pool]` and any as the item it stands on: no panic, no
//! hang, and what comes out is Rust that parses.
//!
//! A proc-macro crate cannot be linked, so its modules are compiled in here.
#![no_main]
#![allow(dead_code, missing_docs)]

#[path = "../../src/api.rs"]
mod api;
#[path = "../../src/codegen/mod.rs"]
mod codegen;
#[path = "../../src/expand.rs"]
mod expand;
#[path = "../../src/meant.rs"]
mod meant;
#[path = "../../src/parse.rs"]
mod parse;
#[path = "../../src/places.rs"]
mod places;

extern crate proc_macro;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use proc_macro2::TokenStream;

fuzz_target!(|text: &str| {
    // A line with `---` divides the arguments from the item.
    let (arguments, item) = text.split_once("\n---\n").unwrap_or((text, "struct Pool {}"));
    if text.len() > 4096 {
        return;
    }
    let (Ok(arguments), Ok(item)) = (arguments.parse::<TokenStream>(), item.parse::<TokenStream>())
    else {
        return;
    };
    let is_item = syn::parse2::<syn::DeriveInput>(item.clone()).is_ok();
    let code = expand::expand(arguments, &item, Path::new("/nonexistent"));
    if is_item {
        let text = code.to_string();
        assert!(syn::parse2::<syn::File>(code).is_ok(), "no Rust comes out: {text}");
    }
});
