//! Which one wait more would fix a schedule.
//!
//! A forgotten wait shows as several conflicts, and most waits that fix one of them fix that one
//! alone, or order more than anyone wants. So each wait is tried on the whole schedule, and of those
//! that fix a conflict the one is offered that fixes most of the others too; of equals one within
//! the layer before one across layers, and then the one that orders the fewest pairs of nodes:
//! where it holds, everything else may still overlap.
//!
//! More order never makes a schedule wrong, so only the conflicts known have to be checked. What is
//! tried is bounded by [`MOST_WORK`]; past that the likeliest waits have been tried, and a conflict
//! may go without one.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::error::{Conflict, Fix};
use crate::explain::Facts;
use crate::schedule::{Order, Schedule};
use crate::spec::Span;
use crate::structure::After;

/// Most words of the order that are computed for all waits tried, times the words of a row.
const MOST_WORK: usize = 40_000_000;

/// Conflicts for which a fix is looked for; further ones go without.
const MOST_CONFLICTS: usize = 24;

/// A conflict to fix.
pub(crate) struct Open {
    /// The steps of the access issued first and of the one that does not come after it.
    pub(crate) steps: (usize, usize),
    /// What is wrong.
    pub(crate) what: What,
}

impl Open {
    /// The conflict, to look for a fix of.
    pub(crate) fn new(facts: &Facts<'_>, conflict: &Conflict, what: What) -> Option<Self> {
        let position = |name: &str| facts.structure.steps.iter().position(|s| s.name == name);
        let steps = (position(&conflict.first.step)?, position(&conflict.second.step)?);
        Some(Self { steps, what })
    }
}

/// What is wrong where two steps conflict.
pub(crate) enum What {
    /// They race on these buffers.
    Race(Vec<usize>),
    /// The second reuses these buffers too early.
    Reuse(Vec<usize>),
    /// These pairs of buffers interfere.
    Interference(Vec<(usize, usize)>),
}

/// One wait more: `waiter` comes `after`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Try {
    waiter: usize,
    after: After,
}

/// A wait that was tried.
struct Tried {
    wait: Try,
    /// Which of the conflicts it fixes.
    fixes: Vec<bool>,
    /// How many.
    count: usize,
    /// The pairs of nodes that are in order with it.
    ordered: usize,
}

/// For each conflict the best wait that fixes it; `None` where none was found.
pub(crate) fn fixes(facts: &Facts<'_>, open: &[Open]) -> Vec<Option<Fix>> {
    let open = open.get(..open.len().min(MOST_CONFLICTS)).unwrap_or(open);
    let tried = tried(facts, open);
    let best = |position: usize| {
        let fixing = tried.iter().filter(|tried| tried.fixes.get(position) == Some(&true));
        let best = fixing
            .min_by_key(|tried| (Reverse(tried.count), tried.wait.after.prev, tried.ordered))?;
        let step = |step: usize| facts.structure.steps.get(step).map(|step| step.name.clone());
        let After { prev, step: source, .. } = best.wait.after;
        let prefix = if prev { "prev." } else { "" };
        Some(Fix {
            waiter: step(best.wait.waiter)?,
            after: format!("{prefix}{}", step(source)?),
            fixes: best.count,
            of: open.len(),
        })
    };
    (0..open.len()).map(best).collect()
}

fn tried(facts: &Facts<'_>, open: &[Open]) -> Vec<Tried> {
    let nodes = facts.schedule.nodes.len();
    let work = nodes.saturating_mul(nodes.div_ceil(64)).max(1);
    let waits = waits(facts, open).into_iter().take((MOST_WORK / work).max(4));
    let tried = waits.map(|wait| {
        let added = Some((wait.waiter, wait.after));
        let order = Order::new(&Schedule::with_extra(facts.structure, added));
        let fixes = fixed(facts, &order, open);
        let count = fixes.iter().filter(|fixed| **fixed).count();
        Tried { wait, fixes, count, ordered: order.pairs() }
    });
    tried.filter(|tried| tried.count > 0).collect()
}

/// The waits to try, the likeliest first.
fn waits(facts: &Facts<'_>, open: &[Open]) -> Vec<Try> {
    let structure = facts.structure;
    let steps = structure.steps.len();
    let wait =
        |waiter, prev, step| Try { waiter, after: After { prev, step, span: Span::default() } };
    let joins = |step: &usize| structure.steps.get(*step).is_some_and(|s| !s.after.is_empty());
    let mut ranked: Vec<(usize, Try)> = Vec::new();
    for Open { steps: (early, late), .. } in open {
        let (early, late) = (*early, *late);
        // The conflicting pair itself, then a step downstream of the one, best one that joins
        // already, then what the other could wait for instead, then earlier layers.
        let pair = (early < late).then(|| (0, wait(late, false, early)));
        let downstream = (early + 1..steps)
            .map(|join| (if joins(&join) { 1 } else { 2 }, wait(join, false, early)));
        let instead = (0..late).map(|source| (3, wait(late, false, source)));
        let earlier = (0..steps)
            .map(|source| (if source == early { 4 } else { 5 }, wait(late, true, source)));
        ranked.extend(pair.into_iter().chain(downstream).chain(instead).chain(earlier));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    let mut seen = BTreeSet::new();
    ranked.retain(|(_, wait)| seen.insert((wait.waiter, wait.after.prev, wait.after.step)));
    ranked.into_iter().map(|(_, wait)| wait).collect()
}

/// Which of the conflicts are none in this order.
fn fixed(facts: &Facts<'_>, order: &Order, open: &[Open]) -> Vec<bool> {
    let step = |node: usize| facts.schedule.nodes.get(node).map_or(0, |node| node.step);
    let named = |found: Vec<(usize, usize, usize)>| -> BTreeSet<(usize, (usize, usize))> {
        found.into_iter().map(|(buffer, x, y)| (buffer, (step(x), step(y)))).collect()
    };
    let is_race = |open: &Open| matches!(open.what, What::Race(_));
    let is_reuse = |open: &Open| matches!(open.what, What::Reuse(_));
    let left = |any: bool, found: &dyn Fn() -> Vec<(usize, usize, usize)>| {
        if any { named(found()) } else { BTreeSet::new() }
    };
    let races = left(open.iter().any(is_race), &|| facts.live.races(order));
    let reuses = left(open.iter().any(is_reuse), &|| facts.live.reuses(order));
    let is_mended = |open: &Open| {
        let gone = |left: &BTreeSet<_>, buffers: &[usize]| {
            !buffers.iter().any(|buffer| left.contains(&(*buffer, open.steps)))
        };
        match &open.what {
            What::Race(buffers) => gone(&races, buffers),
            What::Reuse(buffers) => gone(&reuses, buffers),
            What::Interference(pairs) => {
                !pairs.iter().any(|(a, b)| facts.live.interfere(order, *a, *b))
            }
        }
    };
    open.iter().map(is_mended).collect()
}
