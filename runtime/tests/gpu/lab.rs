//! Kernels that fill, check and spin, on two devices behind one trait; and a device that can be told
//! to leave one wait out.

use std::cell::Cell;
use std::io::Write as _;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use scratchpool::cuda::cudarc::driver::{CudaFunction, LaunchConfig};
use scratchpool::cuda::{Cuda, CudaError, Event, Memory, Stream};
use scratchpool::tables::{Launch, ScheduleTable};
use scratchpool::{
    Device, Element, Error, Host, HostEvent, HostMemory, HostStream, Progress, StreamUser, View,
    ViewMut,
};

/// The kernels, in CUDA C++.
pub const SOURCE: &str = r#"
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u32 word(u32 tag, u64 index) {
    u32 x = tag * 2654435761u ^ (u32)index * 0x9e3779b9u;
    x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15;
    return x;
}

__device__ void fill_words(u32* to, u64 words, u32 tag) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) to[i] = word(tag, i);
}

__device__ void check_words(const u32* from, u64 words, u32 tag, u64* wrong) {
    u64 step = (u64)gridDim.x * blockDim.x;
    u64 seen = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) seen += from[i] != word(tag, i);
    if (seen) atomicAdd(wrong, seen);
}

extern "C" __global__ void fill(u32* to, u64 words, u32 tag) { fill_words(to, words, tag); }
extern "C" __global__ void check(const u32* from, u64 words, u32 tag, u64* wrong) { check_words(from, words, tag, wrong); }

// As launched in a dependent step: waits for the kernel in front of it, then lets the next one start.
extern "C" __global__ void fill_dependent(u32* to, u64 words, u32 tag) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    fill_words(to, words, tag);
}
extern "C" __global__ void check_dependent(const u32* from, u64 words, u32 tag, u64* wrong) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    check_words(from, words, tag, wrong);
}

// As captured: rows and tag are what the control words say when the graph is replayed.
extern "C" __global__ void fill_live(u32* to, u64 row, const u32* control, u32 salt) {
    fill_words(to, row * control[0], control[1] + salt);
}
extern "C" __global__ void check_live(const u32* from, u64 row, const u32* control, u32 salt, u64* wrong) {
    check_words(from, row * control[0], control[1] + salt, wrong);
}

extern "C" __global__ void spin(u64 cycles) {
    long long end = clock64() + (long long)cycles;
    while (clock64() < end) {}
}

extern "C" __global__ void eight(u32* a, u32* b, u32* c, u32* d, u32* e, u32* f, u32* g, u32* h) {}
"#;

/// Cycles of a microsecond, about.
const CYCLES: u64 = 1_980;

/// A device with the kernels.
pub trait Lab: Device {
    /// Fills words with what the tag makes of their index.
    ///
    /// # Safety
    ///
    /// The words are the stream's step's to write.
    unsafe fn fill_words(
        &self,
        stream: &Self::Stream,
        to: *mut u32,
        words: usize,
        tag: u32,
    ) -> Result<(), Error>;

    /// Counts words that are not what the tag makes of their index.
    ///
    /// # Safety
    ///
    /// The words are the stream's step's to read.
    unsafe fn check_words(
        &self,
        stream: &Self::Stream,
        from: *const u32,
        words: usize,
        tag: u32,
    ) -> Result<(), Error>;

    /// Keeps the stream busy, where time passes on its own.
    fn spin(&self, stream: &Self::Stream, micros: u64) -> Result<(), Error>;

    /// As `spin`, but as a launch of the step, which the runtime counts.
    fn delay(&self, stream: &Self::Stream, micros: u64) -> Result<(), Error>;

    /// Waits for everything, and takes the count of wrong words.
    fn wrong(&self) -> Result<u64, Error>;

    fn stream_name(stream: &Self::Stream) -> &'static str;

    fn fill<T: Element, const R: usize>(
        &self,
        mut view: ViewMut<'_, T, Self, R>,
        tag: u32,
    ) -> Result<(), Error> {
        let (stream, words) = (view.stream(), view.bytes() / 4);
        // SAFETY: the view's own words, exclusively, on its own stream.
        unsafe { self.fill_words(stream, view.as_mut_ptr().cast(), words, tag) }
    }

    fn check<T: Element, const R: usize>(
        &self,
        view: View<'_, T, Self, R>,
        tag: u32,
    ) -> Result<(), Error> {
        // SAFETY: the view's own words, on its own stream.
        unsafe { self.check_words(view.stream(), view.as_ptr().cast(), view.bytes() / 4, tag) }
    }
}

fn word(tag: u32, index: usize) -> u32 {
    let mut x = tag.wrapping_mul(2_654_435_761) ^ (index as u32).wrapping_mul(0x9e37_79b9);
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^ x >> 15
}

