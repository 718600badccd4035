//! What ties the tables to the runtime: the implementation of its `Plan`.
//!
//! Where all sizes are constants the plan is a type of no size. Where some are given at start-up it
//! holds offsets and extents, computed once from the dims by the order of the packing: for any dims,
//! buffers that interfere stay apart.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use scratchpool_planner::expr::{Binary, Expr, Function, Kind, Unary};
use scratchpool_planner::plan::Plan;
use scratchpool_planner::sizes::Size;

use super::context::{Context, index, number};
use super::docs;
use crate::api::identifier;

pub(super) fn emit(context: &Context<'_>) -> TokenStream {
    if context.runtime_sized() { at_start_up(context) } else { constant(context) }
}

/// How the extents of one buffer are computed from `rows`, and from the plan where it has numbers.
pub(super) fn shape(context: &Context<'_>, buffer: usize, plan: &TokenStream) -> Vec<TokenStream> {
    let Some(size) = context.plan.and_then(|plan| plan.sizes.buffers.get(buffer)) else {
        return Vec::new();
    };
    let rows = rows_name(context);
    size.extents
        .iter()
        .zip(&size.shape)
        .enumerate()
        .map(|(axis, (extent, value))| {
            if axis == 0 && mentions(extent, rows) {
                return arithmetic(extent, rows, plan);
            }
            let position = runtime_extents(context).position(|each| each == (buffer, axis));
            match position {
                Some(position) => {
                    let position = index(position);
                    quote!(#plan.extents[#position])
                }
                None => {
                    let value = number(*value);
                    quote!(#value)
                }
            }
        })
        .collect()
}

/// The name of the rows' dim; no name where there is none.
fn rows_name<'c>(context: &'c Context<'_>) -> &'c str {
    context.declaration.spec.rows.as_ref().map_or("", |rows| &rows.value)
}

fn mentions(expr: &Expr, name: &str) -> bool {
    let mut found = false;
    expr.names(&mut |each, _| found |= each == name);
    found
}

/// Whether the shape of a buffer is computed from the rows of a pass.
pub(super) fn follows_rows(context: &Context<'_>, buffer: usize) -> bool {
    let size = context.plan.and_then(|plan| plan.sizes.buffers.get(buffer));
    let leading = size.and_then(|size| size.extents.first());
    leading.is_some_and(|extent| mentions(extent, rows_name(context)))
}

/// The extents, as buffer and axis, that are computed once at start-up.
fn runtime_extents<'c>(context: &'c Context<'_>) -> impl Iterator<Item = (usize, usize)> + 'c {
    let buffers = context.plan.into_iter().flat_map(|plan| plan.sizes.buffers.iter().enumerate());
    let rows = rows_name(context);
    let runtime = context.runtime_sized();
    buffers.filter(move |_| runtime).flat_map(move |(buffer, size)| {
        let axes = size.extents.iter().enumerate();
        axes.filter(move |(axis, extent)| {
            let follows_rows = *axis == 0 && mentions(extent, rows);
            !follows_rows && !matches!(extent.kind, Kind::Int(_))
        })
        .map(move |(axis, _)| (buffer, axis))
    })
}

/// A leading extent as plain arithmetic. It has a form that does not grow as rows shrink, and was
/// checked at the maximum, so no step of it overflows for fewer rows.
fn arithmetic(expr: &Expr, rows: &str, plan: &TokenStream) -> TokenStream {
    let part = |expr: &Expr| {
        let tokens = arithmetic(expr, rows, plan);
        if matches!(expr.kind, Kind::Binary(..)) { quote!((#tokens)) } else { tokens }
    };
    match &expr.kind {
        Kind::Int(value) => {
            let value = number(u64::try_from(*value).unwrap_or(0));
            quote!(#value)
        }
        Kind::Name(name) if name == rows => quote!(rows),
        Kind::Name(name) => {
            let name = identifier(name, Span::call_site());
            quote!(#plan.dims.#name)
        }
        Kind::Binary(op, left, right) => {
            let (left, right) = (part(left), part(right));
            if *op == Binary::Mul { quote!(#left * #right) } else { quote!(#left + #right) }
        }
        Kind::Call(function, arguments) => {
            let arguments: Vec<TokenStream> =
                arguments.iter().map(|each| arithmetic(each, rows, plan)).collect();
            let fold = |path: TokenStream| {
                arguments.iter().cloned().reduce(|a, b| quote!(#path(#a, #b))).unwrap_or_default()
            };
            match (function, arguments.as_slice()) {
                (Function::Min, _) => fold(quote!(::core::cmp::Ord::min)),
                (Function::Max, _) => fold(quote!(::core::cmp::Ord::max)),
                (Function::CeilDiv, [a, b]) => {
                    quote!(::core::primitive::usize::div_ceil(#a, #b))
                }
                (Function::AlignUp, [a, b]) => {
                    quote!(::core::primitive::usize::next_multiple_of(#a, #b))
                }
                _ => TokenStream::new(),
            }
        }
        // The planner takes no other form as a leading extent.
        Kind::Unary(..) | Kind::In(..) | Kind::Text(_) => TokenStream::new(),
    }
}

/// An expression as calls that carry overflow, remainders and zero divisors along as `None`.
fn checked(context: &Context<'_>, expr: &Expr) -> TokenStream {
    let size = quote!(size);
    let part = |expr: &Expr| checked(context, expr);
    match &expr.kind {
        Kind::Int(value) => {
            let value = proc_macro2::Literal::i64_unsuffixed(*value);
            quote!(#size::int(#value))
        }
        Kind::Name(name) => {
            let rows = context.plan.and_then(|plan| plan.sizes.rows.as_ref());
            let runtime = context.plan.map_or(&[][..], |plan| &plan.sizes.runtime);
            match rows {
                // The maximum of rows that are no dim of the caller's.
                Some((rows, value))
                    if rows == name && runtime.iter().all(|(dim, _)| dim != name) =>
                {
                    let value = number(*value);
                    quote!(#size::dim(#value))
                }
                _ => {
                    let name = identifier(name, Span::call_site());
                    quote!(#size::dim(dims.#name))
                }
            }
        }
        Kind::Unary(op, operand) => {
            let (name, operand) = (if *op == Unary::Neg { "neg" } else { "not" }, part(operand));
            let name = format_ident!("{name}");
            quote!(#size::#name(#operand))
        }
        Kind::Binary(op, left, right) => {
            let (left, right) = (part(left), part(right));
            let name = format_ident!("{}", format!("{op:?}").to_lowercase());
            quote!(#size::#name(#left, #right))
        }
        Kind::Call(function, arguments) => {
            let name = Ident::new(function.as_str(), Span::call_site());
            let parts = arguments.iter().map(part);
            parts.reduce(|a, b| quote!(#size::#name(#a, #b))).unwrap_or_default()
        }
        // An extent holds neither: text is constant, and `in` becomes comparisons.
        Kind::In(..) | Kind::Text(_) => TokenStream::new(),
    }
}

/// The name of an argument that holds the rows.
fn rows_argument(context: &Context<'_>) -> Ident {
    let mut buffers = 0..context.plan.map_or(0, |plan| plan.sizes.buffers.len());
    let used = buffers.any(|buffer| follows_rows(context, buffer));
    Ident::new(if used { "rows" } else { "_rows" }, Span::call_site())
}

fn tensor_bytes(context: &Context<'_>) -> TokenStream {
    let krate = context.krate;
    let Some(plan) = context.plan else { return quote!(0) };
    let arms = plan.sizes.buffers.iter().enumerate().map(|(buffer, size)| {
        let accessed = plan.layout.buffers.get(buffer).is_some_and(|placed| placed.accessed);
        let position = index(buffer);
        if !accessed {
            return quote!(#position => 0,);
        }
        let shape = shape(context, buffer, &quote!(self));
        let element = number(size.dtype.bytes());
        quote!(#position => #krate::generated::tensor_bytes(&[#(#shape),*], #element),)
    });
    quote! {
        match buffer {
            #(#arms)*
            _ => 0,
        }
    }
}

/// What the plan says of each buffer: its name, and its offset by the expression given.
fn describe(context: &Context<'_>, offset: &dyn Fn(usize) -> TokenStream) -> TokenStream {
    let krate = context.krate;
    let buffers = context.plan.into_iter().flat_map(|plan| plan.layout.buffers.iter().enumerate());
    let arms = buffers.map(|(buffer, placed)| {
        let (position, name, offset) = (index(buffer), &placed.name, offset(buffer));
        quote! {
            #position => ::core::option::Option::Some(#krate::generated::Described {
                name: #name,
                offset: #offset,
            }),
        }
    });
    quote! {
        fn describe(
            &self,
            buffer: ::core::primitive::usize,
        ) -> ::core::option::Option<#krate::generated::Described> {
            match buffer {
                #(#arms)*
                _ => ::core::option::Option::None,
            }
        }
    }
}

fn constant(context: &Context<'_>) -> TokenStream {
    let (krate, public) = (context.krate, context.public());
    let copies = index(context.copies);
    let buffers = index(context.plan.map_or(0, |plan| plan.layout.buffers.len()));
    let max_rows =
        context.plan.map_or(0, |plan| plan.sizes.rows.as_ref().map_or(1, |(_, value)| *value));
    let max_rows = number(max_rows);
    let tensor_bytes = tensor_bytes(context);
    let rows = rows_argument(context);
    quote! {
        /// The plan of the pool: all of it is constant.
        #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
        #public struct Plan;

        /// SAFETY: schedule, offsets and sizes come from one proved plan. The assertions in `layout`
        /// keep every offset aligned and inside the arena, and buffers that can be live together
        /// apart; the check beside `SCHEDULE` derives from it which those are.
        unsafe impl #krate::generated::Plan for Plan {
            const SCHEDULE: &'static #krate::tables::ScheduleTable = &SCHEDULE;
            const BUFFERS: ::core::primitive::usize = #buffers;

            fn max_rows(&self) -> ::core::primitive::usize {
                #max_rows
            }

            fn memory(&self) -> #krate::MemoryReport {
                #krate::MemoryReport::of(&LAYOUT, #copies)
            }

            fn tensor_bytes(
                &self,
                buffer: ::core::primitive::usize,
                #rows: ::core::primitive::usize,
            ) -> ::core::primitive::u64 {
                #tensor_bytes
            }
        }
    }
}

fn at_start_up(context: &Context<'_>) -> TokenStream {
    let (krate, public) = (context.krate, context.public());
    let usize = quote!(::core::primitive::usize);
    let runtime = context
        .declaration
        .spec
        .dims
        .iter()
        .filter(|dim| matches!(dim.value, scratchpool_planner::spec::DimValue::Runtime { .. }));
    let mut dims: Vec<Ident> = runtime
        .map(|dim| identifier(&dim.name.value, context.declaration.places.find(dim.name.span).0))
        .collect();
    // After an error there may be two of one name.
    let mut seen = BTreeSet::new();
    dims.retain(|dim| seen.insert(dim.to_string()));
    let dims_docs =
        dims.iter().map(|dim| docs::line(format!("The dim `{}`.", crate::parse::unraw(dim))));
    let pool = &context.declaration.spec.name.value;
    let (extents, buffers) = (
        index(runtime_extents(context).count()),
        index(context.plan.map_or(0, |plan| plan.layout.buffers.len())),
    );
    let layout = context.plan.map(|plan| layout_of(context, plan)).unwrap_or_else(|| {
        quote! {
            let _ = dims;
            let (extents, laid) = ([], size::Laid { offsets: [], total_bytes: 0, sum_bytes: 0 });
        }
    });
    let rows = context.declaration.spec.rows.as_ref().map(|rows| rows.value.clone());
    let is_given = |rows: &&String| dims.iter().any(|dim| crate::parse::unraw(dim) == **rows);
    let rows_dim = rows.as_ref().filter(is_given);
    let max_rows = match (rows_dim, &rows) {
        (Some(rows), _) => {
            let rows = identifier(rows, Span::call_site());
            quote!(self.dims.#rows)
        }
        (None, Some(_)) => {
            let value = context.plan.and_then(|plan| plan.sizes.rows.as_ref()).map_or(1, |r| r.1);
            let value = number(value);
            quote!(#value)
        }
        (None, None) => quote!(1),
    };
    let most_rows = rows_dim.map(|rows| {
        quote! {
            const ROWS: ::core::option::Option<&'static ::core::primitive::str> =
                ::core::option::Option::Some(#rows);
        }
    });
    let tensor_bytes = tensor_bytes(context);
    let rows = rows_argument(context);
    let describe = describe(context, &|buffer| {
        let buffer = index(buffer);
        quote!(self.offsets[#buffer])
    });
    let base_align = number(context.plan.map_or(1, |plan| plan.layout.base_align));
    let copies = index(context.copies);
    quote! {
        /// The sizes that only the running program knows. The proof holds for all of them.
        #[derive(
            ::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug,
            ::core::cmp::PartialEq, ::core::cmp::Eq
        )]
        #public struct Dims {
            #(
                #dims_docs
                pub #dims: #usize,
            )*
        }

        /// The layout at given [`Dims`].
        #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
        #public struct Plan {
            dims: Dims,
            extents: [#usize; #extents],
            offsets: [#usize; #buffers],
            total_bytes: ::core::primitive::u64,
            sum_bytes: ::core::primitive::u64,
        }

        impl Plan {
            /// Places the buffers, in the order that was proved best for typical dims.
            ///
            /// # Errors
            ///
            /// Dims with which some buffer's extent is no whole number of at least 1, or with
            /// which the arena would not fit 63 bits.
            pub const fn new(
                dims: Dims,
            ) -> ::core::result::Result<Self, #krate::generated::size::SizeError> {
                use #krate::generated::size;
                #layout
                ::core::result::Result::Ok(Self {
                    dims,
                    extents,
                    offsets: laid.offsets,
                    total_bytes: laid.total_bytes,
                    sum_bytes: laid.sum_bytes,
                })
            }

            /// The dims.
            pub const fn dims(&self) -> Dims {
                self.dims
            }

            /// What a pool of these dims reserves, known before it is allocated.
            pub const fn memory(&self) -> #krate::MemoryReport {
                #krate::MemoryReport {
                    pool: #pool,
                    copies: #copies,
                    bytes_per_copy: self.total_bytes,
                    base_align: #base_align,
                    sum_bytes: self.sum_bytes,
                }
            }

            /// Size of the arena in bytes.
            pub const fn total_bytes(&self) -> ::core::primitive::u64 {
                self.total_bytes
            }

            /// Byte offset of each buffer, in order of declaration.
            pub const fn offsets(&self) -> [#usize; #buffers] {
                self.offsets
            }
        }

        /// SAFETY: the schedule and the order of placing come from one proved plan. For any sizes,
        /// `size::lay` puts every buffer at an aligned offset above those below it that it can be
        /// live together with, and the arena below 2^63.
        unsafe impl #krate::generated::Plan for Plan {
            const SCHEDULE: &'static #krate::tables::ScheduleTable = &SCHEDULE;
            const BUFFERS: #usize = #buffers;
            #most_rows

            fn max_rows(&self) -> #usize {
                #max_rows
            }

            fn memory(&self) -> #krate::MemoryReport {
                Plan::memory(self)
            }

            fn tensor_bytes(&self, buffer: #usize, #rows: #usize) -> ::core::primitive::u64 {
                #tensor_bytes
            }

            #describe
        }
    }
}

/// Statements that define `extents` and `laid` from `dims`.
fn layout_of(context: &Context<'_>, plan: &Plan) -> TokenStream {
    let size = quote!(size);
    let all = plan.sizes.buffers.iter().zip(&plan.layout.buffers);
    let needs = all.clone().map(|(each, placed)| {
        let Size { extents, dtype, .. } = each;
        let extents = extents.iter().map(|extent| checked(context, extent));
        let (bytes, name, accessed) = (number(dtype.bytes()), &placed.name, placed.accessed);
        quote!(#size::need(#name, &[#(#extents),*], #bytes, #accessed))
    });
    let kept = runtime_extents(context).filter_map(|(buffer, axis)| {
        let each = plan.sizes.buffers.get(buffer)?;
        let placed = plan.layout.buffers.get(buffer)?;
        let (extent, name) = (checked(context, each.extents.get(axis)?), &placed.name);
        Some(quote! {
            match #size::extent(#name, #extent) {
                ::core::result::Result::Ok(extent) => extent,
                ::core::result::Result::Err(error) => return ::core::result::Result::Err(error),
            }
        })
    });
    // A dim that is an extent itself is checked by name before all that is computed from it.
    let whole = plan.sizes.runtime.iter().filter_map(|(name, _)| {
        let is_extent = |extent: &Expr| matches!(&extent.kind, Kind::Name(each) if each == name);
        let (_, placed) = all.clone().find(|(each, _)| each.extents.iter().any(is_extent))?;
        let (dim, buffer) = (identifier(name, Span::call_site()), &placed.name);
        Some(quote! {
            if let ::core::result::Result::Err(error) = #size::whole(#name, dims.#dim, #buffer) {
                return ::core::result::Result::Err(error);
            }
        })
    });
    let order = plan.layout.order.iter().map(|buffer| index(*buffer));
    let below = plan.layout.buffers.iter().map(|placed| {
        let below = placed.below.iter().map(|buffer| index(*buffer));
        quote!(&[#(#below),*])
    });
    let aligns = plan.layout.buffers.iter().map(|placed| number(placed.align));
    let align = number(plan.layout.align);
    quote! {
        #(#whole)*
        let extents = [#(#kept),*];
        let laid = match #size::lay(
            #align,
            &[#(#order),*],
            &[#(#below),*],
            &[#(#aligns),*],
            [#(#needs),*],
        ) {
            ::core::result::Result::Ok(laid) => laid,
            ::core::result::Result::Err(error) => return ::core::result::Result::Err(error),
        };
    }
}
