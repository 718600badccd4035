//! The check that rustc makes of the plan: from the schedule's own constant it derives the order
//! again, and refuses a layout in which buffers that are live together share bytes.

use proc_macro2::TokenStream;
use quote::quote;
use scratchpool_planner::plan::Plan;

use super::context::{Context, index};

/// Passes that the check walks over.
const PASSES: usize = 3;

pub(super) fn emit(context: &Context<'_>) -> TokenStream {
    // After an error there is nothing to check: the error stands.
    let Some(plan) = context.plan.filter(|_| context.proved) else { return TokenStream::new() };
    let krate = context.krate;
    let nodes = plan.structure.steps.iter().flat_map(|step| &step.runs).filter(|runs| **runs);
    let nodes = PASSES * nodes.count();
    let words = index(nodes.div_ceil(64).max(1));
    let (nodes, buffers) = (index(nodes), index(plan.layout.buffers.len()));
    let shares = if context.runtime_sized() {
        let below = below(plan);
        quote!(check::unplaced::<BUFFERS>(&[#(#below),*]))
    } else {
        quote!(check::sharing::<BUFFERS>(&LAYOUT))
    };
    quote! {
        /// The compiler derives the order from `SCHEDULE` once more, and checks that no buffers which
        /// can be live together share bytes.
        #[allow(long_running_const_eval)]
        const _: () = {
            use #krate::generated::check;
            const NODES: ::core::primitive::usize = #nodes;
            const WORDS: ::core::primitive::usize = #words;
            const BUFFERS: ::core::primitive::usize = #buffers;
            const SHARES: [[::core::primitive::bool; BUFFERS]; BUFFERS] = #shares;
            match check::check::<NODES, WORDS, BUFFERS>(&SCHEDULE, &SHARES) {
                ::core::result::Result::Ok(()) => {}
                ::core::result::Result::Err(wrong) => ::core::panic!("{}", wrong.message()),
            }
        };
    }
}

/// For each buffer those that lie below it, whatever the dims.
fn below(plan: &Plan) -> Vec<TokenStream> {
    let buffers = plan.layout.buffers.iter();
    buffers
        .map(|placed| {
            let below = placed.below.iter().map(|buffer| index(*buffer));
            quote!(&[#(#below),*])
        })
        .collect()
}
