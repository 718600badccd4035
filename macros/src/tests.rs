//! The macro, run in this process: what it expands to, and that its spelling of a spec and the TOML
//! one mean the same.

mod random;
mod spelling;

use std::path::{Path, PathBuf};
use std::time::Instant;

use proc_macro2::TokenStream;
use quote::ToTokens as _;

use crate::expand::expand;

/// The folder of this crate, to which the configurations of the pools are relative.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The annotated struct of `tests/pools/NAME.rs`: the macro's arguments and its item.
fn declared(name: &str) -> (TokenStream, TokenStream) {
    let path = root().join("tests/pools").join(name).with_extension("rs");
    let text = std::fs::read_to_string(path).unwrap();
    let file = syn::parse_file(&text).unwrap();
    let structs = file.items.into_iter().filter_map(|item| match item {
        syn::Item::Struct(item) => Some(item),
        _ => None,
    });
    let mut item = structs.last().unwrap();
    let is_ours = |attribute: &&syn::Attribute| attribute.path().is_ident("scratch_pool");
    let ours = item.attrs.iter().find(is_ours).unwrap();
    let arguments = ours.meta.require_list().unwrap().tokens.clone();
    item.attrs.retain(|attribute| !is_ours(&attribute));
    (arguments, item.into_token_stream())
}

/// The expansion of `tests/pools/NAME.rs`, as source.
fn expansion(name: &str) -> String {
    let (arguments, item) = declared(name);
    let file: syn::File = syn::parse2(expand(arguments, &item, &root())).unwrap();
    prettyplease::unparse(&file)
}

fn assert_expansion(name: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new("../tests/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, expansion(name)));
}

#[test]
fn the_flash_pool_expands_to_its_layout_schedule_and_guards() {
    assert_expansion("flash");
}

#[test]
fn the_pro_pool_expands_to_its_layout_schedule_and_guards() {
    assert_expansion("pro");
}

#[test]
fn a_pool_with_runtime_dims_expands_to_a_plan_made_at_start_up() {
    assert_expansion("runtime_dims");
}

#[test]
fn a_pool_of_two_buffers_expands_to_one_overlay() {
    assert_expansion("two_buffers");
}

/// It also prints how long that takes, for `cargo test -p scratchpool-macros --lib expanding -- --nocapture`:
/// the whole of the macro, from tokens to tokens, built as users build it.
#[test]
fn expanding_again_gives_the_same_tokens() {
    for name in ["flash", "pro", "runtime_dims", "two_buffers"] {
        let (arguments, item) = declared(name);
        let times = (0..5).map(|_| {
            let (arguments, item) = (arguments.clone(), item.clone());
            let start = Instant::now();
            let tokens = expand(arguments, &item, &root());
            (start.elapsed(), tokens.to_string())
        });
        let times: Vec<_> = times.collect();
        let (first, again) = (&times[0], times.iter().min().unwrap());
        assert!(times.iter().all(|(_, tokens)| *tokens == first.1));
        println!("{name:<13} {:>8.2?} at first, {:>8.2?} at best", first.0, again.0);
    }
}

/// The compiler tracks what it includes, so that a change of the configuration builds anew.
#[test]
fn the_configuration_is_included_so_that_a_change_expands_again() {
    let included = |arguments: TokenStream| {
        let item = quote::quote! {
            #[step(fill, writes(a))]
            struct Pool {
                #[group(a)]
                #[shape(16)]
                x: u8,
            }
        };
        let text = expand(arguments, &item, &root()).to_string().replace(' ', "");
        let (_, rest) = text.split_once("::core::include_bytes!(")?;
        rest.split_once(");").map(|(path, _)| path.to_owned())
    };
    let flash = "../examples/configs/deepseek-v4-flash.json";
    assert_eq!(
        included(quote::quote!(config = #flash)).unwrap(),
        format!(r#"::core::concat!(::core::env!("CARGO_MANIFEST_DIR"),"/{flash}")"#)
    );
    let absolute = root().join(flash).display().to_string();
    assert_eq!(included(quote::quote!(config = #absolute)).unwrap(), format!("{absolute:?}"));
    assert_eq!(included(quote::quote!(align = 256)), None);
}

/// What a refused declaration emits has the methods that it will have, and none of the numbers.
#[test]
fn nothing_of_a_declaration_in_error_is_laid_out() {
    let (arguments, item) = declared("flash");
    let arguments = quote::quote!(#arguments algin = 3);
    let text = expand(arguments, &item, &root()).to_string();
    assert!(text.contains("compile_error"));
    assert!(text.contains("fn global_topk"));
    assert!(!text.contains("Q_OFFSET"), "{text}");
}
