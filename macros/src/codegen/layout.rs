//! Offsets and sizes as plain numbers beside the names of the buffers, and the assertions with
//! which the compiler checks the planner.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use scratchpool_planner::layout::{Layout, Placed};
use scratchpool_planner::plan::Plan;

use super::context::{Context, number};
use super::docs;

pub(super) fn emit(context: &Context<'_>) -> TokenStream {
    if context.runtime_sized() {
        return TokenStream::new();
    }
    let numbers = numbers(context);
    let table = table(context);
    let public = context.public();
    quote! {
        /// The numbers of the layout, in bytes, checked by the compiler. Needs nothing but `core`.
        #public mod layout {
            #numbers
        }

        #table
    }
}

/// The buffer of each field that is in the plan.
fn fields<'f>(
    context: &'f Context<'_>,
    plan: &'f Plan,
) -> impl Iterator<Item = (&'f Ident, usize, &'f Placed)> {
    context.declaration.fields.iter().zip(&context.api.buffers).filter_map(|(field, buffer)| {
        Some((&field.name, *buffer, plan.layout.buffers.get(*buffer)?))
    })
}

fn names(context: &Context<'_>, field: &Ident) -> (Ident, Ident) {
    let upper = context.constant(field);
    (format_ident!("{upper}_OFFSET"), format_ident!("{upper}_BYTES"))
}

