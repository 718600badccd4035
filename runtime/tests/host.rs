//! The host device: random orders keep what streams, events and launch kinds promise, and break
//! what they do not.

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

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use common::EagerScratch;
use common::deaf::Deaf;
use common::toy::{Toy, Toys, X, Y};
use scratchpool::generated::PoolCore;
use scratchpool::tables::Launch;
use scratchpool::{Backing, Device, Error, Host, HostStream};

const SEEDS: std::ops::Range<u64> = 0..200;

/// Counts what a reader found to be another's value.
#[derive(Clone, Default)]
struct Wrong(Rc<Cell<usize>>);

impl Wrong {
    fn check<T: PartialEq>(&self, found: &[T], expected: &T) {
        let wrong = found.iter().filter(|it| *it != expected).count();
        self.0.set(self.0.get() + wrong);
    }
}

/// The first and last elements: enough of the largest buffer.
fn ends<T>(elements: &mut [T]) -> Vec<&mut [T]> {
    let mut chunks: Vec<_> = elements.chunks_mut(64).collect();
    let last = chunks.pop();
    chunks.into_iter().take(1).chain(last).collect()
}

/// Runs passes over Flash's 43 layers, each kernel writing its layer's tag and each reader
/// checking it, and counts wrong elements.
fn run_flash(device: &Deaf, backing: Backing, passes: &[usize]) -> Result<usize, Error> {
    let wrong = Wrong::default();
    let mut pool = EagerScratch::allocate_with(device, backing)?;
    let mut tag = 0_u16;
    for &rows in passes {
        let mut pass = pool.begin(rows)?;
        for layer in 0..43 {
            tag += 1;
            let (byte, int, float) = (tag.to_le_bytes()[0], i32::from(tag), f32::from(tag));
            let bf16 = scratchpool::bf16::from_bits(tag);
            let mut layer = pass.layer(layer)?;
            layer.fork()?;
            if let Some(mut step) = layer.index_q()? {
                let stream = step.stream();
                let out = step.buffers();
                stream.launch(
                    (out.index_values, out.index_scales, out.index_weights),
                    move |(mut values, mut scales, mut weights)| {
                        values.fill(byte);
                        scales.fill(byte);
                        weights.fill(float);
                    },
                )?;
            }
            if let Some(mut step) = layer.index_topk()? {
                let stream = step.stream();
                let read = step.buffers();
                let wrong = wrong.clone();
                stream.launch(
                    (read.index_values, read.index_scales, read.index_weights),
                    move |(values, scales, weights)| {
                        wrong.check(&values, &byte);
                        wrong.check(&scales, &byte);
                        wrong.check(&weights, &float);
                    },
                )?;
            }
            if let Some(mut step) = layer.compress()? {
                // Two kernels, as the two stages of the compressor: others may run in between.
                let stream = step.stream();
                let mut kv = step.buffers().compressed;
                stream.fill(kv.reborrow(), float)?;
                let wrong = wrong.clone();
                stream.launch(kv, move |kv| wrong.check(&kv, &float))?;
            }
            let mut step = layer.q_proj()?;
            let stream = step.stream();
            stream.launch(step.buffers().q, move |mut q| {
                ends(&mut q).into_iter().for_each(|end| end.fill(bf16));
            })?;
            drop(step);
            layer.join()?;
            if let Some(mut step) = layer.global_topk()? {
                let stream = step.stream();
                let out = step.buffers();
                stream.fill(out.topk_indices, int)?;
                stream.fill(out.topk_lens, int)?;
            }
            let mut step = layer.attention()?;
            let stream = step.stream();
            let read = step.buffers();
            let q_wrong = wrong.clone();
            stream.launch(read.q, move |q| {
                q_wrong.check(q.get(..64).unwrap_or_default(), &bf16);
                q_wrong.check(q.get(q.len().saturating_sub(64)..).unwrap_or_default(), &bf16);
            })?;
            if let (Some(indices), Some(lens)) = (read.topk_indices, read.topk_lens) {
                let wrong = wrong.clone();
                stream.launch((indices, lens), move |(indices, lens)| {
                    wrong.check(&indices, &int);
                    wrong.check(&lens, &int);
                })?;
            }
        }
    }
    device.synchronize()?;
    Ok(wrong.0.get())
}

