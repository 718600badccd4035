//! A plan for programs.
//!
//! `proofs` has one entry for each pair of buffers that may share bytes. In a pool with more than
//! [`MOST_PROOFS`] such pairs it has those that do share, and `proofs_of` says which it is.

use super::explain::proof_fields;
use super::json;
use crate::plan::Plan;

/// Most pairs for which a proof is written down where the layout does not rely on it.
const MOST_PROOFS: usize = 4096;

/// The whole document.
pub(crate) fn write(plan: &Plan) -> String {
    let layout = &plan.layout;
    let name = |buffer: usize| layout.buffers.get(buffer).map_or("", |each| each.name.as_str());
    let sorted = |a: usize, b: usize| if name(a) <= name(b) { (a, b) } else { (b, a) };
    let buffers = layout.buffers.iter().map(|buffer| {
        json::object([
            ("name", json::string(&buffer.name)),
            ("offset", buffer.offset.to_string()),
            ("bytes", buffer.bytes.to_string()),
            ("dtype", json::string(buffer.dtype.as_str())),
            ("shape", json::list(buffer.shape.iter().map(ToString::to_string))),
            ("tensor_bytes", buffer.tensor_bytes.to_string()),
            ("align", buffer.align.to_string()),
        ])
    });
    let mut interference: Vec<_> = plan.interference.iter().map(|(a, b)| sorted(*a, *b)).collect();
    interference.sort_by_key(|(a, b)| (name(*a), name(*b)));
    let interference = interference.iter().map(|(a, b)| json::pair(name(*a), name(*b)));

    let count = layout.buffers.len();
    let mut pairs: Vec<_> = (0..count)
        .flat_map(|b| (0..b).map(move |a| (a, b)))
        .filter(|(a, b)| !plan.interferes(*a, *b))
        .collect();
    let all = pairs.len() <= MOST_PROOFS;
    if !all {
        pairs.retain(|(a, b)| plan.shared_bytes(*a, *b) > 0);
    }
    let mut pairs: Vec<_> = pairs.into_iter().map(|(a, b)| sorted(a, b)).collect();
    pairs.sort_by_key(|(a, b)| (name(*a), name(*b)));
    let explainer = plan.explain();
    let proofs = pairs.iter().filter_map(|(a, b)| {
        let proof = explainer.proof(*a, *b)?;
        let mut fields = vec![("a", json::string(name(*a))), ("b", json::string(name(*b)))];
        fields.extend(proof_fields(&proof, name(*a)));
        fields.push(("shared_bytes", plan.shared_bytes(*a, *b).to_string()));
        Some(json::object(fields))
    });
    let proofs = json::lines(proofs);

    let waits = explainer.waits();
    let waits = waits.iter().map(|wait| {
        json::object([
            ("step", json::string(&wait.step)),
            ("after", json::string(&wait.after)),
            ("layers", json::list(wait.layers.iter().map(ToString::to_string))),
            ("needed_for", json::list(wait.needed_for.iter().map(|(a, b)| json::pair(a, b)))),
        ])
    });
    json::document([
        ("pool", json::string(&layout.pool)),
        ("align", layout.align.to_string()),
        ("total_bytes", layout.total_bytes.to_string()),
        ("lower_bound_bytes", layout.lower_bound_bytes.to_string()),
        ("sum_bytes", layout.sum_bytes.to_string()),
        ("optimal", layout.optimal.to_string()),
        ("fingerprint", json::string(&layout.fingerprint)),
        ("buffers", json::lines(buffers)),
        ("interference", json::lines(interference)),
        ("proofs", proofs),
        ("proofs_of", json::string(if all { "all" } else { "sharing" })),
        ("ubatches", plan.sizes.ubatches.to_string()),
        ("waits", json::lines(waits)),
    ])
}
