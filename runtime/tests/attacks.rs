//! What safe code may try on the host device: each attack, and what the crate answers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::pedantic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use common::ledger::Ledger;
use scratchpool::{Backing, Device, Error, Host, scratch_pool};

const SEEDS: std::ops::Range<u64> = 0..200;

/// A value written in full and read by a dependent kernel.
#[scratch_pool]
#[step(write, writes(x))]
#[step(read, launch = dependent, reads(x))]
pub struct Handed {
    #[group(x)]
    #[shape(16)]
    pub x: u32,
}

/// A step that does not wait for the kernel in front of it.
#[scratch_pool]
#[step(ahead, launch = early, after(prev.done), writes(z))]
#[step(done, on = side, after(ahead), reads(z))]
pub struct Ahead {
    #[group(z)]
    #[shape(16)]
    pub z: u32,
}

/// Both in one pool, on streams of two names.
#[scratch_pool]
#[step(write, writes(x))]
#[step(ahead, on = other, launch = early, after(prev.done), writes(z))]
#[step(read, launch = dependent, reads(x))]
#[step(done, on = side, after(ahead), reads(z))]
pub struct Named {
    #[group(x)]
    #[shape(16)]
    pub x: u32,
    #[group(z)]
    #[shape(16)]
    pub z: u32,
}

/// A step beside the one that writes.
#[scratch_pool]
#[step(write, writes(x))]
#[step(beside, launch = early, writes(y))]
#[step(last, reads(x, y))]
pub struct Beside {
    #[group(x)]
    #[shape(16)]
    pub x: u32,
    #[group(y)]
    #[shape(16)]
    pub y: u32,
}

/// A value handed on.
#[scratch_pool(rows = n, dims(n = 16))]
#[step(produce, writes(x))]
#[step(consume, reads(x))]
pub struct Plain {
    #[group(x)]
    #[shape(n)]
    pub x: u32,
}

#[test]
fn a_kernel_that_panics_while_a_sanitized_pass_unwinds_does_not_abort() {
    for backing in [Backing::Arena, Backing::PerCall, Backing::Sanitized] {
        for seed in SEEDS {
            let host = Host::random(seed);
            let mut pool = Plain::allocate_with(&host, backing).unwrap();
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let mut pass = pool.begin(16).unwrap();
                let mut layer = pass.layer(0).unwrap();
                let mut step = layer.produce().unwrap();
                let stream = step.stream();
                let _ = stream.launch(step.buffers().x, |_| panic!("kernel"));
                panic!("user");
            }));
            assert!(unwound.is_err());
        }
    }
}

#[test]
fn a_deferred_kernels_panic_is_an_error_and_nothing_runs_on_what_it_left() {
    for seed in SEEDS {
        let host = Host::random(seed);
        let (a, b) = (host.create_stream("a").unwrap(), host.create_stream("b").unwrap());
        let after = Rc::new(Cell::new(0));
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _ = a.launch((), |()| panic!("planted"));
            let event = host.create_event().unwrap();
            let _ = host.record(&a, &event);
            let _ = host.wait(&b, &event);
            let seen = Rc::clone(&after);
            let _ = b.launch((), move |()| seen.set(seen.get() + 1));
            host.synchronize()
        }));
        let Ok(found) = unwound else { panic!("seed {seed}: a panic in an unrelated call") };
        let text = found.unwrap_err().to_string();
        assert!(text.contains("planted") && text.contains('a'), "{text}");
        assert_eq!(after.get(), 0, "seed {seed}: a kernel ran on what the other left");
        // Told once, the device can be used again.
        let seen = Rc::clone(&after);
        b.launch((), move |()| seen.set(seen.get() + 1)).unwrap();
        host.synchronize().unwrap();
        assert_eq!(after.get(), 1);
    }
}

#[test]
fn events_and_streams_of_two_devices_do_not_mix() {
    let (a, b) = (Host::random(1), Host::random(2));
    let (on_a, on_b) = (a.create_stream("a").unwrap(), b.create_stream("b").unwrap());
    let event = a.create_event().unwrap();
    let foreign = |result: Result<(), Error>| matches!(result, Err(Error::ForeignDevice { .. }));
    assert!(foreign(a.record(&on_b, &event)));
    assert!(foreign(b.record(&on_b, &event)), "an event of another device");
    a.record(&on_a, &event).unwrap();
    assert!(foreign(b.wait(&on_b, &event)));
    assert!(foreign(a.wait(&on_b, &event)));
    assert!(matches!(a.allocate_on(&on_b, 8, 8), Err(Error::ForeignMemory)));
}

/// Whether the read of `x` comes after its write, with another's early launch in between.
fn in_order(ledger: &Ledger, launches: [usize; 2]) -> bool {
    let nodes = ledger.order();
    nodes[launches[1]].contains(launches[0])
}

#[test]
fn a_dependent_launch_comes_after_its_own_pools_launch_whoever_shares_the_stream() {
    let ledger = Ledger::new(true);
    let [shared, side] = ["shared", "side"].map(|name| ledger.create_stream(name).unwrap());
    let mut a = Handed::with_streams(&ledger, Backing::Arena, [[shared.clone()]]).unwrap();
    let mut b = Ahead::with_streams(&ledger, Backing::Arena, [[shared, side]]).unwrap();
    for pass in 0..3 {
        let (mut a, mut b) = (a.begin().unwrap(), b.begin().unwrap());
        let (mut a, mut b) = (a.layer(0).unwrap(), b.layer(0).unwrap());
        ledger.launch(a.write().unwrap().stream());
        ledger.launch(b.ahead().unwrap().stream());
        ledger.launch(a.read().unwrap().stream());
        assert!(in_order(&ledger, [3 * pass, 3 * pass + 2]), "pass {pass}");
    }
}

#[test]
fn a_dependent_launch_comes_after_its_own_names_launch_where_two_names_are_one_stream() {
    let ledger = Ledger::new(true);
    // In the order of the schedule: main, other, side.
    let [shared, side] = ["shared", "side"].map(|name| ledger.create_stream(name).unwrap());
    let streams = [[shared.clone(), shared, side]];
    let mut pool = Named::with_streams(&ledger, Backing::Arena, streams).unwrap();
    for pass in 0..3 {
        let mut layer = pool.begin().unwrap();
        let mut layer = layer.layer(0).unwrap();
        ledger.launch(layer.write().unwrap().stream());
        ledger.launch(layer.ahead().unwrap().stream());
        ledger.launch(layer.read().unwrap().stream());
        assert!(in_order(&ledger, [3 * pass, 3 * pass + 2]), "pass {pass}");
    }
}

#[test]
fn a_pool_of_its_own_streams_keeps_its_launch_kinds() {
    let ledger = Ledger::new(true);
    let mut pool = Beside::allocate(&ledger).unwrap();
    for pass in 0..3 {
        let mut layer = pool.begin().unwrap();
        let mut layer = layer.layer(0).unwrap();
        ledger.launch(layer.write().unwrap().stream());
        ledger.launch(layer.beside().unwrap().stream());
        assert!(!in_order(&ledger, [2 * pass, 2 * pass + 1]), "pass {pass}: early was made full");
    }
}