#[test]
fn every_read_of_flash_sees_its_own_layers_value_in_order_and_in_many_random_orders() {
    let rows = [1, 0, 2];
    assert_eq!(run_flash(&Deaf::new(Host::in_order(), None), Backing::Arena, &rows).unwrap(), 0);
    for seed in 0..60 {
        let host = Host::random(seed);
        let wrong = run_flash(&Deaf::new(host.clone(), None), Backing::Arena, &rows).unwrap();
        assert_eq!(wrong, 0, "{host:?}");
    }
}

#[test]
fn every_read_of_flash_sees_its_own_layers_value_with_an_allocation_per_call() {
    let rows = [1, 0, 2];
    assert_eq!(run_flash(&Deaf::new(Host::in_order(), None), Backing::PerCall, &rows).unwrap(), 0);
    for seed in 0..60 {
        let host = Host::random(seed);
        let wrong = run_flash(&Deaf::new(host.clone(), None), Backing::PerCall, &rows).unwrap();
        assert_eq!(wrong, 0, "{host:?}");
    }
}

#[test]
fn without_any_one_of_flashs_waits_some_order_corrupts_a_read() {
    // Events in the order of creation: 0 fork, 1 index_topk, 2 compress.
    for mute in [("aux0", 0), ("aux1", 0), ("main", 1), ("main", 2)] {
        let seen = (0..40).find(|&seed| {
            run_flash(&Deaf::new(Host::random(seed), Some(mute)), Backing::Arena, &[1, 1]).unwrap()
                > 0
        });
        assert!(seen.is_some(), "no seed noticed the missing wait {mute:?}");
    }
}

/// Runs a toy schedule whose steps are called `x` or `y` for writing and reading that buffer, and
/// counts wrong reads.
fn run_toy<T: Toy>(host: &Host, steps: &[Option<(char, bool)>], passes: u32) -> usize {
    let wrong = Wrong::default();
    let mut pool: PoolCore<_, _> =
        PoolCore::new(host, Toys::<T>::default(), Backing::Arena).unwrap();
    for pass_number in 1..=passes {
        let mut pass = pool.begin(16).unwrap();
        for layer in 0..T::TABLE.layers.len() {
            let tag = pass_number * 100 + layer as u32;
            let mut layer = pass.layer(layer).unwrap();
            for (at, step) in steps.iter().enumerate() {
                let guard = layer.step_in_every_layer(at).unwrap();
                let Some((buffer, write)) = *step else { continue };
                let (place, tag) = if buffer == 'x' { (X, tag) } else { (Y, 1000 + tag) };
                if write {
                    // SAFETY: 16 rows of u32 are the toy's shape; the guard makes no other view.
                    let view = unsafe { guard.view_mut::<u32, 1>(place, [16]) };
                    guard.stream().fill(view, tag).unwrap();
                } else {
                    let wrong = wrong.clone();
                    // SAFETY: as above.
                    let view = unsafe { guard.view::<u32, 1>(place, [16]) };
                    guard.stream().launch(view, move |x| wrong.check(&x, &tag)).unwrap();
                }
            }
        }
    }
    host.synchronize().unwrap();
    wrong.0.get()
}

const RELAY: &[Option<(char, bool)>] =
    &[Some(('x', true)), Some(('x', false)), Some(('y', true)), Some(('y', false))];

toy! { Relay: ["main", "side"] [0, 0]
    { produce 0 Full 1 [0] []; consume 1 Full 0 [] [0]; reduce 1 Full 0 [1] []; report 1 Full 1 [] [1]; }
    { true true [3 / 0]; true false [0 / 0]; true false []; true true []; }
}
toy! { RelayWithoutWrap: ["main", "side"] [0, 0]
    { produce 0 Full 1 [0] []; consume 1 Full 0 [] [0]; reduce 1 Full 0 [1] []; report 1 Full 1 [] [1]; }
    { true true []; true false [0 / 0]; true false []; true true []; }
}
toy! { RelayWithoutFork: ["main", "side"] [0, 0]
    { produce 0 Full 1 [0] []; consume 1 Full 0 [] [0]; reduce 1 Full 0 [1] []; report 1 Full 1 [] [1]; }
    { true true [3 / 0]; true false []; true false []; true true []; }
}

