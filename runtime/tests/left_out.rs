//! What is left out changes nothing: the same work, given to a device that says what its streams were
//! given and to one that does not, is ordered alike, pair by pair.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    dead_code,
    missing_docs,
    reason = "a test fails by panicking"
)]

mod common;

use std::marker::PhantomData;

use common::ledger::{Lane, Ledger, Set};
use scratchpool::generated::{Plan, PoolCore};
use scratchpool::tables::{Launch, ScheduleTable};
use scratchpool::{Backing, MemoryReport, scratch_pool};

/// Numbers of one sequence: splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True `per_cent` times in a hundred.
    fn says(&mut self, per_cent: usize) -> bool {
        self.below(100) < per_cent
    }
}

/// A schedule that the macro proved, without its buffers' memory.
trait Proved: 'static {
    const TABLE: &'static ScheduleTable;
    const BUFFERS: usize;
}

struct Bare<T>(PhantomData<T>);

// SAFETY: no view is made of these buffers: each is of no bytes.
unsafe impl<T: Proved> Plan for Bare<T> {
    const SCHEDULE: &'static ScheduleTable = T::TABLE;
    const BUFFERS: usize = T::BUFFERS;

    fn max_rows(&self) -> usize {
        16
    }

    fn memory(&self) -> MemoryReport {
        MemoryReport { pool: "Bare", copies: 1, bytes_per_copy: 0, base_align: 1, sum_bytes: 0 }
    }

    fn tensor_bytes(&self, _: usize, _: usize) -> u64 {
        0
    }
}

/// What a run does, besides walking.
#[derive(Clone, Copy, Debug)]
struct Habits {
    /// Of a hundred steps, how many launch something.
    busy: usize,
    /// Of a hundred layers and steps, how many are not asked for.
    skipped: usize,
    /// Of a hundred steps, before how many something is launched on some stream.
    outside: usize,
    /// Of a hundred passes, before how many some stream is exposed.
    exposed: usize,
    /// Whether a second pool shares the streams, in another order.
    shared: bool,
}

/// Walks some passes. The choices are a function of the seed alone.
fn run<T: Proved>(ledger: &Ledger, habits: Habits, seed: u64) {
    let mut dice = Dice(seed);
    let new = || PoolCore::<_, Bare<T>>::new(ledger, Bare(PhantomData), Backing::Arena).unwrap();
    let mut pool = new();
    let streams: Vec<Lane> = pool.begin(0).unwrap().streams().to_vec();
    let mut other = habits.shared.then(|| {
        let turned = streams.iter().cycle().skip(1).take(streams.len()).cloned().collect();
        let plan = Bare::<T>(PhantomData);
        PoolCore::<_, _>::with_streams(ledger, plan, Backing::Arena, [turned]).unwrap()
    });
    for _ in 0..4 {
        if dice.says(habits.exposed) {
            streams[dice.below(streams.len())].expose();
        }
        for pool in std::iter::once(&mut pool).chain(other.as_mut()) {
            let mut pass = pool.begin(dice.below(17)).unwrap();
            for layer in 0..T::TABLE.layers.len() {
                if dice.says(habits.skipped / 2) {
                    continue;
                }
                let mut layer = pass.layer(layer).unwrap();
                for step in 0..T::TABLE.steps.len() {
                    if dice.says(habits.outside) {
                        ledger.launch(&streams[dice.below(streams.len())]);
                    }
                    if dice.says(habits.skipped) {
                        continue;
                    }
                    let Some(step) = layer.step(step).unwrap() else { continue };
                    if dice.says(habits.busy) {
                        (0..=dice.below(2)).for_each(|_| ledger.launch(step.stream()));
                    }
                }
            }
            pass.finish().unwrap();
        }
    }
    for stream in &streams {
        ledger.launch(stream);
    }
}

/// Orders and calls, with every call issued and with those left out that would change nothing.
fn both<T: Proved>(habits: Habits, seed: u64) -> [(Vec<Set>, (usize, usize)); 2] {
    [false, true].map(|sees| {
        let ledger = Ledger::new(sees);
        run::<T>(&ledger, habits, seed);
        (ledger.order(), ledger.calls())
    })
}

