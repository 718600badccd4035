//! The exact search: is there a packing no higher than a given height?
//!
//! In a packing in which nothing can be pushed further down, every item rests on the ground or on
//! top of a conflicting item, so its offset is the highest end among the conflicting items below
//! it, rounded up to its alignment. Placing the items by rising offset (ties by number), each at
//! that offset, its *floor*, therefore meets every such packing exactly once: the search is complete.
//! Of the packings that fit, only one with the least sum of offsets has to be met. In it no single
//! item can move down, which gives the rules below.
//!
//! - **Out of turn.** An item whose floor lies before the place that was filled last can only be
//!   placed after a conflicting item has raised its floor.
//! - **Nothing fits below.** No item is placed at or above the end that an unplaced item would have
//!   at its own floor: the latter could be moved there.
//! - **Cliques.** The items of a clique are stacked in some order. If those still to be placed
//!   cannot start before `m`, then `m` plus their sizes must fit; if only one of them may come
//!   first, it does, and the others start above its end.
//! - **Twins.** Of two items that nothing tells apart, the one with the lower number goes lower.
//! - **Parts.** Once the unplaced items fall into parts without conflicts between them, the parts
//!   are searched one after the other, not interleaved.
//! - **Memory.** A refuted state (unplaced items, their floors, the place filled last) stays refuted.
//!   Only equal states are compared: domination between states could clash with the rules above.

use std::collections::HashSet;

use super::{Conflicts, Layout};

/// What the search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A packing no higher than asked for.
    Fits(Layout),
    /// No packing that low exists: the search was complete.
    Refuted,
    /// The node limit came first.
    Undecided,
}

/// The question put to the search. Sizes and alignments rounded as in [`super::Problem`], with sums
/// that cannot overflow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) sizes: &'a [u64],
    pub(super) aligns: &'a [u64],
    pub(super) conflicts: &'a Conflicts,
    /// Cliques to prune by; any selection is sound.
    pub(super) cliques: &'a [Vec<usize>],
    pub(super) height: u64,
}

/// States remembered at most, and the largest number of unplaced items in one.
const MEMORY_STATES: usize = 1 << 16;
const MEMORY_ITEMS: usize = 24;

/// Rounds of clique reasoning in one node.
const ROUNDS: usize = 3;

