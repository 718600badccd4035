//! What a pool costs on the GPU's host, beside what it replaces. Ratios are of one run.
//!
//! Prints one table; where there is no driver, it says so and does nothing.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::pedantic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "a benchmark fails by panicking"
)]

#[path = "../../runtime/tests/gpu/lab.rs"]
mod lab;

use std::hint::black_box;
use std::time::Instant;

use lab::{Gpu, Lab as _, ONE, gpu, grid};
use scratchpool::cuda::cudarc::driver::{
    CudaSlice, DevicePtr as _, DevicePtrMut as _, DeviceSlice as _, PushKernelArg as _, result, sys,
};
use scratchpool::cuda::{CaptureMode, Stream};
use scratchpool::{Backing, Device as _, Error};
use scratchpool_examples::deepseek::{FlashScratch, flash_scratch};

const LAYERS: usize = flash_scratch::SCHEDULE.layers.len();
const ROWS: usize = 16;

/// Medians over rounds of the host time of `work`, in nanoseconds a repetition. Variants take turns, so
/// that what drifts hits all.
fn medians<const N: usize>(
    gpu: &Gpu,
    repetitions: usize,
    mut variants: [&mut dyn FnMut(); N],
) -> [f64; N] {
    let mut times = [const { Vec::new() }; N];
    for round in 0..31 {
        for (variant, times) in variants.iter_mut().zip(&mut times) {
            gpu.cuda.synchronize().unwrap();
            let start = Instant::now();
            for _ in 0..repetitions {
                variant();
            }
            let spent = start.elapsed().as_secs_f64() * 1e9 / repetitions as f64;
            if round > 0 {
                times.push(spent);
            }
        }
    }
    gpu.cuda.synchronize().unwrap();
    times.map(|mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    })
}

fn head(what: &str) {
    println!("ROW {what:<66} {:>13}  {:>7}", "median", "ratio");
}

fn row(what: &str, value: f64, unit: &str, base: f64) {
    println!("ROW {what:<66} {value:>10.1} {unit}  {:>7.2}", value / base);
}

fn main() {
    let Some(turn) = gpu("the cost of a pool") else { return };
    let gpu = &turn.gpu;
    launches(gpu);
    overlap(gpu);
    empty_pass(gpu);
    full_pass(gpu);
}

/// A launch with eight views of one arena, beside raw pointers and cudarc's tracked views.
fn launches(gpu: &Gpu) {
    let dims = flash_scratch::Dims { max_num_tokens: 64 };
    let mut pool = FlashScratch::allocate(gpu, dims).unwrap();
    let mut pass = pool.begin(64).unwrap();
    let mut layer = pass.layer(2).unwrap();
    let mut step = layer.attention().unwrap();
    let stream = step.stream();
    let q = step.buffers().q;
    let views: Vec<_> = (0..8).map(|row| q.slice_rows(row * 8..row * 8 + 8).unwrap()).collect();
    let raw: Vec<u64> = views.iter().map(|view| view.address()).collect();
    let slice: CudaSlice<u32> = stream.alloc_zeros(1 << 20).unwrap();
    let mut exclusive: CudaSlice<u32> = stream.alloc_zeros(1 << 20).unwrap();
    let function = &gpu.kernels.eight;
    let [pointers, ours, cudarcs, tracked, builder] = medians(
        gpu,
        400,
        [
            &mut || {
                let mut call = stream.launch_builder(function);
                raw.iter().for_each(|pointer| {
                    call.arg(pointer);
                });
                // SAFETY: the kernel takes eight pointers and does nothing.
                unsafe { call.launch(ONE) }.unwrap();
            },
            &mut || {
                let mut call = stream.launch_builder(function);
                views.iter().for_each(|view| {
                    call.arg(view);
                });
                // SAFETY: as above.
                unsafe { call.launch(ONE) }.unwrap();
            },
            &mut || {
                // As a pool without events would have to: a view of the slice for each.
                let views: [_; 8] = std::array::from_fn(|i| slice.slice(i * 64..i * 64 + 64));
                let mut call = stream.launch_builder(function);
                views.iter().for_each(|view| {
                    call.arg(view);
                });
                // SAFETY: as above.
                unsafe { call.launch(ONE) }.unwrap();
            },
            &mut || {
                let slice: *mut CudaSlice<u32> = &raw mut exclusive;
                // SAFETY: the parts are disjoint; cudarc has no split into eight.
                let part = |i: usize| unsafe { (*slice).slice_mut(i * 64..i * 64 + 64) };
                let mut views: [_; 8] = std::array::from_fn(part);
                let mut call = stream.launch_builder(function);
                views.iter_mut().for_each(|view| {
                    call.arg(view);
                });
                // SAFETY: as above.
                unsafe { call.launch(ONE) }.unwrap();
            },
            &mut || {
                let mut call = stream.kernel(function);
                for view in &views {
                    call = call.arg(view);
                }
                // SAFETY: as above.
                unsafe { call.launch(ONE) }.unwrap();
            },
        ],
    );
    head("launch with eight arguments");
    row("eight raw pointers, cudarc's launch", pointers, "ns", pointers);
    row("eight views of a pool, cudarc's launch (limit 1.10)", ours, "ns", pointers);
    row("eight views of a pool, this crate's launch", builder, "ns", pointers);
    row("eight shared views of a CudaSlice, tracked", cudarcs, "ns", pointers);
    row("eight mutable views of a CudaSlice, tracked", tracked, "ns", pointers);
    let verdict = if ours <= 1.1 * pointers { "PASS" } else { "FAIL" };
    println!("CHECK {verdict} views cost at most 1.1 x raw pointers");
}

