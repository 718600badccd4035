//! What safe code may try: each attack, and what the device answers.

use std::sync::Arc;

use scratchpool::cuda::{CaptureMode, Cuda, CudaError};
use scratchpool::{Backing, Device, Error, scratch_pool};

use crate::Lab;

/// A value written in full and read by a dependent kernel.
#[scratch_pool]
#[step(write, writes(x))]
#[step(read, launch = dependent, reads(x))]
pub struct Handed {
    #[group(x)]
    #[shape(64)]
    pub x: u32,
}

/// A step that does not wait for the kernel in front of it.
#[scratch_pool]
#[step(ahead, launch = early, after(prev.done), writes(z))]
#[step(done, on = side, after(ahead), reads(z))]
pub struct Ahead {
    #[group(z)]
    #[shape(64)]
    pub z: u32,
}

/// Two streams that have nothing to do with one another.
#[scratch_pool]
#[step(write, writes(x))]
#[step(read, reads(x))]
#[step(write_y, on = side, writes(y))]
#[step(read_y, on = side, reads(y))]
pub struct Pair {
    #[group(x)]
    #[shape(64)]
    pub x: u32,
    #[group(y)]
    #[shape(64)]
    pub y: u32,
}

/// The same on one stream, with a second value over the bytes of the first.
#[scratch_pool]
#[step(write, writes(x))]
#[step(read, reads(x))]
#[step(write_y, writes(y))]
#[step(read_y, reads(y))]
pub struct Alone {
    #[group(x)]
    #[shape(64)]
    pub x: u32,
    #[group(y)]
    #[shape(64)]
    pub y: u32,
}

#[test]
fn a_dependent_launch_behind_another_pools_launch_is_full() {
    let lab = Lab::new();
    let stream = lab.cuda.create_stream("shared").unwrap();
    let mut a = Handed::with_streams(&lab.cuda, Backing::Arena, [[stream.clone()]]).unwrap();
    let side = lab.cuda.create_stream("side").unwrap();
    let mut b = Ahead::with_streams(&lab.cuda, Backing::Arena, [[stream, side]]).unwrap();
    let (mut a, mut b) = (a.begin().unwrap(), b.begin().unwrap());
    let (mut a, mut b) = (a.layer(0).unwrap(), b.layer(0).unwrap());
    lab.calls();
    let mut step = a.write().unwrap();
    let on = step.stream();
    lab.launch(on, &step.buffers().x).unwrap();
    drop(step);
    let mut step = b.ahead().unwrap();
    let on = step.stream();
    lab.launch(on, &step.buffers().z).unwrap();
    drop(step);
    let mut step = a.read().unwrap();
    let on = step.stream();
    lab.launch(on, &step.buffers().x).unwrap();
    // Nothing of the second pool is in front of its own launch; the third would wait for that one alone.
    assert_eq!(lab.kinds(), ["full", "programmatic", "full"]);
}

#[test]
fn asking_for_the_next_launch_does_not_discard_what_an_empty_step_owes() {
    let lab = Lab::new();
    let stream = lab.cuda.create_stream("s").unwrap();
    let mut pool = Handed::with_streams(&lab.cuda, Backing::Arena, [[stream]]).unwrap();
    let mut pass = pool.begin().unwrap();
    let mut layer = pass.layer(0).unwrap();
    lab.calls();
    let step = layer.write().unwrap();
    step.stream().next_launch();
    drop(step);
    let mut step = layer.read().unwrap();
    let on = step.stream();
    lab.launch(on, &step.buffers().x).unwrap();
    assert_eq!(lab.kinds(), ["full"]);
}

#[test]
fn a_programmatic_launch_behind_a_capture_or_a_replay_is_full() {
    let lab = Lab::new();
    let mut pool = Ahead::allocate(&lab.cuda).unwrap();
    let streams = pool.begin().unwrap().streams().to_vec();
    let capture = || lab.cuda.capture(&streams, 0, CaptureMode::Relaxed).unwrap();
    let mut run = |before: &dyn Fn()| {
        let mut pass = pool.begin().unwrap();
        let mut layer = pass.layer(0).unwrap();
        before();
        let mut step = layer.ahead().unwrap();
        let on = step.stream();
        lab.launch(on, &step.buffers().z).unwrap();
        lab.kinds()
    };
    run(&|| {});
    assert_eq!(run(&|| {}), ["programmatic"]);
    assert_eq!(run(&|| drop(capture())), ["full"], "behind the end of a capture");
    let graph = capture().end().unwrap();
    run(&|| {});
    assert_eq!(run(&|| graph.replay(0).unwrap()), ["full"], "behind a replay");
}

#[test]
fn a_step_of_a_pool_without_an_arena_is_not_captured() {
    let lab = Lab::new();
    let mut pool = Alone::allocate_with(&lab.cuda, Backing::PerCall).unwrap();
    let mut pass = pool.begin().unwrap();
    let streams = pass.streams().to_vec();
    let mut layer = pass.layer(0).unwrap();
    let mut step = layer.write().unwrap();
    let on = step.stream();
    lab.launch(on, &step.buffers().x).unwrap();
    drop(step);
    let capture = lab.cuda.capture(&streams, 0, CaptureMode::Relaxed).unwrap();
    let read = layer.read();
    let refused = read.err().map(|it| it.to_string());
    drop(layer);
    drop(pass);
    let graph = capture.end();
    // What happened before: the graph holds the address, and the next pass gives the block back.
    drop(pool.begin().unwrap().layer(0).unwrap().write().unwrap());
    drop(graph);
    let text = refused.expect("the step is refused");
    assert!(text.contains("PerCall") && text.contains("read"), "{text}");
}