/// Answers `question`, preferring among equally low places the items that `order` names first, and
/// takes the nodes it expands from `nodes_left`. `order` is a permutation of the items.
///
/// Adds to `blame`, by item, how often the item was left over in a clique that could not fit.
pub(super) fn ask(
    question: Question<'_>,
    order: &[usize],
    nodes_left: &mut u64,
    blame: &mut [u64],
) -> Verdict {
    let mut search = Search::new(question, order);
    search.nodes_left = *nodes_left;
    let open: Vec<usize> = (0..order.len()).collect();
    let cliques: Vec<usize> = (0..question.cliques.len()).collect();
    let end = search.solve(&open, &cliques, None);
    *nodes_left = search.nodes_left;
    for (&item, &more) in order.iter().zip(&search.blame) {
        if let Some(slot) = blame.get_mut(item) {
            *slot += more;
        }
    }
    match end {
        End::Found => {
            let mut offsets = vec![0; order.len()];
            let mut height = 0;
            for ((&item, &offset), &size) in order.iter().zip(&search.offset).zip(&search.size) {
                height = height.max(offset + size);
                if let Some(slot) = offsets.get_mut(item) {
                    *slot = offset;
                }
            }
            Verdict::Fits(Layout { offsets, height })
        }
        End::Refuted => Verdict::Refuted,
        End::Limit => Verdict::Undecided,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Found,
    Refuted,
    Limit,
}

/// The place filled last: offset and number of the item there.
type Last = Option<(u64, usize)>;

const NOBODY: usize = usize::MAX;

/// Items are numbered by preference here.
struct Search {
    height: u64,
    size: Vec<u64>,
    align: Vec<u64>,
    conflicts: Conflicts,
    near: Vec<Vec<usize>>,
    /// The next lower number among the items that nothing tells apart from this one.
    twin: Vec<usize>,
    cliques: Vec<Vec<usize>>,
    cliques_of: Vec<Vec<usize>>,
    /// Sizes still to be placed, by clique.
    rest: Vec<u64>,
    placed: Vec<bool>,
    floor: Vec<u64>,
    /// Where the item cannot start below, as far as the current node has reasoned.
    low: Vec<u64>,
    offset: Vec<u64>,
    /// Floors as they were before being raised, to take back.
    raised: Vec<(usize, u64)>,
    /// Items in the order they were placed, to take back.
    stack: Vec<usize>,
    part_of: Vec<usize>,
    /// The clique that failed last: the likeliest to fail again.
    culprit: usize,
    /// How often each item was left over in a clique that could not fit.
    blame: Vec<u64>,
    memory: HashSet<Box<[u64]>>,
    nodes_left: u64,
}

#[expect(
    clippy::indexing_slicing,
    reason = "every vector is as long as the items (or the cliques) it is numbered by, and the \
              numbers held in `near`, `twin` (but NOBODY, which is tested for), `cliques`, \
              `cliques_of`, `raised` and `stack` are made in `new` from those ranges alone"
)]
impl Search {
    fn new(question: Question<'_>, order: &[usize]) -> Self {
        let n = order.len();
        let conflicts = question.conflicts.induced(order);
        let mut number = vec![0; n];
        for (at, &item) in order.iter().enumerate() {
            number[item] = at;
        }
        let cliques: Vec<Vec<usize>> = question
            .cliques
            .iter()
            .map(|clique| clique.iter().map(|&item| number[item]).collect())
            .collect();
        let size: Vec<u64> = order.iter().map(|&item| question.sizes[item]).collect();
        let align: Vec<u64> = order.iter().map(|&item| question.aligns[item]).collect();
        let mut cliques_of = vec![Vec::new(); n];
        for (c, clique) in cliques.iter().enumerate() {
            for &v in clique {
                cliques_of[v].push(c);
            }
        }
        let alike = |a: usize, b: usize| {
            size[a] == size[b] && align[a] == align[b] && same_neighbours(&conflicts, a, b)
        };
        let twin = (0..n).map(|v| (0..v).rev().find(|&u| alike(u, v)).unwrap_or(NOBODY)).collect();
        Self {
            height: question.height,
            near: (0..n).map(|v| conflicts.neighbours(v).collect()).collect(),
            twin,
            rest: cliques.iter().map(|clique| clique.iter().map(|&v| size[v]).sum()).collect(),
            cliques,
            cliques_of,
            size,
            align,
            placed: vec![false; n],
            floor: vec![0; n],
            low: vec![0; n],
            offset: vec![0; n],
            raised: Vec::new(),
            stack: Vec::new(),
            part_of: vec![0; n],
            culprit: 0,
            blame: vec![0; n],
            conflicts,
            memory: HashSet::new(),
            nodes_left: 0,
        }
    }

    /// Places `open`, ascending and connected by conflicts but for the very first call, whose
    /// unplaced items are those of `cliques`, at places after `last`.
    fn solve(&mut self, open: &[usize], cliques: &[usize], last: Last) -> End {
        if open.is_empty() {
            return End::Found;
        }
        if self.nodes_left == 0 {
            return End::Limit;
        }
        self.nodes_left -= 1;
        let Some(reach) = self.reason(open, cliques, last) else {
            return End::Refuted;
        };
        let key = self.key(open, last);
        if let Some(key) = &key
            && self.memory.contains(key)
        {
            return End::Refuted;
        }
        let mut next: Vec<(u64, usize)> = Vec::new();
        for &v in open {
            let floor = self.floor[v];
            if floor == self.low[v] && floor < reach {
                let twin = self.twin[v];
                if twin == NOBODY || self.placed[twin] {
                    next.push((floor, v));
                }
            }
        }
        next.sort_unstable();
        for (floor, v) in next {
            match self.descend(open, cliques, floor, v) {
                End::Refuted => {}
                end => return end,
            }
        }
        if let Some(key) = key
            && self.memory.len() < MEMORY_STATES
        {
            self.memory.insert(key);
        }
        End::Refuted
    }

