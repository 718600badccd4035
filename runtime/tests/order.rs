//! What a pool issues, and what it refuses, seen by a device that writes everything down.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::needless_for_each,
    clippy::too_many_lines,
    clippy::similar_names,
    reason = "a test fails by panicking"
)]

mod common;

use common::EagerScratch;
use common::recorder::Recorder;
use common::toy::Toys;
use scratchpool::generated::PoolCore;
use scratchpool::{Backing, Error};

type Pool = EagerScratch<Recorder>;

fn pool() -> (Recorder, Pool) {
    let recorder = Recorder::default();
    let pool = Pool::allocate(&recorder).unwrap();
    recorder.take();
    (recorder, pool)
}

/// What a whole layer of each kind issues. e0: `fork`, e1: `index_topk`, e2: `compress`.
const WINDOW: &[&str] = &[
    "enter main full", // fork
    "leave main",
    "enter main full", // q_proj
    "leave main",
    "enter main full", // join
    "leave main",
    "enter main full", // attention
    "leave main",
];
const C4: &[&str] = &[
    "enter main full", // fork
    "leave main",
    "record e0 on main",
    "wait e0 on aux0", // index_q
    "enter aux0 full",
    "leave aux0",
    "enter aux0 full", // index_topk
    "leave aux0",
    "record e1 on aux0",
    "enter main full", // q_proj
    "leave main",
    "wait e1 on main", // join
    "enter main full",
    "leave main",
    "enter main full", // global_topk
    "leave main",
    "enter main full", // attention
    "leave main",
];
const C128: &[&str] = &[
    "enter main full", // fork
    "leave main",
    "record e0 on main",
    "wait e0 on aux1", // compress
    "enter aux1 full",
    "leave aux1",
    "record e2 on aux1",
    "enter main full", // q_proj
    "leave main",
    "wait e2 on main", // join
    "enter main full",
    "leave main",
    "enter main full", // attention
    "leave main",
];

fn whole_pass() -> Vec<&'static str> {
    let pairs = [WINDOW, WINDOW].into_iter().chain((0..20).flat_map(|_| [C4, C128])).chain([C4]);
    pairs.flatten().copied().collect()
}

/// Issues every step of a layer, as a model would.
fn run_layer(layer: &mut common::eager_scratch::Layer<'_, Recorder>) -> Result<(), Error> {
    layer.fork()?;
    layer.index_q()?;
    layer.index_topk()?;
    layer.compress()?;
    layer.q_proj()?;
    layer.join()?;
    layer.global_topk()?;
    layer.attention()?;
    Ok(())
}

#[test]
fn allocation_makes_one_arena_and_each_stream_and_event_once() {
    let recorder = Recorder::default();
    let mut pool = Pool::allocate(&recorder).unwrap();
    let mut made = recorder.take();
    made.sort();
    assert_eq!(
        made,
        [
            "allocate 574619648 to 256",
            "event e0",
            "event e1",
            "event e2",
            "stream aux0",
            "stream aux1",
            "stream main"
        ]
    );
    drop(pool.begin(1).unwrap());
    assert!(
        recorder
            .take()
            .iter()
            .all(|line| !line.starts_with("event") && !line.starts_with("stream"))
    );
}

#[test]
fn a_full_pass_issues_exactly_the_waits_and_records_of_the_table() {
    let (recorder, mut pool) = pool();
    for _ in 0..2 {
        let mut pass = pool.begin(16).unwrap();
        for layer in 0..43 {
            run_layer(&mut pass.layer(layer).unwrap()).unwrap();
        }
        drop(pass);
        assert_eq!(recorder.take(), whole_pass());
    }
}

#[test]
fn waits_are_issued_before_the_step_is_handed_out_and_the_record_when_it_is_dropped() {
    let (recorder, mut pool) = pool();
    let mut pass = pool.begin(1).unwrap();
    let mut layer = pass.layer(2).unwrap();
    recorder.take();
    let fork = layer.fork().unwrap();
    assert_eq!(recorder.take(), ["enter main full"]);
    drop(fork);
    assert_eq!(recorder.take(), ["leave main", "record e0 on main"]);
    let step = layer.index_q().unwrap().unwrap();
    assert_eq!(recorder.take(), ["wait e0 on aux0", "enter aux0 full"]);
    assert_eq!(*step.stream(), "aux0");
}

#[test]
fn skipped_steps_keep_their_waits_and_records() {
    let (recorder, mut pool) = pool();
    let mut pass = pool.begin(1).unwrap();
    for layer in 0..43 {
        let mut layer = pass.layer(layer).unwrap();
        if layer.index_topk().unwrap().is_none() {
            layer.attention().unwrap();
        }
    }
    drop(pass);
    assert_eq!(recorder.take(), whole_pass());
}

