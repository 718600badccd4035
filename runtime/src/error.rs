//! Everything that can go wrong at run time, and every text that says so.
//!
//! | when | errors |
//! | --- | --- |
//! | allocating a pool | [`Size`](Error::Size), [`OutOfMemory`](Error::OutOfMemory), [`TooLarge`](Error::TooLarge), [`Schedule`](Error::Schedule), [`StreamCount`](Error::StreamCount), [`ForeignDevice`](Error::ForeignDevice), [`Misaligned`](Error::Misaligned), [`Device`](Error::Device) |
//! | `begin` | [`TooManyRows`](Error::TooManyRows) |
//! | `layer` | [`NoSuchLayer`](Error::NoSuchLayer), [`LayerOrder`](Error::LayerOrder) |
//! | a step | [`StepOrder`](Error::StepOrder), [`StepAbsent`](Error::StepAbsent), [`PerCallCaptured`](Error::PerCallCaptured) |
//! | allocating memory of one's own | [`Overflow`](Error::Overflow), [`OutOfMemory`](Error::OutOfMemory), [`ValueCount`](Error::ValueCount) |
//! | using memory on a stream, or copying a view | [`ForeignMemory`](Error::ForeignMemory) |
//! | cutting or filling a view | [`RowRange`](Error::RowRange), [`ValueCount`](Error::ValueCount) |
//! | a launch on the host | [`ForeignStream`](Error::ForeignStream), [`InsideKernel`](Error::InsideKernel) |
//! | any call on the host, after a deferred kernel's panic | [`KernelPanicked`](Error::KernelPanicked) |
//! | any call on a sanitized pool | [`Violation`](Error::Violation), each once |
//! | any call after a failure inside a `Drop` | that failure once, then [`OrderLost`](Error::OrderLost) until the next `begin` |

use std::sync::Arc;

#[cfg(feature = "cuda")]
use crate::cuda::error::CudaError;
use crate::order::Order;
use crate::size::SizeError;
use crate::violation::Violation;