fn compare<T: Proved>() {
    let mut left_out = 0;
    for seed in 0..1000 {
        let mut dice = Dice(seed ^ 0x5eed);
        let habits = Habits {
            busy: [5, 20, 50, 100][dice.below(4)],
            skipped: [0, 0, 20, 60][dice.below(4)],
            outside: [0, 0, 10, 30][dice.below(4)],
            exposed: [0, 0, 30][dice.below(3)],
            shared: dice.says(30),
        };
        let [(all, issued), (some, fewer)] = both::<T>(habits, seed);
        assert!(all.len() == some.len(), "the runs differ");
        for (node, (all, some)) in all.iter().zip(&some).enumerate() {
            assert_eq!(all, some, "node {node} under {habits:?}, seed {seed}");
        }
        assert!(fewer.0 <= issued.0 && fewer.1 <= issued.1, "{habits:?}, seed {seed}");
        left_out += issued.0 + issued.1 - fewer.0 - fewer.1;
    }
    assert!(left_out > 0, "nothing was ever left out");
}

/// The waits and records of a pass that launches nothing, once its streams and events are known.
fn idle_calls<T: Proved>(ledger: &Ledger) -> (usize, usize) {
    let plan = Bare::<T>(PhantomData);
    let mut pool = PoolCore::<_, _>::new(ledger, plan, Backing::Arena).unwrap();
    let mut before = (0, 0);
    for _ in 0..4 {
        before = ledger.calls();
        pool.begin(1).unwrap().finish().unwrap();
    }
    let after = ledger.calls();
    (after.0 - before.0, after.1 - before.1)
}

fn idle<T: Proved>() {
    let (waits, records) = idle_calls::<T>(&Ledger::new(false));
    assert!(waits > 0 && records > 0);
    // Only full steps come after all that their stream holds, and need not wait again.
    let kinds = || T::TABLE.kinds.iter().flat_map(|kind| kind.steps.iter().zip(T::TABLE.steps));
    let waits_always = kinds()
        .any(|(here, step)| here.runs && !here.waits.is_empty() && step.launch != Launch::Full);
    let (waits, records) = idle_calls::<T>(&Ledger::new(true));
    assert_eq!((waits > 0, records), (waits_always, 0));
}

/// Makes both tests of each pool.
macro_rules! pools {
    ($($alike:ident $idle:ident: $pool:ident $module:ident $buffers:literal;)*) => {$(
        impl Proved for $pool<Ledger> {
            const TABLE: &'static ScheduleTable = &$module::SCHEDULE;
            const BUFFERS: usize = $buffers;
        }

        #[test]
        fn $alike() {
            compare::<$pool<Ledger>>();
        }

        #[test]
        fn $idle() {
            idle::<$pool<Ledger>>();
        }
    )*};
}

/// A step that waits for the run before the latest, so that events alternate.
#[scratch_pool(layers(compress_ratio = [0, 0, 0]))]
#[step(t, on = side, after(prev.late, prev.now), writes(a))]
#[step(late, on = third, after(prev.t))]
#[step(now, after(t), reads(a))]
struct BothRuns {
    #[group(a)]
    #[shape(256)]
    a: u8,
}

/// Steps of some layers, with waits across those where they do not run.
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

/// Dependent and early launches, also of steps that wait.
#[scratch_pool(layers(compress_ratio = [0, 0]))]
#[step(w, after(prev.rb, prev.far), launch = dependent, writes(a))]
#[step(r, launch = dependent, reads(a))]
#[step(mid, after(prev.far), launch = early)]
#[step(wb, on = side, after(r), launch = dependent, writes(b))]
#[step(rb, on = side, launch = dependent, reads(b))]
#[step(far, on = third, after(w, rb), launch = early)]
#[step(last, on = third, after(mid))]
struct Programmatic {
    #[group(a)]
    #[shape(256)]
    a: u8,
    #[group(b)]
    #[shape(256)]
    b: u8,
}

/// An early and a dependent step whose order with their own stream comes by way of another one.
#[scratch_pool(layers(compress_ratio = [0, 0]))]
#[step(k, writes(a))]
#[step(x, on = side, after(k))]
#[step(e, after(x), launch = early)]
#[step(y, on = side, after(e))]
#[step(m, launch = early)]
#[step(n, after(y), launch = dependent, reads(a))]
struct RoundAbout {
    #[group(a)]
    #[shape(256)]
    a: u8,
}

/// Three streams that meet.
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

/// Five streams, each handing on to others.
#[scratch_pool(layers(compress_ratio = [0, 1, 0]))]
#[step(a, writes(x))]
#[step(b, on = s1, after(a))]
#[step(c, on = s2, after(b, prev.f))]
#[step(d, on = s3, when = compress_ratio == 0, after(c, prev.a))]
#[step(e, on = s4, after(d, prev.b))]
#[step(f, on = s1, after(c, e, prev.d))]
#[step(g, on = s2, when = compress_ratio == 1, after(f))]
#[step(h, after(e, g, f), reads(x))]
struct Mesh {
    #[group(x)]
    #[shape(256)]
    x: u8,
}

