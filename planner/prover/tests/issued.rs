//! The runtime's own log, executed in every order: what a pool issues is ordered as declared, no wait of it is implied
//! by the others, and without a wait that the report marks as needed some order corrupts the pool.
//!
//! A device writes down the calls that it gets from pools that the macro made. Nothing of the schedule is asked when the
//! log becomes a program but which step a call is, by the table that the runtime walks. The random schedules of
//! `prove.rs` do the same with the calls that an issue plan stands for; here the runtime makes them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::undocumented_unsafe_blocks,
    missing_docs
)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use scratchpool::tables::{Launch, LayoutTable, ScheduleTable};
use scratchpool::{Device, Error, Progress, StreamUser, scratch_pool};
use scratchpool_planner::plan::plan;
use scratchpool_prover::PASSES;
use scratchpool_prover::declared::Declared;
use scratchpool_prover::issue::{Call, Issued, calls, program};
use scratchpool_prover::machine::explore;
use scratchpool_prover::memory::corruption;
use scratchpool_prover::program::Program;

/// A device that executes nothing and keeps the calls that order work.
#[derive(Clone, Debug, Default)]
struct Log {
    calls: Rc<RefCell<Vec<Call>>>,
    streams: Rc<Cell<usize>>,
    events: Rc<Cell<usize>>,
    open: Rc<Cell<Option<usize>>>,
}

fn next(counter: &Cell<usize>) -> usize {
    counter.replace(counter.get() + 1)
}

// SAFETY: blocks are vectors that live until dropped, padded so that an aligned address is found inside; nothing is
// executed in them.
unsafe impl Device for Log {
    type Memory = Vec<u8>;
    type Stream = usize;
    type Event = usize;

    fn allocate(&self, bytes: u64, _: u64) -> Result<Vec<u8>, Error> {
        Ok(vec![0; usize::try_from(bytes).unwrap() + 4096])
    }

    fn adopt(&self, _: &[usize], _: &Vec<u8>) {}

    fn base(memory: &Vec<u8>) -> *mut u8 {
        let start = memory.as_ptr().cast_mut();
        start.wrapping_add(start.align_offset(4096))
    }

    fn create_stream(&self, _: &'static str) -> Result<usize, Error> {
        Ok(next(&self.streams))
    }

    fn owns(&self, _: &Self::Stream) -> bool {
        true
    }

    fn create_event(&self) -> Result<usize, Error> {
        Ok(next(&self.events))
    }

    fn record(&self, &stream: &usize, &event: &usize) -> Result<(), Error> {
        assert_eq!(self.open.get(), None);
        self.calls.borrow_mut().push(Call::Record { stream, event });
        Ok(())
    }

    fn wait(&self, &stream: &usize, &event: &usize) -> Result<(), Error> {
        assert_eq!(self.open.get(), None, "a wait inside a step");
        self.calls.borrow_mut().push(Call::Wait { stream, event });
        Ok(())
    }

    unsafe fn enter_step(&self, &stream: &usize, launch: Launch) -> Result<(), Error> {
        assert_eq!(self.open.replace(Some(stream)), None);
        self.calls.borrow_mut().push(Call::Step { stream, launch });
        Ok(())
    }

    fn leave_step(&self, &stream: &usize) -> Result<(), Error> {
        assert_eq!(self.open.replace(None), Some(stream));
        Ok(())
    }

    fn take_turn(&self, _: &usize, _: StreamUser) -> bool {
        // One pool, whose streams these are.
        true
    }

    fn follow(&self, _: &[usize], _: &Progress) {}

    fn synchronize(&self) -> Result<(), Error> {
        Ok(())
    }