/// Takes the device's methods from a field.
macro_rules! delegate {
    ($field:ident: $memory:ty, $stream:ty) => {
        type Memory = $memory;
        type Stream = $stream;

        fn allocate(&self, bytes: u64, align: u64) -> Result<$memory, Error> {
            self.$field.allocate(bytes, align)
        }
        fn allocate_on(&self, stream: &$stream, bytes: u64, align: u64) -> Result<$memory, Error> {
            self.$field.allocate_on(stream, bytes, align)
        }
        fn retire<'s>(
            &self,
            memory: $memory,
            streams: impl Iterator<Item = &'s $stream>,
        ) -> Result<(), Error>
        where
            $stream: 's,
        {
            self.$field.retire(memory, streams)
        }
        fn take_foreign_use(&self, stream: &$stream) -> Option<u64> {
            self.$field.take_foreign_use(stream)
        }
        unsafe fn find_other(
            &self,
            stream: &$stream,
            from: *const u8,
            bytes: usize,
            value: u8,
        ) -> Result<Option<usize>, Error> {
            // SAFETY: the caller's promise.
            unsafe { self.$field.find_other(stream, from, bytes, value) }
        }
        unsafe fn digest(
            &self,
            stream: &$stream,
            from: *const u8,
            bytes: usize,
        ) -> Result<u64, Error> {
            // SAFETY: the caller's promise.
            unsafe { self.$field.digest(stream, from, bytes) }
        }
        fn adopt(&self, streams: &[$stream], memory: &$memory) {
            self.$field.adopt(streams, memory);
        }
        fn create_stream(&self, name: &'static str) -> Result<$stream, Error> {
            self.$field.create_stream(name)
        }
        fn owns(&self, stream: &$stream) -> bool {
            self.$field.owns(stream)
        }
        unsafe fn enter_step(&self, stream: &$stream, launch: Launch) -> Result<(), Error> {
            // SAFETY: the caller's promise.
            unsafe { self.$field.enter_step(stream, launch) }
        }
        fn take_turn(&self, stream: &$stream, user: StreamUser) -> bool {
            self.$field.take_turn(stream, user)
        }
        fn follow(&self, streams: &[$stream], progress: &Progress) {
            self.$field.follow(streams, progress);
        }
        fn leave_step(&self, stream: &$stream) -> Result<(), Error> {
            self.$field.leave_step(stream)
        }
        fn synchronize(&self) -> Result<(), Error> {
            self.$field.synchronize()
        }
        fn is_capturing(&self, stream: &$stream) -> bool {
            self.$field.is_capturing(stream)
        }
        fn issued(&self, stream: &$stream) -> Option<u64> {
            self.$field.issued(stream)
        }
        unsafe fn read_bytes(
            &self,
            stream: &$stream,
            from: *const u8,
            into: &mut [u8],
        ) -> Result<(), Error> {
            // SAFETY: the caller's promise.
            unsafe { self.$field.read_bytes(stream, from, into) }
        }
        unsafe fn write_bytes(
            &self,
            stream: &$stream,
            to: *mut u8,
            from: &[u8],
        ) -> Result<(), Error> {
            // SAFETY: the caller's promise.
            unsafe { self.$field.write_bytes(stream, to, from) }
        }
        unsafe fn fill_bytes(
            &self,
            stream: &$stream,
            to: *mut u8,
            bytes: usize,
            value: u8,
        ) -> Result<(), Error> {
            // SAFETY: the caller's promise.
            unsafe { self.$field.fill_bytes(stream, to, bytes, value) }
        }
    };
}

/// The events of the device in a field, unchanged.
macro_rules! delegate_events {
    ($field:ident: $event:ty) => {
        type Event = $event;

        fn base(memory: &Self::Memory) -> *mut u8 {
            inner_base(memory)
        }
        fn create_event(&self) -> Result<$event, Error> {
            self.$field.create_event()
        }
        fn record(&self, stream: &Self::Stream, event: &$event) -> Result<(), Error> {
            self.$field.record(stream, event)
        }
        fn wait(&self, stream: &Self::Stream, event: &$event) -> Result<(), Error> {
            self.$field.wait(stream, event)
        }
    };
}

/// The address of a block, whichever device's.
trait Base {
    fn address(&self) -> *mut u8;
}
impl Base for Memory {
    fn address(&self) -> *mut u8 {
        Cuda::base(self)
    }
}
impl Base for HostMemory {
    fn address(&self) -> *mut u8 {
        Host::base(self)
    }
}
fn inner_base(memory: &impl Base) -> *mut u8 {
    memory.address()
}

/// The host device with the kernels.
#[derive(Clone, Debug)]
pub struct HostLab {
    pub host: Host,
    wrong: Rc<Cell<u64>>,
}

impl HostLab {
    pub fn new(host: Host) -> Self {
        Self { host, wrong: Rc::default() }
    }
}

