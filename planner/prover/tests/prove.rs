//! The planner against every order of execution, in a form small enough for each run of the tests. The whole form is
//! the command `prove`; its documentation shows what came of it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use scratchpool_planner::error::Fault;
use scratchpool_planner::plan::{analyze, plan};
use scratchpool_planner::toml_spec;
use scratchpool_prover::PASSES;
use scratchpool_prover::declared::Declared;
use scratchpool_prover::family::{FAMILIES, Tally};
use scratchpool_prover::judge::{Outcome, judge, judge_within};
use scratchpool_prover::machine::{
    allows, every_order, explore, explore_within, overlapping_intervals,
};
use scratchpool_prover::memory::{Findings, What, collision, corruption, run, shared};
use scratchpool_prover::program::{Access, Program};
use scratchpool_prover::random::{declared, shrink};
use scratchpool_prover::waits;

/// Fails with the smallest schedule that shows the first disagreement.
fn agree(tally: &Tally, judge: &dyn Fn(&Declared) -> Result<(), String>) {
    if let Some((declared, words)) = tally.disagreements.first() {
        let small = shrink(declared, &|each| judge(each).is_err());
        panic!("{words}\n\nsmaller:\n{}\n{:?}", small.toml(), judge(&small));
    }
    assert!(tally.accepted > 0 && tally.refused > 0, "{tally:?}");
}

/// About one schedule of `stride`; a different one in every frame.
fn part_of_family(name: &str, stride: usize) {
    let family = FAMILIES.iter().find(|family| family.name == name).unwrap();
    agree(&family.judge(0, stride), &|each| judge(each).map(|_| ()));
}

#[test]
fn the_planner_agrees_on_all_schedules_of_two_steps_with_every_edge() {
    part_of_family("two steps, every edge", 19);
}

#[test]
fn the_planner_agrees_on_schedules_of_three_steps() {
    part_of_family("three steps", 397);
}

#[test]
fn the_planner_agrees_on_schedules_of_three_steps_of_every_launch_kind() {
    part_of_family("three steps, launch kinds", 809);
}

#[test]
fn the_planner_agrees_on_schedules_of_two_layers() {
    part_of_family("two steps, two layers", 499);
    part_of_family("three steps, two layers", 3989);
}

#[test]
fn the_planner_agrees_on_schedules_of_three_layers() {
    part_of_family("two steps, three layers", 211);
}

#[test]
fn the_planner_agrees_on_schedules_of_four_steps_and_one_buffer() {
    part_of_family("four steps", 997);
}

#[test]
fn the_planner_agrees_on_random_schedules() {
    let mut tally = Tally::default();
    let mut sampled = 0;
    for seed in 0..400 {
        let declared = declared(seed);
        let judged = judge_within(&declared, 20_000);
        sampled += u32::from(judged.as_ref().is_ok_and(|judged| !judged.complete));
        tally.add(&declared, judged);
    }
    assert!(sampled < 60, "{sampled}");
    agree(&tally, &|each| judge(each).map(|_| ()));
}