    /// Places `v` at its floor and searches what is left; takes all back unless that fits.
    fn descend(&mut self, open: &[usize], cliques: &[usize], floor: u64, v: usize) -> End {
        let raised = self.raised.len();
        let stack = self.stack.len();
        self.place(v, floor);
        let mut end = End::Found;
        for (part, part_cliques) in self.parts(open, cliques) {
            end = self.solve(&part, &part_cliques, Some((floor, v)));
            if end != End::Found {
                break;
            }
        }
        if end == End::Refuted {
            while self.raised.len() > raised
                && let Some((w, before)) = self.raised.pop()
            {
                self.floor[w] = before;
            }
            while self.stack.len() > stack
                && let Some(w) = self.stack.pop()
            {
                self.placed[w] = false;
                for at in 0..self.cliques_of[w].len() {
                    self.rest[self.cliques_of[w][at]] += self.size[w];
                }
            }
        }
        end
    }

    fn place(&mut self, v: usize, offset: u64) {
        self.placed[v] = true;
        self.offset[v] = offset;
        self.stack.push(v);
        for at in 0..self.cliques_of[v].len() {
            self.rest[self.cliques_of[v][at]] -= self.size[v];
        }
        let end = offset + self.size[v];
        for at in 0..self.near[v].len() {
            let w = self.near[v][at];
            if !self.placed[w] {
                let floor = round_up(end, self.align[w]);
                if floor > self.floor[w] {
                    self.raised.push((w, self.floor[w]));
                    self.floor[w] = floor;
                }
            }
        }
    }

    /// The unplaced items of `open`, split into parts without conflicts between them, small parts
    /// first, each with the cliques that it still concerns.
    fn parts(&mut self, open: &[usize], cliques: &[usize]) -> Vec<(Vec<usize>, Vec<usize>)> {
        let mut left = vec![0_u64; self.size.len().div_ceil(64)];
        for &v in open {
            if !self.placed[v] {
                left[v / 64] |= 1 << (v % 64);
            }
        }
        let mut parts = Vec::new();
        for &seed in open {
            if left[seed / 64] >> (seed % 64) & 1 == 0 {
                continue;
            }
            left[seed / 64] &= !(1 << (seed % 64));
            let mut part = vec![seed];
            let mut seen = 0;
            while seen < part.len() {
                let v = part[seen];
                seen += 1;
                self.part_of[v] = parts.len();
                let row = self.conflicts.row(v);
                for at in 0..left.len() {
                    let mut reached = left[at] & row[at];
                    left[at] &= !reached;
                    while reached != 0 {
                        part.push(at * 64 + reached.trailing_zeros() as usize);
                        reached &= reached - 1;
                    }
                }
            }
            part.sort_unstable();
            parts.push((part, Vec::new()));
        }
        for &c in cliques {
            if self.rest[c] > 0
                && let Some(&v) = self.cliques[c].iter().find(|&&v| !self.placed[v])
            {
                parts[self.part_of[v]].1.push(c);
            }
        }
        parts.sort_by_key(|(part, _)| part.len());
        parts
    }

    /// Works out `low` for the open items. Answers the offset that the next item must stay below,
    /// or nothing if the height cannot be kept.
    fn reason(&mut self, open: &[usize], cliques: &[usize], last: Last) -> Option<u64> {
        let mut reach = u64::MAX;
        let mut out_of_turn = false;
        for &v in open {
            let floor = self.floor[v];
            let end = floor + self.size[v];
            if end > self.height {
                return None;
            }
            reach = reach.min(end);
            self.low[v] = floor;
            if let Some((offset, number)) = last
                && (floor, v) < (offset, number)
            {
                if end <= offset {
                    return None;
                }
                self.low[v] = offset;
                out_of_turn = true;
            }
        }
        if out_of_turn {
            self.wait_for_support(open, last)?;
        }
        for _ in 0..ROUNDS {
            match self.weigh_cliques(cliques) {
                Ok(true) => {}
                Ok(false) => break,
                Err(clique) => {
                    self.culprit = clique;
                    for at in 0..self.cliques[clique].len() {
                        let v = self.cliques[clique][at];
                        if !self.placed[v] {
                            self.blame[v] += 1;
                        }
                    }
                    return None;
                }
            }
        }
        Some(reach)
    }