// SAFETY: everything is the host device's.
unsafe impl Device for HostLab {
    delegate! { host: HostMemory, HostStream }
    delegate_events! { host: HostEvent }
}

impl Lab for HostLab {
    unsafe fn fill_words(
        &self,
        stream: &HostStream,
        to: *mut u32,
        words: usize,
        tag: u32,
    ) -> Result<(), Error> {
        stream.launch((), move |()| {
            for index in 0..words {
                // SAFETY: the caller's promise; one kernel runs at a time, and the block is kept
                // until this one has run.
                unsafe { to.add(index).write(word(tag, index)) };
            }
        })
    }

    unsafe fn check_words(
        &self,
        stream: &HostStream,
        from: *const u32,
        words: usize,
        tag: u32,
    ) -> Result<(), Error> {
        let wrong = Rc::clone(&self.wrong);
        stream.launch((), move |()| {
            // SAFETY: as above.
            let differs = |index: &usize| unsafe { from.add(*index).read() } != word(tag, *index);
            wrong.set(wrong.get() + (0..words).filter(differs).count() as u64);
        })
    }

    fn spin(&self, _: &HostStream, _: u64) -> Result<(), Error> {
        Ok(())
    }
    fn delay(&self, _: &HostStream, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn wrong(&self) -> Result<u64, Error> {
        self.host.synchronize()?;
        Ok(self.wrong.take())
    }

    fn stream_name(stream: &HostStream) -> &'static str {
        stream.name()
    }
}

/// The CUDA device with the kernels.
#[derive(Clone, Debug)]
pub struct Gpu {
    pub cuda: Cuda,
    pub kernels: Rc<Kernels>,
}

#[derive(Debug)]
pub struct Kernels {
    pub fill: CudaFunction,
    pub check: CudaFunction,
    pub fill_dependent: CudaFunction,
    pub check_dependent: CudaFunction,
    pub fill_live: CudaFunction,
    pub check_live: CudaFunction,
    pub spin: CudaFunction,
    pub eight: CudaFunction,
    /// Where wrong words are counted.
    pub wrong: Memory,
    /// For copies.
    stream: Stream,
}

impl Gpu {
    pub fn new(cuda: Cuda) -> Result<Self, Error> {
        let module = cuda.compile(SOURCE)?;
        let kernel = |name| cuda.kernel(&module, name);
        let kernels = Kernels {
            fill: kernel("fill")?,
            check: kernel("check")?,
            fill_dependent: kernel("fill_dependent")?,
            check_dependent: kernel("check_dependent")?,
            fill_live: kernel("fill_live")?,
            check_live: kernel("check_live")?,
            spin: kernel("spin")?,
            eight: kernel("eight")?,
            wrong: cuda.allocate(8, 8)?,
            stream: cuda.create_stream("lab")?,
        };
        Ok(Self { cuda, kernels: Rc::new(kernels) })
    }

    pub fn counter(&self) -> u64 {
        Cuda::base(&self.kernels.wrong).addr() as u64
    }
}

/// A grid for so many words.
pub fn grid(words: usize) -> LaunchConfig {
    let blocks = words.div_ceil(256).min(132 * 16) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 }
}

pub const ONE: LaunchConfig =
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };

// SAFETY: everything is the CUDA device's.
unsafe impl Device for Gpu {
    delegate! { cuda: Memory, Stream }
    delegate_events! { cuda: Event }
}

impl Lab for Gpu {
    unsafe fn fill_words(
        &self,
        stream: &Stream,
        to: *mut u32,
        words: usize,
        tag: u32,
    ) -> Result<(), Error> {
        let (to, count) = (to.addr() as u64, words as u64);
        let call = stream.kernel(&self.kernels.fill).arg(&to).arg(&count).arg(&tag);
        // SAFETY: the caller's promise; the kernel takes these three.
        unsafe { call.launch(grid(words)) }
    }

    unsafe fn check_words(
        &self,
        stream: &Stream,
        from: *const u32,
        words: usize,
        tag: u32,
    ) -> Result<(), Error> {
        let (from, count, wrong) = (from.addr() as u64, words as u64, self.counter());
        let check = stream.kernel(&self.kernels.check);
        let call = check.arg(&from).arg(&count).arg(&tag).arg(&wrong);
        // SAFETY: the caller's promise; the kernel takes these four.
        unsafe { call.launch(grid(words)) }
    }

    fn spin(&self, stream: &Stream, micros: u64) -> Result<(), Error> {
        let cycles = micros * CYCLES;
        // Through cudarc, so that it is not the step's first launch.
        let mut call = stream.launch_builder(&self.kernels.spin);
        use scratchpool::cuda::cudarc::driver::PushKernelArg as _;
        // SAFETY: the kernel takes one integer and touches no memory.
        unsafe { call.arg(&cycles).launch(ONE) }.map_err(Error::device)?;
        Ok(())
    }

