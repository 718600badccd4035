//! The CUDA device, over [cudarc], loaded at run time.
//!
//! ```text
//!  Cuda::open(0)                    or from the caller's context: Cuda::from_context
//!   ├ Pool::allocate(&cuda)         one plain allocation a copy; streams and events, once
//!   ├ step.stream()                 cudarc's stream inside; kernel(…) launches as the step declares
//!   ├ step.buffers()                views that cudarc takes: launches, copies, cuBLAS, NCCL
//!   └ cuda.capture(pass.streams())  a CUDA graph of what is issued until it ends
//! ```
//!
//! | file | what it holds |
//! | --- | --- |
//! | `stream` | streams, events, and the eras that keep captures and eager work apart |
//! | `memory` | blocks, and when they are given back |
//! | `views` | cudarc's traits for our views |
//! | `launch` | kernels, launched in full, dependent or early |
//! | `graph` | captures and graphs |
//! | `nvrtc` | finding and calling the run-time compiler |
//! | `watch` | the kernels of the sanitizer |
//! | `raw` | the driver calls |
//!
//! # What orders accesses
//!
//! The pool's waits and events, and nothing else. cudarc tracks events for each *allocation*; over
//! one arena that would serialise disjoint views, cost more with each view passed, and break
//! captures. Our views carry none, whatever the context's setting, so three rules stand in:
//!
//! 1. a **launch** is unsafe, and its contract says that a view goes to launches on the view's own
//!    stream only;
//! 2. a **copy** through cudarc is safe, so a view that is used on another stream first makes that
//!    stream wait for its own, and the host waits for the copy before the view's stream goes on;
//! 3. **memory** is given back only when the context is idle, and a graph keeps the arenas whose
//!    pointers it holds.
//!
//! # Other libraries
//!
//! Whatever takes cudarc's `DevicePtr` takes a reference to a view: copies, and with cudarc's features
//! `cublas` and `nccl` those libraries (`f16` and `bf16` elements need its feature `f16`). Make the
//! library's handle for the step's stream, `Arc::clone(step.stream())`, and the call is ordered as the
//! step is, in a graph too. What knows addresses only gets them from [`Lend`].
//!
//! ```no_run
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/relay.rs"));
//! use std::sync::Arc;
//! use scratchpool::cuda::Cuda;
//! use scratchpool::cuda::cudarc::driver::{CudaStream, DevicePtr, DriverError};
//!
//! /// As libraries are bound: to a stream, and for anything with a pointer.
//! struct Library { stream: Arc<CudaStream> }
//!
//! impl Library {
//!     fn sum(&self, of: &impl DevicePtr<u32>) -> Result<u32, DriverError> {
//!         Ok(self.stream.clone_dtoh(of)?.iter().sum())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut pool = Relay::allocate(&Cuda::open(0)?, relay::Dims { max_rows: 8 })?;
//! # let [mut first, _] = pool.split();
//! # let mut pass = first.begin(6)?;
//! # let mut layer = pass.layer(0)?;
//! # let mut step = layer.consume()?;
//! let library = Library { stream: Arc::clone(step.stream()) };
//! let sum = library.sum(&step.buffers().x)?;
//! # Ok(())
//! # }
//! ```
//!
//! cudarc panics at the first call of a library that is not installed: ask its `is_culib_present`
//! before. NCCL it looks for as `libnccl.so`, which a Python wheel does not have: link it to the wheel's
//! `libnccl.so.2`. To the runtime a step that only a library works in is empty, so the next launch is
//! at least as strong as that step was declared.
//!
//! [cudarc]: https://docs.rs/cudarc

mod error;
mod graph;
mod launch;
mod memory;
pub mod nvrtc;
mod raw;
mod stream;
mod views;
mod watch;

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, DriverError};
use cudarc::nvrtc::Ptx;
use scratchpool_planner::spec::Launch;

use self::memory::Block;
use self::watch::Watch;
use crate::device::Device;
use crate::error::Error;

pub use self::error::CudaError;
pub use self::graph::{Capture, CaptureMode, Graph};
pub use self::launch::{KernelArg, KernelCall};
pub use self::memory::Memory;
pub use self::stream::{Event, Stream};
pub use self::views::{Lease, Lend};
pub use cudarc;

/// The oldest driver that offers everything that is called, as 1000 × major + 10 × minor.
const OLDEST_DRIVER: i32 = 12_000;

/// The CUDA device. Cloning gives another handle to the same one.
///
/// ```
/// use scratchpool::{Error, cuda::{Cuda, CudaError}};
/// match Cuda::open(0) {
///     Ok(cuda) => println!("on {cuda:?}"),
///     Err(Error::Cuda(CudaError::NoDriver)) => println!("no driver: on the host"),
///     Err(other) => println!("{other}"),
/// }
/// ```
#[derive(Clone)]
pub struct Cuda {
    shared: Rc<Shared>,
}

