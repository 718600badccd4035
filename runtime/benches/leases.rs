//! What it costs to take all scratch of one C4 layer: six buffers in three steps.
//!
//! `cargo bench -p scratchpool --bench leases`

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a benchmark fails by panicking"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::alloc::Layout;
use std::cell::Cell;
use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use common::counting::{Counting, allocations};
use common::{EagerScratch, eager_scratch};
use scratchpool::generated::{LayerCore, Place, Plan, PoolCore};
use scratchpool::tables::{Launch, ScheduleTable};
use scratchpool::{Backing, Device, Error, Host, MemoryReport, Progress, bf16};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Layers of a pass.
const LAYERS: u32 = 64;

/// Flash's plan with C4 layers only.
struct AllC4;

// SAFETY: Flash's own plan; C4 layers in a row are part of what its schedule was proved for (each
// follows another over the wrap from the last layer to the first C4 layer of the next pass).
unsafe impl Plan for AllC4 {
    const SCHEDULE: &'static ScheduleTable =
        &ScheduleTable { layers: &[1; LAYERS as usize], ..eager_scratch::SCHEDULE };
    const BUFFERS: usize = 7;

    #[inline]
    fn max_rows(&self) -> usize {
        8192
    }

    fn memory(&self) -> MemoryReport {
        EagerScratch::MEMORY
    }

    fn tensor_bytes(&self, buffer: usize, rows: usize) -> u64 {
        eager_scratch::Plan.tensor_bytes(buffer, rows)
    }
}

/// Bytes of a row of each buffer: indexer values, scales, weights; top-k indices, lens; q.
const ROW_BYTES: [usize; 6] = [64 * 64, 64 * 4, 64 * 4, 512 * 4, 4, 64 * 512 * 2];

/// A device that does nothing, not even out of line.
#[derive(Clone, Debug)]
struct Idle {
    /// Whether it tells what its streams were given.
    sees: bool,
}

// SAFETY: blocks are vectors that live until dropped, and nothing is ever executed in them. What its
// streams were given is counted, by the waits here and by the benchmark.
unsafe impl Device for Idle {
    type Memory = Vec<u8>;
    type Stream = Cell<u64>;
    type Event = ();

    fn allocate(&self, bytes: u64, _: u64) -> Result<Vec<u8>, Error> {
        Ok(vec![0; usize::try_from(bytes).unwrap() + 4096])
    }
    fn adopt(&self, _: &[Cell<u64>], _: &Vec<u8>) {}

    fn base(memory: &Vec<u8>) -> *mut u8 {
        let start = memory.as_ptr().cast_mut();
        start.wrapping_add(start.align_offset(4096))
    }
    fn create_stream(&self, _: &'static str) -> Result<Cell<u64>, Error> {
        Ok(Cell::new(0))
    }
    fn owns(&self, _: &Cell<u64>) -> bool {
        true
    }
    fn create_event(&self) -> Result<(), Error> {
        Ok(())
    }
    fn record(&self, _: &Cell<u64>, (): &()) -> Result<(), Error> {
        Ok(())
    }
    fn wait(&self, stream: &Cell<u64>, (): &()) -> Result<(), Error> {
        stream.set(stream.get() + 1);
        Ok(())
    }
    fn issued(&self, stream: &Cell<u64>) -> Option<u64> {
        self.sees.then_some(stream.get())
    }
    unsafe fn enter_step(&self, _: &Cell<u64>, _: Launch) -> Result<(), Error> {
        Ok(())
    }
    fn leave_step(&self, _: &Cell<u64>) -> Result<(), Error> {
        Ok(())
    }
    fn follow(&self, _: &[Cell<u64>], _: &Progress) {}

