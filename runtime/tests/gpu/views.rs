//! Views where cudarc takes an argument, launch kinds, micro-batches, and the errors of a device.

use scratchpool::cuda::cudarc::driver::{
    CudaContext, DevicePtr as _, DeviceSlice as _, PushKernelArg as _,
};
use scratchpool::cuda::{CaptureMode, Cuda, CudaError, Stream, nvrtc};
use scratchpool::tables::Launch;
use scratchpool::{Backing, Device, Error, Host, bf16, scratch_pool};

use crate::flash_pool::{FlashScratch, flash_scratch};
use crate::lab::{Gpu, HostLab, Lab, SOURCE, gpu, grid, say};

#[test]
fn the_kernels_compile_for_three_architectures_where_the_compiler_is_found() {
    if let Err(error) = nvrtc::check() {
        say(&format!("SKIPPED compiling the kernels: {error}"));
        return;
    }
    for capability in [(9, 0), (10, 0), (12, 0)] {
        let ptx = nvrtc::compile(SOURCE, capability, &[]).unwrap().to_src();
        assert!(ptx.contains(&format!(".target sm_{}{}", capability.0, capability.1)));
        assert!(ptx.contains("griddepcontrol.wait"));
    }
    let Err(CudaError::Compile { log }) = nvrtc::compile("no kernel", (9, 0), &[]) else {
        panic!("compiled");
    };
    assert!(log.contains("error"), "{log}");
    assert!(matches!(nvrtc::compile("\0", (9, 0), &[]), Err(CudaError::Compile { .. })));
}

#[test]
fn cudarcs_copies_memsets_and_launches_take_views_on_their_own_stream_and_on_others() {
    let Some(turn) = gpu("cudarc takes views") else { return };
    let gpu = &turn.gpu;
    let dims = flash_scratch::Dims { max_num_tokens: 64 };
    let mut pool = FlashScratch::allocate(gpu, dims).unwrap();
    let other = gpu.cuda.create_stream("other").unwrap();
    let mut pass = pool.begin(64).unwrap();
    let mut layer = pass.layer(2).unwrap();
    let mut step = layer.global_topk().unwrap().unwrap();
    let stream = step.stream();
    let out = step.buffers();
    let (mut indices, mut lens) = (out.topk_indices, out.topk_lens);
    assert_eq!((indices.num_bytes(), lens.num_bytes()), (64 * 512 * 4, 64 * 4));
    assert_eq!(indices.device_ptr(stream).0, indices.address());

    let values: Vec<i32> = (0..64).collect();
    stream.memcpy_htod(&values, &mut lens).unwrap();
    assert_eq!(stream.clone_dtoh(&lens).unwrap(), values);
    assert_eq!(lens.as_view().to_vec(gpu).unwrap(), values);
    stream.memset_zeros(&mut indices).unwrap();
    assert!(stream.clone_dtoh(&indices.as_view()).unwrap().iter().all(|it| *it == 0));

    // Another stream sees what the view's own is still to write, and the view's own does not go
    // on before the other is done.
    for round in 0..20 {
        gpu.spin(stream, 500).unwrap();
        lens.fill_from(gpu, &[round; 64]).unwrap();
        gpu.spin(stream, 500).unwrap();
        stream.memcpy_htod(&[round + 100; 64], &mut lens).unwrap();
        gpu.spin(&other, 500).unwrap();
        let copied = other.clone_dtod(&lens.as_view()).unwrap();
        stream.memset_zeros(&mut lens).unwrap();
        assert_eq!(other.clone_dtoh(&copied).unwrap(), [round + 100; 64]);
    }

    // A launch through cudarc, one through ours: the same words.
    let (words, tag, wrong) = ((indices.bytes() / 4) as u64, 77_u32, gpu.counter());
    let mut fill = stream.launch_builder(&gpu.kernels.fill);
    fill.arg(&mut indices).arg(&words).arg(&tag);
    // SAFETY: the kernel takes these three; the view is this stream's.
    unsafe { fill.launch(grid(64 * 512)) }.unwrap();
    let call = stream.kernel(&gpu.kernels.check);
    let call = call.arg(&indices).arg(&words).arg(&tag).arg(&wrong);
    // SAFETY: the kernel takes these four; the view is this stream's.
    unsafe { call.launch(grid(indices.bytes() / 4)) }.unwrap();
    assert_eq!(gpu.wrong().unwrap(), 0);
}

