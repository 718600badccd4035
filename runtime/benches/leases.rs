//! What it costs to take all scratch of one C4 layer: six buffers in three steps.
//!
//! `cargo bench -p scratchpool --bench leases`

#[path = "../tests/common/mod.rs"]
mod common;

use std::alloc::Layout;
use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use common::EagerScratch;
use common::counting::{Counting, allocations};
use scratchpool::{Backing, Error, Host};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// C4 layers of a pass.
const C4: u32 = 21;

/// Bytes of a row of each buffer: indexer values, scales, weights; top-k indices, lens; q.
const ROW_BYTES: [usize; 6] = [64 * 64, 64 * 4, 64 * 4, 512 * 4, 4, 64 * 512 * 2];

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

/// One layer: three guards, six views.
#[inline]
fn take_views(layer: &mut common::eager_scratch::Layer<'_, Host>) -> Result<(), Error> {
    if let Some(mut step) = layer.index_q()? {
        black_box(&step.buffers());
    }
    black_box(&layer.q_proj()?.buffers());
    if let Some(mut step) = layer.global_topk()? {
        black_box(&step.buffers());
    }
    Ok(())
}

fn passes(backing: Backing, rows: usize) -> Result<Measured, Error> {
    let mut pool = EagerScratch::allocate_with(&Host::in_order(), backing)?;
    Ok(measure(format!("pool guards, {backing:?}, {rows} rows"), C4, || {
        let mut pass = pool.begin(rows).unwrap();
        for layer in (2..43).step_by(2) {
            take_views(&mut pass.layer(layer).unwrap()).unwrap();
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
        passes(Backing::Arena, 8192)?,
        views_alone()?,
        dictionary(8192),
        per_call(16),
        per_call(8192),
        passes(Backing::PerCall, 16)?,
        passes(Backing::PerCall, 8192)?,
    ];
    println!("All scratch of one C4 layer, six buffers in three steps, host device, in order of issue.");
    println!("The guards' time holds the whole order of the layer, of the steps not asked for, and of");
    println!("the skipped C128 layer after it. Median of 301 samples; spread is p90 - p10.\n");
    println!("{:<52} {:>10} {:>8} {:>8} {:>7}", "", "ns/layer", "spread", "allocs", "ratio");
    let base = table[0].nanos;
    for Measured { what, nanos, spread, allocations } in table {
        let ratio = nanos / base;
        println!("{what:<52} {nanos:>10.1} {spread:>8.1} {allocations:>8.1} {ratio:>7.2}");
    }
    Ok(())
}
