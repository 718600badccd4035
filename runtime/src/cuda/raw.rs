//! The driver calls of the hot path and of memory, each named in its error.
//!
//! cudarc's own methods do the same with two things that a pool must not have in its way: they
//! hand out errors that an unrelated `Drop` left behind, and they track events by allocation.
//!
//! Invariant: a context is current before any call that needs one ([`bind`]), and every handle passed on is
//! kept alive by the value it is taken from.

use core::ffi::c_void;

use cudarc::driver::sys::{
    CUdeviceptr, CUevent_wait_flags, CUfunction, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUlaunchConfig, CUresult, CUstreamCaptureStatus, cuDriverGetVersion,
    cuLaunchKernel, cuLaunchKernelEx, cuMemFree_v2,
};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaStream, DriverError, LaunchConfig, result as driver,
};

use super::error::CudaError;

/// Names the call in its error.
pub(super) fn named<T>(call: &'static str, result: Result<T, DriverError>) -> Result<T, CudaError> {
    result.map_err(|code| CudaError::Driver { call, code })
}

/// The version of the driver interface, as 1000 × major + 10 × minor. The library is there.
pub(super) fn driver_version() -> Result<i32, CudaError> {
    let mut version = 0;
    // SAFETY: writes one integer; needs no context and no initialisation.
    named("cuDriverGetVersion", unsafe { cuDriverGetVersion(&raw mut version) }.result())?;
    Ok(version)
}

/// Makes the context current on this thread.
#[inline]
pub(super) fn bind(context: &CudaContext) -> Result<(), CudaError> {
    let current = named("cuCtxGetCurrent", driver::ctx::get_current())?;
    if current != Some(context.cu_ctx()) {
        // SAFETY: the context is alive: it is borrowed.
        named("cuCtxSetCurrent", unsafe { driver::ctx::set_current(context.cu_ctx()) })?;
    }
    Ok(())
}

/// The handles of default streams are below this: they mean a stream of whichever context is
/// current.
const FIRST_HANDLE: usize = 3;

/// Makes a call that names its objects by handles, which say their context themselves. Only where
/// the driver wants a context to be current all the same is it made so, and asked again.
#[inline]
fn by_handles(
    name: &'static str,
    stream: &CudaStream,
    call: impl Fn() -> Result<(), DriverError>,
) -> Result<(), CudaError> {
    let context = stream.context();
    if stream.cu_stream().addr() < FIRST_HANDLE {
        bind(context)?;
    }
    match call() {
        Ok(()) => Ok(()),
        Err(code) => again(name, context, code, &call),
    }
}

#[cold]
fn again(
    name: &'static str,
    context: &CudaContext,
    code: DriverError,
    call: &dyn Fn() -> Result<(), DriverError>,
) -> Result<(), CudaError> {
    let current = named("cuCtxGetCurrent", driver::ctx::get_current())?;
    if current == Some(context.cu_ctx()) {
        return Err(CudaError::Driver { call: name, code });
    }
    bind(context)?;
    named(name, call())
}

/// Makes the event stand for all that the stream holds.
#[inline]
pub(super) fn record(event: &CudaEvent, stream: &CudaStream) -> Result<(), CudaError> {
    // SAFETY: both handles are alive: their owners are borrowed.
    by_handles("cuEventRecord", stream, || unsafe {
        driver::event::record(event.cu_event(), stream.cu_stream())
    })
}

/// Orders what the stream is given next after the event.
#[inline]
pub(super) fn wait(stream: &CudaStream, event: &CudaEvent) -> Result<(), CudaError> {
    let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: both handles are alive: their owners are borrowed.
    by_handles("cuStreamWaitEvent", stream, || unsafe {
        driver::stream::wait_event(stream.cu_stream(), event.cu_event(), flags)
    })
}