/// What all handles, streams and blocks of one device share.
struct Shared {
    context: Arc<CudaContext>,
    /// Compute capability, major and minor.
    capability: (i32, i32),
    lanes: Cell<u32>,
    /// Captures, by era: which streams take part, and whether it is still going on.
    captures: RefCell<Vec<Taking>>,
    /// Blocks to be freed once no graph is being captured.
    put_aside: RefCell<Vec<CUdeviceptr>>,
    /// The sanitizer's kernels, loaded at first use.
    watch: OnceCell<Watch>,
}

/// Which streams take part in a capture.
struct Taking {
    era: u64,
    lanes: Box<[u32]>,
    open: bool,
    /// Blocks that its streams began to use while it went on.
    kept: Vec<Rc<Block>>,
}

impl Cuda {
    /// Opens a device by its index, on its primary context.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoDriver`], [`CudaError::OldDriver`], [`CudaError::NoDevice`], and what the
    /// driver reports.
    pub fn open(index: usize) -> Result<Self, Error> {
        check_driver()?;
        let counted = match CudaContext::device_count() {
            Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => Ok(0),
            other => other,
        };
        let count = raw::named("cuDeviceGetCount", counted)?;
        let count = usize::try_from(count).unwrap_or(0);
        if index >= count {
            return Err(CudaError::NoDevice { index, count }.into());
        }
        let context = raw::named("cuDevicePrimaryCtxRetain", CudaContext::new(index))?;
        Self::from_context(&context)
    }

    /// Opens the device of the caller's context, so that streams, events and memory are in it.
    ///
    /// # Errors
    ///
    /// [`CudaError::OldDriver`], and what the driver reports.
    pub fn from_context(context: &Arc<CudaContext>) -> Result<Self, Error> {
        check_driver()?;
        let capability = raw::named("cuDeviceGetAttribute", context.compute_capability())?;
        let shared = Shared {
            context: Arc::clone(context),
            capability,
            lanes: Cell::new(0),
            captures: RefCell::default(),
            put_aside: RefCell::default(),
            watch: OnceCell::new(),
        };
        Ok(Self { shared: Rc::new(shared) })
    }

    /// The context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.shared.context
    }

    /// Compute capability, major and minor.
    pub fn capability(&self) -> (i32, i32) {
        self.shared.capability
    }

    /// Takes a stream of the caller's, to allocate a pool on.
    ///
    /// # Errors
    ///
    /// [`CudaError::ForeignContext`], and what the driver reports.
    pub fn stream(&self, stream: Arc<CudaStream>, name: &'static str) -> Result<Stream, Error> {
        if stream.context() != &self.shared.context {
            return Err(CudaError::ForeignContext.into());
        }
        Ok(Stream::foreign(&self.shared, stream, name)?)
    }

    /// Device memory that is free, and all there is, in bytes.
    ///
    /// # Errors
    ///
    /// What the driver reports.
    pub fn memory(&self) -> Result<(u64, u64), Error> {
        let (free, all) = raw::named("cuMemGetInfo", self.shared.context.mem_get_info())?;
        Ok((free as u64, all as u64))
    }

    /// Compiles CUDA C++ for this device and loads it. Kernels are declared
    /// `extern "C" __global__`.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoNvrtc`], [`CudaError::Compile`], and as [`load`](Self::load).
    pub fn compile(&self, source: &str) -> Result<Arc<CudaModule>, Error> {
        self.load(nvrtc::compile(source, self.shared.capability, &[])?)
    }

    /// Loads PTX or machine code.
    ///
    /// # Errors
    ///
    /// [`CudaError::Architecture`], and what the driver reports.
    pub fn load(&self, module: Ptx) -> Result<Arc<CudaModule>, Error> {
        Ok(self.shared.load(module)?)
    }

    /// A kernel of a module, by its name.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoKernel`], and what the driver reports.
    pub fn kernel(&self, module: &Arc<CudaModule>, name: &str) -> Result<CudaFunction, Error> {
        let missing = || CudaError::NoKernel { name: name.to_owned() };
        if name.contains('\0') {
            return Err(missing().into());
        }
        raw::bind(&self.shared.context)?;
        module.load_function(name).map_err(|code| match code.0 {
            CUresult::CUDA_ERROR_NOT_FOUND => missing().into(),
            _ => CudaError::Driver { call: "cuModuleGetFunction", code }.into(),
        })
    }
}

