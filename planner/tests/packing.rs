//! The packer against brute force, against the verifier, and on the graphs that theory knows.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, and its helpers with it"
)]

use scratchpool_planner::packing::{
    ALWAYS_PROVEN, Conflicts, Item, Limits, PackError, Packing, Problem, pack, pack_with,
};
use scratchpool_planner::verify::{Claim, violations};

/// Marsaglia's xorshift: every test sees the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }

    fn graph(&mut self, n: usize, percent: u64) -> Vec<(usize, usize)> {
        let pairs = (0..n).flat_map(|b| (0..b).map(move |a| (a, b)));
        pairs.filter(|_| self.below(100) < percent).collect()
    }
}

fn problem(items: &[(u64, u64)], pairs: &[(usize, usize)]) -> Problem {
    let mut conflicts = Conflicts::new(items.len());
    for &(a, b) in pairs {
        assert!(conflicts.set(a, b));
    }
    let items = items.iter().map(|&(bytes, align)| Item { bytes, align }).collect();
    Problem { items, conflicts }
}

/// Packs, and has the verifier agree.
fn packed(items: &[(u64, u64)], pairs: &[(usize, usize)]) -> Packing {
    let packing = pack(&problem(items, pairs)).unwrap();
    agree(items, pairs, &packing);
    packing
}

fn agree(items: &[(u64, u64)], pairs: &[(usize, usize)], packing: &Packing) {
    let bytes: Vec<u64> = items.iter().map(|item| item.0).collect();
    let aligns: Vec<u64> = items.iter().map(|item| item.1).collect();
    let found = violations(&Claim {
        offsets: &packing.offsets,
        bytes: &bytes,
        aligns: &aligns,
        interfering: pairs,
        total: packing.total,
        lower_bound: packing.lower_bound,
    });
    assert!(found.is_empty(), "{found:?} in {items:?} {pairs:?} {packing:?}");
    assert!(packing.least >= packing.lower_bound);
    assert!(packing.least <= packing.total);
    assert_eq!(packing.optimal, packing.least == packing.total);
}

/// The least height over all orders, each item pushed down on those before it.
fn brute(items: &[(u64, u64)], pairs: &[(usize, usize)]) -> u64 {
    fn go(
        items: &[(u64, u64)],
        clash: &[Vec<bool>],
        placed: &mut Vec<(usize, u64)>,
        height: u64,
        best: &mut u64,
    ) {
        if height >= *best {
            return;
        }
        if placed.len() == items.len() {
            *best = height;
            return;
        }
        for (i, &(size, align)) in items.iter().enumerate() {
            if placed.iter().any(|&(j, _)| i == j) {
                continue;
            }
            let mut offset = 0;
            for &(j, end) in placed.iter() {
                if clash[i][j] {
                    offset = offset.max(end.div_ceil(align) * align);
                }
            }
            placed.push((i, offset + size));
            go(items, clash, placed, height.max(offset + size), best);
            placed.pop();
        }
    }
    let mut clash = vec![vec![false; items.len()]; items.len()];
    for &(a, b) in pairs {
        clash[a][b] = true;
        clash[b][a] = true;
    }
    let mut best = u64::MAX;
    go(items, &clash, &mut Vec::new(), 0, &mut best);
    best
}

fn check_against_brute_force(items: &[(u64, u64)], pairs: &[(usize, usize)]) {
    let packing = packed(items, pairs);
    assert!(packing.optimal, "{items:?} {pairs:?}");
    assert_eq!(packing.total, brute(items, pairs), "{items:?} {pairs:?}");
}

#[test]
fn every_graph_of_up_to_five_items_is_packed_as_low_as_brute_force_finds() {
    let kinds = [
        [(1, 1); 5],
        [(3, 1), (1, 1), (2, 1), (2, 1), (1, 1)],
        [(3, 1), (5, 4), (2, 2), (1, 8), (6, 2)],
    ];
    for n in 0..=5 {
        let all: Vec<(usize, usize)> = (0..n).flat_map(|b| (0..b).map(move |a| (a, b))).collect();
        for graph in 0_u32..1 << all.len() {
            let chosen = all.iter().enumerate().filter(|(at, _)| graph >> at & 1 == 1);
            let pairs: Vec<(usize, usize)> = chosen.map(|(_, &pair)| pair).collect();
            for kind in &kinds {
                if n > 0 {
                    check_against_brute_force(&kind[..n], &pairs);
                }
            }
        }
    }
}

