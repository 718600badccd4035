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
//! | file | what it holds | imports |
//! | --- | --- | --- |
//! | `error` | what can go wrong | |
//! | `nvrtc` | finding and calling the run-time compiler | `error` |
//! | `raw` | the driver calls | `error` |
//! | `watch` | the kernels of the sanitizer | `raw` |
//! | `state` | what all handles of a device share: captures, and the blocks that they keep | `watch` |
//! | `stream` | streams, events, and the eras that keep captures and eager work apart | `state` |
//! | `memory` | blocks handed out, and when they are given back | `stream` |
//! | `views` | cudarc's traits for our views | `stream` |
//! | `launch` | kernels, launched in full, dependent or early | `stream` |
//! | `device` | the device | `memory`, `nvrtc` |
//! | `graph` | captures and graphs | `device` |
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

mod device;
pub(crate) mod error;
mod graph;
mod launch;
mod memory;
pub mod nvrtc;
mod raw;
mod state;
mod stream;
mod views;
mod watch;

pub use cudarc;
pub use device::Cuda;
pub use error::CudaError;
pub use graph::{Capture, CaptureMode, Graph};
pub use launch::{KernelArg, KernelCall};
pub use memory::Memory;
pub use stream::{Event, Stream};
pub use views::{Lease, Lend};