#[test]
fn a_capture_of_some_of_a_pools_streams_gives_no_graph() {
    let lab = Lab::new();
    let mut pool = Pair::allocate(&lab.cuda).unwrap();
    let mut pass = pool.begin().unwrap();
    let main = pass.streams()[0].clone();
    let mut layer = pass.layer(0).unwrap();
    // Inside a step: its views are out already.
    let mut step = layer.write().unwrap();
    let inside = lab.cuda.capture(std::slice::from_ref(&main), 0, CaptureMode::Relaxed);
    let refused = inside.is_err();
    if let Ok(capture) = inside {
        let on = step.stream();
        lab.launch(on, &step.buffers().x).unwrap();
        let graph = capture.end().unwrap();
        graph.replay(0).unwrap();
    }
    drop(step);
    drop(layer);
    drop(pass);
    let mut pass = pool.begin().unwrap();
    // Around a step.
    let capture = lab.cuda.capture(std::slice::from_ref(&main), 0, CaptureMode::Relaxed).unwrap();
    let mut layer = pass.layer(0).unwrap();
    let mut step = layer.write().unwrap();
    let on = step.stream();
    lab.launch(on, &step.buffers().x).unwrap();
    drop(step);
    let around = capture.end();
    assert!(refused, "a capture that begins inside a step");
    assert!(around.is_err(), "a capture of one stream of two");
}

#[test]
fn a_capture_does_not_end_inside_a_step() {
    let lab = Lab::new();
    let mut pool = Alone::allocate(&lab.cuda).unwrap();
    let mut pass = pool.begin().unwrap();
    let capture = lab.cuda.capture(pass.streams(), 0, CaptureMode::Relaxed).unwrap();
    let mut layer = pass.layer(0).unwrap();
    let mut step = layer.write().unwrap();
    let on = step.stream();
    lab.launch(on, &step.buffers().x).unwrap();
    assert!(capture.end().is_err());
}

#[test]
fn a_replay_in_the_middle_of_a_pass_is_refused_unless_it_is_its_turn() {
    let lab = Lab::new();
    let mut pool = Alone::allocate(&lab.cuda).unwrap();
    let mut pass = pool.begin().unwrap();
    let streams = pass.streams().to_vec();
    let capture = lab.cuda.capture(&streams, 0, CaptureMode::Relaxed).unwrap();
    let mut layer = pass.layer(0).unwrap();
    let mut step = layer.write().unwrap();
    let on = step.stream();
    lab.launch(on, &step.buffers().x).unwrap();
    drop(step);
    drop(layer);
    pass.finish().unwrap();
    let graph = capture.end().unwrap();
    graph.replay(0).unwrap();

    let mut pass = pool.begin().unwrap();
    let mut layer = pass.layer(0).unwrap();
    drop(layer.write().unwrap());
    // The value is written, and not read yet.
    let between = graph.replay(0);
    drop(layer.read().unwrap());
    drop(layer);
    drop(pass);
    assert!(between.is_err(), "a replay between a write and its read");
    graph.replay(0).unwrap();
}

#[test]
fn two_handles_of_one_driver_stream_are_one_stream() {
    let lab = Lab::new();
    let raw = lab.cuda.context().new_stream().unwrap();
    let one = lab.cuda.stream(Arc::clone(&raw), "one").unwrap();
    let two = lab.cuda.stream(Arc::clone(&raw), "two").unwrap();
    let mut pool = Alone::with_streams(&lab.cuda, Backing::Arena, [[two]]).unwrap();
    let mut pass = pool.begin().unwrap();
    let capture = lab.cuda.capture(std::slice::from_ref(&one), 0, CaptureMode::Relaxed).unwrap();
    let mut layer = pass.layer(0).unwrap();
    let mut step = layer.write().unwrap();
    let on = step.stream();
    lab.launch(on, &step.buffers().x).unwrap();
    drop(step);
    drop(layer);
    drop(pass);
    let graph = capture.end().unwrap();
    lab.calls();
    drop(pool);
    let freed: Vec<_> = lab.calls().into_iter().filter(|call| call.starts_with("free")).collect();
    assert!(freed.is_empty(), "the graph holds what was captured: {freed:?}");
    drop(graph);
    // Another device of the same context does not get a stream that is taken.
    let other = Cuda::from_context(lab.cuda.context()).unwrap();
    assert!(other.stream(raw, "three").is_err());
}

#[test]
fn a_forgotten_capture_is_a_typed_error_from_then_on() {
    let lab = Lab::new();
    let mut pool = Alone::allocate(&lab.cuda).unwrap();
    let mut pass = pool.begin().unwrap();
    let capture = lab.cuda.capture(pass.streams(), 0, CaptureMode::Relaxed).unwrap();
    std::mem::forget(capture);
    let refused = lab.cuda.synchronize();
    assert!(matches!(refused, Err(Error::Cuda(CudaError::Capturing { .. }))));
    let again = lab.cuda.capture(pass.streams(), 0, CaptureMode::Relaxed);
    assert!(matches!(again, Err(Error::Cuda(CudaError::Capturing { .. }))));
    drop(pass.layer(0).unwrap());
}