#[test]
fn random_problems_of_up_to_seven_items_are_packed_as_low_as_brute_force_finds() {
    let mut random = Random(0x5eed);
    for round in 0..600 {
        let n = 1 + random.index(7);
        let percent = 30 + random.below(60);
        let pairs = random.graph(n, percent);
        let items: Vec<(u64, u64)> = (0..n)
            .map(|_| match round % 3 {
                0 => (1 + random.below(6), 1),
                1 => (4 * (1 + random.below(5)), 4),
                _ => (1 + random.below(12), 1 << random.below(4)),
            })
            .collect();
        check_against_brute_force(&items, &pairs);
    }
}

#[test]
fn every_graph_of_four_items_is_packed_right_under_every_mixture_of_alignments() {
    let all: Vec<(usize, usize)> = (0..4).flat_map(|b| (0..b).map(move |a| (a, b))).collect();
    for sizes in [[1, 1, 1, 1], [3, 5, 2, 7], [8, 3, 8, 1]] {
        for aligns in 0_u32..4 << 6 {
            let align = |item: usize| 1_u64 << (aligns >> (2 * item) & 3);
            let items: Vec<(u64, u64)> = (0..4).map(|item| (sizes[item], align(item))).collect();
            for graph in 0_u32..1 << all.len() {
                let chosen = all.iter().enumerate().filter(|(at, _)| graph >> at & 1 == 1);
                let pairs: Vec<(usize, usize)> = chosen.map(|(_, &pair)| pair).collect();
                check_against_brute_force(&items, &pairs);
            }
        }
    }
}

#[test]
fn graphs_of_six_and_seven_items_are_packed_right_with_random_sizes_and_alignments() {
    let mut random = Random(0x0676);
    // Of six items every eighth graph, of seven every 2039th, each with sizes of its own.
    for (n, step) in [(6, 8), (7, 2039)] {
        let all: Vec<(usize, usize)> = (0..n).flat_map(|b| (0..b).map(move |a| (a, b))).collect();
        for graph in (0_u32..1 << all.len()).step_by(step) {
            let chosen = all.iter().enumerate().filter(|(at, _)| graph >> at & 1 == 1);
            let pairs: Vec<(usize, usize)> = chosen.map(|(_, &pair)| pair).collect();
            let items: Vec<(u64, u64)> =
                (0..n).map(|_| (1 + random.below(16), 1 << random.below(5))).collect();
            check_against_brute_force(&items, &pairs);
        }
    }
}

#[test]
fn random_problems_of_eight_and_nine_items_are_packed_as_low_as_brute_force_finds() {
    let mut random = Random(0x0089);
    for round in 0..240 {
        let n = 8 + round % 2;
        let percent = 30 + random.below(50);
        let pairs = random.graph(n, percent);
        let items: Vec<(u64, u64)> = (0..n)
            .map(|_| match round % 3 {
                0 => (1 + random.below(4), 1),
                1 => (1 + random.below(9), 1 << random.below(3)),
                _ => (1 + random.below(30), 1),
            })
            .collect();
        check_against_brute_force(&items, &pairs);
    }
}

#[test]
fn a_five_cycle_of_unit_sizes_needs_three_though_its_clique_is_two() {
    let ring: Vec<(usize, usize)> = (0..5).map(|i| (i, (i + 1) % 5)).collect();
    let packing = packed(&[(1, 1); 5], &ring);
    assert_eq!((packing.total, packing.lower_bound, packing.least), (3, 2, 3));
    assert!(packing.optimal && packing.lower_bound_proven);
}

#[test]
fn two_five_cycles_that_all_conflict_need_six() {
    let mut pairs = Vec::new();
    for i in 0..5 {
        pairs.push((i, (i + 1) % 5));
        pairs.push((5 + i, 5 + (i + 1) % 5));
        pairs.extend((0..5).map(|j| (i, 5 + j)));
    }
    let packing = packed(&[(1, 1); 10], &pairs);
    assert_eq!((packing.total, packing.lower_bound), (6, 4));
    assert!(packing.optimal);
}

