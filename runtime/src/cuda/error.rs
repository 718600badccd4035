//! What can go wrong with CUDA, and every text that says what to do about it.

use std::path::PathBuf;

use cudarc::driver::DriverError;

/// A failure of the CUDA device.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// No NVIDIA driver is installed.
    #[error(
        "the NVIDIA driver's library (libcuda) was not found; install the driver, in a container \
         pass the GPU through, or run on `Host`"
    )]
    NoDriver,
    /// The driver is older than what is called.
    #[error("the NVIDIA driver offers CUDA {found}, and {needed} is needed; update the driver")]
    OldDriver {
        /// What the driver offers, as 1000 × major + 10 × minor.
        found: i32,
        /// What is needed.
        needed: i32,
    },
    /// There is no device with this index.
    #[error(
        "device {index} was asked for, and {count} are visible; check the index and \
         CUDA_VISIBLE_DEVICES"
    )]
    NoDevice {
        /// The index asked for.
        index: usize,
        /// How many devices there are.
        count: usize,
    },
    /// The run-time compiler is not installed.
    #[error(
        "NVRTC was not found, neither by name nor in {searched:?}; install the CUDA toolkit or \
         `pip install nvidia-cuda-nvrtc`, and set CUDA_HOME to the toolkit, or SCRATCHPOOL_NVRTC to the \
         folder that holds libnvrtc.so (of a wheel: site-packages/nvidia/cu13/lib)"
    )]
    NoNvrtc {
        /// The folders that were looked into.
        searched: Vec<PathBuf>,
    },
    /// A kernel does not compile.
    #[error("the kernel does not compile:\n{log}")]
    Compile {
        /// What the compiler says.
        log: String,
    },
    /// Machine code or PTX for another architecture, or newer than the driver.
    #[error(
        "the module cannot run on this device (sm_{major}{minor}): {code}; compile it for \
         compute_{major}{minor} or older, with a compiler no newer than the driver"
    )]
    Architecture {
        /// Major compute capability of the device.
        major: i32,
        /// Minor compute capability.
        minor: i32,
        /// What the driver says.
        code: DriverError,
    },
    /// A module has no kernel of this name.
    #[error("the module has no kernel `{name}`; is it declared `extern \"C\" __global__`?")]
    NoKernel {
        /// The name.
        name: String,
    },
    /// More kernel arguments than a launch takes.
    #[error("a launch of {given} arguments was asked for; at most {most} are taken")]
    TooManyArguments {
        /// Arguments given.
        given: usize,
        /// Arguments that are taken.
        most: usize,
    },
    /// A stream of another context than the device's.
    #[error("the stream belongs to another CUDA context than the device was opened from")]
    ForeignContext,
    /// A capture of no stream, or of streams of several devices.
    #[error("a capture needs the streams of one copy of a pool: pass what its pass says they are")]
    NoStreams,
    /// Something that a graph cannot hold, or that would break one being captured.
    #[error("{what} is not possible while stream `{stream}` is captured; end the capture first")]
    Capturing {
        /// What was asked for.
        what: &'static str,
        /// The stream.
        stream: &'static str,
    },
    /// A wait across the edge of a capture that no barrier covers.
    #[error(
        "stream `{stream}` is to wait for an event across the edge of a capture that it, or the \
         stream of the event, has no part in; capture all streams of the pool's copy together"
    )]
    OutsideCapture {
        /// The stream that was to wait.
        stream: &'static str,
    },
    /// A stream that is another device's already.
    #[error(
        "stream `{stream}` is in use by another device of this process; open one device for a context, \
         and clone it"
    )]
    StreamTaken {
        /// The name that it was to have.
        stream: &'static str,
    },
    /// Something that is done between steps was asked for inside one.
    #[error(
        "{what} is not possible inside a step, as stream `{stream}` is; drop the step's guard first"
    )]
    InsideStep {
        /// What was asked for.
        what: &'static str,
        /// The stream whose step is entered.
        stream: &'static str,
    },
    /// Steps of a pool were captured without all of its streams.
    #[error(
        "steps of a pool were captured without the pool's stream `{stream}`, whose work nothing would \
         order with a replay; capture all streams of the copy, as `streams()` of its pass lists them"
    )]
    PartialCapture {
        /// A stream of the copy that took no part.
        stream: &'static str,
    },
    /// A capture that began in the middle of a pass ended in another.
    #[error("a capture that begins in the middle of a pass has to end in that pass")]
    OtherPass,
    /// A graph was replayed in the middle of a pass, where its steps are not the next ones.
    #[error(
        "a graph of the steps from number {from} of a pass on was replayed where {issued} steps of a \
         pass are issued; replay it where it was captured: skip to there, or finish the pass"
    )]
    OutOfTurn {
        /// Steps issued where the capture began.
        from: u64,
        /// Steps issued now.
        issued: u64,
    },
    /// A graph was replayed for more rows than it was captured with.
    #[error("a graph captured for at most {max} rows was replayed for {asked}")]
    TooManyRows {
        /// Rows asked for.
        asked: usize,
        /// Rows captured.
        max: usize,
    },
    /// The driver refused a call, or reports an earlier failure.
    #[error("{call} failed: {code}")]
    Driver {
        /// The call of the driver interface.
        call: &'static str,
        /// What it returned.
        code: DriverError,
    },
}

impl CudaError {
    /// The error code of the driver, where the driver refused.
    pub const fn code(&self) -> Option<DriverError> {
        match self {
            Self::Driver { code, .. } | Self::Architecture { code, .. } => Some(*code),
            _ => None,
        }
    }
}