/// The model that all this is for.
#[scratch_pool(layers(compress_ratio = [0, 4, 128, 4, 128]))]
#[step(fork)]
#[step(index_q, on = aux0, when = compress_ratio == 4, after(fork), writes(indexer))]
#[step(index_topk, on = aux0, when = compress_ratio == 4, reads(indexer))]
#[step(compress, on = aux1, when = compress_ratio == 128, after(fork), writes(compressor))]
#[step(q_proj, writes(q))]
#[step(join, after(index_topk, compress))]
#[step(global_topk, when = compress_ratio == 4, writes(topk))]
#[step(attention, reads(q, topk))]
#[group(indexer, when = compress_ratio == 4)]
#[group(topk, when = compress_ratio == 4)]
#[group(compressor, when = compress_ratio == 128)]
struct Model {
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

pools! {
    alternating_events_order_alike alternating_events_idle: BothRuns both_runs 1;
    steps_of_some_layers_order_alike steps_of_some_layers_idle: OverLayers over_layers 2;
    programmatic_launches_order_alike programmatic_launches_idle: Programmatic programmatic 2;
    a_way_round_an_early_launch_orders_alike a_way_round_an_early_launch_idle: RoundAbout round_about 1;
    three_streams_order_alike three_streams_idle: Diamond diamond 3;
    five_streams_order_alike five_streams_idle: Mesh mesh 1;
    a_model_orders_alike a_model_idle: Model model 4;
}

/// A busy main stream beside idle ones: the fork is recorded and waited for, the join is not.
#[test]
fn a_layer_whose_side_steps_launch_nothing_costs_its_fork() {
    let ledger = Ledger::new(true);
    let plan = Bare::<Model<Ledger>>(PhantomData);
    let mut pool = PoolCore::<_, _>::new(&ledger, plan, Backing::Arena).unwrap();
    let pass = |pool: &mut PoolCore<_, _>| {
        let before = ledger.calls();
        let mut pass = pool.begin(1).unwrap();
        let mut layer = pass.layer(1).unwrap();
        ledger.launch(layer.step(0).unwrap().unwrap().stream());
        drop(layer);
        pass.finish().unwrap();
        let after = ledger.calls();
        (after.0 - before.0, after.1 - before.1)
    };
    pass(&mut pool);
    // The fork is recorded once. In layer 1 aux0 waits for it and passes that on by an event of its
    // own, which tells main nothing new; in layer 2 so does aux1; layers 3 and 4 repeat the two.
    assert_eq!(pass(&mut pool), (2, 3));
}

/// What failed is not taken for issued: the next pass waits for all, and starts anew.
#[test]
fn after_a_failure_all_is_ordered_again() {
    for calls in 0..20 {
        let ledger = Ledger::new(true);
        let plan = Bare::<Diamond<Ledger>>(PhantomData);
        let mut pool = PoolCore::<_, _>::new(&ledger, plan, Backing::Arena).unwrap();
        let mut failed = 0;
        let mut since = 0;
        for round in 0..6 {
            if round == 2 {
                ledger.fail.set(Some(calls));
            }
            let Ok(mut pass) = pool.begin(1) else {
                failed += 1;
                continue;
            };
            let launched = ledger.order().len();
            let mut whole = true;
            for layer in 0..2 {
                let Ok(mut layer) = pass.layer(layer) else {
                    whole = false;
                    break;
                };
                for step in 0..4 {
                    match layer.step(step) {
                        Ok(Some(step)) => ledger.launch(step.stream()),
                        Ok(None) => panic!("every step runs"),
                        Err(_) => whole = false,
                    }
                }
            }
            whole &= pass.finish().is_ok();
            failed += usize::from(!whole);
            if whole {
                since += 1;
                let order = ledger.order();
                // fork, left, right, join of two layers: each join comes after both sides.
                for first in [launched, launched + 4] {
                    let join = &order[first + 3];
                    assert!((first..first + 3).all(|node| join.contains(node)), "{order:?}");
                    let sides = [&order[first + 1], &order[first + 2]];
                    assert!(sides.iter().all(|side| side.contains(first)), "{order:?}");
                }
            }
        }
        assert!((1..=2).contains(&failed) && since >= 4, "{calls}: {failed} failed, {since} whole");
    }
}
