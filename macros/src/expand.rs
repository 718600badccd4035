//! Second stage: the planner's verdict, and errors at the tokens that caused them.
//!
//! After an error the struct is still emitted with all its methods, so that the code around it does
//! not fail a second time. That form cannot run: the error stands beside it.

use std::fmt::Write as _;
use std::path::Path;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use scratchpool_planner::error::{Code, Error, Spelling};
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
    let (plan, found) = analyze(&declaration.spec);
    let in_grammar = !declaration.errors.is_empty();
    let errors: Vec<Error> = declaration.errors.iter().chain(&found).cloned().collect();
    // With a part of the declaration unread, what seems missing may only be unread.
    let shown = found.iter().filter(|error| !in_grammar || stands_alone(error));
    let mut messages = TokenStream::new();
    for error in declaration.errors.iter().chain(shown) {
        messages.extend(message(error, &declaration.places));
    }
    let plan = plan.filter(|_| !in_grammar);
    let api = match &plan {
        Some(plan) => api::Api::new(&declaration, plan),
        None => {
            let meant = Meant::new(&declaration.spec, &errors, &declaration.unread);
            api::Api::meant(&declaration, &meant)
        }
    };
    let code = codegen::emit(&declaration, &api, plan.as_ref());
    quote! { #messages #code }
}

/// Whether an error of the planner stays one whatever else the declaration says.
fn stands_alone(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::Expression | Code::Shape | Code::Align | Code::Layers | Code::Duplicate
    )
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