#[test]
fn two_devices_of_one_context_and_the_callers_streams_are_told_apart() {
    let Some(turn) = gpu("the caller's context and streams") else { return };
    let context = CudaContext::new(0).unwrap();
    let cuda = Cuda::from_context(&context).unwrap();
    let mine = ["main", "aux0", "aux1"]
        .map(|name| cuda.stream(context.new_stream().unwrap(), name).unwrap());
    let handles = mine.clone().map(|stream| stream.handle());
    let dims = flash_scratch::Dims { max_num_tokens: 8 };
    let mut pool = FlashScratch::with_streams(&cuda, dims, Backing::Arena, [mine.clone()]).unwrap();
    let mut pass = pool.begin(8).unwrap();
    let mut layer = pass.layer(2).unwrap();
    assert_eq!(layer.fork().unwrap().stream().handle(), handles[0]);
    assert_eq!(layer.index_q().unwrap().unwrap().stream().handle(), handles[1]);
    let foreign = FlashScratch::with_streams(&turn.gpu, dims, Backing::Arena, [mine.clone()]);
    assert!(matches!(foreign, Err(Error::ForeignDevice { stream: "main" })));
}

#[test]
fn failures_of_the_device_are_typed_errors_that_say_what_to_do() {
    let Some(turn) = gpu("failures are typed errors") else { return };
    let gpu = &turn.gpu;
    assert!(matches!(
        Cuda::open(99),
        Err(Error::Cuda(CudaError::NoDevice { index: 99, count: 1.. }))
    ));
    let dims = flash_scratch::Dims { max_num_tokens: 1 << 40 };
    let huge = FlashScratch::allocate(gpu, dims);
    assert!(matches!(huge, Err(Error::OutOfMemory { .. } | Error::TooLarge { .. })), "{huge:?}");
    assert!(matches!(gpu.allocate(1 << 46, 256), Err(Error::OutOfMemory { .. })));
    assert!(matches!(gpu.allocate(u64::MAX, 256), Err(Error::TooLarge { .. })));
    // The device goes on.
    for align in [1, 256, 4096, 1 << 21] {
        let memory = gpu.allocate(1000, align).unwrap();
        assert_eq!(Gpu::base(&memory).addr() as u64 % align, 0);
        assert_eq!(Gpu::base(&gpu.allocate(0, align).unwrap()).addr() as u64 % align, 0);
    }
    let ptx = nvrtc::compile(SOURCE, (12, 0), &[]).unwrap();
    if gpu.cuda.capability() < (12, 0) {
        let Err(error @ Error::Cuda(CudaError::Architecture { .. })) = gpu.cuda.load(ptx) else {
            panic!("loaded");
        };
        assert!(error.to_string().contains("compile it for"), "{error}");
    }
    let module = gpu.cuda.compile(SOURCE).unwrap();
    assert!(matches!(
        gpu.cuda.kernel(&module, "missing"),
        Err(Error::Cuda(CudaError::NoKernel { .. }))
    ));
    let stream = gpu.create_stream("s").unwrap();
    let mut call = stream.kernel(&gpu.kernels.eight);
    let argument = 0_u64;
    for _ in 0..40 {
        call = call.arg(&argument);
    }
    // SAFETY: nothing is launched.
    let refused = unsafe { call.launch(grid(1)) };
    assert!(matches!(
        refused,
        Err(Error::Cuda(CudaError::TooManyArguments { given: 40, most: 32 }))
    ));
}

/// A value handed from stream to stream and back, in two micro-batches.
#[scratch_pool(align = 256, rows = max_rows, dims(max_rows: runtime(64), width = 1024), layers(count = 4),
    ubatches = 2, exclusive(x, y))]
#[step(produce, after(prev.report), writes(x))]
#[step(consume, on = side, after(produce), reads(x))]
#[step(reduce, on = side, writes(y))]
#[step(report, on = side, reads(y))]
pub struct Relay {
    /// A value of the main stream.
    #[group(x)]
    #[shape(max_rows, width)]
    pub x: u32,
    /// A value of the side stream.
    #[group(y)]
    #[shape(max_rows)]
    pub y: u64,
}

/// Two micro-batches whose layers interleave, and passes that follow without waiting.
fn relay<D: Lab>(device: &D, passes: u32) -> Result<u64, Error> {
    let mut pool = Relay::allocate(device, relay::Dims { max_rows: 64 })?;
    let [mut first, mut second] = pool.split();
    for pass in 0..passes {
        let (mut one, mut two) = (first.begin(64)?, second.begin(1 + pass as usize % 64)?);
        for index in 0..4 {
            let (mut one, mut two) = (one.layer(index)?, two.layer(index)?);
            let tag = |ubatch: u32| pass * 64 + index as u32 * 8 + 4 * ubatch;
            for (ubatch, layer) in [(0_u32, &mut one), (1, &mut two)] {
                let mut step = layer.produce()?;
                device.spin(step.stream(), 5)?;
                device.fill(step.buffers().x, tag(ubatch))?;
            }
            for (ubatch, layer) in [(1_u32, &mut two), (0, &mut one)] {
                let mut step = layer.consume()?;
                device.spin(step.stream(), 10)?;
                device.check(step.buffers().x, tag(ubatch))?;
                drop(step);
                let mut step = layer.reduce()?;
                device.fill(step.buffers().y, tag(ubatch) + 1)?;
                drop(step);
                let mut step = layer.report()?;
                device.check(step.buffers().y, tag(ubatch) + 1)?;
            }
        }
    }
    device.wrong()
}

