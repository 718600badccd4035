//! The sanitizer on the CUDA device: it finds each planted fault, and nothing in correct passes.

use scratchpool::cuda::Lend as _;
use scratchpool::cuda::cudarc::driver::CudaStream;
use scratchpool::generated::PoolCore;
use scratchpool::{Backing, Device, Error, Host, View, Violation, ViolationKind};

use crate::flash;
use crate::flash_pool::{FlashScratch, flash_scratch};
use crate::lab::{Gpu, HostLab, Lab, gpu, say};
use crate::toy;
use crate::toy::Toys;

/// What is done wrong, once, in layer 4 of the second pass.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    UseAfterStep,
    RowOverrun,
    WriteThroughReadView,
}

const ROWS: usize = 8;

/// Three passes of the indexer's and the top-k steps, with one fault; up to the first violation.
fn plant<D: Lab>(device: &D, fault: Fault) -> Result<(), Error> {
    let dims = flash_scratch::Dims { max_num_tokens: 2 * ROWS };
    let mut pool = FlashScratch::allocate_with(device, dims, Backing::Sanitized)?;
    for number in 0..3 {
        let mut pass = pool.begin(ROWS)?;
        for index in 0..6 {
            let now = |it| fault == it && number == 1 && index == 4;
            let mut layer = pass.layer(index)?;
            let mut kept = core::ptr::null_mut();
            if let Some(mut step) = layer.index_q()? {
                let mut out = step.buffers();
                kept = out.index_values.as_mut_ptr().cast::<u32>();
                device.fill(out.index_values, 1)?;
                device.fill(out.index_scales, 2)?;
                device.fill(out.index_weights, 3)?;
            }
            if let Some(mut step) = layer.index_topk()? {
                let stream = step.stream();
                let read = step.buffers();
                device.check(read.index_values, 1)?;
                if now(Fault::WriteThroughReadView) {
                    let at = read.index_values.as_ptr().cast_mut().cast();
                    // SAFETY: inside the arena; that it is not this step's to write is the fault.
                    unsafe { device.fill_words(stream, at, 1, 99) }?;
                }
            }
            layer.join()?;
            if let Some(mut step) = layer.global_topk()? {
                let stream = step.stream();
                let out = step.buffers();
                let mut lens = out.topk_lens;
                device.fill(out.topk_indices, 4)?;
                device.fill(lens.reborrow(), 5)?;
                if now(Fault::RowOverrun) {
                    let end = lens.as_mut_ptr().wrapping_add(lens.len()).cast();
                    // SAFETY: inside the arena; that it is beyond the rows is the fault.
                    unsafe { device.fill_words(stream, end, 1, 99) }?;
                }
                if now(Fault::UseAfterStep) {
                    // SAFETY: inside the arena; that the step is over is the fault.
                    unsafe { device.fill_words(stream, kept, 1, 99) }?;
                }
            }
            let mut step = layer.attention()?;
            let read = step.buffers();
            if let (Some(indices), Some(lens)) = (read.topk_indices, read.topk_lens) {
                device.check(indices, 4)?;
                device.check(lens, 5)?;
            }
        }
        pass.finish()?;
    }
    assert_eq!(device.wrong()?, 0);
    Ok(())
}

fn violation(found: Result<(), Error>) -> Violation {
    match found {
        Err(Error::Violation(violation)) => *violation,
        other => panic!("{other:?}"),
    }
}

/// The same on both devices.
fn each_fault_is_found<D: Lab>(device: &D) {
    plant(device, Fault::None).unwrap();
    for (fault, text) in [
        (
            Fault::UseAfterStep,
            "`indexer.values` was written after its live range had ended with step `index_topk` of \
             layer 4 on stream `aux0`; a pointer was kept beyond its step",
        ),
        (
            Fault::RowOverrun,
            "`topk.lens` was written at byte 32, beyond the rows of the pass, in step \
             `global_topk` of layer 4 on stream `main`",
        ),
        (
            Fault::WriteThroughReadView,
            "`indexer.values` was written in step `index_topk` of layer 4 on stream `aux0`, which \
             only reads it; declare the write",
        ),
    ] {
        let found = violation(plant(device, fault));
        assert_eq!(found.to_string(), text);
        device.wrong().unwrap();
    }
}

toy! { WithoutFork: ["main", "side"] [0, 0]
    { produce 0 Full 1 [0] []; consume 1 Full 0 [] [0]; reduce 1 Full 0 [1] []; report 1 Full 1 [] [1]; }
    { true true [3 / 0]; true false []; true false []; true true []; }
}

