//! Good packings, quickly: the first incumbents of the search, and the answer where the search is
//! cut short.
//!
//! Each packing places the items one by one, in a fixed order, in a gap between the conflicting
//! items already placed. It is valid by construction; it is optimal when it meets a lower bound.

use super::search::round_up;
use super::{Conflicts, Layout};

/// Which gap an item takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// The lowest that is large enough.
    First,
    /// The tightest that is large enough; the lowest of those.
    Best,
}

/// The lowest of several greedy packings; stops at the first no higher than `enough`. `rounds`
/// further packings move the items at the top to the front of the order and try again.
pub(super) fn pack(
    sizes: &[u64],
    aligns: &[u64],
    conflicts: &Conflicts,
    enough: u64,
    rounds: usize,
) -> Layout {
    let placer = Placer {
        sizes,
        aligns,
        near: (0..sizes.len()).map(|i| conflicts.neighbours(i).collect()).collect(),
    };
    let mut best = Layout { offsets: Vec::new(), height: u64::MAX };
    let mut best_order = Vec::new();
    for order in placer.orders() {
        for fit in [Fit::First, Fit::Best] {
            let layout = placer.place(&order, fit);
            if layout.height < best.height {
                best = layout;
                best_order.clone_from(&order);
            }
            if best.height <= enough {
                return best;
            }
        }
    }
    let mut order = best_order;
    let mut layout = best.clone();
    for _ in 0..rounds {
        order = placer.promote(&order, &layout);
        layout = placer.place(&order, Fit::First);
        if layout.height < best.height {
            best = layout.clone();
        }
        if best.height <= enough {
            break;
        }
    }
    best
}

struct Placer<'a> {
    sizes: &'a [u64],
    aligns: &'a [u64],
    near: Vec<Vec<usize>>,
}

#[expect(
    clippy::indexing_slicing,
    reason = "sizes, aligns, near and offsets are all as long as the number of items, and orders \
              and neighbour lists hold items alone"
)]
impl Placer<'_> {
    /// The orders tried: by falling size, size times degree, weight of the neighbourhood, degree,
    /// and alignment. Ties keep the order of the items.
    fn orders(&self) -> Vec<Vec<usize>> {
        let by = |key: &dyn Fn(usize) -> u128| {
            let mut order: Vec<usize> = (0..self.sizes.len()).collect();
            order.sort_by_cached_key(|&i| std::cmp::Reverse(key(i)));
            order
        };
        let size = |i: usize| u128::from(self.sizes[i]);
        let degree = |i: usize| self.near[i].len() as u128;
        let around = |i: usize| size(i) + self.near[i].iter().map(|&j| size(j)).sum::<u128>();
        vec![
            by(&size),
            by(&|i| size(i) * (degree(i) + 1)),
            by(&around),
            by(&|i| (degree(i) << 64) + size(i)),
            by(&|i| (u128::from(self.aligns[i]) << 64) + size(i)),
        ]
    }

    fn place(&self, order: &[usize], fit: Fit) -> Layout {
        let mut placed = vec![false; self.sizes.len()];
        let mut offsets = vec![0; self.sizes.len()];
        let mut height = 0;
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for &i in order {
            taken.clear();
            for &j in &self.near[i] {
                if placed[j] {
                    taken.push((offsets[j], offsets[j] + self.sizes[j]));
                }
            }
            taken.sort_unstable();
            let mut chosen: Option<(u64, u64)> = None; // slack, offset
            let mut top = 0;
            for &(from, to) in &taken {
                let offset = round_up(top, self.aligns[i]);
                if offset + self.sizes[i] <= from {
                    let slack = from - top - self.sizes[i];
                    if chosen.is_none_or(|(least, _)| slack < least) {
                        chosen = Some((slack, offset));
                    }
                    if fit == Fit::First {
                        break;
                    }
                }
                top = top.max(to);
            }
            let offset = chosen.map_or_else(|| round_up(top, self.aligns[i]), |(_, offset)| offset);
            offsets[i] = offset;
            placed[i] = true;
            height = height.max(offset + self.sizes[i]);
        }
        Layout { offsets, height }
    }

    /// The order with the items that end at the top moved to its front.
    fn promote(&self, order: &[usize], layout: &Layout) -> Vec<usize> {
        let at_top = |i: usize| layout.offsets[i] + self.sizes[i] == layout.height;
        let (mut top, rest): (Vec<usize>, Vec<usize>) = order.iter().partition(|&&i| at_top(i));
        top.extend(rest);
        top
    }
}
