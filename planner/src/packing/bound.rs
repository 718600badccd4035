//! Lower bounds that see alignment.
//!
//! The items of a clique lie one above the other in some order, and nothing is lost by pushing each
//! down. With `h(S)` the least height of a stack of the items `S`, the last item `i` of `S + i`
//! starts at `h(S)` rounded up to its alignment, so
//! `h(S + i) = min over i of ceil_{a_i}(h(S)) + s_i`. Items of one size and one alignment are
//! interchangeable: it is enough to count how many of each kind are in `S`.

use std::collections::BTreeMap;

use super::search::round_up;

/// The most states of the recursion that are worth their time.
const STATES: usize = 1 << 13;

/// The least height of a stack of `clique`; nothing if the clique has too many kinds of items.
pub(super) fn stack_height(sizes: &[u64], aligns: &[u64], clique: &[usize]) -> Option<u64> {
    let mut kinds: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    for &i in clique {
        *kinds.entry((*aligns.get(i)?, *sizes.get(i)?)).or_default() += 1;
    }
    // Kind k counts in steps of `step`: the states are the numbers 0..states in mixed radix.
    let mut states = 1_usize;
    let mut digits = Vec::new();
    for ((align, size), count) in kinds {
        digits.push((align, size, states, count + 1));
        states = states.checked_mul(count + 1).filter(|&s| s <= STATES)?;
    }
    let mut least = vec![0_u64; states];
    for state in 1..states {
        let mut height = u64::MAX;
        for &(align, size, step, radix) in &digits {
            if state / step % radix > 0 {
                let below = *least.get(state - step)?;
                height = height.min(round_up(below, align) + size);
            }
        }
        *least.get_mut(state)? = height;
    }
    least.last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_height_is_that_of_the_best_order() {
        // 1 at align 1, 4 at align 4: the small one on top wastes nothing.
        assert_eq!(stack_height(&[1, 4], &[1, 4], &[0, 1]), Some(5));
        // Two of size 5 at align 4 leave one hole of 3, which the third fills.
        assert_eq!(stack_height(&[5, 5], &[4, 4], &[0, 1]), Some(13));
        assert_eq!(stack_height(&[5, 5, 3], &[4, 4, 1], &[0, 1, 2]), Some(13));
        assert_eq!(stack_height(&[], &[], &[]), Some(0));
    }

    #[test]
    fn many_items_of_one_kind_are_cheap_and_many_kinds_are_left_alone() {
        let clique: Vec<usize> = (0..1000).collect();
        assert_eq!(stack_height(&[3; 1000], &[4; 1000], &clique), Some(999 * 4 + 3));
        let sizes: Vec<u64> = (1..=1000).collect();
        assert_eq!(stack_height(&sizes, &[4; 1000], &clique), None);
    }
}
