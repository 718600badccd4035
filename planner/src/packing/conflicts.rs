//! Which items must not share bytes: a symmetric bit matrix.
//!
//! Everything in this folder reads conflicts as rows of words, so that set operations over
//! neighbours cost one instruction for 64 items. Two things always hold: the relation is symmetric,
//! and no item conflicts with itself.

/// A symmetric, irreflexive relation over the items `0..len()`: the interference graph.
///
/// ```
/// use scratchpool_planner::packing::Conflicts;
///
/// let mut conflicts = Conflicts::new(3);
/// conflicts.set(2, 0);
/// assert!(conflicts.get(0, 2));
/// assert!(!conflicts.get(0, 1));
/// assert_eq!(conflicts.neighbours(0).collect::<Vec<_>>(), [2]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts {
    items: usize,
    stride: usize,
    words: Vec<u64>,
}

impl Conflicts {
    /// A relation over `items` items in which nothing conflicts.
    pub fn new(items: usize) -> Self {
        let stride = items.div_ceil(64);
        Self { items, stride, words: vec![0; stride.saturating_mul(items)] }
    }

    /// The number of items, conflicting or not.
    pub fn len(&self) -> usize {
        self.items
    }

    /// Whether there are no items at all.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Records that `a` and `b` must not share bytes. Answers false, and records nothing, when the
    /// two are the same item or one of them does not exist.
    pub fn set(&mut self, a: usize, b: usize) -> bool {
        if a == b || a >= self.items || b >= self.items {
            return false;
        }
        self.mark(a, b);
        self.mark(b, a);
        true
    }

    fn mark(&mut self, a: usize, b: usize) {
        if let Some(word) = self.words.get_mut(a * self.stride + b / 64) {
            *word |= 1 << (b % 64);
        }
    }

    /// Whether `a` and `b` conflict; false for items that do not exist.
    pub fn get(&self, a: usize, b: usize) -> bool {
        self.row(a).get(b / 64).is_some_and(|word| word >> (b % 64) & 1 == 1)
    }

    /// The neighbours of `a` as a bit row: bit `b % 64` of word `b / 64`. Empty for an item that
    /// does not exist.
    pub fn row(&self, a: usize) -> &[u64] {
        if a >= self.items {
            return &[];
        }
        self.words.get(a * self.stride..(a + 1) * self.stride).unwrap_or(&[])
    }

    /// The items that conflict with `a`, in ascending order.
    pub fn neighbours(&self, a: usize) -> impl Iterator<Item = usize> + '_ {
        ones(self.row(a))
    }

    /// The relation among `kept` alone: item `i` of the answer is `kept[i]` of this one.
    pub(super) fn induced(&self, kept: &[usize]) -> Self {
        let mut smaller = Self::new(kept.len());
        for (i, &a) in kept.iter().enumerate() {
            for (j, &b) in kept.iter().enumerate().take(i) {
                if self.get(a, b) {
                    smaller.set(i, j);
                }
            }
        }
        smaller
    }
}

/// The set bits of a row, ascending.
pub(super) fn ones(row: &[u64]) -> impl Iterator<Item = usize> + '_ {
    row.iter().enumerate().flat_map(|(at, &word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let bit = left.trailing_zeros();
            left &= left - 1;
            Some(at * 64 + bit as usize)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relation_is_symmetric_and_irreflexive() {
        let mut conflicts = Conflicts::new(130);
        assert!(conflicts.set(129, 1));
        assert!(conflicts.set(1, 64));
        assert!(!conflicts.set(5, 5), "no item conflicts with itself");
        assert!(!conflicts.set(0, 130), "item 130 does not exist");
        assert!(conflicts.get(1, 129) && conflicts.get(129, 1));
        assert!(!conflicts.get(0, 129) && !conflicts.get(500, 1));
        assert_eq!(conflicts.neighbours(1).collect::<Vec<_>>(), [64, 129]);
        assert_eq!(conflicts.neighbours(900).count(), 0);
    }

    #[test]
    fn an_induced_relation_keeps_the_order_of_what_was_kept() {
        let mut conflicts = Conflicts::new(4);
        conflicts.set(0, 3);
        let smaller = conflicts.induced(&[3, 1, 0]);
        assert!(smaller.get(0, 2));
        assert!(!smaller.get(0, 1) && !smaller.get(1, 2));
    }
}
