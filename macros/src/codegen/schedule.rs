//! The proved schedule as a constant: what the runtime issues is what the prover read.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};
use scratchpool_planner::plan::Plan;
use scratchpool_planner::sync::StepPlan;

use super::context::{Context, index};
use super::docs;

pub(super) fn emit(context: &Context<'_>) -> TokenStream {
    let krate = context.krate;
    let public = context.public();
    let issued = context.plan.map(|plan| (plan, plan.explain().issue_plan()));
    let (streams, steps, layers, kinds) = match &issued {
        Some((plan, issued)) => tables(context, plan, issued),
        None => Default::default(),
    };
    let order = issued.as_ref().map(|(plan, issued)| docs::order(plan, issued));
    let constants = context.api.steps.iter().enumerate().map(|(position, step)| {
        let (constant, position) = (&step.constant, index(position));
        quote!(pub(super) const #constant: ::core::primitive::u16 = #position;)
    });
    quote! {
        /// The steps by name: their places in the order in which they are issued.
        mod step {
            #(#constants)*
        }

        /// The order that the proof relies on, and that the runtime issues.
        #order
        #public const SCHEDULE: #krate::tables::ScheduleTable = {
            use #krate::tables::{
                LayerKind, Launch, ScheduleTable, StepInLayer, StepRow, WaitRow
            };
            ScheduleTable {
                streams: &[#(#streams),*],
                steps: &[#(#steps),*],
                layers: &[#(#layers),*],
                kinds: &[#(#kinds),*],
            }
        };
    }
}

type Tables = (Vec<String>, Vec<TokenStream>, Vec<Literal>, Vec<TokenStream>);

fn tables(context: &Context<'_>, plan: &Plan, issued: &[Vec<StepPlan>]) -> Tables {
    let structure = &plan.structure;
    // Layers that do the same share one kind.
    let mut kinds: Vec<(&Vec<StepPlan>, Vec<bool>)> = Vec::new();
    let mut layers = Vec::new();
    for (layer, steps) in issued.iter().enumerate() {
        let exists = |buffer: &scratchpool_planner::structure::Buffer| {
            let group = structure.groups.get(buffer.group);
            group.and_then(|group| group.exists.get(layer)) == Some(&true)
        };
        let buffers: Vec<bool> = structure.buffers.iter().map(exists).collect();
        let kind = kinds.iter().position(|known| known.0 == steps && known.1 == buffers);
        layers.push(index(kind.unwrap_or(kinds.len())));
        if kind.is_none() {
            kinds.push((steps, buffers));
        }
    }
    let steps = structure.steps.iter().enumerate().map(|(position, step)| {
        // As many events as the furthest run that is waited for, and none if no one waits.
        let waited = issued.iter().flatten().flat_map(|each| &each.waits);
        let events = waited.filter(|(source, _)| *source == position).map(|(_, back)| back + 1);
        let events = Literal::u8_unsuffixed(events.max().unwrap_or(0));
        let (name, stream) = (&step.name, index(step.stream));
        let launch = format_ident!("{}", format!("{:?}", step.launch));
        let touched = |write: bool| {
            step.accesses.iter().filter(move |a| a.write == write).map(|a| index(a.buffer))
        };
        let (writes, reads) = (touched(true), touched(false));
        quote! {
            StepRow {
                name: #name,
                stream: #stream,
                launch: Launch::#launch,
                events: #events,
                writes: &[#(#writes),*],
                reads: &[#(#reads),*],
            }
        }
    });
    let kinds = kinds.iter().map(|(steps, buffers)| {
        let steps = steps.iter().map(|step| {
            let StepPlan { runs, records, waits } = step;
            let waits = waits.iter().map(|(source, back)| {
                let back = Literal::u8_unsuffixed(*back);
                let source = context.api.steps.get(*source).map(|step| &step.constant);
                quote!(WaitRow { step: step::#source, back: #back })
            });
            quote! {
                StepInLayer { runs: #runs, records: #records, waits: &[#(#waits),*] }
            }
        });
        quote! {
            LayerKind { steps: &[#(#steps),*], buffers: &[#(#buffers),*] }
        }
    });
    (structure.streams.clone(), steps.collect(), layers, kinds.collect())
}