/// Whether the driver captures the stream, whoever asked for it. What it does not say counts as no.
pub(super) fn is_capturing(stream: &CudaStream) -> bool {
    // SAFETY: the handle is alive: its owner is borrowed.
    unsafe { driver::stream::is_capturing(stream.cu_stream()) }
        .is_ok_and(|it| it != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Waits on the host for all that the stream holds.
pub(super) fn synchronize(stream: &CudaStream) -> Result<(), CudaError> {
    bind(stream.context())?;
    // SAFETY: the handle is alive: its owner is borrowed.
    named("cuStreamSynchronize", unsafe { driver::stream::synchronize(stream.cu_stream()) })
}

/// Whether the driver says that there is no memory left.
pub(super) fn is_out_of_memory(error: &CudaError) -> bool {
    error.code().is_some_and(|code| code.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

/// Allocates zeroed memory, and waits until it is zeroed.
pub(super) fn allocate(context: &CudaContext, bytes: usize) -> Result<CUdeviceptr, CudaError> {
    bind(context)?;
    // SAFETY: the result is a fresh block that nothing else refers to.
    let start = named("cuMemAlloc", unsafe { driver::malloc_sync(bytes) })?;
    // SAFETY: the block has these bytes.
    let zeroed = named("cuMemsetD8", unsafe { driver::memset_d8_sync(start, 0, bytes) })
        .and_then(|()| named("cuCtxSynchronize", driver::ctx::synchronize()));
    if let Err(error) = zeroed {
        // SAFETY: allocated above, handed to nobody.
        let _ = unsafe { cuMemFree_v2(start) };
        return Err(error);
    }
    Ok(start)
}

/// Allocates memory in the order of the stream. Its bytes are arbitrary.
pub(super) fn allocate_async(stream: &CudaStream, bytes: usize) -> Result<CUdeviceptr, CudaError> {
    bind(stream.context())?;
    // SAFETY: the stream is alive; the result is a fresh block.
    named("cuMemAllocAsync", unsafe { driver::malloc_async(stream.cu_stream(), bytes) })
}

/// Waits until nothing is in flight in the context, then frees a block.
///
/// # Safety
///
/// The block was allocated in this context, is freed once, and is not used again.
pub(super) unsafe fn free_when_idle(
    context: &CudaContext,
    start: CUdeviceptr,
) -> Result<(), CudaError> {
    bind(context)?;
    named("cuCtxSynchronize", driver::ctx::synchronize())?;
    // SAFETY: the caller's promise; nothing is in flight.
    named("cuMemFree", unsafe { cuMemFree_v2(start) }.result())
}

/// Frees a block in the order of the stream.
///
/// # Safety
///
/// The block was allocated with [`allocate_async`], is freed once, and work that touches it is
/// ordered before what the stream is given next.
pub(super) unsafe fn free_async(stream: &CudaStream, start: CUdeviceptr) -> Result<(), CudaError> {
    bind(stream.context())?;
    // SAFETY: the caller's promise.
    named("cuMemFreeAsync", unsafe { driver::free_async(start, stream.cu_stream()) })
}

/// Copies to the host in the order of the stream, and waits for it.
///
/// # Safety
///
/// `from` has `into.len()` bytes behind it in a live block.
pub(super) unsafe fn read(
    stream: &CudaStream,
    from: CUdeviceptr,
    into: &mut [u8],
) -> Result<(), CudaError> {
    bind(stream.context())?;
    // SAFETY: the caller's promise; `into` is borrowed until the stream is idle.
    named("cuMemcpyDtoHAsync", unsafe {
        driver::memcpy_dtoh_async(into, from, stream.cu_stream())
    })?;
    synchronize(stream)
}

/// Copies from the host in the order of the stream, and waits for it.
///
/// # Safety
///
/// `to` has `from.len()` bytes behind it in a live block, which no view that can be used covers.
pub(super) unsafe fn write(
    stream: &CudaStream,
    to: CUdeviceptr,
    from: &[u8],
) -> Result<(), CudaError> {
    bind(stream.context())?;
    // SAFETY: the caller's promise; `from` is borrowed until the stream is idle.
    named("cuMemcpyHtoDAsync", unsafe { driver::memcpy_htod_async(to, from, stream.cu_stream()) })?;
    synchronize(stream)
}

/// Fills with a byte in the order of the stream.
///
/// # Safety
///
/// As [`write`].
pub(super) unsafe fn fill(
    stream: &CudaStream,
    to: CUdeviceptr,
    bytes: usize,
    value: u8,
) -> Result<(), CudaError> {
    bind(stream.context())?;
    // SAFETY: the caller's promise.
    named("cuMemsetD8Async", unsafe {
        driver::memset_d8_async(to, value, bytes, stream.cu_stream())
    })
}

/// Launches a kernel; `programmatic` lets it start before the kernel in front of it has ended.
///
/// # Safety
///
/// `arguments` point to values of the types that the kernel takes, the stream is of the context
/// that the kernel was loaded in, and what the kernel touches is ordered as [`KernelCall`]'s
/// contract says.
///
/// [`KernelCall`]: super::KernelCall
#[inline]
pub(super) unsafe fn launch(
    stream: &CudaStream,
    function: CUfunction,
    config: LaunchConfig,
    programmatic: bool,
    arguments: &mut [*mut c_void],
) -> Result<(), CudaError> {
    let LaunchConfig { grid_dim, block_dim, shared_mem_bytes } = config;
    if !programmatic {
        let pointers = arguments.as_mut_ptr();
        return by_handles("cuLaunchKernel", stream, || {
            let (gx, gy, gz) = grid_dim;
            let (bx, by, bz) = block_dim;
            let (handle, none) = (stream.cu_stream(), core::ptr::null_mut());
            // SAFETY: the caller's promise.
            unsafe {
                cuLaunchKernel(
                    function,
                    gx,
                    gy,
                    gz,
                    bx,
                    by,
                    bz,
                    shared_mem_bytes,
                    handle,
                    pointers,
                    none,
                )
            }
            .result()
        });
    }
    let mut attribute = CUlaunchAttribute {
        id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    };
    let config = CUlaunchConfig {
        gridDimX: grid_dim.0,
        gridDimY: grid_dim.1,
        gridDimZ: grid_dim.2,
        blockDimX: block_dim.0,
        blockDimY: block_dim.1,
        blockDimZ: block_dim.2,
        sharedMemBytes: shared_mem_bytes,
        hStream: stream.cu_stream(),
        attrs: &raw mut attribute,
        numAttrs: 1,
    };
    let pointers = arguments.as_mut_ptr();
    // SAFETY: the caller's promise; configuration and attribute live until the call returns, and
    // the driver copies them.
    by_handles("cuLaunchKernelEx", stream, || unsafe {
        cuLaunchKernelEx(&raw const config, function, pointers, core::ptr::null_mut()).result()
    })
}