    unsafe fn read_bytes(&self, _: &usize, _: *const u8, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    unsafe fn write_bytes(&self, _: &usize, _: *mut u8, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

/// The steps that run, in the order of issue, by the runtime's table.
fn steps(table: &ScheduleTable, passes: usize) -> Vec<Issued> {
    let mut steps = Vec::new();
    for pass in 0..passes {
        for (layer, &kind) in table.layers.iter().enumerate() {
            let kind = &table.kinds[usize::from(kind)];
            for (step, (row, here)) in table.steps.iter().zip(kind.steps).enumerate() {
                if !here.runs {
                    continue;
                }
                let of = |list: &[u16], write: bool| {
                    let exists = list.iter().map(|&buffer| usize::from(buffer));
                    let exists = exists.filter(|&buffer| kind.buffers[buffer]);
                    exists.map(|buffer| (buffer, write)).collect::<Vec<_>>()
                };
                let mut accesses = of(row.writes, true);
                accesses.extend(of(row.reads, false));
                accesses.sort_unstable();
                steps.push(Issued { pass, layer, step, accesses });
            }
        }
    }
    steps
}

/// What is true of every log: see the top. `declared` is the pool's declaration once more.
fn check(declared: &Declared, table: &ScheduleTable, layout: &LayoutTable, log: &[Call]) {
    let steps = steps(table, PASSES);
    let buffers = layout.buffers.len();
    let bytes = layout.buffers.iter().map(|each| each.offset..each.offset + each.bytes).collect();
    let meant = Program::new(declared, PASSES);
    let wanted = explore(&meant);
    assert!(wanted.complete);
    let streams = table.streams.len();
    let issued = program(streams, buffers, log, steps.clone());
    let names: Vec<_> = issued.nodes.iter().map(|node| (node.layer, node.step)).collect();
    let meant_names: Vec<_> = meant.nodes.iter().map(|node| (node.layer, node.step)).collect();
    assert_eq!(names, meant_names);
    for (issued, meant) in issued.nodes.iter().zip(&meant.nodes) {
        assert_eq!((&issued.accesses, issued.launch), (&meant.accesses, meant.launch));
    }
    let reach = explore(&issued);
    assert!(reach.same_order(&wanted), "what is issued is ordered as declared");
    assert_eq!(corruption(&issued, &reach, &bytes), None);

    // Each wait call of a pass, left out in every pass.
    let per_pass = log.len() / PASSES;
    let first_of_last = log.len() - per_pass;
    for (at, call) in log.iter().enumerate().skip(first_of_last) {
        if matches!(call, Call::Wait { .. }) {
            let mut without = log.to_vec();
            without.remove(at);
            let weaker = explore(&program(streams, buffers, &without, steps.clone()));
            assert!(!weaker.same_order(&reach), "call {at} of {log:?} is implied");
        }
    }

    // The calls are those that the issue plan stands for, so what `prover::waits` finds of the one holds for the other.
    let planned = plan(&declared.spec()).unwrap();
    let (stood_for, _) = calls(declared, &planned.explain().issue_plan(), PASSES, &|_| false);
    let plain =
        |calls: &[Call]| calls.iter().filter(|call| !matches!(call, Call::Record { .. })).count();
    assert_eq!(plain(log), plain(&stood_for));
    scratchpool_prover::waits::check(declared, &planned).unwrap();
}

/// Declares a pool in the Rust spelling and in that of the explorer, runs three passes, and checks the log.
macro_rules! pools {
    ($($test:ident $pool:ident $module:ident: $layers:expr, $groups:expr, $steps:literal;)*) => {$(
        #[test]
        fn $test() {
            let log = Log::default();
            let mut pool = $pool::allocate(&log).unwrap();
            for _ in 0..PASSES {
                drop(pool.begin().unwrap());
            }
            let declared = Declared::new(&$layers, &$groups, $steps);
            let calls = log.calls.borrow();
            check(&declared, &$module::SCHEDULE, &$module::LAYOUT, &calls);
        }
    )*};
}

#[scratch_pool(layers(compress_ratio = [0, 0]))]
#[step(write, on = side, after(prev.read), writes(a))]
#[step(read, after(write), reads(a))]
struct Relay {
    #[group(a)]
    #[shape(256)]
    a: u8,
}

#[scratch_pool(layers(compress_ratio = [0, 0]))]
#[step(t, on = side, writes(a))]
#[step(u, after(prev.t), writes(b))]
#[step(v, reads(b))]
struct RunBefore {
    #[group(a)]
    #[shape(256)]
    a: u8,
    #[group(b)]
    #[shape(256)]
    b: u8,
}

#[scratch_pool(layers(compress_ratio = [0, 0, 0]))]
#[step(t, on = side, after(prev.late, prev.now), writes(a))]
#[step(late, on = third, after(prev.t))]
#[step(now, after(t), reads(a))]
struct BothRuns {
    #[group(a)]
    #[shape(256)]
    a: u8,
}

#[scratch_pool(layers(compress_ratio = [1, 2, 2, 1]))]
#[step(fill, on = side, when = compress_ratio == 1, after(prev.use_a, prev.drain), writes(a))]
#[step(use_a, when = compress_ratio == 1, after(fill), reads(a))]
#[step(other, on = side, when = compress_ratio == 2, after(prev.drain, prev.use_a), writes(b))]
#[step(drain, when = compress_ratio == 2, after(other), reads(b))]
#[group(a, when = compress_ratio == 1)]
#[group(b, when = compress_ratio == 2)]
struct OverLayers {
    #[group(a)]
    #[shape(256)]
    a: u8,
    #[group(b)]
    #[shape(256)]
    b: u8,
}

#[scratch_pool(layers(compress_ratio = [0, 0]))]
#[step(w, after(prev.rb), launch = dependent, writes(a))]
#[step(r, launch = dependent, reads(a))]
#[step(mid, launch = early)]
#[step(wb, on = side, after(r), launch = dependent, writes(b))]
#[step(rb, on = side, launch = dependent, reads(b))]
struct Programmatic {
    #[group(a)]
    #[shape(256)]
    a: u8,
    #[group(b)]
    #[shape(256)]
    b: u8,
}

#[scratch_pool(layers(compress_ratio = [1, 2]))]
#[step(w, after(prev.join), writes(a))]
#[step(ahead, launch = early)]
#[step(rs, on = side, after(w), writes(b), reads(a))]
#[step(join, after(rs), reads(b))]
#[group(a)]
#[group(b, when = compress_ratio == 2)]
struct EarlyJoin {
    #[group(a)]
    #[shape(256)]
    a: u8,
    #[group(b)]
    #[shape(256)]
    b: u8,
}

#[scratch_pool(layers(compress_ratio = [0, 0]))]
#[step(fork, writes(a))]
#[step(left, on = one, after(fork, prev.join), writes(b), reads(a))]
#[step(right, on = two, after(fork, prev.left), writes(c), reads(a))]
#[step(join, after(left, right, fork), reads(b, c))]
struct Diamond {
    #[group(a)]
    #[shape(256)]
    a: u8,
    #[group(b)]
    #[shape(256)]
    b: u8,
    #[group(c)]
    #[shape(256)]
    c: u8,
}

#[scratch_pool(layers(compress_ratio = [0, 0, 4, 128, 4, 128, 4]))]
#[step(start)]
#[step(index_q, on = aux0, when = compress_ratio == 4, after(start), writes(indexer))]
#[step(index_topk, on = aux0, when = compress_ratio == 4, reads(indexer))]
#[step(compress, on = aux0, when = compress_ratio == 128, after(start), writes(compressor))]
#[step(store, on = aux0, when = compress_ratio == 128, reads(compressor))]
#[step(q_proj, writes(q))]
#[step(join, after(index_topk, store))]
#[step(map, when = compress_ratio == 4, writes(topk))]
#[step(attention, reads(q, topk))]
#[group(q)]
#[group(indexer, when = compress_ratio == 4)]
#[group(topk, when = compress_ratio == 4)]
#[group(compressor, when = compress_ratio == 128)]
struct Published {
    #[group(q)]
    #[shape(256)]
    q: u8,
    #[group(indexer)]
    #[shape(256)]
    indexer: u8,
    #[group(topk)]
    #[shape(256)]
    topk: u8,
    #[group(compressor)]
    #[shape(256)]
    compressor: u8,
}

#[scratch_pool(layers(compress_ratio = [0, 0, 0]))]
#[step(wa, writes(a))]
#[step(ra, after(wa), writes(b), reads(a))]
#[step(rb, after(prev.wa), reads(b))]
struct OneStream {
    #[group(a)]
    #[shape(256)]
    a: u8,
    #[group(b)]
    #[shape(256)]
    b: u8,
}

#[scratch_pool(layers(compress_ratio = [1, 2]))]
#[step(t, on = side, writes(a))]
#[step(u, when = compress_ratio == 2, after(prev.t), writes(b))]
struct Between {
    #[group(a)]
    #[shape(256)]
    a: u8,
    #[group(b)]
    #[shape(256)]
    b: u8,
}

pools! {
    a_value_handed_to_a_side_stream_and_back Relay relay: [0, 0], [("a", None, 256)], "
        write side > prev.read + a
        read main > write - a
    ";
    a_wait_for_the_run_before_the_latest RunBefore run_before: [0, 0], [("a", None, 256), ("b", None, 256)], "
        t side + a
        u main > prev.t + b
        v main - b
    ";
    a_run_that_nobody_waits_for_counts_between_two_that_are Between between: [1, 2], [("a", None, 256), ("b", None, 256)], "
        t side + a
        u main == 2 > prev.t + b
    ";
    both_runs_of_a_step_are_waited_for BothRuns both_runs: [0, 0, 0], [("a", None, 256)], "
        t side > prev.late > prev.now + a
        late third > prev.t
        now main > t - a
    ";
    waits_over_layers_in_which_the_source_does_not_run OverLayers over_layers: [1, 2, 2, 1], [("a", Some(1), 256), ("b", Some(2), 256)], "
        fill side == 1 > prev.use_a > prev.drain + a
        use_a main == 1 > fill - a
        other side == 2 > prev.drain > prev.use_a + b
        drain main == 2 > other - b
    ";
    programmatic_launches_with_events Programmatic programmatic: [0, 0], [("a", None, 256), ("b", None, 256)], "
        w main dependent > prev.rb + a
        r main dependent - a
        mid main early
        wb side dependent > r + b
        rb side dependent - b
    ";
    early_launches_in_front_of_a_join EarlyJoin early_join: [1, 2], [("a", None, 256), ("b", Some(2), 256)], "
        w main > prev.join + a
        ahead main early
        rs side > w + b - a
        join main > rs - b
    ";
    a_diamond_with_waits_that_others_imply Diamond diamond: [0, 0], [("a", None, 256), ("b", None, 256), ("c", None, 256)], "
        fork main + a
        left one > fork > prev.join + b - a
        right two > fork > prev.left + c - a
        join main > left > right > fork - b - c
    ";
    the_published_schedule_in_small Published published: [0, 0, 4, 128, 4, 128, 4], [("q", None, 256), ("indexer", Some(4), 256), ("topk", Some(4), 256), ("compressor", Some(128), 256)], "
        start main
        index_q aux0 == 4 > start + indexer
        index_topk aux0 == 4 - indexer
        compress aux0 == 128 > start + compressor
        store aux0 == 128 - compressor
        q_proj main + q
        join main > index_topk > store
        map main == 4 + topk
        attention main - q - topk
    ";
    one_stream_needs_no_waits OneStream one_stream: [0, 0, 0], [("a", None, 256), ("b", None, 256)], "
        wa main + a
        ra main > wa + b - a
        rb main > prev.wa - b
    ";
}
