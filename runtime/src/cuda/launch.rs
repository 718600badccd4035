//! Kernels, launched as their step declares.

use core::ffi::c_void;
use core::marker::PhantomData;

use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};

use super::error::CudaError;
use super::raw;
use super::stream::Stream;
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::tables::Launch;
use crate::view::{View, ViewMut};

/// The most arguments that a launch takes.
const MOST_ARGUMENTS: usize = 32;

/// The first architecture with programmatic dependent launches.
const FIRST_PROGRAMMATIC: i32 = 9;

/// Something that a kernel can be given.
///
/// # Safety
///
/// [`slot`](Self::slot) points to the bytes of the value as the kernel takes it, and they stay there
/// for as long as the reference lives.
pub unsafe trait KernelArg {
    /// Where the argument's bytes are.
    fn slot(&self) -> *const c_void;

    /// The stream on which the memory that the argument points to is in order, where there is one: it
    /// can be launched with on no other.
    #[inline]
    fn stream(&self) -> Option<&Stream> {
        None
    }
}

// SAFETY: the value is its own bytes, as cudarc's trait promises.
unsafe impl<T: DeviceRepr> KernelArg for T {
    #[inline]
    fn slot(&self) -> *const c_void {
        (&raw const *self).cast()
    }
}

// SAFETY: a kernel takes a device pointer as eight bytes: those of the view's address.
unsafe impl<T: Element, D: Device<Stream = Stream>, const R: usize> KernelArg
    for View<'_, T, D, R>
{
    #[inline]
    fn slot(&self) -> *const c_void {
        (&raw const *self.address_slot()).cast()
    }

    #[inline]
    fn stream(&self) -> Option<&Stream> {
        Some(View::stream(self))
    }
}

// SAFETY: as above.
unsafe impl<T: Element, D: Device<Stream = Stream>, const R: usize> KernelArg
    for ViewMut<'_, T, D, R>
{
    #[inline]
    fn slot(&self) -> *const c_void {
        (&raw const *self.address_slot()).cast()
    }

    #[inline]
    fn stream(&self) -> Option<&Stream> {
        Some(ViewMut::stream(self))
    }
}

/// A kernel about to be launched on a stream. Made by [`Stream::kernel`].
#[derive(Debug)]
pub struct KernelCall<'a> {
    stream: &'a Stream,
    function: &'a CudaFunction,
    arguments: [*mut c_void; MOST_ARGUMENTS],
    given: usize,
    /// The stream of an argument that is in order on another one.
    foreign: Option<&'static str>,
    borrowed: PhantomData<&'a c_void>,
}

impl Stream {
    /// A kernel to launch on this stream, as the step declares: a step's first kernel as `full`,
    /// `dependent` or `early`, further ones in sequence. Nothing is allocated.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), scratchpool::Error> {
    /// # use scratchpool::{Device, cuda::{Cuda, cudarc::driver::LaunchConfig}};
    /// let cuda = Cuda::open(0)?;
    /// let module = cuda.compile("extern \"C\" __global__ void nop(int rows) {}")?;
    /// let nop = cuda.kernel(&module, "nop")?;
    /// let stream = cuda.create_stream("main")?;
    /// let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
    /// // SAFETY: the kernel takes one integer and touches no memory.
    /// unsafe { stream.kernel(&nop).arg(&3_i32).launch(config) }?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn kernel<'a>(&'a self, function: &'a CudaFunction) -> KernelCall<'a> {
        KernelCall {
            stream: self,
            function,
            arguments: [core::ptr::null_mut(); MOST_ARGUMENTS],
            given: 0,
            foreign: None,
            borrowed: PhantomData,
        }
    }
}

impl<'a> KernelCall<'a> {
    /// Adds an argument: a view, or a value that cudarc takes.
    #[inline]
    #[must_use]
    pub fn arg<A: KernelArg>(mut self, argument: &'a A) -> Self {
        if let Some(slot) = self.arguments.get_mut(self.given) {
            *slot = argument.slot().cast_mut();
        }
        if let Some(own) = argument.stream()
            && own != self.stream
        {
            self.foreign = Some(own.name());
        }
        self.given += 1;
        self
    }

    /// Launches. A grid without blocks, as in a pass of no rows, launches nothing, and leaves the
    /// step's place in the order to what is launched next.
    ///
    /// # Errors
    ///
    /// [`CudaError::TooManyArguments`], [`Error::ForeignStream`] where an argument is a view of another
    /// stream, and what the driver reports.
    ///
    /// # Safety
    ///
    /// - The arguments are those of the kernel, in number, order and type.
    /// - The kernel touches no more of what views among them cover than their bytes, and writes through
    ///   none that is shared.
    /// - In a step declared `dependent`, the first kernel waits for the kernel in front of it
    ///   (`griddepcontrol.wait`) before its first access to memory, and before it lets its own
    ///   dependents start. In a step declared `early`, it touches nothing that the kernel in front
    ///   of it touches with a write on either side, as was proved for the pool's buffers.
    /// - Where a step is launched from by other means as well, this is its first launch.
    /// - Memory among the arguments that is not handed out by the step (of one's own, of a
    ///   [`Persistent`](crate::Persistent), of another library) is in an order that the declared edges
    ///   give: of two launches on one stream the later comes after the earlier only as
    ///   [`Launch`] says of every kernel in between.
    /// - While a graph is captured, the stream was not made to wait by other means since its latest
    ///   launch: a programmatic launch does not hold to such a wait in a graph. And the stream is
    ///   captured by [`Cuda::capture`](super::Cuda::capture) only: what captures it otherwise keeps no
    ///   memory, and is replayed without an order.
    #[inline]
    pub unsafe fn launch(mut self, config: LaunchConfig) -> Result<(), Error> {
        let Some(arguments) = self.arguments.get_mut(..self.given) else {
            let (given, most) = (self.given, MOST_ARGUMENTS);
            return Err(CudaError::TooManyArguments { given, most }.into());
        };
        if let Some(view) = self.foreign {
            return Err(Error::ForeignStream { view, launch: self.stream.name() });
        }
        let (x, y, z) = config.grid_dim;
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        // Older architectures have full launches only, which are stronger.
        let programmatic = self.stream.take_launch() != Launch::Full
            && self.stream.lane.shared.capability.0 >= FIRST_PROGRAMMATIC;
        let function = self.function.cu_function();
        // SAFETY: the caller's promise; the arguments are borrowed for `'a`.
        let launched =
            unsafe { raw::launch(self.stream.give(), function, config, programmatic, arguments) };
        // What was not launched leaves its place in the order to the next launch.
        launched.inspect_err(|_| self.stream.owe_full())?;
        Ok(())
    }
}