/// Two kernels of 3 ms on two streams, over disjoint views of one arena.
fn overlap(gpu: &Gpu) {
    let dims = flash_scratch::Dims { max_num_tokens: 64 };
    let mut pool = FlashScratch::allocate(gpu, dims).unwrap();
    let mut pass = pool.begin(64).unwrap();
    let [main, aux] = [0, 1].map(|stream| pass.streams()[stream].clone());
    let mut layer = pass.layer(2).unwrap();
    let micros = 3000;
    let once = |both: bool| {
        gpu.cuda.synchronize().unwrap();
        let start = Instant::now();
        gpu.spin(&main, micros).unwrap();
        if both {
            gpu.spin(&aux, micros).unwrap();
        }
        gpu.cuda.synchronize().unwrap();
        start.elapsed().as_secs_f64() * 1e3
    };
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    once(true);
    let alone = median((0..9).map(|_| once(false)).collect());
    // The steps in between: `index_q` waits for `fork` only, `q_proj` runs beside it.
    let mut step = layer.index_q().unwrap().unwrap();
    let values = step.buffers().index_values.address();
    drop(step);
    let q = layer.q_proj().unwrap().buffers().q.address();
    assert_ne!(values, q);
    let together = median((0..9).map(|_| once(true)).collect());
    head("two kernels on two streams, disjoint views");
    row("one kernel alone", alone, "ms", alone);
    row("both (limit 1.10 x)", together, "ms", alone);
    let verdict = if together < 1.1 * alone { "PASS" } else { "FAIL" };
    println!(
        "CHECK {verdict} two kernels over disjoint views take less than 1.1 x one ({alone:.2} ms, {together:.2} ms)"
    );
}

/// All guards and views of a pass, and nothing launched.
fn walk(pool: &mut FlashScratch<Gpu>) -> Result<(), Error> {
    let mut pass = pool.begin(ROWS)?;
    for index in 0..LAYERS {
        let mut layer = pass.layer(index)?;
        layer.fork()?;
        if let Some(mut step) = layer.index_q()? {
            black_box(step.buffers());
        }
        if let Some(mut step) = layer.index_topk()? {
            black_box(step.buffers());
        }
        if let Some(mut step) = layer.compress()? {
            black_box(step.buffers());
        }
        black_box(layer.q_proj()?.buffers());
        layer.join()?;
        if let Some(mut step) = layer.global_topk()? {
            black_box(step.buffers());
        }
        black_box(layer.attention()?.buffers());
    }
    Ok(())
}

