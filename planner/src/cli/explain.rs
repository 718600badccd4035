//! Why two buffers may share bytes, or why not and what would change that.

use std::fmt::Write as _;

use super::json;
use crate::error::{Conflict, Error, Hint, NameKind, layers_of_pairs};
use crate::explain::{Proof, ProofPath};
use crate::plan::{Explainer, Plan};
use crate::report::{amount, chain, reach, wrap};
use crate::spec::Span;

/// One pair of buffers and what is known about it.
pub(crate) struct Pair<'p> {
    a: &'p str,
    b: &'p str,
    /// The bytes that overlap in the arena.
    overlap: u64,
    /// By how much the arena would change with the other answer.
    stake: u64,
    answer: Answer,
}

enum Answer {
    /// They may share bytes.
    May(Proof),
    /// They must not; with the order that shows it.
    MustNot(Option<Box<Conflict>>),
}

/// The buffers that a word of the command line, its argument `argument`, names: one, or those of a
/// group.
pub(crate) fn buffers(plan: &Plan, argument: &str, word: &str) -> Result<Vec<usize>, Box<Error>> {
    let structure = &plan.structure;
    if let Some(buffer) = plan.buffer(word) {
        return Ok(vec![buffer]);
    }
    if let Some(group) = structure.groups.iter().find(|group| group.name == word) {
        return Ok(group.buffers.clone().collect());
    }
    let kind = if word.contains('.') { NameKind::Buffer } else { NameKind::Group };
    let groups = structure.groups.iter().map(|group| group.name.as_str());
    let names = structure.buffers.iter().map(|buffer| buffer.name.as_str());
    let error = Error::unknown_name(kind, word, groups.chain(names), Span::default());
    Err(Box::new(error.with(Hint::Argument(argument.to_owned()))))
}

/// What is known about each pair of two different buffers, one of each list.
pub(crate) fn pairs<'p>(plan: &'p Plan, a: &[usize], b: &[usize]) -> Vec<Pair<'p>> {
    let explainer = plan.explain();
    let mut seen = std::collections::BTreeSet::new();
    let mut pairs = Vec::new();
    for first in a {
        for second in b {
            if first != second && seen.insert((first.min(second), first.max(second))) {
                pairs.extend(pair(plan, &explainer, *first, *second));
            }
        }
    }
    pairs
}

fn pair<'p>(plan: &'p Plan, explainer: &Explainer<'_>, a: usize, b: usize) -> Option<Pair<'p>> {
    let (first, second) = (plan.layout.buffers.get(a)?, plan.layout.buffers.get(b)?);
    let answer = match explainer.proof(a, b) {
        Some(proof) => Answer::May(proof),
        None => Answer::MustNot(explainer.counterexample(a, b).map(Box::new)),
    };
    Some(Pair {
        a: &first.name,
        b: &second.name,
        overlap: plan.shared_bytes(a, b),
        stake: explainer.stake(a, b),
        answer,
    })
}

// ---- for people ----

