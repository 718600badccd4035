//! CUDA graphs: a whole pass and pieces of it, replayed with other inputs and rows.

use scratchpool::cuda::{Capture, CaptureMode, Cuda, CudaError, Graph, Memory, Stream};
use scratchpool::{Backing, Device, Element, Error, View, ViewMut};

use crate::flash_pool::{FlashScratch, flash_scratch};
use crate::lab::{Gpu, Lab as _, gpu, grid, say};

/// The most rows of a captured pass.
const MAX: usize = 72;
/// Rows of successive replays.
const ROWS: [usize; 5] = [1, 2, 8, 24, MAX];
const REPLAYS: usize = 120;
const LAYERS: usize = flash_scratch::SCHEDULE.layers.len();

/// Where kernels of a graph read the rows and the tag of a replay.
struct Control {
    memory: Memory,
    stream: Stream,
}

impl Control {
    fn new(gpu: &Gpu) -> Self {
        let memory = gpu.cuda.allocate(8, 8).unwrap();
        Self { memory, stream: gpu.cuda.create_stream("control").unwrap() }
    }

    fn set(&self, gpu: &Gpu, rows: usize, tag: u32) {
        let words = [rows as u32, tag].map(u32::to_le_bytes).concat();
        // A replay may still read the former words.
        gpu.cuda.synchronize().unwrap();
        // SAFETY: its own eight bytes, when nothing is in flight.
        unsafe { gpu.cuda.write_bytes(&self.stream, Cuda::base(&self.memory), &words) }.unwrap();
    }

    fn address(&self) -> u64 {
        Cuda::base(&self.memory).addr() as u64
    }

    fn fill<T: Element, const R: usize>(
        &self,
        gpu: &Gpu,
        view: ViewMut<'_, T, Gpu, R>,
        salt: u32,
    ) -> Result<(), Error> {
        let row = (view.bytes() / view.rows() / 4) as u64;
        let control = self.address();
        let call = view.stream().kernel(&gpu.kernels.fill_live);
        let call = call.arg(&view).arg(&row).arg(&control).arg(&salt);
        // SAFETY: the kernel takes these four, and writes at most the view's rows.
        unsafe { call.launch(grid(view.bytes() / 4)) }
    }

    fn check<T: Element, const R: usize>(
        &self,
        gpu: &Gpu,
        view: View<'_, T, Gpu, R>,
        salt: u32,
    ) -> Result<(), Error> {
        let row = (view.bytes() / view.rows() / 4) as u64;
        let (control, wrong) = (self.address(), gpu.counter());
        let call = view.stream().kernel(&gpu.kernels.check_live);
        let call = call.arg(&view).arg(&row).arg(&control).arg(&salt).arg(&wrong);
        // SAFETY: the kernel takes these five, and reads at most the view's rows.
        unsafe { call.launch(grid(view.bytes() / 4)) }
    }
}

fn pool(gpu: &Gpu) -> FlashScratch<Gpu> {
    FlashScratch::allocate(gpu, flash_scratch::Dims { max_num_tokens: MAX }).unwrap()
}

/// What is captured of a layer: all up to attention.
fn before_attention(
    gpu: &Gpu,
    control: &Control,
    layer: &mut flash_scratch::Layer<'_, Gpu>,
    salt: u32,
) -> Result<(), Error> {
    layer.fork()?;
    if let Some(mut step) = layer.index_q()? {
        let out = step.buffers();
        control.fill(gpu, out.index_values, salt + 1)?;
        control.fill(gpu, out.index_scales, salt + 2)?;
        control.fill(gpu, out.index_weights, salt + 3)?;
    }
    if let Some(mut step) = layer.index_topk()? {
        let read = step.buffers();
        control.check(gpu, read.index_values, salt + 1)?;
        control.check(gpu, read.index_scales, salt + 2)?;
        control.check(gpu, read.index_weights, salt + 3)?;
    }
    if let Some(mut step) = layer.compress()? {
        let mut kv = step.buffers().compressor_kv;
        control.fill(gpu, kv.reborrow(), salt + 4)?;
        control.check(gpu, kv.as_view(), salt + 4)?;
    }
    let mut step = layer.q_proj()?;
    control.fill(gpu, step.buffers().q, salt)?;
    drop(step);
    layer.join()?;
    if let Some(mut step) = layer.global_topk()? {
        let out = step.buffers();
        control.fill(gpu, out.topk_indices, salt + 5)?;
        control.fill(gpu, out.topk_lens, salt + 6)?;
    }
    Ok(())
}