/// Host time of an empty pass, a layer.
fn empty_pass(gpu: &Gpu) {
    let dims = flash_scratch::Dims { max_num_tokens: 8192 };
    let mut arena = FlashScratch::allocate(gpu, dims).unwrap();
    // Of the second one cudarc's streams have been handed out, as to its launches: what they are given
    // cannot be seen then, and each wait and record of an empty step is issued.
    let mut handed_out = FlashScratch::allocate(gpu, dims).unwrap();
    for stream in handed_out.begin(ROWS).unwrap().streams() {
        black_box(stream.context());
    }
    let mut per_call = FlashScratch::allocate_with(gpu, dims, Backing::PerCall).unwrap();
    let sizes = |index: usize| -> &[usize] {
        match flash_scratch::SCHEDULE.layers[index] {
            0 => &[65536],
            1 => &[65536, 4096, 256, 256, 2048, 4],
            _ => &[65536, 2048],
        }
    };
    let stream = gpu.cuda.create_stream("bare").unwrap();
    let [default_six] = medians(
        gpu,
        20,
        [&mut || {
            for _ in 0..LAYERS {
                allocate_and_free(&stream, sizes(2));
            }
        }],
    )
    .map(|pass| pass / LAYERS as f64);
    raise_threshold(gpu);
    // Streams and events of the same pass without a pool: what remains is the pool's own.
    let events: Vec<_> = (0..3).map(|_| gpu.cuda.create_event().unwrap()).collect();
    let lanes: Vec<Stream> =
        ["m", "a", "b"].iter().map(|name| gpu.cuda.create_stream(name).unwrap()).collect();
    let side = gpu.cuda.create_stream("side").unwrap();
    let mut slices: Vec<CudaSlice<u8>> =
        (0..6).map(|_| stream.alloc_zeros::<u8>(1 << 20).unwrap()).collect();
    let [ours, issued, fallback, bare, six, tracked, order] = medians(
        gpu,
        20,
        [
            &mut || walk(&mut arena).unwrap(),
            &mut || walk(&mut handed_out).unwrap(),
            &mut || walk(&mut per_call).unwrap(),
            &mut || {
                for index in 0..LAYERS {
                    allocate_and_free(&stream, sizes(index));
                }
            },
            &mut || {
                for _ in 0..LAYERS {
                    allocate_and_free(&stream, sizes(2));
                }
            },
            &mut || {
                for index in 0..LAYERS {
                    for slice in slices.iter_mut().take(sizes(index).len()) {
                        // A writer on one stream, a reader on another.
                        let mut view = slice.slice_mut(0..4096);
                        drop(black_box(view.device_ptr_mut(&stream)));
                        let view = view.as_view();
                        drop(black_box(view.device_ptr(&side)));
                        black_box(view.num_bytes());
                    }
                }
            },
            &mut || {
                for index in 0..LAYERS {
                    let aux = match flash_scratch::SCHEDULE.layers[index] {
                        0 => continue,
                        1 => 1,
                        _ => 2,
                    };
                    gpu.cuda.record(&lanes[0], &events[0]).unwrap();
                    gpu.cuda.wait(&lanes[aux], &events[0]).unwrap();
                    gpu.cuda.record(&lanes[aux], &events[aux]).unwrap();
                    gpu.cuda.wait(&lanes[0], &events[aux]).unwrap();
                }
            },
        ],
    )
    .map(|pass| pass / LAYERS as f64);
    head("empty pass of 43 layers, host time a layer");
    row("this crate: guards and views, and no order to issue", ours, "ns", ours);
    row("its streams handed to cudarc: waits and events issued all the same", issued, "ns", ours);
    row("such waits and events alone", order, "ns", ours);
    row("(a) stream-ordered allocation and free of the layer's buffers", bare, "ns", ours);
    row("(a) of all six buffers in each layer", six, "ns", ours);
    row("(a) of all six, memory pool at the driver's defaults", default_six, "ns", ours);
    row("(b) cudarc's tracked views: one writer, one reader a buffer", tracked, "ns", ours);
    row("this crate without a pool (Backing::PerCall), order included", fallback, "ns", ours);
    println!(
        "ROW (a) of six buffers: {:.1} x ours; {:.1} x ours with all waits and events issued",
        six / ours,
        six / issued
    );
    let verdict = if six >= 10.0 * ours { "PASS" } else { "FAIL" };
    println!("CHECK {verdict} at least 10 x less host time than (a)");
    graph(gpu);
}

