//! The least arena, and the bound from below.
//!
//! Take a best layout and push every buffer down as far as the interfering ones below it allow. Then each offset is the
//! least aligned one at or above the ends of the interfering buffers that lie lower. So placing the buffers in the
//! order of their offsets, each on top of those it interferes with, finds a best layout: some order is always good
//! enough, and trying all of them is an exact search.

use std::collections::HashMap;

/// A buffer to place.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) bytes: i64,
    pub(crate) align: i64,
    /// One entry for each item.
    pub(crate) conflicts: Vec<bool>,
}

/// The largest sum of sizes over sets of pairwise interfering items, by trying every set.
pub(crate) fn heaviest_clique(items: &[Item]) -> i64 {
    assert!(items.len() <= 16, "too many sets to try");
    let mut best = 0;
    for set in 0..1usize << items.len() {
        let members = (0..items.len()).filter(|i| set >> i & 1 == 1).collect::<Vec<_>>();
        let weight = members.iter().map(|i| items[*i].bytes).sum();
        if weight > best
            && members.iter().all(|i| members.iter().all(|j| i == j || items[*i].conflicts[*j]))
        {
            best = weight;
        }
    }
    best
}

/// The least end of the highest item.
pub(crate) fn optimum(items: &[Item]) -> i64 {
    if items.len() <= 6 { by_permutations(items) } else { by_branch_and_bound(items) }
}

/// Tries every order, with no cleverness at all.
pub(crate) fn by_permutations(items: &[Item]) -> i64 {
    fn go(items: &[Item], placed: &mut Vec<Option<i64>>, height: i64) -> i64 {
        let mut best = i64::MAX;
        for i in 0..items.len() {
            if placed[i].is_none() {
                let offset = lowest(items, placed, i);
                placed[i] = Some(offset);
                best = best.min(go(items, placed, height.max(offset + items[i].bytes)));
                placed[i] = None;
            }
        }
        if best == i64::MAX { height } else { best }
    }
    go(items, &mut vec![None; items.len()], 0)
}

/// Tries the orders with rising offsets only, leaves those that cannot beat the best arena found, and does not go on
/// twice from the same place.
pub(crate) fn by_branch_and_bound(items: &[Item]) -> i64 {
    let mut search = Search {
        items,
        cliques: maximal_cliques(items),
        bound: heaviest_clique(items),
        best: items.iter().map(|item| item.bytes + item.align).sum::<i64>() + 1,
        seen: HashMap::new(),
    };
    search.go(&mut vec![None; items.len()], 0, 0);
    search.best
}

struct Search<'a> {
    items: &'a [Item],
    cliques: Vec<Vec<usize>>,
    bound: i64,
    best: i64,
    /// The height with which the search last went on from a place. All that the rest of the search depends on is the
    /// offset that each open item would get now; nothing for a placed item, and -1 for one that has to wait.
    seen: HashMap<Vec<Option<i64>>, i64>,
}

impl Search<'_> {
    fn go(&mut self, placed: &mut Vec<Option<i64>>, last: i64, height: i64) {
        if self.best == self.bound {
            return;
        }
        if placed.iter().all(Option::is_some) {
            self.best = self.best.min(height);
            return;
        }
        let open = (0..self.items.len()).filter(|i| placed[*i].is_none()).collect::<Vec<_>>();
        // An item whose offset is below the last one comes too late, unless one that it interferes with lifts it.
        let mut offsets = vec![None; self.items.len()];
        for &i in &open {
            let offset = lowest(self.items, placed, i);
            offsets[i] = Some(if offset >= last { offset } else { -1 });
        }
        // The open members of a clique lie one above the other, over the least of their offsets.
        for clique in &self.cliques {
            let members = || clique.iter().filter(|i| placed[**i].is_none());
            let Some(start) = members().filter_map(|i| offsets[*i]).min() else { continue };
            if start.max(last) + members().map(|i| self.items[*i].bytes).sum::<i64>() >= self.best {
                return;
            }
        }
        match self.seen.get(&offsets) {
            Some(other) if *other <= height => return,
            _ => self.seen.insert(offsets.clone(), height),
        };
        let next =
            open.iter().filter_map(|i| Some((offsets[*i].filter(|offset| *offset >= last)?, *i)));
        let mut next = next.collect::<Vec<_>>();
        next.sort_unstable();
        for (offset, i) in next {
            placed[i] = Some(offset);
            self.go(placed, offset, height.max(offset + self.items[i].bytes));
            placed[i] = None;
        }
    }
}

/// The least aligned offset above all placed items that `i` interferes with.
fn lowest(items: &[Item], placed: &[Option<i64>], i: usize) -> i64 {
    let mut floor = 0;
    for (j, offset) in placed.iter().enumerate() {
        if let Some(offset) = offset
            && items[i].conflicts[j]
        {
            floor = floor.max(offset + items[j].bytes);
        }
    }
    (floor + items[i].align - 1) / items[i].align * items[i].align
}

fn maximal_cliques(items: &[Item]) -> Vec<Vec<usize>> {
    let mut cliques = Vec::new();
    for set in 1..1usize << items.len() {
        let members = (0..items.len()).filter(|i| set >> i & 1 == 1).collect::<Vec<_>>();
        let joins = |i: usize| members.iter().all(|j| i == *j || items[i].conflicts[*j]);
        if members.iter().all(|i| joins(*i))
            && !(0..items.len()).any(|i| set >> i & 1 == 0 && joins(i))
        {
            cliques.push(members);
        }
    }
    cliques
}