#[test]
fn skipped_layers_keep_their_waits_and_records() {
    let (recorder, mut pool) = pool();
    let mut pass = pool.begin(1).unwrap();
    drop(pass.layer(7).unwrap());
    drop(pass.layer(40).unwrap());
    drop(pass);
    assert_eq!(recorder.take(), whole_pass());
}

#[test]
fn a_pass_dropped_early_completes_its_walk() {
    let (recorder, mut pool) = pool();
    drop(pool.begin(1).unwrap());
    assert_eq!(recorder.take(), whole_pass());
    let mut pass = pool.begin(1).unwrap();
    let mut layer = pass.layer(2).unwrap();
    let step = layer.index_q().unwrap();
    drop(step);
    drop(layer);
    drop(pass);
    assert_eq!(recorder.take(), whole_pass());
}

#[test]
fn a_forgotten_guard_loses_no_wait_and_no_record() {
    let (recorder, mut pool) = pool();
    let mut pass = pool.begin(1).unwrap();
    let mut layer = pass.layer(2).unwrap();
    std::mem::forget(layer.fork().unwrap());
    std::mem::forget(layer.index_q().unwrap());
    std::mem::forget(layer);
    let mut layer = pass.layer(4).unwrap();
    std::mem::forget(layer.join().unwrap());
    std::mem::forget(layer);
    std::mem::forget(pass);
    let next = pool.begin(1).unwrap();
    assert_eq!(recorder.take(), whole_pass());
    drop(next);
}

#[test]
fn repeated_and_reordered_steps_are_refused_and_issue_nothing() {
    let (recorder, mut pool) = pool();
    let mut pass = pool.begin(1).unwrap();
    let mut layer = pass.layer(2).unwrap();
    layer.q_proj().unwrap();
    recorder.take();
    let repeated = layer.q_proj().unwrap_err();
    assert!(
        matches!(repeated, Error::StepOrder { step: "q_proj", issued: "q_proj", layer: 2 }),
        "{repeated}"
    );
    let reordered = layer.index_topk().unwrap_err();
    assert!(
        matches!(reordered, Error::StepOrder { step: "index_topk", issued: "q_proj", layer: 2 }),
        "{reordered}"
    );
    // A step that does not run here keeps its place all the same.
    assert!(layer.compress().is_err());
    assert_eq!(recorder.take(), [""; 0]);
    layer.join().unwrap();
}

#[test]
fn a_step_that_does_not_run_in_the_layer_is_none_once() {
    let (_, mut pool) = pool();
    let mut pass = pool.begin(1).unwrap();
    let mut layer = pass.layer(0).unwrap();
    assert!(layer.index_q().unwrap().is_none());
    assert!(matches!(layer.index_q(), Err(Error::StepOrder { .. })));
    assert!(layer.compress().unwrap().is_none());
    assert!(matches!(layer.fork(), Err(Error::StepOrder { .. })));
}

#[test]
fn repeated_reordered_and_unknown_layers_are_refused_and_issue_nothing() {
    let (recorder, mut pool) = pool();
    let mut pass = pool.begin(1).unwrap();
    drop(pass.layer(3).unwrap());
    recorder.take();
    assert!(matches!(pass.layer(3), Err(Error::LayerOrder { layer: 3, issued: 3 })));
    assert!(matches!(pass.layer(1), Err(Error::LayerOrder { layer: 1, issued: 3 })));
    assert!(matches!(pass.layer(43), Err(Error::NoSuchLayer { layer: 43, layers: 43 })));
    assert!(matches!(pass.layer(usize::MAX), Err(Error::NoSuchLayer { .. })));
    assert_eq!(recorder.take(), [""; 0]);
    pass.layer(4).unwrap();
}

#[test]
fn rows_up_to_the_maximum_are_taken_and_more_are_refused_without_a_trace() {
    let (recorder, mut pool) = pool();
    for rows in [0, 1, 8192] {
        let mut pass = pool.begin(rows).unwrap();
        assert_eq!(pass.num_tokens(), rows);
        let mut layer = pass.layer(2).unwrap();
        let mut step = layer.index_q().unwrap().unwrap();
        assert_eq!(step.buffers().index_values.shape(), [rows, 64, 64]);
        assert_eq!(step.buffers().index_values.is_empty(), rows == 0);
    }
    recorder.take();
    let refused = pool.begin(8193).unwrap_err();
    assert!(matches!(refused, Error::TooManyRows { asked: 8193, max: 8192, dim: None }));
    assert_eq!(recorder.take(), [""; 0]);
}

