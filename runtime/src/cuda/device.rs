//! The device: opening it, loading kernels, and what a pool needs of it.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, DriverError};
use cudarc::nvrtc::Ptx;

use super::error::CudaError;
use super::memory::Memory;
use super::state::Shared;
use super::stream::{Event, Stream};
use super::{nvrtc, raw};
use crate::device::Device;
use crate::error::Error;
use crate::progress::{Progress, StreamUser};
use crate::tables::Launch;

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
    pub(super) shared: Rc<Shared>,
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
        Ok(Self { shared: Rc::new(Shared::new(Arc::clone(context), capability)) })
    }

    /// The context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.shared.context
    }

    /// Compute capability, major and minor.
    pub fn capability(&self) -> (i32, i32) {
        self.shared.capability
    }

    /// Takes a stream of the caller's, to allocate a pool on. A stream that this device has already keeps
    /// its name: what comes is another handle to it.
    ///
    /// # Errors
    ///
    /// [`CudaError::ForeignContext`], [`CudaError::StreamTaken`] where another device has it, also one of
    /// the same context, and what the driver reports.
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
        if !self.owns(stream) {
            return Err(Error::ForeignMemory);
        }
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
    unsafe fn enter_step(&self, stream: &Stream, launch: Launch) -> Result<(), Error> {
        stream.enter_step(launch);
        Ok(())
    }

    #[inline]
    fn leave_step(&self, stream: &Stream) -> Result<(), Error> {
        stream.leave_step();
        Ok(())
    }

    #[inline]
    fn take_turn(&self, stream: &Stream, user: StreamUser) -> bool {
        stream.take_turn(user)
    }

    fn follow(&self, streams: &[Stream], progress: &Progress) {
        Stream::follow(streams, progress);
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