#[test]
fn a_small_schedule_holds_under_every_seed_and_lacks_no_wait() {
    for seed in SEEDS {
        let host = Host::random(seed);
        assert_eq!(run_toy::<Relay>(&host, RELAY, 5), 0, "{host:?}");
    }
    assert!(SEEDS.into_iter().any(|seed| run_toy::<RelayWithoutWrap>(
        &Host::random(seed),
        RELAY,
        5
    ) > 0));
    assert!(SEEDS.into_iter().any(|seed| run_toy::<RelayWithoutFork>(
        &Host::random(seed),
        RELAY,
        5
    ) > 0));
}

const CHAIN: &[Option<(char, bool)>] =
    &[Some(('x', true)), Some(('x', false)), None, Some(('y', true)), Some(('y', false))];

toy! { FullChain: ["main"] [0, 0, 0]
    { write_x 0 Full 0 [0] []; read_x 0 Full 0 [] [0]; mid 0 Full 0 [] []; write_y 0 Full 0 [1] []; read_y 0 Full 0 [] [1]; }
    { true false []; true false []; true false []; true false []; true false []; }
}
toy! { DependentChain: ["main"] [0, 0, 0]
    { write_x 0 Full 0 [0] []; read_x 0 Full 0 [] [0]; mid 0 Dependent 0 [] []; write_y 0 Dependent 0 [1] []; read_y 0 Full 0 [] [1]; }
    { true false []; true false []; true false []; true false []; true false []; }
}
toy! { EarlyChain: ["main"] [0, 0, 0]
    { write_x 0 Full 0 [0] []; read_x 0 Full 0 [] [0]; mid 0 Early 0 [] []; write_y 0 Dependent 0 [1] []; read_y 0 Full 0 [] [1]; }
    { true false []; true false []; true false []; true false []; true false []; }
}

#[test]
fn a_chain_with_an_early_launch_loses_order_two_hops_away_and_the_others_do_not() {
    for seed in SEEDS {
        let host = Host::random(seed);
        assert_eq!(run_toy::<FullChain>(&host, CHAIN, 3), 0, "{host:?}");
        let host = Host::random(seed);
        assert_eq!(run_toy::<DependentChain>(&host, CHAIN, 3), 0, "{host:?}");
    }
    assert!(SEEDS.into_iter().any(|seed| run_toy::<EarlyChain>(&Host::random(seed), CHAIN, 3) > 0));
    assert_eq!(run_toy::<EarlyChain>(&Host::in_order(), CHAIN, 3), 0);
}

/// A log of the order in which kernels ran.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<&'static str>>>);

impl Log {
    fn launch(&self, stream: &HostStream, name: &'static str) {
        let log = self.clone();
        stream.launch((), move |()| log.0.borrow_mut().push(name)).unwrap();
    }