#[test]
fn a_failure_before_a_step_is_returned_and_the_step_can_be_asked_for_again() {
    let (recorder, mut pool) = pool();
    let mut pass = pool.begin(1).unwrap();
    let mut layer = pass.layer(2).unwrap();
    layer.fork().unwrap();
    recorder.fail_after("wait", 0);
    assert!(matches!(layer.index_q(), Err(Error::Device(_))));
    recorder.take();
    layer.index_q().unwrap();
    assert_eq!(recorder.take(), ["wait e0 on aux0", "enter aux0 full", "leave aux0"]);
}

#[test]
fn a_failure_inside_a_drop_comes_back_once_then_the_order_is_lost_until_the_next_begin() {
    let (recorder, mut pool) = pool();
    let mut pass = pool.begin(1).unwrap();
    let mut layer = pass.layer(2).unwrap();
    recorder.fail_after("record", 0);
    drop(layer.fork().unwrap());
    assert!(matches!(layer.index_q(), Err(Error::Device(_))));
    assert!(matches!(layer.index_q(), Err(Error::OrderLost)));
    drop(layer);
    assert!(matches!(pass.layer(4), Err(Error::OrderLost)));
    recorder.take();
    drop(pass);
    assert_eq!(recorder.take(), [""; 0], "nothing rests on a lost order");
    // Everything is waited for once; afterwards no old event counts.
    let mut pass = pool.begin(1).unwrap();
    assert_eq!(recorder.take(), ["synchronize "]);
    run_layer(&mut pass.layer(2).unwrap()).unwrap();
}

#[test]
fn a_failure_while_a_pass_is_finished_comes_back_from_the_next_begin() {
    let (recorder, mut pool) = pool();
    recorder.fail_after("wait", 3);
    drop(pool.begin(1).unwrap());
    assert!(matches!(pool.begin(1), Err(Error::Device(_))));
    assert!(pool.begin(1).is_ok());
}

toy! { Alternating: ["a", "b"] [0, 0]
    { late 1 Full 0 [] []; t 0 Full 2 [0] []; }
    { true false [1 / 1]; true true []; }
}

#[test]
fn a_wait_for_the_run_before_the_latest_finds_its_own_event_and_none_before_it_happened() {
    let recorder = Recorder::default();
    let mut pool: PoolCore<_, _> =
        PoolCore::new(&recorder, Toys::<Alternating>::default(), Backing::Arena).unwrap();
    recorder.take();
    drop(pool.begin(1).unwrap());
    drop(pool.begin(1).unwrap());
    let order: Vec<_> =
        recorder.take().into_iter().filter(|line| line.starts_with(['r', 'w'])).collect();
    assert_eq!(
        order,
        [
            "record e0 on a", // layer 0: no run before, so no wait
            "record e1 on a", // layer 1: one run, the one before it has not happened
            "wait e0 on b",
            "record e0 on a",
            "wait e1 on b",
            "record e1 on a",
        ]
    );
}

toy! { NoEvent: ["a"] [0] { t 0 Full 0 [] []; } { true true []; } }
toy! { NoStream: ["a"] [0] { t 1 Full 0 [] []; } { true false []; } }
toy! { NoKind: ["a"] [1] { t 0 Full 0 [] []; } { true false []; } }
toy! { FarWait: ["a"] [0] { t 0 Full 1 [] []; } { true true [0 / 1]; } }

#[test]
fn tables_that_contradict_each_other_are_refused_before_anything_is_allocated() {
    fn refused<T: common::toy::Toy>() -> &'static str {
        let recorder = Recorder::default();
        let made: Result<PoolCore<_, _>, _> =
            PoolCore::new(&recorder, Toys::<T>::default(), Backing::Arena);
        assert_eq!(recorder.take(), [""; 0]);
        match made {
            Err(Error::Schedule { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused::<NoEvent>(), "a recorded step without an event");
    assert_eq!(refused::<NoStream>(), "a step on a stream without a name");
    assert_eq!(refused::<NoKind>(), "a layer of no kind");
    assert_eq!(refused::<FarWait>(), "a wait for a run whose event is not kept");
}

#[test]
fn the_callers_streams_are_used_as_they_come() {
    let recorder = Recorder::default();
    let mut pool =
        Pool::with_streams(&recorder, Backing::Arena, [["mine", "side 0", "side 1"]]).unwrap();
    assert!(recorder.take().iter().all(|line| !line.starts_with("stream")));
    let mut pass = pool.begin(1).unwrap();
    assert_eq!(*pass.layer(2).unwrap().fork().unwrap().stream(), "mine");
}