/// A random nesting of *all of these* (sums) and *one of these* (maxima) over items from `from`;
/// its weight is the optimum.
fn cograph(
    random: &mut Random,
    items: &mut Vec<(u64, u64)>,
    pairs: &mut Vec<(usize, usize)>,
    leaves: usize,
    together: bool,
) -> u64 {
    if leaves == 1 {
        let size = 256 * (1 + random.below(40));
        items.push((size, 256));
        return size;
    }
    let left = 1 + random.index(leaves - 1);
    let from = items.len();
    let a = cograph(random, items, pairs, left, !together);
    let middle = items.len();
    let b = cograph(random, items, pairs, leaves - left, !together);
    if together {
        for i in from..middle {
            pairs.extend((middle..items.len()).map(|j| (i, j)));
        }
        a + b
    } else {
        a.max(b)
    }
}

#[test]
fn nested_choices_meet_their_bound_without_a_search() {
    let mut random = Random(77);
    for leaves in [2, 3, 7, 12, 30, 120] {
        for together in [true, false] {
            let (mut items, mut pairs) = (Vec::new(), Vec::new());
            let weight = cograph(&mut random, &mut items, &mut pairs, leaves, together);
            let packing = packed(&items, &pairs);
            assert!(packing.optimal && packing.lower_bound_proven);
            assert_eq!((packing.total, packing.nodes), (weight, 0));
            assert_eq!(packing.lower_bound, weight);
        }
    }
}

#[test]
fn three_families_that_exclude_one_another_take_the_largest_of_them() {
    // q, and beside it either of: three index buffers, one compressor buffer.
    let items = [(1024, 256), (512, 256), (256, 256), (256, 256), (768, 256)];
    let pairs = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (2, 3)];
    let packing = packed(&items, &pairs);
    assert_eq!((packing.total, packing.lower_bound), (2048, 2048));
}

#[test]
fn alignment_alone_can_lift_the_optimum_above_the_heaviest_clique() {
    let packing = packed(&[(5, 4), (5, 4)], &[(0, 1)]);
    assert_eq!((packing.total, packing.lower_bound, packing.least), (13, 10, 13));
    assert!(packing.optimal);
}

#[test]
fn twelve_items_are_always_proven_whatever_the_limits() {
    let none = Limits { nodes: 0, clique_nodes: 100_000 };
    let mut random = Random(12);
    for round in 0..150 {
        let percent = [35, 50, 65, 80, 100][round % 5];
        let pairs = random.graph(ALWAYS_PROVEN, percent);
        let items: Vec<(u64, u64)> = (0..ALWAYS_PROVEN)
            .map(|_| match round % 3 {
                0 => (1 + random.below(50), 1 << random.below(5)),
                1 => (256 * (1 + random.below(9)), 256 << random.below(4)),
                _ => (1 + random.below(1_000_000), 1),
            })
            .collect();
        let packing = pack_with(&problem(&items, &pairs), none).unwrap();
        agree(&items, &pairs, &packing);
        assert!(packing.optimal, "round {round}: {items:?} {pairs:?}");
    }
}

#[test]
fn large_random_problems_pass_the_verifier() {
    let mut random = Random(4096);
    let few = Limits { nodes: 500, clique_nodes: 500 };
    for n in [13, 64, 65, 130] {
        for percent in [5, 40, 95] {
            let pairs = random.graph(n, percent);
            for mixed in [false, true] {
                let items: Vec<(u64, u64)> = (0..n)
                    .map(|_| {
                        let align = if mixed { 256 << random.below(4) } else { 256 };
                        (256 * (1 + random.below(64)), align)
                    })
                    .collect();
                let packing = pack_with(&problem(&items, &pairs), few).unwrap();
                agree(&items, &pairs, &packing);
                assert_eq!(
                    packing,
                    pack_with(&problem(&items, &pairs), few).unwrap(),
                    "the same problem twice"
                );
            }
        }
    }
}

#[test]
fn more_items_than_the_search_takes_are_packed_greedily_and_verified() {
    let n = 1100;
    let chain: Vec<(usize, usize)> = (1..n).map(|i| (i - 1, i)).collect();
    let packing = packed(&vec![(256, 256); n], &chain);
    assert_eq!(packing.total, 512);
    assert!(packing.optimal);

    let dense = Random(1100).graph(n, 30);
    let mixed: Vec<(u64, u64)> = (0..n as u64).map(|i| (1 + i % 50, 1 << (i % 6))).collect();
    for items in [vec![(256, 256); n], mixed] {
        let packing = packed(&items, &dense);
        assert!(!packing.lower_bound_proven);
        assert_eq!(packing.nodes, 0);
    }
}