/// A failure of the runtime.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `begin` was asked for more rows than the pool was planned for.
    #[error(
        "a pass of {asked} rows was begun on a pool planned for at most {max}; split the batch, \
         or {}",
        larger(*dim)
    )]
    TooManyRows {
        /// Rows asked for.
        asked: usize,
        /// Rows planned for.
        max: usize,
        /// The dim that sets the most rows, where it is given at start-up.
        dim: Option<&'static str>,
    },
    /// A layer was asked for that the schedule does not have.
    #[error("layer {layer} was asked for; the schedule has {layers} layers, counted from 0")]
    NoSuchLayer {
        /// The layer asked for.
        layer: usize,
        /// How many there are.
        layers: usize,
    },
    /// A layer was asked for twice in a pass, or after a later one.
    #[error(
        "layer {layer} was asked for, but layer {issued} of this pass has been issued; layers may \
         be skipped, not repeated or reordered: the proof holds for increasing order only"
    )]
    LayerOrder {
        /// The layer asked for.
        layer: usize,
        /// The last layer issued.
        issued: usize,
    },
    /// A step was asked for twice in a layer, or after a later one.
    #[error(
        "step `{step}` was asked for, but `{issued}` of layer {layer} has been issued; steps may be \
         skipped, not repeated or reordered: the proof holds for the declared order only"
    )]
    StepOrder {
        /// The step asked for.
        step: &'static str,
        /// The last step issued.
        issued: &'static str,
        /// The layer.
        layer: usize,
    },
    /// A step that runs in every layer was not found to run in this one.
    #[error("step `{step}` does not run in layer {layer}, though it was declared to run in each")]
    StepAbsent {
        /// The step asked for.
        step: &'static str,
        /// The layer.
        layer: usize,
    },
    /// A view was cut outside its rows.
    #[error("rows {start}..{end} were asked of a view of {rows} rows")]
    RowRange {
        /// First row asked for.
        start: usize,
        /// One past the last row asked for.
        end: usize,
        /// Rows of the view.
        rows: usize,
    },
    /// A view was to be filled from another number of values than it has elements.
    #[error("{given} values were given for {expected} elements")]
    ValueCount {
        /// Values given.
        given: usize,
        /// Elements of the view.
        expected: usize,
    },
    /// The device has not that much memory left.
    #[error("{bytes} bytes aligned to {align} could not be allocated")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for.
        align: u64,
    },
    /// A size that no address space holds.
    #[error("{bytes} bytes aligned to {align} do not fit the address space")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for.
        align: u64,
    },
    /// Dims given at start-up that make a buffer impossible.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The caller handed in another number of streams than the schedule names.
    #[error("{given} streams were handed in for a schedule that names {expected}")]
    StreamCount {
        /// Streams handed in.
        given: usize,
        /// Streams that the schedule names.
        expected: usize,
    },
    /// The caller handed in a stream of another device.
    #[error("the stream handed in for `{stream}` belongs to another device")]
    ForeignDevice {
        /// The schedule's name for it.
        stream: &'static str,
    },
    /// Memory was used on a stream, or copied by a device, that it does not belong to.
    #[error(
        "memory was used on a stream of another device; allocate it with the device that the \
         stream, or the pool, was made with, and copy it with the same"
    )]
    ForeignMemory,
    /// A shape of more elements than an address space holds.
    #[error("a tensor of shape {shape:?} does not fit the address space")]
    Overflow {
        /// The shape.
        shape: Vec<usize>,
    },
    /// The constant tables contradict each other.
    #[error("the schedule's tables contradict each other: {what} (entry {at})")]
    Schedule {
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// A kernel was launched on another stream than the one its views are ordered on.
    #[error(
        "a view of stream `{view}` was passed to a launch on stream `{launch}`; launch what a step \
         hands out on that step's stream, and ask memory of your own for an argument on the stream \
         of the launch"
    )]
    ForeignStream {
        /// The view's stream.
        view: &'static str,
        /// The stream launched on.
        launch: &'static str,
    },
    /// A kernel of the host device used the device that was running it.
    #[error("the host device ({order}) was used from inside one of its kernels")]
    InsideKernel {
        /// The order in which the device runs.
        order: Order,
    },
    /// The device gave memory that is not aligned as asked.
    #[error("the device gave memory at {base:#x} where a multiple of {align} was asked for")]
    Misaligned {
        /// Its address.
        base: u64,
        /// The alignment asked for.
        align: u64,
    },
    /// A step of a pool with an allocation a live range was entered while its stream is captured.
    #[error(
        "step `{step}` was entered while its stream is captured, in a pool of `Backing::PerCall`: the \
         graph would keep addresses that change from pass to pass; allocate the pool with \
         `Backing::Arena`"
    )]
    PerCallCaptured {
        /// The step.
        step: &'static str,
    },
    /// A kernel of the host device panicked when it ran, later than its launch. What was given to the
    /// device and had not run is thrown away, for it might read what the kernel left half done; once
    /// [`Device::synchronize`](crate::Device::synchronize), or a copy to the host, has said so, the
    /// device can be used again.
    #[error("a kernel of stream `{stream}` panicked on the host device ({order}): {message}")]
    KernelPanicked {
        /// The kernel's stream.
        stream: &'static str,
        /// What the panic said.
        message: String,
        /// The order in which the device runs.
        order: Order,
    },
    /// An earlier failure left the order of the pass undefined.
    #[error(
        "an earlier failure left an event unrecorded, so the order of this pass is lost; begin a \
         new pass"
    )]
    OrderLost,
    /// The sanitizer found a use of the pool that its schedule does not allow.
    #[error(transparent)]
    Violation(Box<Violation>),
    /// A failure of the CUDA device.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A failure that the device reports.
    #[error("the device failed: {0}")]
    Device(Arc<dyn std::error::Error + Send + Sync>),
}

/// How a pool gets more rows.
fn larger(dim: Option<&'static str>) -> String {
    dim.map_or_else(
        || "declare a larger maximum".to_owned(),
        |dim| format!("allocate with a larger `{dim}`"),
    )
}

impl Error {
    /// Wraps an error of a device's own.
    ///
    /// ```
    /// use scratchpool::Error;
    /// let error = Error::device(std::io::Error::other("link down"));
    /// assert_eq!(error.to_string(), "the device failed: link down");
    /// ```
    pub fn device(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Device(Arc::new(error))
    }
}
