//! Cliques of the interference graph: sets of items that are pairwise in conflict, so that no two
//! of them may share bytes.
//!
//! The heaviest one is the lower bound that every plan reports. The maximal ones give the search
//! its pruning. On one timeline they are the moments of peak load; nothing here needs a timeline.

use super::Conflicts;
use super::conflicts::ones;

/// Up to this many items, branch and bound is quicker than any enumeration.
const FEW: usize = 24;

/// The heaviest clique that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heaviest {
    pub(super) weight: u64,
    /// Whether the search ran to its end, so that no heavier clique exists.
    pub(super) proven: bool,
}

/// Branch and bound over the items by falling weight. A set of candidates is coloured greedily
/// into classes without conflicts; a clique takes at most one item of each class, so the sum of the
/// heaviest of each class bounds it.
///
/// A large graph with few maximal cliques, as that of intervals on a line, has them enumerated
/// instead. With a limit of zero the answer is a clique found greedily. The weights must add up to less than 64 bits.
pub(super) fn heaviest(weights: &[u64], conflicts: &Conflicts, node_limit: u64) -> Heaviest {
    if weights.len() > FEW && node_limit > 0 {
        let few = Walk::over(conflicts, 2 * weights.len());
        if !few.cut_short {
            let weight = few.found.iter().map(|clique| weigh(clique, weights)).max();
            return Heaviest { weight: weight.unwrap_or(0), proven: true };
        }
    }
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(weights.get(i).copied().unwrap_or(0)));
    let mut hunt = Hunt {
        weights: order.iter().map(|&i| weights.get(i).copied().unwrap_or(0)).collect(),
        conflicts: conflicts.induced(&order),
        best: 0,
        nodes_left: node_limit,
        cut_short: false,
    };
    let mut all = vec![0_u64; order.len().div_ceil(64)];
    for i in 0..order.len() {
        insert(&mut all, i);
    }
    // A first clique by plain greed, so that a search that is cut short still has one.
    for start in 0..order.len().min(16) {
        let clique = greedy_around(start, &hunt.conflicts, None);
        let weight = clique.iter().filter_map(|&i| hunt.weights.get(i)).sum();
        hunt.best = hunt.best.max(weight);
    }
    hunt.expand(&all, 0);
    Heaviest { weight: hunt.best, proven: !hunt.cut_short }
}

struct Hunt {
    /// By falling weight; the conflicts are numbered alike.
    weights: Vec<u64>,
    conflicts: Conflicts,
    best: u64,
    nodes_left: u64,
    cut_short: bool,
}

impl Hunt {
    fn expand(&mut self, candidates: &[u64], weight: u64) {
        self.best = self.best.max(weight);
        let items: u32 = candidates.iter().map(|word| word.count_ones()).sum();
        let cost = 1 + u64::from(items) / 64;
        if self.nodes_left < cost {
            self.cut_short = true;
            return;
        }
        self.nodes_left -= cost;
        let coloured = self.colour(candidates);
        let mut remaining = candidates.to_vec();
        for &(item, bound) in coloured.iter().rev() {
            if weight + bound <= self.best || self.cut_short {
                return;
            }
            let mut next = remaining.clone();
            intersect(&mut next, self.conflicts.row(item));
            let own = self.weights.get(item).copied().unwrap_or(0);
            self.expand(&next, weight + own);
            remove(&mut remaining, item);
        }
    }

    /// The candidates, class by class, each with the bound for a clique among itself and those
    /// before it.
    fn colour(&self, candidates: &[u64]) -> Vec<(usize, u64)> {
        let mut uncoloured = candidates.to_vec();
        let mut coloured = Vec::new();
        let mut bound = 0;
        while uncoloured.iter().any(|&word| word != 0) {
            let mut class = uncoloured.clone();
            let mut first = true;
            while let Some(item) = lowest(&class) {
                if first {
                    // The items are numbered by falling weight: the first is the heaviest.
                    bound += self.weights.get(item).copied().unwrap_or(0);
                    first = false;
                }
                coloured.push((item, bound));
                remove(&mut uncoloured, item);
                remove(&mut class, item);
                subtract(&mut class, self.conflicts.row(item));
            }
        }
        coloured
    }
}

/// Maximal cliques, at most `limit` of them, each as ascending items: first a heavy one around each
/// item, then what Bron and Kerbosch's enumeration (with a pivot) meets. A graph with few maximal
/// cliques, as that of intervals on a line, yields all of them.
pub(super) fn maximal(weights: &[u64], conflicts: &Conflicts, limit: usize) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> =
        (0..conflicts.len()).map(|start| greedy_around(start, conflicts, Some(weights))).collect();
    found.sort();
    found.dedup();
    let mut walk = Walk::over(conflicts, limit);
    found.append(&mut walk.found);
    found.sort();
    found.dedup();
    found.sort_by_key(|clique| std::cmp::Reverse(weigh(clique, weights)));
    found.truncate(limit.max(1));
    found
}

fn weigh(clique: &[usize], weights: &[u64]) -> u64 {
    clique.iter().filter_map(|&i| weights.get(i)).sum()
}

/// A maximal clique around `start`: of what is still possible, always the heaviest, or with no
/// weights the first.
fn greedy_around(start: usize, conflicts: &Conflicts, weights: Option<&[u64]>) -> Vec<usize> {
    let mut clique = vec![start];
    let mut possible = conflicts.row(start).to_vec();
    loop {
        let next = match weights {
            None => lowest(&possible),
            Some(weights) => ones(&possible)
                .max_by_key(|&i| (weights.get(i).copied().unwrap_or(0), std::cmp::Reverse(i))),
        };
        let Some(item) = next else { break };
        clique.push(item);
        intersect(&mut possible, conflicts.row(item));
    }
    clique.sort_unstable();
    clique
}