fn attention(
    gpu: &Gpu,
    control: &Control,
    layer: &mut flash_scratch::Layer<'_, Gpu>,
    salt: u32,
) -> Result<(), Error> {
    let mut step = layer.attention()?;
    let read = step.buffers();
    control.check(gpu, read.q, salt)?;
    if let (Some(indices), Some(lens)) = (read.topk_indices, read.topk_lens) {
        control.check(gpu, indices, salt + 5)?;
        control.check(gpu, lens, salt + 6)?;
    }
    Ok(())
}

/// The eager break of a piecewise pass: launched anew each time, for the rows of the pass.
fn eager_attention(
    gpu: &Gpu,
    layer: &mut flash_scratch::Layer<'_, Gpu>,
    tag: u32,
) -> Result<(), Error> {
    let mut step = layer.attention()?;
    let read = step.buffers();
    gpu.check(read.q, tag)?;
    if let (Some(indices), Some(lens)) = (read.topk_indices, read.topk_lens) {
        gpu.check(indices, tag + 5)?;
        gpu.check(lens, tag + 6)?;
    }
    Ok(())
}

fn salt(layer: usize) -> u32 {
    16 * layer as u32
}

/// What others do with the device's memory between replays.
fn pressure(gpu: &Gpu, replay: usize) {
    let stream = gpu.cuda.create_stream("others").unwrap();
    let mut taken = stream.alloc_zeros::<u8>((1 + replay % 7) << 20).unwrap();
    stream.memset_zeros(&mut taken).unwrap();
    let plain = gpu.cuda.allocate((1 + replay as u64 % 5) << 20, 256).unwrap();
    drop(plain);
}

fn capture_whole(
    gpu: &Gpu,
    control: &Control,
    pool: &mut FlashScratch<Gpu>,
    mode: CaptureMode,
) -> Result<Graph, Error> {
    let mut pass = pool.begin(MAX)?;
    let capture = gpu.cuda.capture(pass.streams(), pass.num_tokens(), mode)?;
    for index in 0..LAYERS {
        let mut layer = pass.layer(index)?;
        before_attention(gpu, control, &mut layer, salt(index))?;
        attention(gpu, control, &mut layer, salt(index))?;
    }
    pass.finish()?;
    capture.end()
}

#[test]
fn a_whole_pass_is_replayed_with_other_inputs_and_rows_under_memory_pressure() {
    let Some(turn) = gpu("a whole pass is replayed") else { return };
    let gpu = &turn.gpu;
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let control = Control::new(gpu);
        let mut pool = pool(gpu);
        control.set(gpu, MAX, 1);
        // Twice: work before the capture, and a second capture over the events of the first.
        drop(capture_whole(gpu, &control, &mut pool, mode).unwrap());
        let graph = capture_whole(gpu, &control, &mut pool, mode).unwrap();
        assert_eq!(gpu.wrong().unwrap(), 0, "a capture executes nothing");
        for replay in 0..REPLAYS {
            let rows = ROWS[replay % ROWS.len()];
            control.set(gpu, rows, 1 + 4096 * replay as u32);
            graph.replay(rows).unwrap();
            pressure(gpu, replay);
        }
        let wrong = gpu.wrong().unwrap();
        say(&format!(
            "RESULT whole pass, {mode:?}: {REPLAYS} replays, rows {ROWS:?}: {wrong} wrong words"
        ));
        assert_eq!(wrong, 0);
        // The check would notice: replay with a tag that no fill of this replay writes.
        assert!(matches!(
            graph.replay(MAX + 1),
            Err(Error::Cuda(CudaError::TooManyRows { asked: 73, max: 72 }))
        ));
    }
}

