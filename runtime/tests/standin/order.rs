//! The driver's calls of correct programs: just those that the schedule and the edges of captures want.

use scratchpool::cuda::{CaptureMode, Graph, Stream};
use scratchpool::{Backing, Device, Element, Error, ViewMut, scratch_pool};

use crate::Lab;

/// A value handed from one stream to another and back.
#[scratch_pool]
#[step(write, after(prev.read), writes(x))]
#[step(read, on = side, after(write), reads(x))]
pub struct Relay {
    #[group(x)]
    #[shape(64)]
    pub x: u32,
}

/// Steps of each kind behind steps of each kind.
#[scratch_pool]
#[step(full, writes(x))]
#[step(dependent, launch = dependent, reads(x))]
#[step(early, launch = early, writes(y))]
#[step(last, reads(x, y))]
pub struct Kinds {
    #[group(x)]
    #[shape(64)]
    pub x: u32,
    #[group(y)]
    #[shape(64)]
    pub y: u32,
}

/// A pass of [`Relay`], with a launch in each step.
fn pass(lab: &Lab, pool: &mut Relay<scratchpool::cuda::Cuda>) -> Result<(), Error> {
    let mut pass = pool.begin()?;
    let mut layer = pass.layer(0)?;
    let mut step = layer.write()?;
    let on = step.stream();
    lab.launch(on, &step.buffers().x)?;
    drop(step);
    let mut step = layer.read()?;
    let on = step.stream();
    lab.launch(on, &step.buffers().x)?;
    drop(step);
    drop(layer);
    pass.finish()
}

fn capture(lab: &Lab, pool: &mut Relay<scratchpool::cuda::Cuda>) -> Graph {
    let streams = pool.begin().unwrap().streams().to_vec();
    lab.calls();
    let capture = lab.cuda.capture(&streams, 0, CaptureMode::Relaxed).unwrap();
    pass(lab, pool).unwrap();
    capture.end().unwrap()
}

/// Calls by name, without the events: which ones are the runtime's affair.
fn without_events(calls: Vec<String>) -> Vec<String> {
    let keep = |call: String| match call.split(' ').collect::<Vec<_>>()[..] {
        ["record", _, stream] => format!("record {stream}"),
        ["wait", stream, _] => format!("wait {stream}"),
        _ => call,
    };
    calls.into_iter().map(keep).collect()
}

#[test]
fn a_pass_issues_the_waits_and_records_of_its_schedule() {
    let lab = Lab::new();
    let mut pool = Relay::allocate(&lab.cuda).unwrap();
    // The first is cudarc's, at a context's first stream; the second lets the arena be zeroed.
    assert_eq!(lab.calls(), ["idle", "alloc m1 256", "idle"]);
    pass(&lab, &mut pool).unwrap();
    let first = lab.calls();
    assert_eq!(
        first,
        [
            "launch s1 k full m1+0",
            "record e3 s1",
            "wait s2 e3",
            "launch s2 k full m1+0",
            "record e4 s2",
        ]
    );
    pass(&lab, &mut pool).unwrap();
    let second = lab.calls();
    assert_eq!(second[0], "wait s1 e4", "the write comes after the read of the pass before");
    assert_eq!(second[1..], first);
}

#[test]
fn a_pool_waits_for_the_device_before_its_arena_is_freed() {
    let lab = Lab::new();
    let mut pool = Relay::allocate(&lab.cuda).unwrap();
    pass(&lab, &mut pool).unwrap();
    lab.calls();
    drop(pool);
    let calls = lab.calls();
    let at = |call: &str| calls.iter().position(|it| it == call).unwrap();
    assert!(at("idle") < at("free m1+0"), "{calls:?}");
}

#[test]
fn a_block_of_a_live_range_is_given_back_behind_all_streams_that_used_it() {
    let lab = Lab::new();
    let mut pool = Relay::allocate_with(&lab.cuda, Backing::PerCall).unwrap();
    pass(&lab, &mut pool).unwrap();
    lab.calls();
    pass(&lab, &mut pool).unwrap();
    let calls = without_events(lab.calls());
    let retired = calls.iter().position(|it| it == "free m1+0 on s1").unwrap();
    assert_eq!(calls[..retired], ["wait s1", "alloc m2 256 on s1", "record s2", "wait s1"]);
    // What cannot be joined is not freed there, but once the device is idle.
    lab.calls();
    lab.fail("record", 0);
    assert!(pass(&lab, &mut pool).is_err());
    let calls = lab.calls();
    let idle = calls.iter().position(|it| it == "idle").unwrap();
    assert_eq!(calls[idle + 1], "free m2+0", "{calls:?}");
}

#[test]
fn barriers_fence_the_edges_of_a_capture_and_of_a_replay() {
    let lab = Lab::new();
    let mut pool = Relay::allocate(&lab.cuda).unwrap();
    pass(&lab, &mut pool).unwrap();
    lab.calls();
    let graph = capture(&lab, &mut pool);
    let calls = without_events(lab.calls());
    let join = ["record s2", "wait s1"];
    let fork = ["record s1", "wait s2"];
    let work =
        ["launch s1 k full m1+0", "record s1", "wait s2", "launch s2 k full m1+0", "record s2"];
    let expected: Vec<_> =
        [&join[..], &fork, &["begin s1"], &fork, &work, &join, &["end s1 g1"]].concat();
    assert_eq!(calls, expected);
    graph.replay(0).unwrap();
    assert_eq!(without_events(lab.calls()), [&join[..], &["replay g1 s1"], &fork].concat());
}