/// The same pass in a graph.
fn graph(gpu: &Gpu) {
    let dims = flash_scratch::Dims { max_num_tokens: 64 };
    let mut pool = FlashScratch::allocate(gpu, dims).unwrap();
    let mut pass = pool.begin(64).unwrap();
    let capture = gpu.cuda.capture(pass.streams(), 64, CaptureMode::ThreadLocal).unwrap();
    for index in 0..LAYERS {
        let mut layer = pass.layer(index).unwrap();
        gpu.fill(layer.q_proj().unwrap().buffers().q, 1).unwrap();
        gpu.check(layer.attention().unwrap().buffers().q, 1).unwrap();
    }
    pass.finish().unwrap();
    let graph = capture.end().unwrap();
    let [replay] = medians(gpu, 20, [&mut || graph.replay(64).unwrap()]);
    row("replay of a graph of 43 layers, its barriers included, in all", replay, "ns", replay);
}

/// Keeps what is freed in the device's memory pool, so that (a) is at its best.
fn raise_threshold(gpu: &Gpu) {
    let mut pool = std::ptr::null_mut();
    let mut threshold = u64::MAX;
    // SAFETY: the device's default memory pool, and an attribute of 64 bits.
    unsafe {
        sys::cuDeviceGetMemPool(&raw mut pool, gpu.cuda.context().cu_device()).result().unwrap();
        sys::cuMemPoolSetAttribute(
            pool,
            sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            (&raw mut threshold).cast(),
        )
        .result()
        .unwrap();
    }
}

fn allocate_and_free(stream: &Stream, bytes_a_row: &[usize]) {
    let mut taken = [0; 6];
    for (slot, bytes) in taken.iter_mut().zip(bytes_a_row) {
        // SAFETY: freed below, used by nobody.
        *slot = unsafe { result::malloc_async(stream.handle(), bytes * ROWS) }.unwrap();
    }
    for slot in taken.iter().take(bytes_a_row.len()) {
        // SAFETY: allocated above.
        unsafe { result::free_async(*slot, stream.handle()) }.unwrap();
    }
}

/// A pass with kernels, eager: what the pool changes of the whole.
fn full_pass(gpu: &Gpu) {
    let dims = flash_scratch::Dims { max_num_tokens: 8192 };
    let mut arena = FlashScratch::allocate(gpu, dims).unwrap();
    let mut per_call = FlashScratch::allocate_with(gpu, dims, Backing::PerCall).unwrap();
    let run = |pool: &mut FlashScratch<Gpu>| {
        let mut pass = pool.begin(ROWS).unwrap();
        for index in 0..LAYERS {
            let mut layer = pass.layer(index).unwrap();
            if let Some(mut step) = layer.index_q().unwrap() {
                let out = step.buffers();
                gpu.fill(out.index_values, 1).unwrap();
            }
            if let Some(mut step) = layer.index_topk().unwrap() {
                gpu.check(step.buffers().index_values, 1).unwrap();
            }
            gpu.fill(layer.q_proj().unwrap().buffers().q, 1).unwrap();
            gpu.check(layer.attention().unwrap().buffers().q, 1).unwrap();
        }
        drop(pass);
        gpu.cuda.synchronize().unwrap();
    };
    let mut sanitized = FlashScratch::allocate_with(
        gpu,
        flash_scratch::Dims { max_num_tokens: 64 },
        Backing::Sanitized,
    )
    .unwrap();
    let mut large = FlashScratch::allocate_with(gpu, dims, Backing::Sanitized).unwrap();
    let [ours, fallback, watched, watched_large] = medians(
        gpu,
        2,
        [
            &mut || run(&mut arena),
            &mut || run(&mut per_call),
            &mut || run(&mut sanitized),
            &mut || run(&mut large),
        ],
    );
    head("eager pass of small kernels, begin to idle");
    row("arena", ours / 1e3, "us", ours / 1e3);
    row("an allocation a live range", fallback / 1e3, "us", ours / 1e3);
    row("sanitized, at most 64 rows", watched / 1e3, "us", ours / 1e3);
    row("sanitized, at most 8192 rows", watched_large / 1e3, "us", ours / 1e3);
    let _ = grid(1);
}
