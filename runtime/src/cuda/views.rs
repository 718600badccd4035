//! cudarc's traits for our views, so that they go wherever cudarc takes an argument.
//!
//! | trait | for | used by |
//! | --- | --- | --- |
//! | `PushKernelArg` | `&View`, `&ViewMut`, `&mut ViewMut` | cudarc's launches |
//! | `DeviceSlice`, `DevicePtr` | `View`, `ViewMut` | copies to the host and on the device, cuBLAS, NCCL |
//! | `DevicePtrMut` | `ViewMut` | copies from the host, memsets, results of libraries |
//!
//! No events are attached. Invariant: safe code cannot make two streams race through a view. A
//! launch is unsafe; whatever else asks for the pointer names its stream, and where that is not the
//! view's own ([`pointer_on`]), it is ordered after what the view's stream holds, and the host waits
//! for it before it can give the view's stream anything more. A stream that is captured by other
//! means than [`Cuda::capture`](super::Cuda::capture) gets no address.
//!
//! Two of cudarc's safe functions keep from a view where or when it is used, as they do from cudarc's own
//! slices, so their callers have to order them:
//!
//! - collectives between `group_start` and `group_end` of NCCL are issued at the end, after the view was
//!   told that they are;
//! - a copy to another GPU (`memcpy_dtod` on a stream of another context) asks for the source on the
//!   source's stream, which then does not wait for the copy.

use cudarc::driver::sys::{CUdeviceptr, CUresult};
use cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, DriverError, LaunchArgs,
    PushKernelArg, SyncOnDrop,
};
use std::sync::Arc;

use super::raw;
use super::stream::{Stream, join};
use crate::device::Device;
use crate::element::{Element, bool8, e8m0, f8e4m3, f8e5m2};
use crate::view::{View, ViewMut};

// SAFETY: one byte each, transparent, any bits valid.
unsafe impl DeviceRepr for f8e4m3 {}
// SAFETY: as above.
unsafe impl DeviceRepr for f8e5m2 {}
// SAFETY: as above.
unsafe impl DeviceRepr for e8m0 {}
// SAFETY: as above.
unsafe impl DeviceRepr for bool8 {}

/// The pointer of a view to be used by `stream`, and what has to happen once that use is issued.
fn pointer_on<'a>(
    address: u64,
    own: &Stream,
    stream: &'a CudaStream,
) -> (CUdeviceptr, SyncOnDrop<'a>) {
    if own.peek() == stream {
        // Captured past this crate, by cudarc's own safe call: no graph of ours keeps the memory, and
        // replays are in no order. There is no other way to refuse than an address that is none.
        if !own.is_capturing() && raw::is_capturing(stream) {
            let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            stream.context().record_err::<()>(Err(DriverError(code)));
            return (0, SyncOnDrop::Record(None));
        }
        return (address, SyncOnDrop::Record(None));
    }
    own.lane.foreign.set(address);
    // Neither trait can return an error: the context keeps it for the next call of cudarc's.
    if let Err(error) = join(stream, own)
        && let Some(code) = error.code()
    {
        stream.context().record_err::<()>(Err(code));
    }
    (address, SyncOnDrop::sync_stream(stream))
}

/// What another library is given: an address, and how many bytes are behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The device address of the first byte.
    pub address: CUdeviceptr,
    /// Bytes of the view.
    pub bytes: usize,
}

/// Hands a view's memory to another library.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/relay.rs"));
/// # fn library(address: u64, bytes: usize, stream: scratchpool::cuda::cudarc::driver::sys::CUstream) {}
/// # fn main() -> Result<(), scratchpool::Error> {
/// use scratchpool::cuda::{Cuda, Lend};
/// let mut pool = Relay::allocate(&Cuda::open(0)?, relay::Dims { max_rows: 8 })?;
/// # let [mut first, _] = pool.split();
/// # let mut pass = first.begin(6)?;
/// # let mut layer = pass.layer(0)?;
/// # let mut step = layer.produce()?;
/// let stream = step.stream();
/// let x = step.buffers().x.lend(stream);    // to be written, as the step declares
/// library(x.address, x.bytes, stream.handle());
/// # Ok(())
/// # }
/// ```
pub trait Lend {
    /// The address and length of the view, for work on `stream`. Where that is not the view's own
    /// stream, nothing orders the two: the caller does, and a sanitized pool reports it.
    fn lend(&self, stream: &CudaStream) -> Lease;
}

macro_rules! slices {
    ($($view:ident)*) => {$(
        impl<T, D, const R: usize> DeviceSlice<T> for $view<'_, T, D, R>
        where
            T: Element,
            D: Device<Stream = Stream>,
        {
            fn len(&self) -> usize {
                $view::len(self)
            }

            fn stream(&self) -> &Arc<CudaStream> {
                $view::stream(self)
            }
        }

        impl<T, D, const R: usize> Lend for $view<'_, T, D, R>
        where
            T: Element,
            D: Device<Stream = Stream>,
        {
            fn lend(&self, stream: &CudaStream) -> Lease {
                let own = $view::stream(self);
                if own.peek() != stream {
                    own.lane.foreign.set(self.address());
                }
                Lease { address: self.address(), bytes: self.bytes() }
            }
        }

        impl<T, D, const R: usize> DevicePtr<T> for $view<'_, T, D, R>
        where
            T: Element,
            D: Device<Stream = Stream>,
        {
            fn device_ptr<'a>(
                &'a self,
                stream: &'a CudaStream,
            ) -> (CUdeviceptr, SyncOnDrop<'a>) {
                pointer_on(self.address(), $view::stream(self), stream)
            }
        }

        // SAFETY: a kernel takes a device pointer as eight bytes, and those of the view's address
        // stay where they are for as long as the arguments are borrowed.
        unsafe impl<'a, 'b: 'a, T, D, const R: usize> PushKernelArg<&'b $view<'_, T, D, R>>
            for LaunchArgs<'a>
        where
            T: Element,
            D: Device<Stream = Stream>,
        {
            #[inline]
            fn arg(&mut self, arg: &'b $view<'_, T, D, R>) -> &mut Self {
                self.arg(arg.address_slot())
            }
        }
    )*};
}

slices!(View ViewMut);

impl<T, D, const R: usize> DevicePtrMut<T> for ViewMut<'_, T, D, R>
where
    T: Element,
    D: Device<Stream = Stream>,
{
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        pointer_on(self.address(), ViewMut::stream(self), stream)
    }
}

// SAFETY: as for a shared reference.
unsafe impl<'a, 'b: 'a, T, D, const R: usize> PushKernelArg<&'b mut ViewMut<'_, T, D, R>>
    for LaunchArgs<'a>
where
    T: Element,
    D: Device<Stream = Stream>,
{
    #[inline]
    fn arg(&mut self, arg: &'b mut ViewMut<'_, T, D, R>) -> &mut Self {
        self.arg(arg.address_slot())
    }
}