#[test]
fn where_a_replay_cannot_be_fenced_behind_the_host_waits() {
    let lab = Lab::new();
    let mut pool = Relay::allocate(&lab.cuda).unwrap();
    let graph = capture(&lab, &mut pool);
    lab.calls();
    // One wait joins, the other forks.
    lab.fail("wait", 1);
    assert!(graph.replay(0).is_err());
    assert_eq!(lab.calls().last().unwrap(), "sync s1");
}

#[test]
fn waits_across_the_edge_of_a_capture_are_left_to_its_barriers() {
    let lab = Lab::new();
    let mut pool = Relay::allocate(&lab.cuda).unwrap();
    pass(&lab, &mut pool).unwrap();
    // Neither waits inside for what was recorded before, nor afterwards for what was recorded inside:
    // the driver refuses both.
    let first = capture(&lab, &mut pool);
    let second = capture(&lab, &mut pool);
    lab.calls();
    pass(&lab, &mut pool).unwrap();
    assert_eq!(lab.calls()[0], "launch s1 k full m1+0", "no wait for an event of the capture");
    pass(&lab, &mut pool).unwrap();
    assert!(lab.calls()[0].starts_with("wait s1"), "eager again");
    drop((first, second));
}

#[test]
fn a_graph_keeps_what_it_was_captured_with() {
    let lab = Lab::new();
    let mut pool = Relay::allocate(&lab.cuda).unwrap();
    let graph = capture(&lab, &mut pool);
    drop(pool);
    lab.calls();
    graph.replay(0).unwrap();
    assert!(lab.calls().iter().all(|call| !call.starts_with("free")));
    drop(graph);
    let calls = lab.calls();
    let at = |start: &str| calls.iter().position(|it| it.starts_with(start)).unwrap();
    assert!(at("sync s1") < at("destroy g1"), "a graph that runs is waited for: {calls:?}");
    assert!(at("idle") < at("free m1"), "{calls:?}");
}

#[test]
fn a_block_dropped_during_a_capture_is_freed_after_it() {
    let lab = Lab::new();
    let mut pool = Relay::allocate(&lab.cuda).unwrap();
    let other = lab.cuda.allocate(64, 64).unwrap();
    let streams = pool.begin().unwrap().streams().to_vec();
    let capture = lab.cuda.capture(&streams, 0, CaptureMode::Relaxed).unwrap();
    lab.calls();
    drop(other);
    assert_eq!(lab.calls(), [""; 0], "the driver would break the capture");
    let graph = capture.end().unwrap();
    let calls = lab.calls();
    assert_eq!(calls[calls.len() - 2..], ["idle", "free m2+0"]);
    drop(graph);
}

/// A launch in a step, if asked for.
fn step<T: Element>(
    lab: &Lab,
    on: &Stream,
    view: ViewMut<'_, T, scratchpool::cuda::Cuda, 1>,
    launch: bool,
) {
    if launch {
        lab.launch(on, &view).unwrap();
    }
}

#[test]
fn what_an_empty_step_would_have_ordered_the_next_launch_orders() {
    let lab = Lab::new();
    let mut pool = Kinds::allocate(&lab.cuda).unwrap();
    let mut run = |launches: [bool; 3]| {
        let mut pass = pool.begin().unwrap();
        let mut layer = pass.layer(0).unwrap();
        lab.calls();
        let mut full = layer.full().unwrap();
        let on = full.stream();
        step(&lab, on, full.buffers().x, launches[0]);
        drop(full);
        let mut dependent = layer.dependent().unwrap();
        let on = dependent.stream();
        if launches[1] {
            lab.launch(on, &dependent.buffers().x).unwrap();
        }
        drop(dependent);
        let mut early = layer.early().unwrap();
        let on = early.stream();
        step(&lab, on, early.buffers().y, launches[2]);
        drop(early);
        // The pass's last step is full and empty: it owes the next pass.
        lab.kinds()
    };
    let (full, programmatic) = ("full", "programmatic");
    assert_eq!(run([true; 3]), [full, programmatic, programmatic]);
    assert_eq!(run([false, true, true]), [full, programmatic], "behind an empty full step");
    assert_eq!(run([true, false, true]), [full, full], "early behind an empty dependent step");
    assert_eq!(run([true, true, false]), [full, programmatic]);
    assert_eq!(run([false, false, true]), [full], "behind both");
}

#[test]
fn a_launch_that_fails_leaves_its_place_to_the_next() {
    let lab = Lab::new();
    let mut pool = Kinds::allocate(&lab.cuda).unwrap();
    let mut pass = pool.begin().unwrap();
    let mut layer = pass.layer(0).unwrap();
    let mut full = layer.full().unwrap();
    let on = full.stream();
    lab.fail("launch", 0);
    assert!(lab.launch(on, &full.buffers().x).is_err());
    drop(full);
    lab.calls();
    let mut dependent = layer.dependent().unwrap();
    let on = dependent.stream();
    lab.launch(on, &dependent.buffers().x).unwrap();
    assert_eq!(lab.kinds(), ["full"]);
}