#[test]
fn pieces_are_replayed_with_eager_breaks_in_between() {
    let Some(turn) = gpu("pieces are replayed with eager breaks") else { return };
    let gpu = &turn.gpu;
    let control = Control::new(gpu);
    let mut pool = pool(gpu);
    control.set(gpu, MAX, 1);
    let mut pieces = Vec::new();
    let mut pass = pool.begin(MAX).unwrap();
    let streams = pass.streams().to_vec();
    for index in 0..LAYERS {
        let mut layer = pass.layer(index).unwrap();
        let capture: Capture = gpu.cuda.capture(&streams, MAX, CaptureMode::ThreadLocal).unwrap();
        before_attention(gpu, &control, &mut layer, salt(index)).unwrap();
        pieces.push(capture.end().unwrap());
        // The break runs here as well, so the piece has to: a replay does it.
        pieces[index].replay(MAX).unwrap();
        eager_attention(gpu, &mut layer, 1 + salt(index)).unwrap();
    }
    drop(pass);
    assert_eq!(gpu.wrong().unwrap(), 0, "the pass in which the pieces were captured");
    for replay in 0..REPLAYS {
        let (rows, tag) = (ROWS[replay % ROWS.len()], 1 + 4096 * replay as u32);
        control.set(gpu, rows, tag);
        let mut pass = pool.begin(rows).unwrap();
        for (index, piece) in pieces.iter().enumerate() {
            let mut layer = pass.layer(index).unwrap();
            piece.replay(rows).unwrap();
            eager_attention(gpu, &mut layer, tag + salt(index)).unwrap();
        }
        drop(pass);
        pressure(gpu, replay);
    }
    let wrong = gpu.wrong().unwrap();
    say(&format!(
        "RESULT piecewise, {LAYERS} pieces and breaks: {REPLAYS} replays, rows {ROWS:?}: {wrong} wrong words"
    ));
    assert_eq!(wrong, 0);
}

#[test]
fn eager_passes_and_replays_follow_one_another_in_any_mixture() {
    let Some(turn) = gpu("eager passes and replays mix") else { return };
    let gpu = &turn.gpu;
    let control = Control::new(gpu);
    let mut pool = pool(gpu);
    control.set(gpu, MAX, 1);
    let graph = capture_whole(gpu, &control, &mut pool, CaptureMode::ThreadLocal).unwrap();
    for round in 0..40_u32 {
        for index in 0..1 + round % 3 {
            let mut pass = pool.begin(MAX).unwrap();
            for layer in 0..LAYERS {
                let mut layer_guard = pass.layer(layer).unwrap();
                // The same control words, so that nothing has to wait for the host.
                before_attention(gpu, &control, &mut layer_guard, salt(layer) + 2048 * index)
                    .unwrap();
                attention(gpu, &control, &mut layer_guard, salt(layer) + 2048 * index).unwrap();
            }
        }
        (0..1 + round % 2).for_each(|_| graph.replay(MAX).unwrap());
    }
    let wrong = gpu.wrong().unwrap();
    say(&format!("RESULT eager passes and replays mixed: {wrong} wrong words"));
    assert_eq!(wrong, 0);
}

