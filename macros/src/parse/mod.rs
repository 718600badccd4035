//! First stage: the annotated struct becomes a planner spec.
//!
//! The grammar is small enough to be read off its own table:
//!
//! ```text
//! #[scratch_pool(align = 256, config = "config.json", rows = dim, ubatches = 2, crate = path,
//!                dims(name = expr | [list], name: runtime, name: runtime(8192)),
//!                layers(count = expr, attribute = list | [list]),
//!                exclusive(group, …))]
//! #[step(name, on = stream, when = expr, after(step, prev.step), launch = full | dependent | early,
//!        writes(group, group.buffer), reads(…))]
//! #[group(name, when = expr, if = expr)]
//! struct Name {
//!     #[group(name)] #[shape(expr, …)] #[align(1024)] field: dtype,     // buffer `name.field`
//!     #[group(name.buffer)] #[shape(expr, …)] field: dtype,             // buffer `name.buffer`
//! }
//! ```
//!
//! What can be read is kept even where other parts are in error, so that all errors come at once
//! and the code around still finds the struct's methods.
//!
//! | file | what it reads |
//! | --- | --- |
//! | `declaration` | nothing: what comes out |
//! | `parser` | attributes; what all parts share |
//! | `entry` | lists of entries, and their values |
//! | `pool`, `step`, `group`, `field` | what they are called after |

mod declaration;
mod entry;
mod field;
mod group;
mod parser;
mod pool;
mod step;

use std::path::Path;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use scratchpool_planner::error::{Code, LeftOut};
use scratchpool_planner::spec::{Name, Spec};
use syn::{Data, DeriveInput, Fields};

pub(crate) use declaration::{Declaration, Field, unraw};
use parser::Parser;

use crate::places::{Places, plain};

/// Reads a declaration. `Err` only where the item is no type at all.
pub(crate) fn parse(
    arguments: TokenStream,
    item: TokenStream,
    root: &Path,
) -> Result<Declaration, syn::Error> {
    let first = item.clone().into_iter().next().map_or_else(Span::call_site, |first| first.span());
    let item: DeriveInput = syn::parse2(item)
        .map_err(|_| syn::Error::new(first, format!("{ON_A_STRUCT} [{}]", Code::Syntax)))?;
    let mut parser = Parser {
        places: Places::default(),
        errors: Vec::new(),
        spec: Spec::default(),
        krate: None,
        config: None,
        unread: Vec::new(),
        left_out: LeftOut::default(),
    };
    let name = unraw(&item.ident);
    parser.spec.name = Name::new(name, parser.places.add(item.ident.span()));
    if let Some(parameter) = item.generics.params.first() {
        let text = "a pool has no generic parameters; the device is added by `#[scratch_pool]`";
        let tokens: Vec<TokenTree> = parameter.to_token_stream().into_iter().collect();
        parser.malformed_at(text, &tokens, item.ident.span());
    }
    parser.arguments(plain(arguments), root);
    let attributes = parser.struct_attributes(&item.attrs);
    let mut fields: Vec<Field> = Vec::new();
    match &item.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(named) => {
                for field in &named.named {
                    fields.extend(parser.field(field, &fields));
                }
            }
            Fields::Unit => {}
            Fields::Unnamed(unnamed) => {
                let text = "the fields of a pool are its buffers, and buffers have names";
                let tokens: Vec<TokenTree> = unnamed.to_token_stream().into_iter().collect();
                parser.malformed_at(text, &tokens, item.ident.span());
                parser.left_out.unnamed(&LeftOut::GROUPS);
            }
        },
        Data::Enum(_) | Data::Union(_) => {
            parser.malformed(ON_A_STRUCT, item.ident.span());
            parser.left_out.unnamed(&LeftOut::GROUPS);
        }
    }
    if parser.spec.align.is_none() {
        // Absent, or in error, or in a part that was not read.
        parser.left_out.align();
    }
    Ok(Declaration {
        spec: parser.spec,
        places: parser.places,
        errors: parser.errors,
        unread: parser.unread,
        left_out: parser.left_out,
        krate: parser.krate.unwrap_or_else(|| quote::quote!(::scratchpool)),
        config: parser.config,
        visibility: item.vis,
        name: item.ident,
        attributes,
        fields,
    })
}

const ON_A_STRUCT: &str = "`#[scratch_pool]` stands on a struct";