    fn step(&self, host: &Host, stream: &HostStream, launch: Launch, names: &[&'static str]) {
        // SAFETY: the kernels touch no memory.
        unsafe { host.enter_step(stream, launch) }.unwrap();
        names.iter().for_each(|name| self.launch(stream, name));
        host.leave_step(stream).unwrap();
    }

    fn runs_before(&self, first: &str, second: &str) -> bool {
        let log = self.0.borrow();
        let at = |name| log.iter().position(|it| *it == name).unwrap();
        at(first) < at(second)
    }
}

/// For each pair, whether the first ran before the second under all seeds, some, or none.
fn orders<const N: usize>(
    issue: impl Fn(&Host, &Log),
    pairs: [(&str, &str); N],
) -> [(bool, bool); N] {
    let logs: Vec<_> = SEEDS
        .map(|seed| {
            let (host, log) = (Host::random(seed), Log::default());
            issue(&host, &log);
            host.synchronize().unwrap();
            log
        })
        .collect();
    pairs.map(|(first, second)| {
        let before = logs.iter().filter(|log| log.runs_before(first, second)).count();
        (before == logs.len(), before == 0)
    })
}

const ALWAYS: (bool, bool) = (true, false);
const EITHER: (bool, bool) = (false, false);

#[test]
fn launch_kinds_order_what_the_spec_says_and_no_more() {
    let issue = |host: &Host, log: &Log| {
        let stream = host.create_stream("s").unwrap();
        log.step(host, &stream, Launch::Full, &["a"]);
        log.step(host, &stream, Launch::Full, &["b"]);
        log.step(host, &stream, Launch::Early, &["c"]);
        log.step(host, &stream, Launch::Dependent, &["d"]);
        log.step(host, &stream, Launch::Full, &["e"]);
    };
    let pairs = [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
        ("c", "d"),
        ("a", "d"),
        ("b", "d"),
        ("b", "e"),
        ("d", "e"),
    ];
    let expected = [ALWAYS, ALWAYS, EITHER, ALWAYS, ALWAYS, EITHER, ALWAYS, ALWAYS];
    assert_eq!(orders(issue, pairs), expected);
}

#[test]
fn an_event_covers_its_stream_even_past_early_launches_and_waits_hold_for_later_early_ones() {
    let issue = |host: &Host, log: &Log| {
        let (s, t) = (host.create_stream("s").unwrap(), host.create_stream("t").unwrap());
        let event = host.create_event().unwrap();
        log.step(host, &s, Launch::Full, &["a"]);
        log.step(host, &s, Launch::Early, &["b"]);
        host.record(&s, &event).unwrap();
        log.step(host, &s, Launch::Full, &["late"]);
        host.wait(&t, &event).unwrap();
        log.step(host, &t, Launch::Early, &["c"]);
        log.step(host, &t, Launch::Early, &["d"]);
    };
    let pairs =
        [("a", "b"), ("a", "c"), ("b", "c"), ("a", "d"), ("b", "d"), ("c", "d"), ("late", "c")];
    let expected = [EITHER, ALWAYS, ALWAYS, ALWAYS, ALWAYS, EITHER, EITHER];
    assert_eq!(orders(issue, pairs), expected);
}

#[test]
fn an_event_stands_for_waits_that_no_step_has_followed_yet() {
    let issue = |host: &Host, log: &Log| {
        let streams = ["s", "t", "u"].map(|name| host.create_stream(name).unwrap());
        let (first, second) = (host.create_event().unwrap(), host.create_event().unwrap());
        log.step(host, &streams[0], Launch::Full, &["a"]);
        host.record(&streams[0], &first).unwrap();
        host.wait(&streams[1], &first).unwrap();
        host.record(&streams[1], &second).unwrap();
        host.wait(&streams[2], &second).unwrap();
        log.step(host, &streams[2], Launch::Full, &["b"]);
        log.step(host, &streams[1], Launch::Full, &["c"]);
    };
    assert_eq!(orders(issue, [("a", "b"), ("a", "c"), ("b", "c")]), [ALWAYS, ALWAYS, EITHER]);
}

#[test]
fn an_empty_step_passes_order_on() {
    let issue = |host: &Host, log: &Log| {
        let (s, t) = (host.create_stream("s").unwrap(), host.create_stream("t").unwrap());
        let (first, second) = (host.create_event().unwrap(), host.create_event().unwrap());
        log.step(host, &s, Launch::Full, &["a"]);
        host.record(&s, &first).unwrap();
        host.wait(&t, &first).unwrap();
        log.step(host, &t, Launch::Full, &[]);
        host.record(&t, &second).unwrap();
        let u = host.create_stream("u").unwrap();
        host.wait(&u, &second).unwrap();
        log.step(host, &u, Launch::Full, &["b"]);
    };
    assert_eq!(orders(issue, [("a", "b")]), [ALWAYS]);
}

#[test]
fn launches_of_one_step_run_in_sequence_and_one_outside_a_step_is_full() {
    let issue = |host: &Host, log: &Log| {
        let s = host.create_stream("s").unwrap();
        log.step(host, &s, Launch::Full, &["a"]);
        log.step(host, &s, Launch::Early, &["b1", "b2", "b3"]);
        log.launch(&s, "c");
    };
    let pairs = [("b1", "b2"), ("b2", "b3"), ("a", "b1"), ("a", "c"), ("b3", "c")];
    assert_eq!(orders(issue, pairs), [ALWAYS, ALWAYS, EITHER, ALWAYS, ALWAYS]);
}

#[test]
fn recording_again_does_not_change_what_was_waited_for() {
    let issue = |host: &Host, log: &Log| {
        let (s, t) = (host.create_stream("s").unwrap(), host.create_stream("t").unwrap());
        let event = host.create_event().unwrap();
        host.wait(&t, &event).unwrap(); // never recorded: nothing to wait for
        log.launch(&s, "a");
        host.record(&s, &event).unwrap();
        host.wait(&t, &event).unwrap();
        log.launch(&s, "b");
        host.record(&s, &event).unwrap();
        log.launch(&t, "c");
    };
    assert_eq!(orders(issue, [("a", "c"), ("b", "c")]), [ALWAYS, EITHER]);
}

#[test]
fn synchronizing_inside_a_step_runs_what_it_launched_and_keeps_its_later_launches_in_sequence() {
    for seed in SEEDS {
        let (host, log) = (Host::random(seed), Log::default());
        let s = host.create_stream("s").unwrap();
        // SAFETY: the kernels touch no memory.
        unsafe { host.enter_step(&s, Launch::Early) }.unwrap();
        log.launch(&s, "a");
        host.synchronize().unwrap();
        assert_eq!(*log.0.borrow(), ["a"]);
        log.launch(&s, "b");
        log.launch(&s, "c");
        host.leave_step(&s).unwrap();
        host.synchronize().unwrap();
        assert_eq!(*log.0.borrow(), ["a", "b", "c"]);
    }
}

#[test]
fn the_same_seed_gives_the_same_order_and_other_seeds_give_others() {
    let run = |seed| {
        let (host, log) = (Host::random(seed), Log::default());
        let streams = ["s", "t", "u"].map(|name| host.create_stream(name).unwrap());
        for name in ["0", "1", "2", "3", "4", "5", "6", "7"] {
            streams.iter().for_each(|stream| log.launch(stream, name));
        }
        host.synchronize().unwrap();
        log.0.take()
    };
    assert_eq!(run(7), run(7));
    let distinct: std::collections::BTreeSet<_> = SEEDS.map(run).collect();
    assert!(distinct.len() > SEEDS.count() / 2, "{} orders", distinct.len());
}

#[test]
fn the_device_is_refused_inside_a_kernel_and_the_error_names_the_seed() {
    for host in [Host::in_order(), Host::random(11)] {
        let stream = host.create_stream("s").unwrap();
        let (inner, seen) = (host.clone(), Rc::new(RefCell::new(None)));
        let found = Rc::clone(&seen);
        stream.launch((), move |()| *found.borrow_mut() = inner.synchronize().err()).unwrap();
        host.synchronize().unwrap();
        let error = seen.take().unwrap();
        assert!(matches!(error, Error::InsideKernel { .. }));
        assert!(error.to_string().contains(&host.order().to_string()), "{error}");
    }
}

#[test]
fn a_kernel_that_panics_leaves_the_device_usable() {
    for host in [Host::in_order(), Host::random(3)] {
        let stream = host.create_stream("s").unwrap();
        let log = Log::default();
        // In the launch where kernels run at once, else as an error of a later call.
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let launched = stream.launch((), |()| panic!("planted"));
            launched.and(host.synchronize()).unwrap_err()
        }));
        match panicked {
            Err(_) => assert_eq!(host.order(), scratchpool::Order::Issue),
            Ok(error) => assert!(error.to_string().contains("planted"), "{error}"),
        }
        let _ = host.synchronize();
        log.launch(&stream, "after");
        host.synchronize().unwrap();
        assert_eq!(*log.0.borrow(), ["after"]);
    }
}