    fn synchronize(&self) -> Result<(), Error> {
        Ok(())
    }
    unsafe fn read_bytes(&self, _: &Cell<u64>, _: *const u8, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }
    unsafe fn write_bytes(&self, _: &Cell<u64>, _: *mut u8, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

struct Measured {
    what: String,
    nanos: f64,
    spread: f64,
    allocations: f64,
}

/// The median time of one layer over many rounds of `layers` layers each.
fn measure(what: impl Into<String>, layers: u32, mut round: impl FnMut()) -> Measured {
    let start = Instant::now();
    let mut warm = 0_u32;
    while start.elapsed() < Duration::from_millis(50) {
        round();
        warm += 1;
    }
    // A sample is long enough for the clock.
    let per_sample = (warm / 250).max(1);
    let before = allocations();
    let mut samples: Vec<f64> = (0..301)
        .map(|_| {
            let start = Instant::now();
            (0..per_sample).for_each(|_| round());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(per_sample * layers)
        })
        .collect();
    let allocations = (allocations() - before) as f64 / f64::from(301 * per_sample * layers);
    samples.sort_by(f64::total_cmp);
    let at = |part: usize| samples[samples.len() * part / 100];
    Measured { what: what.into(), nanos: at(50), spread: at(90) - at(10), allocations }
}

/// Three guards, six views: what the generated accessors do.
#[inline]
fn take_views(layer: &mut LayerCore<'_, Host, AllC4>) -> Result<(), Error> {
    if let Some(step) = layer.step(1)? {
        let rows = step.rows();
        // SAFETY: places and shapes are Flash's; each buffer is taken once.
        unsafe {
            black_box(&step.view_mut::<u8, 3>(Place::new(1, 0), [rows, 64, 64]));
            black_box(&step.view_mut::<u8, 3>(Place::new(2, 33_554_432), [rows, 64, 4]));
            black_box(&step.view_mut::<f32, 2>(Place::new(3, 35_651_584), [rows, 64]));
        }
    }
    if let Some(step) = layer.step(4)? {
        // SAFETY: as above.
        unsafe {
            black_box(&step.view_mut::<bf16, 3>(Place::new(0, 37_748_736), [step.rows(), 64, 512]));
        }
    }
    if let Some(step) = layer.step(6)? {
        let rows = step.rows();
        // SAFETY: as above.
        unsafe {
            black_box(&step.view_mut::<i32, 2>(Place::new(4, 0), [rows, 512]));
            black_box(&step.view_mut::<i32, 1>(Place::new(5, 16_777_216), [rows]));
        }
    }
    Ok(())
}

fn passes(backing: Backing, rows: usize, take: bool) -> Result<Measured, Error> {
    let mut pool: PoolCore<_, _> = PoolCore::new(&Host::in_order(), AllC4, backing)?;
    let what = if take { "guards and views" } else { "no step asked for" };
    Ok(measure(format!("pool, {backing:?}, {rows} rows: {what}"), LAYERS, || {
        let mut pass = pool.begin(rows).unwrap();
        for layer in 0..LAYERS as usize {
            let mut layer = pass.layer(layer).unwrap();
            if take {
                take_views(&mut layer).unwrap();
            }
        }
    }))
}

/// What the order costs beside the driver's calls, on a device that does nothing.
fn order_alone(sees: bool, busy: bool, what: &str) -> Result<Measured, Error> {
    let mut pool: PoolCore<_, _> = PoolCore::new(&Idle { sees }, AllC4, Backing::Arena)?;
    Ok(measure(format!("order alone, {what}"), LAYERS, || {
        let mut pass = pool.begin(16).unwrap();
        for layer in 0..LAYERS as usize {
            let mut layer = pass.layer(layer).unwrap();
            for step in [1, 4, 6] {
                let step = layer.step(step).unwrap();
                if let Some(step) = step.filter(|_| busy) {
                    step.stream().set(step.stream().get() + 1);
                }
            }
        }
    }))
}

fn views_alone() -> Result<Measured, Error> {
    let mut pool = EagerScratch::allocate(&Host::in_order())?;
    let mut pass = pool.begin(8192)?;
    let mut layer = pass.layer(2)?;
    let mut step = layer.index_q()?.unwrap();
    Ok(measure("three views of a step that is entered", 1000, || {
        for _ in 0..1000 {
            black_box(&black_box(&mut step).buffers());
        }
    }))
}

fn per_call(rows: usize) -> Measured {
    let layouts = ROW_BYTES.map(|bytes| Layout::from_size_align(bytes * rows, 256).unwrap());
    measure(format!("six raw allocations, not zeroed, {rows} rows"), 100, || {
        for _ in 0..100 {
            let blocks = black_box(layouts).map(|layout| {
                // SAFETY: no layout is of size zero.
                black_box(unsafe { std::alloc::alloc(layout) })
            });
            for (block, layout) in blocks.into_iter().zip(layouts) {
                // SAFETY: allocated above with this layout.
                unsafe { std::alloc::dealloc(block, layout) };
            }
        }
    })
}

/// A pointer and a shape, as a dictionary of views holds them.
type Cached<const N: usize> = [(*mut u8, [usize; 3]); N];

fn dictionary(rows: usize) -> Measured {
    let views = |rows: usize| (std::ptr::null_mut(), [rows, 64, 64]);
    let keys = [1, 2, 4, 8, 16, 24, 72, 256, 1024, rows];
    let indexer: HashMap<usize, Cached<3>> = keys.map(|rows| (rows, [views(rows); 3])).into();
    let topk: HashMap<usize, Cached<2>> = keys.map(|rows| (rows, [views(rows); 2])).into();
    let q: HashMap<usize, Cached<1>> = keys.map(|rows| (rows, [views(rows); 1])).into();
    measure("three dictionaries keyed by num_tokens, no order", 1000, || {
        for _ in 0..1000 {
            black_box(indexer.get(&black_box(rows)).copied());
            black_box(q.get(&black_box(rows)).copied());
            black_box(topk.get(&black_box(rows)).copied());
        }
    })
}

fn main() -> Result<(), Error> {
    let table = [
        passes(Backing::Arena, 8192, true)?,
        passes(Backing::Arena, 8192, false)?,
        order_alone(false, true, "a device that cannot tell")?,
        order_alone(true, true, "one that can, three steps busy")?,
        order_alone(true, false, "one that can, all steps idle")?,
        views_alone()?,
        dictionary(8192),
        per_call(16),
        per_call(8192),
        passes(Backing::PerCall, 16, true)?,
        passes(Backing::PerCall, 8192, true)?,
    ];
    println!(
        "All scratch of one C4 layer, six buffers in three steps, host device, in order of issue."
    );
    println!(
        "The pool's time holds the order of all eight steps of the layer; the second line is that"
    );
    println!("order alone. Median of 301 samples; spread is p90 - p10.\n");
    println!("{:<52} {:>10} {:>8} {:>8} {:>7}", "", "ns/layer", "spread", "allocs", "ratio");
    let base = table[0].nanos;
    for Measured { what, nanos, spread, allocations } in table {
        let ratio = nanos / base;
        println!("{what:<52} {nanos:>10.1} {spread:>8.1} {allocations:>8.1} {ratio:>7.2}");
    }
    Ok(())
}