struct Walk<'a> {
    conflicts: &'a Conflicts,
    clique: Vec<usize>,
    found: Vec<Vec<usize>>,
    limit: usize,
    steps_left: usize,
    cut_short: bool,
}

impl<'a> Walk<'a> {
    /// Meets maximal cliques, at most `limit` of them.
    fn over(conflicts: &'a Conflicts, limit: usize) -> Self {
        let mut walk = Walk {
            conflicts,
            clique: Vec::new(),
            found: Vec::new(),
            limit,
            steps_left: limit.saturating_mul(8),
            cut_short: false,
        };
        let mut all = vec![0_u64; conflicts.len().div_ceil(64)];
        for i in 0..conflicts.len() {
            insert(&mut all, i);
        }
        let none = vec![0_u64; all.len()];
        walk.extend(all, none);
        walk
    }

    fn extend(&mut self, mut possible: Vec<u64>, mut done: Vec<u64>) {
        if self.found.len() >= self.limit || self.steps_left == 0 {
            self.cut_short = true;
            return;
        }
        self.steps_left -= 1;
        let pivot = ones(&possible)
            .chain(ones(&done))
            .max_by_key(|&i| (shared(&possible, self.conflicts.row(i)), std::cmp::Reverse(i)));
        let Some(pivot) = pivot else {
            let mut clique = self.clique.clone();
            clique.sort_unstable();
            self.found.push(clique);
            return;
        };
        let mut branches = possible.clone();
        subtract(&mut branches, self.conflicts.row(pivot));
        for item in ones(&branches) {
            let row = self.conflicts.row(item);
            let mut next_possible = possible.clone();
            intersect(&mut next_possible, row);
            let mut next_done = done.clone();
            intersect(&mut next_done, row);
            self.clique.push(item);
            self.extend(next_possible, next_done);
            self.clique.pop();
            remove(&mut possible, item);
            insert(&mut done, item);
        }
    }
}

fn insert(set: &mut [u64], item: usize) {
    if let Some(word) = set.get_mut(item / 64) {
        *word |= 1 << (item % 64);
    }
}

fn remove(set: &mut [u64], item: usize) {
    if let Some(word) = set.get_mut(item / 64) {
        *word &= !(1 << (item % 64));
    }
}

fn intersect(set: &mut [u64], row: &[u64]) {
    for (word, &other) in set.iter_mut().zip(row) {
        *word &= other;
    }
}

fn subtract(set: &mut [u64], row: &[u64]) {
    for (word, &other) in set.iter_mut().zip(row) {
        *word &= !other;
    }
}

fn lowest(set: &[u64]) -> Option<usize> {
    let at = set.iter().position(|&word| word != 0)?;
    Some(at * 64 + set.get(at)?.trailing_zeros() as usize)
}

fn shared(set: &[u64], row: &[u64]) -> u32 {
    set.iter().zip(row).map(|(&word, &other)| (word & other).count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(n: usize, density: u64, seed: u64) -> Conflicts {
        let mut state = seed;
        let mut conflicts = Conflicts::new(n);
        for a in 0..n {
            for b in 0..a {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                if state % 100 < density {
                    conflicts.set(a, b);
                }
            }
        }
        conflicts
    }

    fn brute(weights: &[u64], conflicts: &Conflicts) -> u64 {
        (0_u32..1 << weights.len())
            .filter(|set| {
                let members = || (0..weights.len()).filter(|i| set >> i & 1 == 1);
                members().all(|a| members().all(|b| a == b || conflicts.get(a, b)))
            })
            .map(|set| (0..weights.len()).filter(|i| set >> i & 1 == 1).map(|i| weights[i]).sum())
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn the_heaviest_clique_equals_that_of_all_subsets() {
        for seed in 1..60 {
            let n = 1 + usize::try_from(seed % 10).unwrap();
            let conflicts = graph(n, 20 + seed, seed * 7919);
            let weights: Vec<u64> = (0..n as u64).map(|i| 1 + (i * seed * 31) % 17).collect();
            let answer = heaviest(&weights, &conflicts, u64::MAX);
            assert!(answer.proven);
            assert_eq!(answer.weight, brute(&weights, &conflicts), "seed {seed}");
        }
    }

    #[test]
    fn a_hunt_cut_short_still_answers_a_clique_and_says_so() {
        let conflicts = graph(90, 60, 5);
        let answer = heaviest(&[1; 90], &conflicts, 3);
        assert!(!answer.proven);
        assert!(answer.weight > 1);
        assert!(answer.weight <= heaviest(&[1; 90], &conflicts, u64::MAX).weight);
    }

    #[test]
    fn maximal_cliques_are_cliques_that_nothing_extends() {
        for seed in 1..30 {
            let conflicts = graph(14, 50, seed);
            for clique in maximal(&[1; 14], &conflicts, 1000) {
                let joins = |v: usize| clique.iter().all(|&m| m != v && conflicts.get(m, v));
                assert!(!(0..14).any(joins), "{clique:?} can be extended");
                assert!(
                    clique.iter().all(|&a| clique.iter().all(|&b| a == b || conflicts.get(a, b)))
                );
            }
        }
    }
}