#[test]
fn a_view_is_refused_on_another_stream_than_its_steps() {
    let host = Host::in_order();
    let other = host.create_stream("other").unwrap();
    let mut pool = EagerScratch::allocate(&host).unwrap();
    let mut pass = pool.begin(1).unwrap();
    let mut layer = pass.layer(2).unwrap();
    let mut step = layer.q_proj().unwrap();
    let refused = other.fill(step.buffers().q, scratchpool::bf16::ONE);
    assert!(matches!(refused, Err(Error::ForeignStream { view: "main", launch: "other" })));
}

#[test]
fn a_pool_dropped_with_kernels_to_run_keeps_its_memory_until_they_have_run() {
    for seed in SEEDS {
        let host = Host::random(seed);
        for backing in [Backing::Arena, Backing::PerCall] {
            let wrong = Wrong::default();
            let mut pool = EagerScratch::allocate_with(&host, backing).unwrap();
            for tag in 0..3 {
                let mut pass = pool.begin(1).unwrap();
                let mut layer = pass.layer(2).unwrap();
                let mut step = layer.global_topk().unwrap().unwrap();
                let stream = step.stream();
                let mut lens = step.buffers().topk_lens;
                stream.fill(lens.reborrow(), tag).unwrap();
                let wrong = wrong.clone();
                stream.launch(lens, move |lens| wrong.check(&lens, &tag)).unwrap();
            }
            drop(pool);
            host.synchronize().unwrap();
            assert_eq!(wrong.0.get(), 0, "{host:?}");
        }
    }
}

