//! Layouts of random schedules: safe for whatever sizes a start-up brings, and the same however groups are listed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use scratchpool_planner::expr::{Expr, Kind};
use scratchpool_planner::plan::{Plan, plan};
use scratchpool_planner::spec::{Dim, DimValue, Name, Span};
use scratchpool_planner::tables::offsets;
use scratchpool_prover::PASSES;
use scratchpool_prover::declared::Declared;
use scratchpool_prover::machine::explore_within;
use scratchpool_prover::memory::{Layout, corruption};
use scratchpool_prover::program::Program;
use scratchpool_prover::random::declared;
use scratchpool_prover::rng::Rng;

/// Random schedules that are accepted, with their plans.
fn accepted(count: usize) -> impl Iterator<Item = (Declared, Plan)> {
    let planned = (0..).map(declared).filter_map(|declared| {
        let plan = plan(&declared.spec()).ok()?;
        (plan.layout.buffers.len() > 2).then_some((declared, plan))
    });
    planned.take(count)
}

fn pick(rng: &mut Rng) -> u64 {
    // Mostly small, at times large, so that who is larger changes often.
    1 + if rng.chance(30) { rng.word() % 1_000_000 } else { rng.word() % 2000 }
}

/// The offsets of a plan's order for other sizes, with what is wrong with them.
fn placed(plan: &Plan, bytes: &[u64], aligns: &[u64]) -> Layout {
    let layout = &plan.layout;
    let order: Vec<u16> =
        layout.order.iter().map(|&buffer| u16::try_from(buffer).unwrap()).collect();
    let below: Vec<Vec<u16>> = layout
        .buffers
        .iter()
        .map(|buffer| buffer.below.iter().map(|&each| u16::try_from(each).unwrap()).collect())
        .collect();
    let below: Vec<&[u16]> = below.iter().map(Vec::as_slice).collect();
    let mut offsets = vec![0; bytes.len()];
    let total = offsets::assign(&order, &below, bytes, aligns, &mut offsets).unwrap();
    let ranges: Layout =
        offsets.iter().zip(bytes).map(|(offset, bytes)| *offset..offset + bytes).collect();
    let used = |buffer: usize| layout.buffers[buffer].accessed;
    assert_eq!(
        total,
        (0..bytes.len()).filter(|&b| used(b)).map(|b| ranges[b].end).max().unwrap_or(0)
    );
    for (buffer, range) in ranges.iter().enumerate() {
        assert_eq!(range.start % aligns[buffer], 0);
    }
    for &(a, b) in &plan.interference {
        let apart = ranges[a].end <= ranges[b].start || ranges[b].end <= ranges[a].start;
        assert!(apart, "{a} and {b} of {ranges:?}");
    }
    ranges
}

#[test]
fn an_order_that_was_packed_is_safe_for_all_sizes() {
    let mut rng = Rng::new(6);
    let mut executed = 0;
    for (declared, plan) in accepted(150) {
        let program = Program::new(&declared, PASSES);
        let reach = explore_within(&program, 20_000, 0);
        let own: Vec<u64> = plan.layout.buffers.iter().map(|buffer| buffer.bytes).collect();
        let aligns: Vec<u64> = plan.layout.buffers.iter().map(|buffer| buffer.align).collect();
        let same = placed(&plan, &own, &aligns);
        for (range, buffer) in same.iter().zip(&plan.layout.buffers) {
            assert!(!buffer.accessed || range.start == buffer.offset);
        }
        for _ in 0..20 {
            let bytes: Vec<u64> = own.iter().map(|_| pick(&mut rng)).collect();
            let aligns: Vec<u64> = own.iter().map(|_| 1 << rng.below(11)).collect();
            let layout = placed(&plan, &bytes, &aligns);
            if reach.complete {
                executed += 1;
                assert_eq!(corruption(&program, &reach, &layout), None, "{}", declared.toml());
            }
        }
    }
    assert!(executed > 1000, "{executed}");
}

#[test]
fn dims_known_at_start_up_change_neither_proof_nor_refusal() {
    let name = |text: &str| Name::new(text.to_owned(), Span::default());
    let mut rng = Rng::new(7);
    for (declared, constant) in accepted(100) {
        let mut spec = declared.spec();
        spec.dims = vec![Dim {
            name: name("n"),
            value: DimValue::Runtime {
                nominal: i64::try_from(1 + rng.below(5000)).unwrap(),
                span: Span::default(),
            },
        }];
        for buffer in spec.groups.iter_mut().flat_map(|group| &mut group.buffers) {
            if rng.chance(60) {
                buffer
                    .shape
                    .insert(0, Expr { kind: Kind::Name("n".to_owned()), span: Span::default() });
            }
        }
        let plan = plan(&spec).unwrap();
        assert_eq!(plan.interference, constant.interference);
        let aligns: Vec<u64> = plan.layout.buffers.iter().map(|buffer| buffer.align).collect();
        for _ in 0..5 {
            let n = pick(&mut rng);
            let bytes: Vec<u64> = plan
                .sizes
                .buffers
                .iter()
                .zip(&plan.layout.buffers)
                .map(|(size, buffer)| {
                    let grows = size.extents.iter().any(|extent| {
                        let mut found = false;
                        extent.names(&mut |each, _| found |= each == "n");
                        found
                    });
                    let rows = if grows { n } else { 1 };
                    let constant = buffer.shape.last().unwrap();
                    if buffer.accessed { (rows * constant).next_multiple_of(256) } else { 0 }
                })
                .collect();
            placed(&plan, &bytes, &aligns);
        }
    }
}

#[test]
fn the_order_in_which_groups_are_declared_changes_no_byte() {
    let mut rng = Rng::new(8);
    for (declared, before) in accepted(150) {
        let mut moved = declared.clone();
        for i in (1..moved.groups.len()).rev() {
            moved.groups.swap(i, rng.below(i + 1));
        }
        let after = plan(&moved.spec()).unwrap();
        assert_eq!(before.layout.fingerprint, after.layout.fingerprint, "{}", declared.toml());
        for buffer in &before.layout.buffers {
            let same = &after.layout.buffers[after.buffer(&buffer.name).unwrap()];
            assert_eq!((buffer.offset, buffer.bytes), (same.offset, same.bytes));
        }
        let layout = |plan: &Plan| {
            (plan.layout.total_bytes, plan.layout.lower_bound_bytes, plan.layout.optimal)
        };
        assert_eq!(layout(&before), layout(&after));
    }
}
