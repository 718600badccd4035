//! The sanitizer finds each fault that is planted, names it, and finds nothing in correct passes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::pedantic,
    reason = "a test fails by panicking"
)]

mod common;

use common::toy::{Toy, Toys, X, Y};
use scratchpool::generated::PoolCore;
use scratchpool::{
    Backing, Device, Error, Host, HostStream, MissingEdge, Violation, ViolationKind,
};

toy! { Sound: ["main", "side"] [0, 0]
    { produce 0 Full 1 [0] []; consume 1 Full 0 [] [0]; reduce 1 Full 0 [1] []; report 1 Full 1 [] [1]; }
    { true true [3 / 0]; true false [0 / 0]; true false []; true true []; }
}
toy! { WithoutFork: ["main", "side"] [0, 0]
    { produce 0 Full 1 [0] []; consume 1 Full 0 [] [0]; reduce 1 Full 0 [1] []; report 1 Full 1 [] [1]; }
    { true true [3 / 0]; true false []; true false []; true true []; }
}
toy! { WithoutWrap: ["main", "side"] [0, 0]
    { produce 0 Full 1 [0] []; consume 1 Full 0 [] [0]; reduce 1 Full 0 [1] []; report 1 Full 1 [] [1]; }
    { true true []; true false [0 / 0]; true false []; true true []; }
}
toy! { EarlyChain: ["main"] [0, 0]
    { write_x 0 Full 0 [0] []; read_x 0 Full 0 [] [0]; mid 0 Early 0 [] []; write_y 0 Dependent 0 [1] []; read_y 0 Full 0 [] [1]; }
    { true false []; true false []; true false []; true false []; true false []; }
}

const ROWS: usize = 10;