    /// Raises `low` of the items out of turn to the lowest top they may come to rest on.
    fn wait_for_support(&mut self, open: &[usize], last: Last) -> Option<()> {
        let (offset, number) = last?;
        for &v in open {
            if (self.floor[v], v) >= (offset, number) {
                continue;
            }
            let mut support = u64::MAX;
            for &w in &self.near[v] {
                if !self.placed[w] {
                    support = support.min(self.low[w] + self.size[w]);
                }
            }
            if support == u64::MAX {
                return None;
            }
            self.low[v] = round_up(support, self.align[v]);
            if self.low[v] + self.size[v] > self.height {
                return None;
            }
        }
        Some(())
    }

    /// One round over the cliques; whether any `low` rose, or the clique that cannot fit.
    fn weigh_cliques(&mut self, cliques: &[usize]) -> Result<bool, usize> {
        let mut changed = false;
        let culprit = self.culprit;
        let again = cliques.binary_search(&culprit).is_ok().then_some(culprit);
        for c in again.into_iter().chain(cliques.iter().copied()) {
            let rest = self.rest[c];
            if rest == 0 {
                continue;
            }
            let mut first = NOBODY;
            let mut least = u64::MAX;
            let mut second = u64::MAX;
            for &v in &self.cliques[c] {
                if self.placed[v] {
                    continue;
                }
                let low = self.low[v];
                if low < least {
                    second = least;
                    least = low;
                    first = v;
                } else if low < second {
                    second = low;
                }
            }
            if least.saturating_add(rest) > self.height {
                return Err(c);
            }
            if second == u64::MAX || second + rest <= self.height {
                continue;
            }
            // Nobody else may come first.
            let above = least + self.size[first];
            if second.max(above) + (rest - self.size[first]) > self.height {
                return Err(c);
            }
            for &v in &self.cliques[c] {
                if v != first && !self.placed[v] && self.low[v] < above {
                    let low = round_up(above, self.align[v]);
                    if low + self.size[v] > self.height {
                        return Err(c);
                    }
                    self.low[v] = low;
                    changed = true;
                }
            }
        }
        Ok(changed)
    }

    /// The state of a node as words, if it is worth remembering. The place filled last is part of
    /// it only where some item is out of turn: all others lie after it anyway.
    fn key(&self, open: &[usize], last: Last) -> Option<Box<[u64]>> {
        if open.len() < 3 || open.len() > MEMORY_ITEMS {
            return None;
        }
        let mut key = Vec::with_capacity(2 * open.len() + 2);
        let place = last.unwrap_or((0, 0));
        if open.iter().any(|&v| (self.floor[v], v) < place) {
            key.push(place.0);
            key.push(place.1 as u64);
        }
        for &v in open {
            key.push(v as u64);
            key.push(self.floor[v]);
        }
        Some(key.into_boxed_slice())
    }
}

/// Whether every third item conflicts with both or with neither.
pub(super) fn same_neighbours(conflicts: &Conflicts, a: usize, b: usize) -> bool {
    conflicts.row(a).iter().zip(conflicts.row(b)).enumerate().all(|(at, (&x, &y))| {
        let mut differ = x ^ y;
        for item in [a, b] {
            if item / 64 == at {
                differ &= !(1 << (item % 64));
            }
        }
        differ == 0
    })
}

/// `offset` rounded up to a multiple of `align`, a power of two.
pub(super) fn round_up(offset: u64, align: u64) -> u64 {
    (offset + (align - 1)) & !(align - 1)
}
