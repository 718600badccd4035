//! Second stage: the planner's verdict, and errors at the tokens that caused them.
//!
//! After an error the struct is still emitted with all its methods, so that the code around it does
//! not fail a second time. That form cannot run: the error stands beside it.

use std::fmt::Write as _;
use std::path::Path;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use scratchpool_planner::error::{Error, Spelling, hint_at_config};
use scratchpool_planner::lint::Warning;
use scratchpool_planner::plan::analyze;

use crate::meant::Meant;
use crate::places::Places;
use crate::{api, codegen, parse};

/// Expands an annotated struct. `root` is the folder that `config` is relative to.
pub(crate) fn expand(arguments: TokenStream, item: &TokenStream, root: &Path) -> TokenStream {
    let declaration = match parse::parse(arguments, item.clone(), root) {
        Ok(declaration) => declaration,
        Err(error) => {
            let error = error.into_compile_error();
            return quote! { #error #item };
        }
    };
    let (plan, mut found) = analyze(&declaration.spec);
    if declaration.spec.config.is_empty() {
        hint_at_config(&mut found);
    }
    let in_grammar = !declaration.errors.is_empty();
    let errors: Vec<Error> = declaration.errors.iter().chain(&found).cloned().collect();
    // With a part of the declaration unread, what seems wrong elsewhere may follow from that.
    let alone = |error: &&Error| !in_grammar || error.stands_alone(&declaration.left_out);
    let shown = found.iter().filter(alone);
    let mut messages = TokenStream::new();
    for error in declaration.errors.iter().chain(shown) {
        messages.extend(message(error, &declaration.places));
    }
    // In a declaration that was read only in part, what seems unused may be used by the rest.
    if let Some(plan) = plan.as_ref().filter(|_| !in_grammar) {
        for found in plan.structure.warnings(&declaration.spec) {
            messages.extend(warning(&found, &declaration.places));
        }
    }
    let plan = plan.filter(|_| !in_grammar);
    let api = match &plan {
        Some(plan) => api::Api::new(&declaration, plan),
        None => {
            let meant = Meant::new(&declaration.spec, &errors, &declaration.unread);
            api::Api::meant(&declaration, &meant)
        }
    };
    let code = codegen::emit(&declaration, &api, plan.as_ref(), errors.is_empty());
    quote! { #messages #code }
}

/// A compile error over the tokens of an error's span.
fn message(error: &Error, places: &Places) -> TokenStream {
    let mut text = format!("{} [{}]", error.message(), error.code());
    let trace = error.trace();
    if !trace.is_empty() {
        text.push_str("\n\nan order of execution that shows it:");
        for line in trace {
            text.push_str("\n  ");
            text.push_str(line);
        }
        text.push('\n');
    }
    for note in error.notes() {
        text.push_str("\nnote: ");
        text.push_str(&note);
    }
    let (first, last) = places.find(error.span);
    // A macro's error has one place, so others are told by their lines.
    for label in error.labels() {
        let line = line_of(places.find(label.span).0).filter(|line| line_of(first) != Some(*line));
        if let Some(line) = line {
            let _ = write!(text, "\nnote: line {line}: {}", label.text);
        }
    }
    if let Some(help) = error.help_in(Spelling::Rust) {
        text.push_str("\nhelp: ");
        text.push_str(&help);
    }
    compile_error(&text, first, last)
}

/// A warning at a place. A macro cannot warn by itself; the compiler warns of the use of something
/// deprecated, with the note that stands there.
fn warning(found: &Warning, places: &Places) -> TokenStream {
    let text = &found.text;
    let name = Ident::new("scratch_pool", places.find(found.span).0);
    quote! {
        const _: () = {
            #[deprecated(note = #text)]
            #[allow(non_upper_case_globals)]
            const #name: () = ();
            #name
        };
    }
}

/// `::core::compile_error!{ text }`, from the token `first` to the token `last`.
fn compile_error(text: &str, first: Span, last: Span) -> TokenStream {
    let name = Ident::new("compile_error", first);
    let path = quote_spanned! { first => ::core:: };
    let body = quote_spanned! { last => { #text } };
    quote! { #path #name ! #body }
}

/// The line of a token, where there is a source.
fn line_of(token: Span) -> Option<usize> {
    proc_macro::is_available().then(|| token.unwrap().line())
}
