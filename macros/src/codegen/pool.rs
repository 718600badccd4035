//! The struct itself, with its device parameter.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::quote;
use scratchpool_planner::spec::{DEFAULT_STREAM, Step};
use syn::Attribute;

use super::context::{Context, index};
use super::docs;

pub(super) fn emit(context: &Context<'_>) -> TokenStream {
    let (krate, module) = (context.krate, &context.module);
    let declaration = context.declaration;
    let (name, visibility) = (&declaration.name, &declaration.visibility);
    let attributes: &[Attribute] = &declaration.attributes;
    let summary = if attributes.iter().any(|attribute| attribute.path().is_ident("doc")) {
        TokenStream::new()
    } else {
        docs::line("A scratch pool.")
    };
    let lines = docs::pool(context);
    let copies = index(context.copies);
    let runtime = context.runtime_sized();
    let dims_argument = runtime.then(|| quote!(, dims: #module::Dims));
    let plan = if runtime { quote!(#module::Plan::new(dims)?) } else { quote!(#module::Plan) };
    let pass_on = runtime.then(|| quote!(, dims));
    let streams_doc = match context.plan {
        Some(plan) if !plan.structure.streams.is_empty() => docs::lines([
            "",
            &format!("The streams, in order: `{}`.", plan.structure.streams.join("`, `")),
        ]),
        _ => TokenStream::new(),
    };
    let streams = index(streams(context));
    let begin = if context.copies > 1 {
        quote! {
            /// The copies, one for each micro-batch in flight. Each begins passes of its own.
            #visibility fn split(&mut self) -> [#module::Ubatch<'_, D>; #copies] {
                self.core.split().map(|core| #module::Ubatch { core })
            }
        }
    } else {
        begin(context, visibility)
    };
    // On the default device, so that `Name::LAYOUT` says it all.
    let of_layout = (!runtime).then(|| {
        quote! {
            /// The layout as a table.
            #visibility const LAYOUT: &'static #krate::tables::LayoutTable = &#module::LAYOUT;
            /// What a pool reserves, known before it is allocated.
            #visibility const MEMORY: #krate::MemoryReport =
                #krate::MemoryReport::of(&#module::LAYOUT, #copies);
        }
    });
    let constants = quote! {
        #[allow(dead_code)]
        impl #name {
            #of_layout
            /// The order that the proof relies on, and that the runtime issues.
            #visibility const SCHEDULE: &'static #krate::tables::ScheduleTable =
                &#module::SCHEDULE;
        }
    };
    quote! {
        #(#attributes)*
        #summary
        #lines
        #visibility struct #name<D: #krate::Device = #krate::Host> {
            core: #krate::generated::PoolCore<D, #module::Plan, #copies>,
        }

        #constants

        #[allow(dead_code)]
        impl<D: #krate::Device> #name<D> {
            /// Allocates the arena on a device, and creates its streams and events.
            ///
            /// # Errors
            ///
            /// What the device refuses: no memory, no stream, no event.
            #visibility fn allocate(
                device: &D #dims_argument
            ) -> ::core::result::Result<Self, #krate::Error> {
                Self::allocate_with(device #pass_on, #krate::Backing::Arena)
            }

            /// As `allocate`, with the choice between one arena and an allocation for each live
            /// range: the same code then runs without a pool.
            ///
            /// # Errors
            ///
            /// As `allocate`.
            #visibility fn allocate_with(
                device: &D #dims_argument,
                backing: #krate::Backing,
            ) -> ::core::result::Result<Self, #krate::Error> {
                let core = #krate::generated::PoolCore::new(device, #plan, backing)?;
                ::core::result::Result::Ok(Self { core })
            }

            /// As `allocate_with`, on streams of the caller's, for each copy.
            #streams_doc
            ///
            /// # Errors
            ///
            /// As `allocate`, and a stream of another device.
            #visibility fn with_streams(
                device: &D #dims_argument,
                backing: #krate::Backing,
                streams: [[D::Stream; #streams]; #copies],
            ) -> ::core::result::Result<Self, #krate::Error> {
                let streams = streams.map(|streams| ::core::iter::Iterator::collect(
                    ::core::iter::IntoIterator::into_iter(streams),
                ));
                let core =
                    #krate::generated::PoolCore::with_streams(device, #plan, backing, streams)?;
                ::core::result::Result::Ok(Self { core })
            }

            /// The device.
            #visibility fn device(&self) -> &D {
                self.core.device()
            }

            /// What the plan reserves, in all copies.
            #visibility fn memory(&self) -> #krate::MemoryReport {
                self.core.memory()
            }

            /// Bytes allocated now, in all copies.
            #visibility fn held_bytes(&self) -> ::core::primitive::u64 {
                self.core.held_bytes()
            }

            #begin
        }

        impl<D: #krate::Device> ::core::fmt::Debug for #name<D> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Debug::fmt(&self.core, f)
            }
        }
    }
}

/// How many streams the steps use.
fn streams(context: &Context<'_>) -> usize {
    let steps = &context.declaration.spec.steps;
    let name = |step: &Step| step.stream.as_ref().map_or(DEFAULT_STREAM, |s| &s.value).to_owned();
    steps.iter().map(name).collect::<BTreeSet<_>>().len()
}

/// The method `begin`, of the pool or of one micro-batch.
pub(super) fn begin(context: &Context<'_>, visibility: impl quote::ToTokens) -> TokenStream {
    let (krate, module) = (context.krate, &context.module);
    // From inside the module its own name is not in scope.
    let inside = context.copies > 1;
    let pass = if inside { quote!(Pass) } else { quote!(#module::Pass) };
    let (argument, rows, doc) = if context.declaration.spec.rows.is_some() {
        let doc = "Begins a pass of `num_tokens` rows, from 0 to the maximum.";
        (quote!(, num_tokens: ::core::primitive::usize), quote!(num_tokens), doc)
    } else {
        (TokenStream::new(), quote!(1), "Begins a pass.")
    };
    let doc = docs::line(doc);
    quote! {
        #doc
        ///
        /// # Errors
        ///
        /// More rows than the pool was planned for, or what went wrong when an earlier guard was
        /// dropped.
        #visibility fn begin(
            &mut self #argument
        ) -> ::core::result::Result<#pass<'_, D>, #krate::Error> {
            let core = self.core.begin(#rows)?;
            ::core::result::Result::Ok(#pass { core })
        }
    }
}
