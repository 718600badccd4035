//! A second opinion on every layout: checks the finished offsets against the declaration, byte by
//! byte range.
//!
//! It shares no code and no types with [`packing`](crate::packing), so that a fault there cannot
//! hide here: it reads plain slices, and its arithmetic is 128 bits wide, so that nothing it is
//! handed can overflow. A plan is only handed on once [`violations`] answers none; reports,
//! generated code and the runtime rely on that.

use std::fmt;

/// A layout as claimed: for item `i`, `bytes[i]` bytes from `offsets[i]`.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// Where each item starts.
    pub offsets: &'a [u64],
    /// The size of each item, above zero.
    pub bytes: &'a [u64],
    /// The alignment of each item.
    pub aligns: &'a [u64],
    /// The pairs that must not overlap, in either order.
    pub interfering: &'a [(usize, usize)],
    /// The bytes of the arena: the highest end.
    pub total: u64,
    /// What no arena can do with less than.
    pub lower_bound: u64,
}

/// One way in which a layout is not what it claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Violation {
    /// The slices of one claim have different lengths.
    Lengths {
        /// The number of offsets.
        offsets: usize,
        /// The number of sizes.
        bytes: usize,
        /// The number of alignments.
        aligns: usize,
    },
    /// A pair names an item that does not exist, or one item twice.
    Pair {
        /// The first of the pair.
        a: usize,
        /// The second of the pair.
        b: usize,
        /// The number of items.
        items: usize,
    },
    /// An item without bytes.
    NoBytes {
        /// The item.
        item: usize,
    },
    /// An alignment that is not a power of two.
    Align {
        /// The item.
        item: usize,
        /// Its alignment.
        align: u64,
    },
    /// An offset that is not a multiple of the item's alignment.
    Misaligned {
        /// The item.
        item: usize,
        /// Its offset.
        offset: u64,
        /// Its alignment.
        align: u64,
    },
    /// An item that ends above the arena.
    OutOfBounds {
        /// The item.
        item: usize,
        /// Its end.
        end: u128,
        /// The bytes of the arena.
        total: u64,
    },
    /// Two interfering items that share bytes.
    Overlap {
        /// The one named first in the pair.
        a: usize,
        /// The other.
        b: usize,
        /// The first byte that they share.
        from: u128,
        /// The byte after the last that they share.
        to: u128,
    },
    /// An arena larger than its highest item needs.
    Slack {
        /// The highest end.
        highest: u128,
        /// The bytes of the arena.
        total: u64,
    },
    /// An arena smaller than the bound that no arena can be smaller than: one of the two is wrong.
    BelowBound {
        /// The bytes of the arena.
        total: u64,
        /// The bound.
        lower_bound: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Lengths { offsets, bytes, aligns } => {
                write!(f, "{offsets} offsets, {bytes} sizes and {aligns} alignments")
            }
            Self::Pair { a, b, items } => {
                write!(f, "the pair ({a}, {b}) is not two of {items} items")
            }
            Self::NoBytes { item } => write!(f, "item {item} has no bytes"),
            Self::Align { item, align } => {
                write!(f, "item {item} has alignment {align}, not a power of two")
            }
            Self::Misaligned { item, offset, align } => {
                write!(f, "item {item} at {offset} is not aligned to {align}")
            }
            Self::OutOfBounds { item, end, total } => {
                write!(f, "item {item} ends at {end}, above an arena of {total}")
            }
            Self::Overlap { a, b, from, to } => {
                write!(f, "items {a} and {b} interfere and share {from}..{to}")
            }
            Self::Slack { highest, total } => {
                write!(f, "an arena of {total} whose highest item ends at {highest}")
            }
            Self::BelowBound { total, lower_bound } => {
                write!(f, "an arena of {total}, below its lower bound {lower_bound}")
            }
        }
    }
}

impl std::error::Error for Violation {}