/// What a test does in a step: the step, the pass, its stream, and where its buffer is.
type Plant<'p> = &'p mut dyn FnMut(&'static str, u32, &HostStream, *mut u32);

/// Runs passes in which each step writes or reads its buffer, up to the first violation.
fn run<T: Toy>(host: &Host, plant: Plant<'_>) -> Result<(), Error> {
    let mut pool: PoolCore<_, _> = PoolCore::new(host, Toys::<T>::default(), Backing::Sanitized)?;
    for number in 1..=3_u32 {
        let mut pass = pool.begin(ROWS)?;
        for index in 0..T::TABLE.layers.len() {
            let tag = number * 100 + index as u32;
            let mut layer = pass.layer(index)?;
            for (at, row) in T::TABLE.steps.iter().enumerate() {
                let guard = layer.step_in_every_layer(at)?;
                let stream = guard.stream();
                let (buffer, write) = match (row.writes, row.reads) {
                    ([buffer], _) => (buffer, true),
                    ([], [buffer]) => (buffer, false),
                    _ => continue,
                };
                let place = [X, Y][usize::from(*buffer)];
                // SAFETY: the rows asked for, of u32; one view at a time.
                let start = unsafe {
                    if write {
                        let mut view = guard.view_mut::<u32, 1>(place, [ROWS]);
                        stream.fill(view.reborrow(), tag)?;
                        view.as_mut_ptr()
                    } else {
                        let view = guard.view::<u32, 1>(place, [ROWS]);
                        stream.launch(view, move |x| assert!(x.iter().all(|it| *it == tag)))?;
                        view.as_ptr().cast_mut()
                    }
                };
                plant(row.name, number, stream, start);
            }
        }
        pass.finish()?;
    }
    Ok(())
}

fn first(found: Result<(), Error>) -> Violation {
    match found {
        Err(Error::Violation(violation)) => *violation,
        other => panic!("{other:?}"),
    }
}

/// Writes a word through a pointer that the step does not own.
fn scribble(stream: &HostStream, at: *mut u32, index: usize) {
    stream
        .launch((), move |()| {
            // SAFETY: the arena of the sanitized pool reaches there; a kernel runs alone.
            unsafe { at.add(index).write(7) };
        })
        .unwrap();
}

#[test]
fn correct_passes_are_found_correct_in_order_and_in_random_orders() {
    for host in [Host::in_order()].into_iter().chain((0..50).map(Host::random)) {
        run::<Sound>(&host, &mut |_, _, _, _| {}).unwrap();
    }
}

#[test]
fn a_write_after_the_step_is_found_at_the_next_live_range_or_at_the_end_of_the_pass() {
    let mut kept = None;
    let found = run::<Sound>(&Host::in_order(), &mut |step, _, stream, at| match step {
        "produce" => kept = Some(at),
        "report" => scribble(stream, kept.unwrap(), 3),
        _ => {}
    });
    let violation = first(found);
    assert_eq!(
        violation.to_string(),
        "`x` was written after its live range had ended with step `consume` of layer 0 on stream \
         `side`; a pointer was kept beyond its step"
    );
    assert_eq!(violation.kind, ViolationKind::UseAfterStep);
}

#[test]
fn a_read_after_the_step_finds_poison() {
    let (mut kept, seen) = (None, std::rc::Rc::new(std::cell::Cell::new(0)));
    let found = std::rc::Rc::clone(&seen);
    run::<Sound>(&Host::in_order(), &mut |step, _, stream, at| match step {
        "produce" => kept = Some(at),
        "report" => {
            let (at, found) = (kept.unwrap(), std::rc::Rc::clone(&found));
            // SAFETY: inside the arena; a kernel runs alone.
            stream.launch((), move |()| found.set(unsafe { at.read() })).unwrap();
        }
        _ => {}
    })
    .unwrap();
    assert_eq!(seen.get(), u32::MAX);
    assert!(f32::from_bits(seen.get()).is_nan());
}

#[test]
fn rows_beyond_the_pass_are_found_with_the_byte_and_the_step() {
    let found = run::<Sound>(&Host::in_order(), &mut |step, pass, stream, at| {
        if step == "reduce" && pass == 2 {
            scribble(stream, at, ROWS + 1);
        }
    });
    assert_eq!(
        first(found).to_string(),
        "`y` was written at byte 44, beyond the rows of the pass, in step `reduce` of layer 0 on \
         stream `side`"
    );
}

#[test]
fn a_write_through_a_read_views_pointer_is_found() {
    let found = run::<Sound>(&Host::in_order(), &mut |step, _, stream, at| {
        if step == "report" {
            scribble(stream, at, 0);
        }
    });
    let violation = first(found);
    assert_eq!((violation.kind, violation.step), (ViolationKind::WriteThroughReadView, "report"));
    assert!(violation.to_string().contains("`y` was written in step `report` of layer 0"));
}

#[test]
fn a_lost_edge_is_found_without_any_luck_and_named() {
    let fork = first(run::<WithoutFork>(&Host::in_order(), &mut |_, _, _, _| {}));
    assert_eq!((fork.kind, fork.buffer.as_str()), (ViolationKind::LostEdge, "x"));
    assert_eq!(
        fork.missing,
        Some(MissingEdge {
            from: "produce",
            from_layer: 0,
            from_stream: "main",
            to: "consume",
            to_layer: 0,
            to_stream: "side",
        })
    );
    let wrap = first(run::<WithoutWrap>(&Host::in_order(), &mut |_, _, _, _| {}));
    assert!(
        wrap.to_string().contains(
            "no edge leads from `consume` (layer 0, stream `side`) to `produce` (layer 1, stream \
             `main`)"
        ),
        "{wrap}"
    );
    let early = first(run::<EarlyChain>(&Host::in_order(), &mut |_, _, _, _| {}));
    // The classic: two hops away from an early launch. `x` and `y` share planned bytes.
    assert_eq!((early.kind, early.step), (ViolationKind::LostEdge, "write_y"));
    assert_eq!(early.missing.map(|edge| edge.from), Some("read_x"));
}

#[test]
fn without_the_sanitizer_nothing_is_watched_and_with_it_buffers_lie_apart() {
    let host = Host::in_order();
    let toys = Toys::<Sound>::default;
    let plain: PoolCore<_, _> = PoolCore::new(&host, toys(), Backing::Arena).unwrap();
    let watched: PoolCore<_, _> = PoolCore::new(&host, toys(), Backing::Sanitized).unwrap();
    assert_eq!((plain.held_bytes(), plain.backing()), (64, Backing::Arena));
    assert!(watched.held_bytes() > 2 * 4096);
    assert_eq!(watched.memory(), plain.memory(), "the plan is the same");
    host.synchronize().unwrap();
}
