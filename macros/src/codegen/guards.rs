//! The guards: pass, layer, and for each step its guard and the struct of its views.
//!
//! A guard hands out what the declaration says and nothing else: exclusive views of what the step
//! writes, shared ones of what it reads.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::context::{Context, index};
use super::{docs, pool, sizes};
use crate::api::StepApi;

pub(super) fn emit(context: &Context<'_>) -> TokenStream {
    let (krate, public) = (context.krate, context.public());
    let steps = context.api.steps.iter();
    let methods = steps.clone().map(|step| method(context, step));
    let guards = steps.map(|step| guard(context, step));
    let ubatch = (context.copies > 1).then(|| {
        let begin = pool::begin(context, &public);
        quote! {
            /// One copy of the pool: what one micro-batch in flight uses.
            #[derive(::core::fmt::Debug)]
            #public struct Ubatch<'p, D: #krate::Device> {
                pub(super) core: #krate::generated::UbatchCore<'p, D, Plan>,
            }

            impl<D: #krate::Device> Ubatch<'_, D> {
                #begin
            }
        }
    });
    quote! {
        #ubatch

        /// One pass over the layers. Dropping it issues what is left of the order.
        #[derive(::core::fmt::Debug)]
        #public struct Pass<'p, D: #krate::Device> {
            pub(super) core: #krate::generated::PassCore<'p, D, Plan>,
        }

        impl<D: #krate::Device> Pass<'_, D> {
            /// Rows of the pass.
            #public fn num_tokens(&self) -> ::core::primitive::usize {
                self.core.rows()
            }

            /// The streams of this copy of the pool, in the schedule's order: what a capture takes.
            #public fn streams(&self) -> &[D::Stream] {
                self.core.streams()
            }

            /// Ends the pass as dropping it does, and says what went wrong.
            ///
            /// # Errors
            ///
            /// What dropping this or an earlier guard could not report.
            #public fn finish(self) -> ::core::result::Result<(), #krate::Error> {
                self.core.finish()
            }

            /// Opens a layer. Layers come in increasing order; they may be skipped, not repeated.
            ///
            /// # Errors
            ///
            /// A layer that does not exist or that is not after the last one, and what the device
            /// reports.
            #public fn layer(
                &mut self,
                index: ::core::primitive::usize,
            ) -> ::core::result::Result<Layer<'_, D>, #krate::Error> {
                let core = self.core.layer(index)?;
                ::core::result::Result::Ok(Layer { core })
            }
        }

        /// One layer of a pass. Steps come in the declared order; they may be skipped, not
        /// repeated. Dropping it issues what is left of the order.
        #[derive(::core::fmt::Debug)]
        #public struct Layer<'l, D: #krate::Device> {
            core: #krate::generated::LayerCore<'l, D, Plan>,
        }

        impl<D: #krate::Device> Layer<'_, D> {
            #(#methods)*
        }

        #(#guards)*
    }
}