#[test]
fn micro_batches_and_passes_in_flight_keep_apart_on_the_host() {
    for seed in 0..20 {
        assert_eq!(relay(&HostLab::new(Host::random(seed)), 4).unwrap(), 0, "seed {seed}");
    }
}

#[test]
fn micro_batches_and_passes_in_flight_keep_apart_on_the_gpu() {
    let Some(turn) = gpu("micro-batches keep apart") else { return };
    let wrong = relay(&turn.gpu, 500).unwrap();
    say(&format!("RESULT two micro-batches, 500 passes in flight: {wrong} wrong words"));
    assert_eq!(wrong, 0);
}

/// A chain of dependent launches on one stream.
#[scratch_pool(align = 256, layers(count = 4))]
#[step(write_x, writes(x))]
#[step(read_x, launch = dependent, reads(x))]
#[step(pause, launch = dependent)]
#[step(write_y, launch = dependent, writes(y))]
#[step(read_y, launch = dependent, reads(y))]
pub struct Chain {
    /// One value.
    #[group(x)]
    #[shape(65536)]
    pub x: u32,
    /// And the other.
    #[group(y)]
    #[shape(65536)]
    pub y: u32,
}

#[test]
fn dependent_launches_keep_the_order_and_overlap_on_the_gpu() {
    let Some(turn) = gpu("dependent launches") else { return };
    let gpu = &turn.gpu;
    let mut pool = Chain::allocate(gpu).unwrap();
    let wrong = gpu.counter();
    let words = 65_536_u64;
    let config = grid(65_536);
    for pass in 0..200_u32 {
        let mut pass_guard = pool.begin().unwrap();
        for index in 0..4 {
            let tag = pass * 16 + index as u32 * 2;
            let mut layer = pass_guard.layer(index).unwrap();
            let mut step = layer.write_x().unwrap();
            let x = step.buffers().x;
            let call = x.stream().kernel(&gpu.kernels.fill_dependent);
            // SAFETY: the kernel takes these, waits first, and touches the view's words only.
            unsafe { call.arg(&x).arg(&words).arg(&tag).launch(config) }.unwrap();
            drop(step);
            let mut step = layer.read_x().unwrap();
            let x = step.buffers().x;
            let call = x.stream().kernel(&gpu.kernels.check_dependent);
            // SAFETY: as above.
            unsafe { call.arg(&x).arg(&words).arg(&tag).arg(&wrong).launch(config) }.unwrap();
            drop(step);
            let (tag, mut step) = (tag + 1, layer.write_y().unwrap());
            let y = step.buffers().y;
            let call = y.stream().kernel(&gpu.kernels.fill_dependent);
            // SAFETY: as above.
            unsafe { call.arg(&y).arg(&words).arg(&tag).launch(config) }.unwrap();
            drop(step);
            let mut step = layer.read_y().unwrap();
            let y = step.buffers().y;
            let call = y.stream().kernel(&gpu.kernels.check_dependent);
            // SAFETY: as above.
            unsafe { call.arg(&y).arg(&words).arg(&tag).arg(&wrong).launch(config) }.unwrap();
        }
    }
    let wrong = gpu.wrong().unwrap();
    say(&format!("RESULT dependent launches, 200 passes: {wrong} wrong words"));
    assert_eq!(wrong, 0);
}

#[test]
fn values_of_all_kinds_go_to_the_device_and_back() {
    let Some(turn) = gpu("values go to the device and back") else { return };
    let gpu = &turn.gpu;
    let dims = flash_scratch::Dims { max_num_tokens: 4 };
    for backing in [Backing::Arena, Backing::PerCall] {
        let mut pool = FlashScratch::allocate_with(gpu, dims, backing).unwrap();
        let mut pass = pool.begin(2).unwrap();
        let mut layer = pass.layer(3).unwrap();
        let mut step = layer.q_proj().unwrap();
        let q = step.buffers().q;
        assert_eq!(q.address() % 256, 0);
        let values: Vec<bf16> = (0..q.len()).map(|i| bf16::from_bits(i as u16)).collect();
        let (mut prefill, mut decode) = q.split_at_row(1).unwrap();
        let (low, high) = values.split_at(prefill.len());
        prefill.fill_from(gpu, low).unwrap();
        decode.fill_from(gpu, high).unwrap();
        drop(step);
        let mut step = layer.attention().unwrap();
        let bits = |values: &[bf16]| values.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        let back = step.buffers().q.to_vec(gpu).unwrap();
        assert_eq!(bits(&back), bits(&values));
    }
}