    fn delay(&self, stream: &Stream, micros: u64) -> Result<(), Error> {
        let cycles = micros * CYCLES;
        // SAFETY: the kernel takes one integer and touches no memory.
        unsafe { stream.kernel(&self.kernels.spin).arg(&cycles).launch(ONE) }
    }

    fn wrong(&self) -> Result<u64, Error> {
        self.cuda.synchronize()?;
        let (stream, at) = (&self.kernels.stream, Cuda::base(&self.kernels.wrong));
        let mut count = [0; 8];
        // SAFETY: the counter's own eight bytes, when nothing is in flight.
        unsafe {
            self.cuda.read_bytes(stream, at, &mut count)?;
            self.cuda.write_bytes(stream, at, &[0; 8])?;
        }
        Ok(u64::from_le_bytes(count))
    }

    fn stream_name(stream: &Stream) -> &'static str {
        stream.name()
    }
}

/// A device that leaves out one wait: of a stream for an event, counted in the order of creation.
#[derive(Clone, Debug)]
pub struct Muted<D> {
    pub lab: D,
    pub mute: Option<(&'static str, usize)>,
    created: Rc<Cell<usize>>,
}

impl<D> Muted<D> {
    pub fn new(lab: D, mute: Option<(&'static str, usize)>) -> Self {
        Self { lab, mute, created: Rc::default() }
    }
}

// SAFETY: all but one wait is the inner device's. Without that one, kernels may find wrong words:
// they only ever compare what they find, and stay inside their buffers.
unsafe impl<D: Lab> Device for Muted<D> {
    delegate! { lab: D::Memory, D::Stream }
    type Event = (usize, D::Event);

    fn base(memory: &D::Memory) -> *mut u8 {
        D::base(memory)
    }
    fn create_event(&self) -> Result<Self::Event, Error> {
        let event = self.created.get();
        self.created.set(event + 1);
        Ok((event, self.lab.create_event()?))
    }
    fn record(&self, stream: &D::Stream, event: &Self::Event) -> Result<(), Error> {
        self.lab.record(stream, &event.1)
    }
    fn wait(&self, stream: &D::Stream, event: &Self::Event) -> Result<(), Error> {
        if self.mute == Some((D::stream_name(stream), event.0)) {
            return Ok(());
        }
        self.lab.wait(stream, &event.1)
    }
}

impl<D: Lab> Lab for Muted<D> {
    unsafe fn fill_words(
        &self,
        stream: &D::Stream,
        to: *mut u32,
        words: usize,
        tag: u32,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.lab.fill_words(stream, to, words, tag) }
    }
    unsafe fn check_words(
        &self,
        stream: &D::Stream,
        from: *const u32,
        words: usize,
        tag: u32,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.lab.check_words(stream, from, words, tag) }
    }
    fn spin(&self, stream: &D::Stream, micros: u64) -> Result<(), Error> {
        self.lab.spin(stream, micros)
    }
    fn delay(&self, stream: &D::Stream, micros: u64) -> Result<(), Error> {
        self.lab.delay(stream, micros)
    }
    fn wrong(&self) -> Result<u64, Error> {
        self.lab.wrong()
    }
    fn stream_name(stream: &D::Stream) -> &'static str {
        D::stream_name(stream)
    }
}

/// How a wait of the schedule is told to [`Muted`]: the stream that waits, and the event's number.
pub fn mute(schedule: &ScheduleTable, step: &str, source: &str) -> (&'static str, usize) {
    let at = |name: &str| schedule.steps.iter().position(|row| row.name == name).unwrap();
    let stream = schedule.streams[usize::from(schedule.steps[at(step)].stream)];
    let before = schedule.steps[..at(source)].iter().map(|row| usize::from(row.events));
    (stream, before.sum())
}

/// One test on the device at a time: some captures forbid what others do meanwhile.
static TURN: Mutex<()> = Mutex::new(());
static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// The device, for the test that holds it.
pub struct Turn {
    pub gpu: Gpu,
    _turn: MutexGuard<'static, ()>,
}

/// The device, or `None`, said aloud and counted, where there is none.
pub fn gpu(test: &str) -> Option<Turn> {
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match Cuda::open(0) {
        Ok(cuda) => Some(Turn { gpu: Gpu::new(cuda).unwrap(), _turn: turn }),
        Err(Error::Cuda(error @ (CudaError::NoDriver | CudaError::NoDevice { .. }))) => {
            skipped(test, &error);
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// Says and counts what is left out.
pub fn skipped(test: &str, why: &dyn std::fmt::Display) {
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    say(&format!("SKIPPED on the GPU ({count} so far): {test}: {why}"));
}

/// Says something past the test harness, which keeps what passing tests print.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "\n{line}");
}

/// A number from the environment, for longer runs.
pub fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