#[test]
fn a_device_dropped_with_kernels_to_run_drops_them() {
    let alive = Rc::new(());
    for seed in SEEDS {
        let host = Host::random(seed);
        let stream = host.create_stream("s").unwrap();
        let held = Rc::clone(&alive);
        stream.launch((), move |()| drop(held)).unwrap();
    }
    assert_eq!(Rc::strong_count(&alive), 1);
}

#[test]
fn impossible_sizes_are_errors() {
    let host = Host::in_order();
    assert!(matches!(host.allocate(u64::MAX, 256), Err(Error::TooLarge { .. })));
    assert!(matches!(host.allocate(1 << 62, 256), Err(Error::OutOfMemory { .. })));
    for align in [1, 256, 1 << 16] {
        let memory = host.allocate(0, align).unwrap();
        assert_eq!(Host::base(&memory).addr() as u64 % align, 0);
    }
}

#[test]
fn what_a_stream_was_given_is_counted_but_not_what_was_recorded() {
    let host = Host::random(1);
    let (stream, other) = (host.create_stream("one").unwrap(), host.create_stream("two").unwrap());
    let event = host.create_event().unwrap();
    let mut last = host.issued(&stream);
    assert!(last.is_some());
    let mut grew = |what: &str| {
        let now = host.issued(&stream);
        let grew = now != last;
        last = now;
        assert!(!grew || now > Some(0), "{what}");
        grew
    };
    host.record(&stream, &event).unwrap();
    host.record(&other, &event).unwrap();
    other.launch((), |()| {}).unwrap();
    // SAFETY: the kernels touch no memory.
    unsafe { host.enter_step(&stream, Launch::Full) }.unwrap();
    host.leave_step(&stream).unwrap();
    assert!(!grew("nothing"));
    stream.launch((), |()| {}).unwrap();
    assert!(grew("a launch"));
    host.wait(&stream, &event).unwrap();
    assert!(grew("a wait"));
    let memory = host.allocate(4, 4).unwrap();
    // SAFETY: the block has four bytes, and no view of it exists.
    unsafe { host.write_bytes(&stream, Host::base(&memory), &[1, 2, 3, 4]) }.unwrap();
    assert!(grew("a copy"));
    // SAFETY: as above.
    unsafe { host.fill_bytes(&stream, Host::base(&memory), 4, 9) }.unwrap();
    assert!(grew("a fill"));
}