#[test]
fn a_fix_that_is_offered_fixes() {
    let mut fixed = 0;
    for seed in 0..200 {
        let declared = declared(seed);
        let program = Program::new(&declared, PASSES);
        for error in analyze(&declared.spec()).1 {
            let (conflict, claimed) = match &error.fault {
                Fault::Race(conflict) | Fault::Reuse(conflict) => (conflict, None),
                Fault::NotExclusive { a, b, conflict, .. } => (conflict, Some((a, b))),
                _ => continue,
            };
            let Some(fix) = &conflict.fix else { continue };
            let mut better = declared.clone();
            let waiter = better.steps.iter_mut().find(|step| step.name == fix.waiter).unwrap();
            waiter.after.push(fix.after.clone());
            let ordered = Program::new(&better, PASSES);
            let reach = explore_within(&ordered, 20_000, 0);
            if !reach.complete {
                continue;
            }
            fixed += 1;
            if let Some((a, b)) = claimed {
                let findings = Findings::new(&ordered, &reach);
                let group = |buffer: usize| &better.buffers()[buffer].1.name;
                let across = |&&(x, y): &&(usize, usize)| {
                    let pair = [group(x), group(y)];
                    pair == [a, b] || pair == [b, a]
                };
                assert_eq!(findings.collisions.iter().find(across), None, "{}", declared.toml());
            } else {
                // In no layer and pass can the same two steps run at once any more where they conflict.
                let buffers = declared.buffers();
                let named = |access: &Access| conflict.buffers.contains(&buffers[access.buffer].0);
                let of = |name: &String| {
                    let steps = &declared.steps;
                    let is = |n: &&usize| steps[program.nodes[**n].step].name == *name;
                    let all: Vec<usize> = (0..program.nodes.len()).collect();
                    all.iter().filter(is).copied().collect::<Vec<usize>>()
                };
                for a in of(&conflict.first.step) {
                    for b in of(&conflict.second.step) {
                        let conflicts = ordered.nodes[a].accesses.iter().any(|x| {
                            let same = |y: &&Access| y.buffer == x.buffer && (x.write || y.write);
                            named(x) && ordered.nodes[b].accesses.iter().find(same).is_some()
                        });
                        let near = ordered.nodes[b].pass.abs_diff(ordered.nodes[a].pass) < 2;
                        if a < b && conflicts && near && reach.together(a, b) {
                            let x = ordered.nodes[a].accesses.iter().find(|x| named(x)).unwrap();
                            let y = ordered.nodes[b].accesses.iter().find(|y| y.buffer == x.buffer);
                            // Accesses of ranges further apart are another conflict's.
                            let race = matches!(error.fault, Fault::Race(_));
                            assert!(
                                y.is_none_or(|y| (y.range == x.range) != race),
                                "{}",
                                declared.toml()
                            );
                        }
                    }
                }
            }
        }
    }
    assert!(fixed > 30, "{fixed}");
}

#[test]
fn what_is_issued_is_enough_and_no_wait_of_it_is_implied_and_each_is_needed_as_reported() {
    let (mut needed, mut not_needed, mut issued) = (0, 0, 0);
    let check = |declared: &Declared| match plan(&declared.spec()) {
        Err(_) => Ok(waits::Waits::default()),
        Ok(plan) => waits::check(declared, &plan),
    };
    for seed in 0..400 {
        let declared = declared(seed);
        let states = explore_within(&Program::new(&declared, PASSES), 3_000, 0);
        if !states.complete {
            continue;
        }
        match check(&declared) {
            Ok(waits) => {
                needed += waits.needed;
                not_needed += waits.not_needed;
                issued += waits.issued;
            }
            Err(words) => {
                let small = shrink(&declared, &|each| check(each).is_err());
                panic!("{words}\n\nsmaller:\n{}\n{:?}", small.toml(), check(&small));
            }
        }
    }
    assert!(needed > 50 && not_needed > 20 && issued > 150, "{needed} {not_needed} {issued}");
}

// ---- the instrument itself ----

/// Small programs of every kind: a few of each family and of the random ones.
fn small_programs() -> Vec<(Declared, Program)> {
    let mut all = Vec::new();
    for family in &FAMILIES[..4] {
        let mut number = 0;
        family.frames(&mut |frame| {
            number += 1;
            if number % 41 == 0 {
                let mut left = number;
                family.accesses(&frame, &mut |declared| {
                    left += 1;
                    if left % 37 == 0 {
                        all.push(declared.clone());
                    }
                });
            }
        });
    }
    let mut number = 0;
    all.retain(|_| {
        number += 1;
        number % 3 == 0
    });
    all.into_iter().map(|declared| (declared.clone(), Program::new(&declared, 2))).collect()
}

#[test]
fn one_by_one_enumeration_finds_the_same_orders_and_the_same_corruption() {
    let mut compared = 0;
    for (declared, program) in small_programs() {
        let reach = explore(&program);
        if reach.orders > 4000 {
            continue;
        }
        compared += 1;
        let mut orders = 0;
        every_order(&program, &mut |order| {
            assert!(allows(&program, order) && order.len() == program.nodes.len());
            orders += 1;
            true
        });
        assert_eq!(orders, reach.orders, "{}", declared.toml());
        // Every layout of two buffers: apart and shared.
        let apart = (0..2).map(|buffer| buffer..buffer + 1).collect();
        for layout in [apart, shared(&program, 0, 1)] {
            let mut lost = false;
            every_order(&program, &mut |order| {
                lost |= run(&program, &layout, order).is_some();
                !lost
            });
            match corruption(&program, &reach, &layout) {
                None => assert!(!lost, "{}", declared.toml()),
                Some(found) => match found.what {
                    What::Lost { .. } => assert!(lost, "{}", declared.toml()),
                    // Two writes at once: nobody needs to read what they left.
                    What::AtOnce((a, _), (b, _)) => assert!(a == b || reach.together(a, b)),
                },
            }
        }
    }
    assert!(compared > 150, "{compared}");
}