/// All pairs, a paragraph each, those that must not share first; `word` is what was asked for.
pub(crate) fn draw(pairs: &[Pair<'_>], word: &str) -> String {
    if pairs.is_empty() {
        return format!("{word} is one buffer; there is no pair to explain\n");
    }
    let may = |pair: &&Pair<'_>| matches!(pair.answer, Answer::May(_));
    let (may, must_not): (Vec<_>, Vec<_>) = pairs.iter().partition(may);
    let mut text = String::new();
    if pairs.len() > 1 {
        let answers = match (may.len(), must_not.len()) {
            (_, 0) => "all may share".to_owned(),
            (0, _) => "none may share".to_owned(),
            (may, must_not) => format!("{may} may share, {must_not} must not"),
        };
        let _ = writeln!(text, "{} pairs: {answers}\n", pairs.len());
    }
    for (position, pair) in must_not.into_iter().chain(may).enumerate() {
        if position > 0 {
            text.push('\n');
        }
        draw_one(pair, &mut text);
    }
    text
}

fn draw_one(pair: &Pair<'_>, text: &mut String) {
    let Pair { a, b, overlap, stake, answer } = pair;
    match answer {
        Answer::May(proof) => {
            let _ = writeln!(text, "{a} and {b} may share bytes");
            let placed = match (overlap, stake) {
                (0, _) => "in this arena they lie apart".to_owned(),
                (_, 0) => format!(
                    "they share {}, but apart the arena would be no larger",
                    amount(*overlap)
                ),
                _ => format!(
                    "they share {}; apart, the arena would be {} larger",
                    amount(*overlap),
                    amount(*stake)
                ),
            };
            wrap(text, "  ", &placed);
            match proof {
                Proof::NeverAccessed { buffer } => {
                    wrap(text, "  ", &format!("no step ever touches {buffer}, so it has no bytes"));
                }
                Proof::HappensBefore { paths } => {
                    for path in paths {
                        draw_path(path, text);
                    }
                }
            }
        }
        Answer::MustNot(conflict) => {
            let _ = writeln!(text, "{a} and {b} must not share bytes");
            let at_stake = match stake {
                0 => "sharing would save nothing here".to_owned(),
                _ => format!("sharing would save {}", amount(*stake)),
            };
            wrap(text, "  ", &at_stake);
            let Some(conflict) = conflict else { return };
            for line in &conflict.trace {
                wrap(text, "  ", line);
            }
            wrap(text, "  ", &layers_of_pairs(&conflict.layers));
            let fix = match &conflict.fix {
                Some(fix) => format!(
                    "with `after = [\"{}\"]` on step `{}` they could share",
                    fix.after, fix.waiter
                ),
                None => "no single `after` was found that would let them share".to_owned(),
            };
            wrap(text, "  ", &fix);
        }
    }
}

fn draw_path(path: &ProofPath, text: &mut String) {
    let verb = |write: bool| if write { "written" } else { "read" };
    let from =
        format!("{} is last {} by {}", path.before, verb(path.from.write), path.from.place());
    let to = format!("{} is next {} by {}", path.after, verb(path.to.write), path.to.place());
    wrap(
        text,
        "  ",
        &format!("{}, then {}: {}, {}", path.before, path.after, chain(path), reach(path)),
    );
    wrap(text, "      ", &from);
    for (edge, layer) in path.edges.iter().zip(path.through.iter().skip(1)) {
        wrap(text, "      ", &format!("{edge}, layer {layer}"));
    }
    wrap(text, "      ", &to);
    wrap(text, "      ", &layers_of_pairs(&path.layers));
}

// ---- for programs ----

/// All pairs as one JSON document.
pub(crate) fn as_json(pairs: &[Pair<'_>]) -> String {
    let pairs = pairs.iter().map(|pair| {
        let mut fields = vec![
            ("a", json::string(pair.a)),
            ("b", json::string(pair.b)),
            ("may_share", matches!(pair.answer, Answer::May(_)).to_string()),
            ("shared_bytes", pair.overlap.to_string()),
            ("arena_bytes_at_stake", pair.stake.to_string()),
        ];
        match &pair.answer {
            Answer::May(proof) => fields.extend(proof_fields(proof, pair.a)),
            Answer::MustNot(conflict) => {
                fields.extend(conflict.iter().flat_map(|conflict| conflict_fields(conflict)));
            }
        }
        json::object(fields)
    });
    json::document([("pairs", json::lines(pairs))])
}

/// How a proof stands in JSON: its kind, the edges of one path, and all paths.
///
/// The one path leads from `a` to the other buffer, where any does.
pub(crate) fn proof_fields(proof: &Proof, a: &str) -> Vec<(&'static str, String)> {
    match proof {
        Proof::NeverAccessed { buffer } => vec![
            ("by", json::string("never_accessed")),
            ("edges", json::strings(&[])),
            ("buffer", json::string(buffer)),
        ],
        Proof::HappensBefore { paths } => {
            let first = paths.iter().find(|path| path.before == a).or(paths.first());
            let edges = first.map_or(&[][..], |path| path.edges.as_slice());
            let paths = paths.iter().map(|path| {
                json::object([
                    ("before", json::string(&path.before)),
                    ("after", json::string(&path.after)),
                    ("edges", json::strings(&path.edges)),
                    ("layers", json::layers(&path.layers)),
                ])
            });
            vec![
                ("by", json::string("happens_before")),
                ("edges", json::strings(edges)),
                ("paths", json::list(paths)),
            ]
        }
    }
}

fn conflict_fields(conflict: &Conflict) -> Vec<(&'static str, String)> {
    let fix = conflict.fix.as_ref().map_or("null".to_owned(), |fix| {
        json::object([("step", json::string(&fix.waiter)), ("after", json::string(&fix.after))])
    });
    vec![
        ("trace", json::strings(&conflict.trace)),
        ("accesses", json::list([json::access(&conflict.first), json::access(&conflict.second)])),
        ("layers", json::layers(&conflict.layers)),
        ("mend", fix),
    ]
}