fn a_lost_edge_is_found<D: Device>(device: &D) {
    let mut pool: PoolCore<_, _> =
        PoolCore::new(device, Toys::<WithoutFork>::default(), Backing::Sanitized).unwrap();
    let mut steps = || {
        let mut pass = pool.begin(4)?;
        let mut layer = pass.layer(0)?;
        for step in 0..4 {
            layer.step(step)?;
        }
        drop(layer);
        pass.finish()
    };
    let found = violation(steps());
    assert_eq!(
        found.to_string(),
        "`x` is in use when step `consume` of layer 0 on stream `side` touches it; no edge leads \
         from `produce` (layer 0, stream `main`) to `consume` (layer 0, stream `side`)"
    );
}

#[test]
fn each_planted_fault_is_found_on_the_host() {
    for host in [Host::in_order(), Host::random(1)] {
        let lab = HostLab::new(host);
        each_fault_is_found(&lab);
        a_lost_edge_is_found(&lab);
    }
}

#[test]
fn each_planted_fault_is_found_on_the_gpu() {
    let Some(turn) = gpu("the sanitizer finds each fault") else { return };
    each_fault_is_found(&turn.gpu);
    a_lost_edge_is_found(&turn.gpu);
    a_foreign_stream_is_found(&turn.gpu);
    say(
        "RESULT the sanitizer found: use after the step, row overrun, wrong stream, lost edge, write through a read view",
    );
}

/// A way to hand a view to another stream.
type Use<'u> = &'u dyn Fn(&CudaStream, View<'_, i32, Gpu, 1>);

fn a_foreign_stream_is_found(gpu: &Gpu) {
    let dims = flash_scratch::Dims { max_num_tokens: 8 };
    let uses: [Use<'_>; 2] = [
        &|other, lens| {
            assert_eq!(lens.lend(other).bytes, 32);
        },
        &|other, lens| {
            use scratchpool::cuda::cudarc::driver::DevicePtr as _;
            drop(lens.device_ptr(other));
        },
    ];
    for by in uses {
        let mut pool = FlashScratch::allocate_with(gpu, dims, Backing::Sanitized).unwrap();
        let other = gpu.cuda.create_stream("other").unwrap();
        let mut pass = pool.begin(8).unwrap();
        let mut layer = pass.layer(2).unwrap();
        let mut step = layer.global_topk().unwrap().unwrap();
        let lens = step.buffers().topk_lens;
        by(&other, lens.as_view());
        drop(step);
        drop(layer);
        let found = violation(pass.finish());
        assert_eq!((found.kind, found.buffer.as_str()), (ViolationKind::WrongStream, "topk.lens"));
        assert_eq!((found.step, found.layer, found.stream), ("global_topk", 2, "main"));
    }
}

#[test]
fn correct_passes_are_found_correct_with_the_same_results_on_the_host() {
    for seed in 0..3 {
        let lab = HostLab::new(Host::random(seed));
        assert_eq!(flash::run(&lab, Backing::Sanitized, 4, [1, 0, 2], flash::PLAIN).unwrap(), 0);
    }
}

#[test]
fn correct_passes_are_found_correct_with_the_same_results_on_the_gpu() {
    let Some(turn) = gpu("the sanitizer finds nothing in correct passes") else { return };
    let passes = [16, 8, 16, 4, 16, 0, 1, 64];
    let wrong = flash::run(&turn.gpu, Backing::Sanitized, 64, passes, flash::PLAIN).unwrap();
    say(&format!("RESULT sanitized flash, rows {passes:?}: no violation, {wrong} wrong words"));
    assert_eq!(wrong, 0);
}

#[test]
fn what_the_device_finds_in_memory_is_what_reading_it_finds() {
    let Some(turn) = gpu("the sanitizer's kernels") else { return };
    let gpu = &turn.gpu;
    let stream = gpu.create_stream("s").unwrap();
    let bytes: Vec<u8> =
        (0..100_003_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let memory = gpu.allocate(bytes.len() as u64, 256).unwrap();
    let start = Gpu::base(&memory);
    let host = Host::in_order();
    let host_stream = host.create_stream("s").unwrap();
    // SAFETY: the block has these bytes, and so has the vector.
    unsafe {
        gpu.write_bytes(&stream, start, &bytes).unwrap();
        let here = host.digest(&host_stream, bytes.as_ptr(), bytes.len()).unwrap();
        assert_eq!(gpu.digest(&stream, start, bytes.len()).unwrap(), here);
        gpu.fill_bytes(&stream, start, bytes.len(), 0xff).unwrap();
        assert_eq!(gpu.find_other(&stream, start, bytes.len(), 0xff).unwrap(), None);
        for at in [100_002, 70_000, 0] {
            gpu.write_bytes(&stream, start.wrapping_add(at), &[1]).unwrap();
            assert_eq!(gpu.find_other(&stream, start, bytes.len(), 0xff).unwrap(), Some(at));
        }
    }
}