/// Everything that is wrong with `claim`: lengths (and then nothing else), items in their order,
/// pairs in theirs, then the total. Empty for a valid layout.
///
/// ```
/// use scratchpool_planner::verify::{Claim, Violation, violations};
///
/// let claim = Claim {
///     offsets: &[0, 256],
///     bytes: &[512, 256],
///     aligns: &[256, 256],
///     interfering: &[(0, 1)],
///     total: 512,
///     lower_bound: 512,
/// };
/// let found = violations(&claim);
/// assert_eq!(found, [Violation::Overlap { a: 0, b: 1, from: 256, to: 512 }]);
/// assert_eq!(found[0].to_string(), "items 0 and 1 interfere and share 256..512");
///
/// assert!(violations(&Claim { offsets: &[0, 512], total: 768, ..claim }).is_empty());
/// ```
pub fn violations(claim: &Claim<'_>) -> Vec<Violation> {
    let items = claim.offsets.len();
    if claim.bytes.len() != items || claim.aligns.len() != items {
        return vec![Violation::Lengths {
            offsets: items,
            bytes: claim.bytes.len(),
            aligns: claim.aligns.len(),
        }];
    }
    let mut found = Vec::new();
    let mut ranges: Vec<(u128, u128)> = Vec::with_capacity(items);
    let sized = claim.offsets.iter().zip(claim.bytes);
    for (item, ((&offset, &bytes), &align)) in sized.zip(claim.aligns).enumerate() {
        let end = u128::from(offset) + u128::from(bytes);
        ranges.push((u128::from(offset), end));
        if bytes == 0 {
            found.push(Violation::NoBytes { item });
        }
        if align.is_power_of_two() {
            if offset % align != 0 {
                found.push(Violation::Misaligned { item, offset, align });
            }
        } else {
            found.push(Violation::Align { item, align });
        }
        if end > u128::from(claim.total) {
            found.push(Violation::OutOfBounds { item, end, total: claim.total });
        }
    }
    for &(a, b) in claim.interfering {
        match (ranges.get(a), ranges.get(b)) {
            (Some(x), Some(y)) if a != b => {
                let (from, to) = (x.0.max(y.0), x.1.min(y.1));
                if from < to {
                    found.push(Violation::Overlap { a, b, from, to });
                }
            }
            _ => found.push(Violation::Pair { a, b, items }),
        }
    }
    let highest = ranges.iter().map(|range| range.1).max().unwrap_or(0);
    if highest < u128::from(claim.total) {
        found.push(Violation::Slack { highest, total: claim.total });
    }
    if claim.total < claim.lower_bound {
        found.push(Violation::BelowBound { total: claim.total, lower_bound: claim.lower_bound });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Claim<'static> = Claim {
        offsets: &[0, 64, 0],
        bytes: &[64, 32, 96],
        aligns: &[32, 64, 32],
        interfering: &[(1, 0)],
        total: 96,
        lower_bound: 96,
    };

    fn only(claim: &Claim<'_>) -> Violation {
        let found = violations(claim);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0]
    }

    #[test]
    fn a_valid_layout_has_no_violation() {
        assert_eq!(violations(&GOOD), []);
    }

    #[test]
    fn an_empty_layout_needs_nothing() {
        let nothing = Claim {
            offsets: &[],
            bytes: &[],
            aligns: &[],
            interfering: &[],
            total: 0,
            lower_bound: 0,
        };
        assert_eq!(violations(&nothing), []);
        let slack = only(&Claim { total: 1, ..nothing });
        assert!(matches!(slack, Violation::Slack { highest: 0, .. }));
    }

    #[test]
    fn an_offset_off_its_alignment_is_found() {
        let found = violations(&Claim { offsets: &[0, 96, 0], total: 128, ..GOOD });
        assert_eq!(found, [Violation::Misaligned { item: 1, offset: 96, align: 64 }]);
    }

    #[test]
    fn interfering_items_that_share_one_byte_are_found_in_either_order() {
        let shifted = Claim { bytes: &[65, 32, 96], ..GOOD };
        for (a, b) in [(0, 1), (1, 0)] {
            let found = only(&Claim { interfering: &[(a, b)], ..shifted });
            assert_eq!(found, Violation::Overlap { a, b, from: 64, to: 65 });
        }
    }

    #[test]
    fn an_item_that_ends_above_the_arena_is_found_even_beyond_64_bits() {
        let found = violations(&Claim { offsets: &[0, u64::MAX - 63, 0], ..GOOD });
        assert!(matches!(found[0], Violation::OutOfBounds { item: 1, .. }));
        let edge = Claim { offsets: &[0, u64::MAX - 63, 0], bytes: &[64, 1 << 63, 96], ..GOOD };
        assert!(violations(&edge).iter().any(|fault| matches!(
            fault,
            Violation::OutOfBounds { item: 1, end, .. } if *end > u128::from(u64::MAX)
        )));
    }

    #[test]
    fn an_item_that_ends_one_byte_above_the_arena_is_found() {
        let over = only(&Claim { bytes: &[64, 32, 97], ..GOOD });
        assert_eq!(over, Violation::OutOfBounds { item: 2, end: 97, total: 96 });
    }

    #[test]
    fn a_total_that_is_not_the_highest_end_is_found() {
        let slack = only(&Claim { total: 128, ..GOOD });
        assert_eq!(slack, Violation::Slack { highest: 96, total: 128 });
    }

    #[test]
    fn a_bound_above_the_total_is_found() {
        let below = only(&Claim { lower_bound: 97, ..GOOD });
        assert_eq!(below, Violation::BelowBound { total: 96, lower_bound: 97 });
    }

    #[test]
    fn malformed_claims_are_found() {
        let lengths = only(&Claim { bytes: &[64], ..GOOD });
        assert!(matches!(lengths, Violation::Lengths { bytes: 1, .. }));
        for (a, b) in [(0, 0), (0, 3), (9, 1)] {
            let pair = only(&Claim { interfering: &[(a, b)], ..GOOD });
            assert_eq!(pair, Violation::Pair { a, b, items: 3 });
        }
        let align = only(&Claim { aligns: &[32, 0, 32], ..GOOD });
        assert_eq!(align, Violation::Align { item: 1, align: 0 });
        let empty = only(&Claim { bytes: &[64, 0, 96], ..GOOD });
        assert_eq!(empty, Violation::NoBytes { item: 1 });
    }

    #[test]
    fn every_violation_names_its_numbers() {
        let texts = [
            Violation::Misaligned { item: 1, offset: 96, align: 64 }.to_string(),
            Violation::Slack { highest: 96, total: 128 }.to_string(),
        ];
        assert_eq!(texts[0], "item 1 at 96 is not aligned to 64");
        assert_eq!(texts[1], "an arena of 128 whose highest item ends at 96");
    }
}