#[test]
fn starts_and_ends_apart_give_the_same_pairs_as_whole_steps() {
    for (declared, program) in small_programs() {
        let reach = explore(&program);
        let nodes = program.nodes.len();
        let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
        let together: Vec<_> = pairs.filter(|&(a, b)| reach.together(a, b)).collect();
        assert_eq!(overlapping_intervals(&program), together, "{}", declared.toml());
    }
}

#[test]
fn five_passes_show_nothing_that_three_do_not() {
    for (declared, _) in small_programs() {
        let of = |passes| {
            let program = Program::new(&declared, passes);
            Findings::new(&program, &explore(&program))
        };
        assert_eq!(of(3), of(5), "{}", declared.toml());
    }
}

#[test]
fn orders_that_are_shown_can_be_executed_and_end_in_what_they_show() {
    let mut shown = 0;
    for (declared, _) in small_programs() {
        let program = Program::new(&declared, PASSES);
        let reach = explore(&program);
        let findings = Findings::new(&program, &reach);
        for &(x, y) in &findings.collisions {
            shown += 1;
            let found = collision(&program, &reach, x, y).unwrap();
            assert!(allows(&program, &found.order), "{}", declared.toml());
            if let What::Lost { .. } = found.what {
                let again = run(&program, &shared(&program, x, y), &found.order);
                assert_eq!(again.as_ref(), Some(&found));
            }
            assert!(!found.words(&declared, &program).is_empty());
        }
    }
    assert!(shown > 20, "{shown}");
}

#[test]
fn sampled_orders_find_only_what_all_orders_do() {
    for seed in 0..60 {
        let program = Program::new(&declared(seed), PASSES);
        let all = explore_within(&program, 50_000, 0);
        let some = explore_within(&program, 1, 20);
        if all.complete && !some.complete {
            let nodes = program.nodes.len();
            for a in 0..nodes {
                assert!((0..nodes).all(|b| !some.together(a, b) || all.together(a, b)));
            }
        }
    }
}

#[test]
fn both_spellings_of_a_schedule_are_the_same_to_the_planner() {
    for seed in 0..150 {
        let declared = declared(seed);
        let read = toml_spec::read(&declared.toml(), ".".as_ref()).whole().unwrap();
        let (one, one_errors) = analyze(&declared.spec());
        let (two, two_errors) = analyze(&read);
        let words = |errors: &[scratchpool_planner::error::Error]| {
            errors.iter().map(scratchpool_planner::error::Error::message).collect::<Vec<_>>()
        };
        assert_eq!(words(&one_errors), words(&two_errors), "{}", declared.toml());
        assert_eq!(one.unwrap().layout.fingerprint, two.unwrap().layout.fingerprint);
    }
}

#[test]
fn an_execution_sees_a_wrong_layout() {
    // Offset 0 handed out twice, and views with different bases into the same bytes.
    let declared = Declared::new(
        &[0],
        &[("a", None, 512), ("b", None, 512)],
        "
        write_a main + a
        write_b main + b
        read main - a - b
        ",
    );
    assert_eq!(judge(&declared).unwrap().outcome, Outcome::Accepted);
    let plan = plan(&declared.spec()).unwrap();
    let program = Program::new(&declared, PASSES);
    let reach = explore(&program);
    for offset in [0, 1, 256, 511] {
        let layout = vec![0..512, offset..offset + 512];
        assert!(corruption(&program, &reach, &layout).is_some(), "{offset}");
        let mut wrong = plan.layout.clone();
        for (buffer, range) in wrong.buffers.iter_mut().zip(layout) {
            buffer.offset = range.start;
        }
        assert!(!wrong.verify(&plan.interference).is_empty(), "{offset}");
    }
    assert!(corruption(&program, &reach, &vec![0..512, 512..1024]).is_none());
}