fn numbers(context: &Context<'_>) -> TokenStream {
    let Some(plan) = context.plan else { return TokenStream::new() };
    let layout = &plan.layout;
    let (total, align) = (number(layout.total_bytes), number(layout.align));
    let (sum, bound) = (number(layout.sum_bytes), number(layout.lower_bound_bytes));
    let base = number(layout.base_align);
    let consts = fields(context, plan).map(|(field, _, placed)| {
        let (offset_name, bytes_name) = names(context, field);
        let (offset, bytes) = (number(placed.offset), number(placed.bytes));
        let offset_doc = docs::line(format!("Where `{}` starts.", placed.name));
        let bytes_doc =
            docs::line(format!("Bytes reserved for `{}`: {}.", placed.name, docs::tensor(placed)));
        quote! {
            #offset_doc
            pub const #offset_name: ::core::primitive::usize = #offset;
            #bytes_doc
            pub const #bytes_name: ::core::primitive::usize = #bytes;
        }
    });
    let checks = fields(context, plan).map(|(field, _, placed)| {
        let (offset, bytes) = names(context, field);
        let align = number(placed.align);
        let aligned = format!("`{}` is aligned", placed.name);
        let inside = format!("`{}` is inside the arena", placed.name);
        // A pool may be packed tighter than its elements; then an offset can split one.
        let element = placed.dtype.bytes();
        let whole = (placed.align < element).then(|| {
            let (size, text) = (
                number(element),
                format!("`{}` lies where its elements are aligned: raise `align`", placed.name),
            );
            quote!(::core::assert!(#offset % #size == 0, #text);)
        });
        quote! {
            ::core::assert!(#offset % #align == 0, #aligned);
            #whole
            ::core::assert!(#offset + #bytes <= TOTAL_BYTES, #inside);
        }
    });
    let of_buffer = |buffer: usize| fields(context, plan).find(|(_, each, _)| *each == buffer);
    let apart = plan.interference.iter().filter_map(|(a, b)| {
        let ((a, _, placed_a), (b, _, placed_b)) = (of_buffer(*a)?, of_buffer(*b)?);
        let ((a_offset, a_bytes), (b_offset, b_bytes)) = (names(context, a), names(context, b));
        let text = format!("`{}` and `{}` are live together", placed_a.name, placed_b.name);
        Some(quote! {
            ::core::assert!(
                #a_offset + #a_bytes <= #b_offset || #b_offset + #b_bytes <= #a_offset,
                #text
            );
        })
    });
    // The highest end, as the compiler finds it.
    let ends = fields(context, plan).map(|(field, ..)| {
        let (offset, bytes) = names(context, field);
        quote! {
            if #offset + #bytes > end {
                end = #offset + #bytes;
            }
        }
    });
    quote! {
        /// Size of the arena.
        pub const TOTAL_BYTES: ::core::primitive::usize = #total;
        /// Size of the buffers apart.
        pub const SUM_BYTES: ::core::primitive::usize = #sum;
        /// The heaviest set of buffers that are live together: no arena is smaller.
        pub const LOWER_BOUND_BYTES: ::core::primitive::usize = #bound;
        /// Alignment of every offset and size.
        pub const ALIGN: ::core::primitive::usize = #align;
        /// Alignment that the arena's base needs.
        pub const BASE_ALIGN: ::core::primitive::usize = #base;
        #(#consts)*

        const _: () = {
            #(#checks)*
            #(#apart)*
            let mut end = 0;
            #(#ends)*
            ::core::assert!(end == TOTAL_BYTES, "the arena ends with its highest buffer");
            ::core::assert!(LOWER_BOUND_BYTES <= TOTAL_BYTES, "no arena is below the bound");
        };
    }
}

fn table(context: &Context<'_>) -> TokenStream {
    let krate = context.krate;
    let public = context.public();
    let empty = Layout {
        pool: context.declaration.spec.name.value.clone(),
        align: 1,
        base_align: 1,
        total_bytes: 0,
        sum_bytes: 0,
        lower_bound_bytes: 0,
        least_bytes: 0,
        optimal: false,
        fingerprint: String::new(),
        buffers: Vec::new(),
        order: Vec::new(),
    };
    let layout = context.plan.map_or(&empty, |plan| &plan.layout);
    let rows = layout.buffers.iter().enumerate().map(|(position, placed)| {
        let field = context
            .declaration
            .fields
            .iter()
            .zip(&context.api.buffers)
            .find(|(_, buffer)| **buffer == position);
        let (offset, bytes) = match field {
            Some((field, _)) => {
                let (offset, bytes) = names(context, &field.name);
                (
                    quote!(layout::#offset as ::core::primitive::u64),
                    quote!(layout::#bytes as ::core::primitive::u64),
                )
            }
            // Every buffer of a plan has a field; numbers say the same.
            None => {
                let (offset, bytes) = (number(placed.offset), number(placed.bytes));
                (quote!(#offset), quote!(#bytes))
            }
        };
        row(placed, &offset, &bytes)
    });
    let (total, sum) = (number(layout.total_bytes), number(layout.sum_bytes));
    let (bound, optimal) = (number(layout.lower_bound_bytes), layout.optimal);
    let (align, base) = (number(layout.align), number(layout.base_align));
    let (pool, fingerprint) = (&layout.pool, &layout.fingerprint);
    quote! {
        /// The layout as a table.
        #public const LAYOUT: #krate::tables::LayoutTable = {
            use #krate::tables::{BufferRow, DType, LayoutTable};
            LayoutTable {
                pool: #pool,
                align: #align,
                base_align: #base,
                total_bytes: #total,
                sum_bytes: #sum,
                lower_bound_bytes: #bound,
                optimal: #optimal,
                fingerprint: #fingerprint,
                buffers: &[#(#rows),*],
            }
        };
    }
}

fn row(placed: &Placed, offset: &TokenStream, bytes: &TokenStream) -> TokenStream {
    let Placed { name, tensor_bytes, dtype, shape, align, .. } = placed;
    let dtype = format_ident!("{}", format!("{dtype:?}"));
    let (tensor_bytes, align) = (number(*tensor_bytes), number(*align));
    let shape = shape.iter().map(|extent| number(*extent));
    quote! {
        BufferRow {
            name: #name,
            offset: #offset,
            bytes: #bytes,
            tensor_bytes: #tensor_bytes,
            dtype: DType::#dtype,
            shape: &[#(#shape),*],
            align: #align,
        }
    }
}