#[test]
fn what_a_stream_was_given_is_counted_until_it_is_handed_out_on_the_gpu() {
    let Some(turn) = gpu("what a stream was given is counted") else { return };
    let (gpu, cuda) = (&turn.gpu, &turn.gpu.cuda);
    let (one, two) = (cuda.create_stream("one").unwrap(), cuda.create_stream("two").unwrap());
    let event = cuda.create_event().unwrap();
    let grows = |what: &str, stream: &Stream, act: &dyn Fn()| {
        let before = cuda.issued(stream).unwrap();
        act();
        assert!(cuda.issued(stream).unwrap() > before, "{what}");
    };
    cuda.record(&two, &event).unwrap();
    let memory = cuda.allocate(64, 64).unwrap();
    let base = Cuda::base(&memory);
    grows("a launch", &one, &|| gpu.delay(&one.clone(), 1).unwrap());
    grows("a wait", &one, &|| cuda.wait(&one, &event).unwrap());
    // SAFETY: the block has 64 bytes, and no view of it exists.
    grows("a memset", &one, &|| unsafe { cuda.fill_bytes(&one, base, 64, 1) }.unwrap());
    // SAFETY: as above.
    grows("a copy", &one, &|| unsafe { cuda.write_bytes(&one, base, &[0; 64]) }.unwrap());
    grows("an allocation", &one, &|| drop(cuda.allocate_on(&one, 64, 64).unwrap()));
    grows("giving back", &one, &|| {
        let memory = cuda.allocate_on(&two, 64, 64).unwrap();
        let count = cuda.issued(&one).unwrap();
        cuda.retire(memory, [&one].into_iter()).unwrap();
        // `two` waits for `one` and frees; `one` is given nothing.
        assert_eq!(cuda.issued(&one).unwrap(), count);
        gpu.delay(&one, 1).unwrap();
    });
    let count = cuda.issued(&one);
    cuda.record(&one, &event).unwrap();
    // SAFETY: a full step leaves nothing without an order.
    unsafe { cuda.enter_step(&one, Launch::Full) }.unwrap();
    cuda.leave_step(&one).unwrap();
    gpu.delay(&two, 1).unwrap();
    assert_eq!((cuda.issued(&one), count.is_some()), (count, true), "nothing was given");

    // A capture is not looked into; a replay is something given to each of its streams.
    let lanes = [one.clone(), two.clone()];
    let capture = cuda.capture(&lanes, 1, CaptureMode::ThreadLocal).unwrap();
    assert_eq!(cuda.issued(&one), None);
    gpu.delay(&one, 1).unwrap();
    let graph = capture.end().unwrap();
    for stream in &lanes {
        grows("a replay", stream, &|| graph.replay(1).unwrap());
    }
    let alone = cuda.capture(&lanes[..1], 1, CaptureMode::ThreadLocal).unwrap();
    gpu.delay(&one, 1).unwrap();
    let alone = alone.end().unwrap();
    grows("a replay on one stream", &one, &|| alone.replay(1).unwrap());

    // Whoever has the driver's stream may give it anything.
    assert!(one.context().ordinal() == 0);
    assert_eq!(cuda.issued(&one), None);
    assert!(!two.handle().is_null());
    assert_eq!(cuda.issued(&two), None);
    let theirs = cuda.stream(cuda.context().new_stream().unwrap(), "theirs").unwrap();
    assert_eq!(cuda.issued(&theirs), None);
    cuda.synchronize().unwrap();
}

#[test]
fn a_view_is_launched_with_on_its_own_stream_only_on_the_gpu() {
    let Some(turn) = gpu("a view is launched with on its own stream only") else { return };
    let gpu = &turn.gpu;
    let mut pool = FlashScratch::allocate(gpu, flash_scratch::Dims { max_num_tokens: 4 }).unwrap();
    let mut pass = pool.begin(4).unwrap();
    let aux = pass.streams()[1].clone();
    let mut layer = pass.layer(2).unwrap();
    let mut step = layer.q_proj().unwrap();
    let (main, q) = (step.stream().clone(), step.buffers().q);
    let words = (q.bytes() / 4) as u64;
    let (tag, config) = (7_u32, grid(q.bytes() / 4));
    let launch = |stream: &Stream| {
        let call = stream.kernel(&gpu.kernels.fill).arg(&q).arg(&words).arg(&tag);
        // SAFETY: the kernel takes these three, and fills the view.
        unsafe { call.launch(config) }
    };
    let refused = launch(&aux);
    let text = "a view of stream `main` was passed to a launch on stream `aux0`";
    assert!(refused.unwrap_err().to_string().starts_with(text));
    launch(&main).unwrap();
    gpu.cuda.synchronize().unwrap();
}