fn method(context: &Context<'_>, step: &StepApi) -> TokenStream {
    let (krate, public) = (context.krate, context.public());
    let StepApi { method, guard, constant, .. } = step;
    let position = quote!(step::#constant as ::core::primitive::usize);
    let lines = docs::step(context.plan, step);
    let (result, body) = if step.optional {
        (
            quote!(::core::option::Option<#guard<'_, D>>),
            quote! {
                let core = self.core.step(#position)?;
                ::core::result::Result::Ok(::core::option::Option::map(core, |core| #guard { core }))
            },
        )
    } else {
        (
            quote!(#guard<'_, D>),
            quote! {
                let core = self.core.step_in_every_layer(#position)?;
                ::core::result::Result::Ok(#guard { core })
            },
        )
    };
    quote! {
        #lines
        #[inline]
        #public fn #method(&mut self) -> ::core::result::Result<#result, #krate::Error> {
            #body
        }
    }
}

fn guard(context: &Context<'_>, step: &StepApi) -> TokenStream {
    let (krate, public) = (context.krate, context.public());
    let StepApi { name, guard, .. } = step;
    let doc = docs::line(format!(
        "Step `{name}`, entered. Dropping it records its event, if a step waits for it."
    ));
    // After an error what a step touches may be unread.
    let (views, method) = if step.fields.is_empty() && context.plan.is_some() {
        (TokenStream::new(), TokenStream::new())
    } else {
        views(context, step)
    };
    quote! {
        #doc
        #[derive(::core::fmt::Debug)]
        #public struct #guard<'s, D: #krate::Device> {
            core: #krate::generated::StepCore<'s, D, Plan>,
        }

        impl<'s, D: #krate::Device> #guard<'s, D> {
            /// The step's stream. What the step waits for has been issued to it.
            #[inline]
            #public fn stream(&self) -> &'s D::Stream {
                self.core.stream()
            }

            /// Rows of the pass.
            #[inline]
            #public fn num_tokens(&self) -> ::core::primitive::usize {
                self.core.rows()
            }

            #method
        }

        #views
    }
}

/// The struct of a step's views, and the method that makes it.
fn views(context: &Context<'_>, step: &StepApi) -> (TokenStream, TokenStream) {
    let (krate, public) = (context.krate, context.public());
    let StepApi { name, views, .. } = step;
    let declared = |field: usize| context.declaration.fields.get(field);
    let fields = step.fields.iter().filter_map(|view| {
        let field = declared(view.field)?;
        let buffer = context.api.buffers.get(view.field).copied()?;
        let (ident, visibility) = (&field.name, &field_visibility(context));
        let documented = |each: &&syn::Attribute| each.path().is_ident("doc");
        let attributes: Vec<_> = field.attributes.iter().filter(documented).collect();
        let gap = (!attributes.is_empty()).then(|| docs::line(""));
        let doc = docs::view(context, buffer, view.write);
        let (element, rank) = (context.element(field.dtype), index(field.rank));
        let kind = if view.write { quote!(ViewMut) } else { quote!(View) };
        let mut ty = quote!(#krate::#kind<'v, #element, D, #rank>);
        let mut absent = TokenStream::new();
        if view.optional {
            ty = quote!(::core::option::Option<#ty>);
            absent = quote! {
                ///
                /// `None` in layers where its group does not exist.
            };
        }
        Some(quote! {
            #(#attributes)*
            #gap
            #doc
            #absent
            #visibility #ident: #ty,
        })
    });
    let values = step.fields.iter().filter_map(|view| {
        let field = declared(view.field)?;
        let buffer = context.api.buffers.get(view.field).copied()?;
        let ident = &field.name;
        let place = place(context, ident, buffer);
        let shape = sizes::shape(context, buffer, &quote!(plan));
        let rank = index(field.rank);
        // After an error there is no shape, and nothing runs.
        let shape = if context.plan.is_some() { quote!([#(#shape),*]) } else { quote!([0; #rank]) };
        let kind = if view.write { format_ident!("view_mut") } else { format_ident!("view") };
        let element = context.element(field.dtype);
        let value = quote!(unsafe { self.core.#kind::<#element, #rank>(#place, #shape) });
        Some(if view.optional {
            quote! {
                #ident: if self.core.has(#place) {
                    ::core::option::Option::Some(#value)
                } else {
                    ::core::option::Option::None
                },
            }
        } else {
            quote!(#ident: #value,)
        })
    });
    let doc = docs::line(format!("What step `{name}` may touch."));
    let plan = context.runtime_sized().then(|| quote!(let plan = self.core.plan();));
    let nothing = step.fields.is_empty();
    let marker = nothing.then(|| quote!(nothing: ::core::marker::PhantomData<&'v D>,));
    let marker_value = nothing.then(|| quote!(nothing: ::core::marker::PhantomData,));
    let definition = quote! {
        #doc
        #[derive(::core::fmt::Debug)]
        #public struct #views<'v, D: #krate::Device> {
            #(#fields)*
            #marker
        }
    };
    let buffers = step.fields.iter().filter_map(|view| context.api.buffers.get(view.field));
    let rows = buffers.copied().any(|buffer| sizes::follows_rows(context, buffer));
    let rows = rows.then(|| quote!(let rows = self.core.rows();));
    let method = quote! {
        /// The views of what the step writes and reads.
        ///
        /// Sound: the step declares each of these buffers, with this element type and shape; each
        /// is named once; and `&mut self` keeps a second set of views away.
        #[inline]
        #public fn buffers(&mut self) -> #views<'_, D> {
            #rows
            #plan
            #views { #(#values)* #marker_value }
        }
    };
    (definition, method)
}

fn field_visibility(context: &Context<'_>) -> TokenStream {
    context.public()
}

/// Where a buffer lies: a constant, or a number of the plan.
fn place(context: &Context<'_>, field: &Ident, buffer: usize) -> TokenStream {
    let krate = context.krate;
    let buffer_index = index(if context.plan.is_some() { buffer } else { 0 });
    let offset = if context.plan.is_none() {
        quote!(0)
    } else if context.runtime_sized() {
        quote!(plan.offsets[#buffer_index])
    } else {
        let offset = format_ident!("{}_OFFSET", context.constant(field));
        quote!(layout::#offset)
    };
    quote!(#krate::generated::Place::new(#buffer_index, #offset))
}