#[test]
fn a_graph_keeps_its_pools_memory_alive_and_pointers_never_move() {
    let Some(turn) = gpu("a graph keeps its pool's memory alive") else { return };
    let gpu = &turn.gpu;
    let control = Control::new(gpu);
    let mut pool = pool(gpu);
    let bytes = pool.held_bytes();
    control.set(gpu, MAX, 1);
    let graph = capture_whole(gpu, &control, &mut pool, CaptureMode::ThreadLocal).unwrap();
    assert_eq!(graph.arenas(), 1);
    let before = gpu.cuda.memory().unwrap().0;
    drop(pool);
    assert!(gpu.cuda.memory().unwrap().0 < before + bytes / 2, "freed under the graph");
    let taken = gpu.cuda.allocate(bytes, 256).unwrap();
    graph.replay(MAX).unwrap();
    assert_eq!(gpu.wrong().unwrap(), 0);
    drop(taken);
    // A pool that is dropped before the capture ends stays with the graph all the same.
    let mut early = self::pool(gpu);
    let mut pass = early.begin(MAX).unwrap();
    let capture = gpu.cuda.capture(pass.streams(), MAX, CaptureMode::ThreadLocal).unwrap();
    let mut layer = pass.layer(0).unwrap();
    let mut step = layer.q_proj().unwrap();
    control.fill(gpu, step.buffers().q, 0).unwrap();
    drop(step);
    let mut step = layer.attention().unwrap();
    control.check(gpu, step.buffers().q, 0).unwrap();
    drop(step);
    drop(layer);
    drop(pass);
    drop(early);
    let late = capture.end().unwrap();
    assert_eq!(late.arenas(), 1);
    late.replay(MAX).unwrap();
    assert_eq!(gpu.wrong().unwrap(), 0);
    // Dropped while it runs.
    graph.replay(MAX).unwrap();
    drop(graph);
    assert_eq!(gpu.wrong().unwrap(), 0);
}

#[test]
fn what_a_graph_cannot_hold_is_a_typed_error_and_leaves_the_streams_usable() {
    let Some(turn) = gpu("what a graph cannot hold is an error") else { return };
    let gpu = &turn.gpu;
    let is_capturing = |error: &Error| matches!(error, Error::Cuda(CudaError::Capturing { .. }));
    let is_per_call = |error: &Error| matches!(error, Error::PerCallCaptured { step: "index_q" });
    let dims = flash_scratch::Dims { max_num_tokens: MAX };
    let mut per_call = FlashScratch::allocate_with(gpu, dims, Backing::PerCall).unwrap();
    let mut arena = pool(gpu);
    {
        let mut pass = per_call.begin(8).unwrap();
        let capture = gpu.cuda.capture(pass.streams(), 8, CaptureMode::Relaxed).unwrap();
        let mut layer = pass.layer(2).unwrap();
        assert!(layer.index_q().is_err_and(|error| is_per_call(&error)));
        drop(layer);
        drop(capture);
    }
    let mut pass = arena.begin(8).unwrap();
    let streams = pass.streams().to_vec();
    let capture = gpu.cuda.capture(&streams, 8, CaptureMode::ThreadLocal).unwrap();
    assert!(gpu.cuda.capture(&streams, 8, CaptureMode::Relaxed).is_err_and(|it| is_capturing(&it)));
    assert!(gpu.cuda.allocate(1 << 20, 256).is_err_and(|error| is_capturing(&error)));
    assert!(gpu.cuda.synchronize().is_err_and(|error| is_capturing(&error)));
    let mut layer = pass.layer(2).unwrap();
    let mut step = layer.q_proj().unwrap();
    let q = step.buffers().q;
    assert!(q.as_view().to_vec(gpu).is_err_and(|error| is_capturing(&error)));
    gpu.fill(q, 7).unwrap();
    drop(step);
    // Thrown away: nothing ran, and the streams go on.
    drop(capture);
    let mut step = layer.attention().unwrap();
    gpu.check(step.buffers().q, 7).unwrap();
    assert!(gpu.wrong().unwrap() > 0, "the fill was thrown away with its graph");
    drop(step);
    drop(layer);
    pass.finish().unwrap();
    assert!(matches!(
        gpu.cuda.capture(&[], 8, CaptureMode::Relaxed),
        Err(Error::Cuda(CudaError::NoStreams))
    ));
    // One stream of three: the others would be left out of the order.
    let mut pass = arena.begin(8).unwrap();
    let capture = gpu.cuda.capture(&streams[..1], 8, CaptureMode::Relaxed).unwrap();
    let mut layer = pass.layer(2).unwrap();
    layer.fork().unwrap();
    assert!(matches!(layer.index_q(), Err(Error::Cuda(CudaError::OutsideCapture { .. }))));
    drop(capture);
}
