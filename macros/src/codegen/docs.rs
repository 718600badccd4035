//! Documentation of what is generated: the layout as a table, and where each buffer lies.

use proc_macro2::TokenStream;
use quote::quote;
use scratchpool_planner::layout::Placed;
use scratchpool_planner::plan::Plan;
use scratchpool_planner::sync::StepPlan;
use scratchpool_tables::layer_list;

use super::context::Context;
use crate::api::StepApi;

/// Doc comments, spaced as people write them.
pub(super) fn lines(lines: impl IntoIterator<Item = impl AsRef<str>>) -> TokenStream {
    let lines = lines.into_iter().map(|line| match line.as_ref() {
        "" => String::new(),
        line => format!(" {line}"),
    });
    quote!(#(#[doc = #lines])*)
}

/// One doc comment.
pub(super) fn line(line: impl AsRef<str>) -> TokenStream {
    lines([line])
}

/// `u8 [8192, 64, 64]`.
pub(super) fn tensor(placed: &Placed) -> String {
    format!("`{} {:?}`", placed.dtype.as_str(), placed.shape)
}

/// The documentation that the struct gets beside its own.
pub(super) fn pool(context: &Context<'_>) -> TokenStream {
    let Some(plan) = context.plan else {
        return self::lines(["", "This pool was refused."]);
    };
    let layout = &plan.layout;
    let mut lines = vec![
        String::new(),
        "# Layout".into(),
        String::new(),
        "| offset | bytes | buffer | elements | shares bytes with |".into(),
        "| ---: | ---: | --- | --- | --- |".into(),
    ];
    let sharing = plan.sharing();
    let mut order: Vec<usize> = (0..layout.buffers.len()).collect();
    order.sort_by_key(|buffer| layout.buffers.get(*buffer).map(|placed| placed.offset));
    for buffer in order {
        let Some(placed) = layout.buffers.get(buffer) else { continue };
        let others = sharing.iter().filter_map(|(a, b)| match (*a == buffer, *b == buffer) {
            (true, _) => layout.buffers.get(*b),
            (_, true) => layout.buffers.get(*a),
            _ => None,
        });
        let others: Vec<String> = others.map(|other| format!("`{}`", other.name)).collect();
        lines.push(format!(
            "| {} | {} | `{}` | {} | {} |",
            placed.offset,
            placed.bytes,
            placed.name,
            tensor(placed),
            others.join(", ")
        ));
    }
    let at = if context.runtime_sized() { ", at nominal dims" } else { "" };
    lines.push(String::new());
    lines.push(format!(
        "{} bytes in all instead of {}{at}; {}.",
        layout.total_bytes,
        layout.sum_bytes,
        if layout.optimal {
            "no smaller arena exists for this order".to_owned()
        } else {
            format!("no arena is smaller than {}", layout.least_bytes)
        }
    ));
    self::lines(lines)
}

/// The steps in the order issued, with the waits that are issued for them.
pub(super) fn order(plan: &Plan, issued: &[Vec<StepPlan>]) -> TokenStream {
    let structure = &plan.structure;
    let mut lines = vec![
        String::new(),
        "| step | stream | runs in | waits for |".to_owned(),
        "| --- | --- | --- | --- |".to_owned(),
    ];
    for (position, step) in structure.steps.iter().enumerate() {
        let stream = structure.streams.get(step.stream).map_or("", |name| name);
        let mut waits: Vec<String> = Vec::new();
        for layer in issued {
            let entry = layer.get(position);
            for (source, back) in entry.into_iter().flat_map(|entry| &entry.waits) {
                // As declared: an event of this layer, or of one before.
                let runs = layer.get(*source).is_some_and(|source| source.runs);
                let prefix = if *source < position && runs && *back == 0 { "" } else { "prev." };
                let name = structure.steps.get(*source).map_or("", |step| &step.name);
                let wait = format!("`{prefix}{name}`");
                if !waits.contains(&wait) {
                    waits.push(wait);
                }
            }
        }
        let waits = if waits.is_empty() { "its stream alone".to_owned() } else { waits.join(", ") };
        let (name, layers) = (&step.name, layers(&step.runs));
        lines.push(format!("| `{name}` | `{stream}` | {layers} | {waits} |"));
    }
    self::lines(lines)
}

/// `every layer`, `no layer`, or which.
fn layers(runs: &[bool]) -> String {
    let found = runs.iter().enumerate().filter(|(_, runs)| **runs);
    let found: Vec<usize> = found.map(|(layer, _)| layer).collect();
    if found.len() == runs.len() {
        "every layer".to_owned()
    } else if found.is_empty() {
        "no layer".to_owned()
    } else {
        layer_list(&found)
    }
}

/// The documentation of a view.
pub(super) fn view(context: &Context<'_>, buffer: usize, write: bool) -> TokenStream {
    let verb = if write { "Written" } else { "Read" };
    let Some(placed) = context.plan.and_then(|plan| plan.layout.buffers.get(buffer)) else {
        return line(format!("{verb} by the step."));
    };
    let place = if context.runtime_sized() {
        "offset and size follow from the dims".to_owned()
    } else {
        format!("{} bytes at offset {}", placed.bytes, placed.offset)
    };
    line(format!("{verb} by the step: `{}`, {}, {place}.", placed.name, tensor(placed)))
}

/// The documentation of a step's method.
pub(super) fn step(plan: Option<&Plan>, step: &StepApi) -> TokenStream {
    let mut lines = vec![format!("Enters step `{}`, after the order of all before it.", step.name)];
    let found = plan.and_then(|plan| {
        let resolved = plan.structure.steps.iter().find(|each| each.name == step.name)?;
        Some((plan, resolved))
    });
    if let Some((plan, resolved)) = found {
        let stream = plan.structure.streams.get(resolved.stream).map_or("", |name| name);
        let place = layers(&resolved.runs);
        lines.push(String::new());
        lines.push(format!("Runs on stream `{stream}`, in {place}."));
        if step.optional {
            lines.push("`None` in the others.".to_owned());
        }
    }
    lines.push(String::new());
    lines.push("# Errors".into());
    lines.push(String::new());
    lines.push("A step that was issued before, or what the device reports.".into());
    self::lines(lines)
}
