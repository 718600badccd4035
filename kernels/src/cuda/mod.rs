//! The kernels in CUDA C++: compiled for the device at hand, cached on disk, launched on its streams.
//!
//! ```text
//!  cuda/*.cu ─ include_str! ─> Program ─ NVRTC ─> machine code ─ disk cache ─> CudaKernels
//! ```
//!
//! | file | what it holds |
//! | --- | --- |
//! | `program` | the sources, and their compilation for an architecture, which needs no GPU |
//! | `cache` | machine code on disk, by content and architecture |
//! | `params` | the parameters as the sources declare them |
//! | `launch` | [`CudaKernels`]: from checked arguments to launches |
//!
//! Every kernel begins with `griddepcontrol.wait` where the architecture has it, so that a step that is
//! declared `dependent` is as safe as a full one.

mod cache;
mod launch;
mod params;
mod program;

pub use launch::CudaKernels;
pub use program::{Architecture, PROGRAMS, Program};