/// Asks for the driver before anything that would panic without it.
fn check_driver() -> Result<(), CudaError> {
    // SAFETY: loading the driver's library runs its initialisers, as any use of CUDA does.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    let found = raw::driver_version()?;
    if found < OLDEST_DRIVER {
        return Err(CudaError::OldDriver { found, needed: OLDEST_DRIVER });
    }
    Ok(())
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.shared.capability;
        write!(f, "Cuda({}, sm_{major}{minor})", self.shared.context.ordinal())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Shared {
    fn load(&self, module: Ptx) -> Result<Arc<CudaModule>, CudaError> {
        raw::bind(&self.context)?;
        self.context.load_module(module).map_err(|code| {
            let (major, minor) = self.capability;
            let foreign = matches!(
                code.0,
                CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
                    | CUresult::CUDA_ERROR_INVALID_PTX
                    | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                    | CUresult::CUDA_ERROR_INVALID_IMAGE
            );
            if foreign {
                CudaError::Architecture { major, minor, code }
            } else {
                CudaError::Driver { call: "cuModuleLoadData", code }
            }
        })
    }

    /// The sanitizer's kernels.
    fn watch(&self) -> Result<&Watch, CudaError> {
        if let Some(watch) = self.watch.get() {
            return Ok(watch);
        }
        let result = raw::allocate(&self.context, size_of::<u64>())?;
        let loaded = Watch::load(|module| self.load(module), result);
        let watch = loaded.inspect_err(|_| self.free(result))?;
        Ok(self.watch.get_or_init(|| watch))
    }

    fn next_lane(&self) -> u32 {
        let id = self.lanes.get();
        self.lanes.set(id.wrapping_add(1));
        id
    }

    /// Notes a capture and gives it an era.
    fn open_capture(&self, lanes: &[Stream]) -> u64 {
        let mut captures = self.captures.borrow_mut();
        let era = captures.last().map_or(stream::EAGER, |last| last.era) + 1;
        let lanes = lanes.iter().map(|stream| stream.lane.id).collect();
        captures.push(Taking { era, lanes, open: true, kept: Vec::new() });
        era
    }

    /// Notes the end of a capture; gives the blocks that its streams began to use meanwhile.
    fn close_capture(&self, era: u64) -> Vec<Rc<Block>> {
        let mut kept = Vec::new();
        for capture in self.captures.borrow_mut().iter_mut().filter(|it| it.era == era) {
            capture.open = false;
            kept.append(&mut capture.kept);
        }
        self.free_put_aside();
        kept
    }

    /// Keeps a block for the capture that a stream takes part in, if it does.
    fn keep(&self, stream: &Stream, block: &Rc<Block>) {
        let era = stream.lane.era.get();
        let mut captures = self.captures.borrow_mut();
        if let Some(capture) = captures.iter_mut().find(|it| it.open && it.era == era) {
            capture.kept.push(Rc::clone(block));
        }
    }

    /// Whether both streams took part in a capture, which is over if `over`.
    fn took_part(&self, era: u64, lanes: [u32; 2], over: bool) -> bool {
        let captures = self.captures.borrow();
        captures.iter().find(|capture| capture.era == era).is_some_and(|capture| {
            capture.open != over && lanes.iter().all(|lane| capture.lanes.contains(lane))
        })
    }

    fn is_capturing(&self) -> bool {
        self.captures.borrow().iter().any(|capture| capture.open)
    }

    fn check_no_capture(&self, what: &'static str) -> Result<(), CudaError> {
        if self.is_capturing() {
            return Err(CudaError::Capturing { what, stream: "any" });
        }
        Ok(())
    }

    /// Frees a block when nothing is in flight, or puts it aside while that cannot be waited for.
    /// A block that cannot be freed is leaked: an error that comes here stays with the context, and
    /// the next call reports it.
    fn free(&self, block: CUdeviceptr) {
        if self.is_capturing() {
            self.put_aside.borrow_mut().push(block);
            return;
        }
        // SAFETY: whoever calls this owned the block and is being dropped.
        let _ = unsafe { raw::free_when_idle(&self.context, block) };
    }

    fn free_put_aside(&self) {
        if self.is_capturing() {
            return;
        }
        let blocks = self.put_aside.take();
        for block in blocks {
            self.free(block);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            self.free(watch.result);
        }
        // Captures hold this value, so none is going on.
        self.free_put_aside();
    }
}

// SAFETY: blocks come from the driver, aligned by `memory`, disjoint, and never move; plain ones are
// zeroed, and bytes of device memory that the host copies out are initialised in any case. They are
// given back as `memory`'s invariant says. Streams and events are the driver's; a wait that is left
// out at the edge of a capture is covered by barriers (`stream`'s invariant), and a step without a
// launch strengthens the next one. `Stream` is no host stream.
unsafe impl Device for Cuda {
    type Memory = Memory;
    type Stream = Stream;
    type Event = Event;

    fn allocate(&self, bytes: u64, align: u64) -> Result<Memory, Error> {
        Memory::plain(&self.shared, bytes, align)
    }

    fn allocate_on(&self, stream: &Stream, bytes: u64, align: u64) -> Result<Memory, Error> {
        if self.shared.context.has_async_alloc() {
            Memory::ordered(stream, bytes, align)
        } else {
            Memory::plain(&self.shared, bytes, align)
        }
    }

    fn retire<'s>(
        &self,
        memory: Memory,
        streams: impl Iterator<Item = &'s Stream>,
    ) -> Result<(), Error> {
        Ok(memory.retire(streams)?)
    }

    fn base(memory: &Memory) -> *mut u8 {
        let address = usize::try_from(memory.start()).unwrap_or(usize::MAX);
        core::ptr::without_provenance_mut(address)
    }

    fn adopt(&self, streams: &[Stream], memory: &Memory) {
        for stream in streams {
            memory.adopt(stream);
        }
    }

    fn create_stream(&self, name: &'static str) -> Result<Stream, Error> {
        raw::bind(&self.shared.context)?;
        // Through cudarc, which then knows that its own slices have several streams to mind.
        let stream = raw::named("cuStreamCreate", self.shared.context.new_stream())?;
        Ok(Stream::own(&self.shared, stream, name)?)
    }

    fn owns(&self, stream: &Stream) -> bool {
        Rc::ptr_eq(&self.shared, &stream.lane.shared)
    }

    fn create_event(&self) -> Result<Event, Error> {
        Ok(Event::new(&self.shared)?)
    }

    #[inline]
    fn record(&self, stream: &Stream, event: &Event) -> Result<(), Error> {
        Ok(event.record(stream)?)
    }

    #[inline]
    fn wait(&self, stream: &Stream, event: &Event) -> Result<(), Error> {
        Ok(event.make_wait(stream)?)
    }

    #[inline]
    fn issued(&self, stream: &Stream) -> Option<u64> {
        stream.issued()
    }

    #[inline]
    fn enter_step(&self, stream: &Stream, launch: Launch) -> Result<(), Error> {
        stream.enter_step(launch);
        Ok(())
    }

    #[inline]
    fn leave_step(&self, stream: &Stream) -> Result<(), Error> {
        stream.leave_step();
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.shared.check_no_capture("waiting for the device")?;
        raw::bind(&self.shared.context)?;
        let context = &self.shared.context;
        Ok(raw::named("cuCtxSynchronize", context.synchronize())?)
    }

    fn is_capturing(&self, stream: &Stream) -> bool {
        stream.is_capturing()
    }

    fn take_foreign_use(&self, stream: &Stream) -> Option<u64> {
        match stream.lane.foreign.take() {
            0 => None,
            address => Some(address),
        }
    }

    unsafe fn read_bytes(
        &self,
        stream: &Stream,
        from: *const u8,
        into: &mut [u8],
    ) -> Result<(), Error> {
        stream.check_eager("copying to the host")?;
        if into.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { raw::read(stream.give(), from.addr() as u64, into) }?)
    }

    unsafe fn write_bytes(&self, stream: &Stream, to: *mut u8, from: &[u8]) -> Result<(), Error> {
        stream.check_eager("copying from the host")?;
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { raw::write(stream.give(), to.addr() as u64, from) }?)
    }

    unsafe fn fill_bytes(
        &self,
        stream: &Stream,
        to: *mut u8,
        bytes: usize,
        value: u8,
    ) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { raw::fill(stream.give(), to.addr() as u64, bytes, value) }?)
    }

    unsafe fn find_other(
        &self,
        stream: &Stream,
        from: *const u8,
        bytes: usize,
        value: u8,
    ) -> Result<Option<usize>, Error> {
        stream.check_eager("looking at memory")?;
        if bytes == 0 {
            return Ok(None);
        }
        let (watch, from) = (self.shared.watch()?, from.addr() as u64);
        // SAFETY: the caller's promise.
        Ok(unsafe { watch.find_other(stream.give(), from, bytes, value) }?)
    }

    unsafe fn digest(&self, stream: &Stream, from: *const u8, bytes: usize) -> Result<u64, Error> {
        stream.check_eager("looking at memory")?;
        if bytes == 0 {
            return Ok(0);
        }
        let (watch, from) = (self.shared.watch()?, from.addr() as u64);
        // SAFETY: the caller's promise.
        Ok(unsafe { watch.digest(stream.give(), from, bytes) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_is_a_typed_error_that_says_what_to_do() {
        // SAFETY: as in `check_driver`.
        if unsafe { cudarc::driver::sys::is_culib_present() } {
            return;
        }
        let error = Cuda::open(0).err();
        assert!(matches!(error, Some(Error::Cuda(CudaError::NoDriver))));
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("install the driver") && text.contains("`Host`"), "{text}");
    }
}