#[test]
fn the_order_of_the_items_does_not_change_the_total() {
    let mut random = Random(31);
    for _ in 0..40 {
        let n = 5 + random.index(8);
        let pairs = random.graph(n, 55);
        let items: Vec<(u64, u64)> =
            (0..n).map(|_| (1 + random.below(20), 1 << random.below(3))).collect();
        let total = packed(&items, &pairs).total;
        let mut to: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            to.swap(i, random.index(i + 1));
        }
        let mut moved = items.clone();
        for (i, &item) in items.iter().enumerate() {
            moved[to[i]] = item;
        }
        let moved_pairs: Vec<(usize, usize)> = pairs.iter().map(|&(a, b)| (to[a], to[b])).collect();
        assert_eq!(packed(&moved, &moved_pairs).total, total);
    }
}

#[test]
fn no_items_need_no_bytes() {
    let packing = packed(&[], &[]);
    assert_eq!((packing.total, packing.lower_bound), (0, 0));
    assert!(packing.optimal);
}

#[test]
fn bad_items_are_errors() {
    assert_eq!(pack(&problem(&[(8, 8), (0, 8)], &[])), Err(PackError::NoBytes { item: 1 }));
    for align in [0, 3, u64::MAX] {
        assert_eq!(pack(&problem(&[(8, align)], &[])), Err(PackError::Align { item: 0, align }));
    }
    let mismatch = Problem { items: Vec::new(), conflicts: Conflicts::new(2) };
    assert_eq!(pack(&mismatch), Err(PackError::Mismatch { items: 0, conflicts: 2 }));
}

#[test]
fn sizes_beyond_63_bits_are_errors_and_the_largest_below_is_packed() {
    let most = (1_u64 << 63) - 1;
    assert_eq!(packed(&[(most, 1)], &[]).total, most);
    let half = 1_u64 << 62;
    assert_eq!(packed(&[(half, 1), (half - 1, 1)], &[(0, 1)]).total, most);
    for items in [
        vec![(1 << 63, 1)],
        vec![(u64::MAX, 1)],
        vec![(half, 1), (half, 1)],
        vec![(1, 1 << 63), (1, 1 << 63)],
        vec![(u64::MAX, 1 << 63); 3],
    ] {
        let error = pack(&problem(&items, &[])).unwrap_err();
        let PackError::TooLarge { bytes } = error else { panic!("{error:?}") };
        assert!(bytes > u128::from(most));
        assert!(error.to_string().ends_with("more than 63 bits"), "{error}");
    }
}

#[test]
fn conflicting_items_with_the_same_neighbours_may_need_another_between_them() {
    // Items 0 and 1 conflict, and every other item conflicts with both or with neither; yet a packing
    // in which the one lies on the other is 3 higher than the best.
    let sizes = [28, 7, 22, 28, 22, 21, 8, 24, 25];
    let items: Vec<(u64, u64)> = sizes.iter().map(|size| (*size, 1)).collect();
    let pairs = [
        (0, 1),
        (0, 3),
        (1, 3),
        (2, 3),
        (0, 4),
        (1, 4),
        (2, 5),
        (3, 5),
        (4, 5),
        (0, 6),
        (1, 6),
        (2, 6),
        (5, 6),
        (2, 7),
        (4, 7),
        (5, 7),
        (2, 8),
    ];
    let packing = packed(&items, &pairs);
    assert_eq!((packing.total, packing.optimal), (78, true));
}

/// Two states of the search with the same items left differ in how far those have been raised: taken for
/// one another, they cost two bytes here.
#[test]
fn states_with_the_same_items_left_at_other_floors_are_not_the_same() {
    let items = [(4, 4), (2, 4), (7, 2), (4, 8), (9, 4), (7, 1), (3, 4), (9, 8), (4, 4), (3, 2)];
    let pairs = [
        (0, 2),
        (1, 2),
        (0, 3),
        (1, 3),
        (1, 4),
        (3, 4),
        (0, 5),
        (1, 5),
        (2, 5),
        (3, 5),
        (4, 5),
        (1, 6),
        (2, 6),
        (4, 6),
        (5, 6),
        (0, 7),
        (1, 7),
        (4, 7),
        (5, 7),
        (0, 8),
        (1, 8),
        (2, 8),
        (4, 8),
        (5, 8),
        (6, 8),
        (0, 9),
        (1, 9),
        (3, 9),
        (4, 9),
        (5, 9),
        (6, 9),
        (8, 9),
    ];
    check_against_brute_force(&items, &pairs);
    assert_eq!(packed(&items, &pairs).total, 30);
}
