//! What the compiler checks of the constants: it accepts the pools of these tests by compiling them,
//! and refuses what is planted here.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::pedantic)]

mod common;

use common::eager_scratch::{LAYOUT, SCHEDULE};
use scratchpool::generated::check::{Wrong, check, sharing, unplaced};
use scratchpool::tables::{Launch, LayerKind, ScheduleTable, StepInLayer, StepRow};

/// Nodes of three passes of the eager scratch, and words of a set of them.
const NODES: usize = 3 * 255;
const WORDS: usize = NODES.div_ceil(64);

fn checked(schedule: &ScheduleTable) -> Result<(), Wrong> {
    check::<NODES, WORDS, 7>(schedule, &sharing::<7>(&LAYOUT))
}

/// The schedule with its steps and kinds changed.
fn changed(
    change_row: impl Fn(usize, &mut StepRow),
    change: impl Fn(usize, usize, &mut StepInLayer),
) -> ScheduleTable {
    let rows = SCHEDULE.steps.iter().enumerate().map(|(step, row)| {
        let mut row = *row;
        change_row(step, &mut row);
        row
    });
    let kinds = SCHEDULE.kinds.iter().enumerate().map(|(kind, table)| {
        let steps = table.steps.iter().enumerate().map(|(step, here)| {
            let mut here = *here;
            change(kind, step, &mut here);
            here
        });
        LayerKind { steps: steps.collect::<Vec<_>>().leak(), buffers: table.buffers }
    });
    ScheduleTable {
        steps: rows.collect::<Vec<_>>().leak(),
        kinds: kinds.collect::<Vec<_>>().leak(),
        ..SCHEDULE
    }
}

#[test]
fn the_proved_constants_are_accepted() {
    assert_eq!(checked(&SCHEDULE), Ok(()));
}

#[test]
fn each_wait_left_out_is_refused() {
    for (kind, table) in SCHEDULE.kinds.iter().enumerate() {
        for (step, here) in
            table.steps.iter().enumerate().filter(|(_, here)| !here.waits.is_empty())
        {
            assert_eq!(here.waits.len(), 1, "one wait is left out at a time");
            let without = changed(
                |_, _| {},
                |at_kind, at_step, here| {
                    if (at_kind, at_step) == (kind, step) {
                        here.waits = &[];
                    }
                },
            );
            assert_eq!(checked(&without), Err(Wrong::Shared), "kind {kind}, step {step}");
        }
    }
}

#[test]
fn an_event_that_is_not_recorded_is_refused() {
    let silent = changed(|_, _| {}, |_, _, here| here.records = false);
    assert_eq!(checked(&silent), Err(Wrong::Event));
}

#[test]
fn early_launches_that_lose_order_are_refused() {
    let early = changed(|_, row| row.launch = Launch::Early, |_, _, _| {});
    assert!(matches!(checked(&early), Err(Wrong::Race | Wrong::Reuse | Wrong::Shared)));
}

#[test]
fn steps_on_other_streams_are_refused() {
    // Attention beside the main stream: the next layer's fork no longer comes after it.
    let moved = changed(
        |step, row| {
            if SCHEDULE.steps[step].name == "attention" {
                row.stream = 1;
            }
        },
        |_, _, _| {},
    );
    assert!(checked(&moved).is_err());
}

#[test]
fn bytes_shared_by_buffers_that_are_live_together_are_refused() {
    let mut shares = sharing::<7>(&LAYOUT);
    shares[0][1] = true;
    shares[1][0] = true;
    assert_eq!(check::<NODES, WORDS, 7>(&SCHEDULE, &shares), Err(Wrong::Shared));
}

#[test]
fn a_read_of_what_nothing_wrote_is_refused() {
    let mute = changed(
        |_, row| {
            if row.name == "q_proj" {
                row.writes = &[];
            }
        },
        |_, _, _| {},
    );
    assert_eq!(checked(&mute), Err(Wrong::Unwritten));
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    assert_eq!(
        check::<{ NODES + 1 }, WORDS, 7>(&SCHEDULE, &sharing::<7>(&LAYOUT)),
        Err(Wrong::Tables)
    );
    assert_eq!(
        check::<{ NODES - 1 }, WORDS, 7>(&SCHEDULE, &sharing::<7>(&LAYOUT)),
        Err(Wrong::Tables)
    );
    assert_eq!(check::<NODES, WORDS, 6>(&SCHEDULE, &[[false; 6]; 6]), Err(Wrong::Tables));
    let astray = changed(|_, row| row.stream = 9, |_, _, _| {});
    assert_eq!(checked(&astray), Err(Wrong::Tables));
}

#[test]
fn buffers_without_an_order_of_placing_may_share() {
    assert_eq!(
        unplaced(&[&[], &[0], &[]]),
        [[false, false, true], [false, false, true], [true, true, false]]
    );
}
