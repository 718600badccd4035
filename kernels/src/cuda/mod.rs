//! The kernels in CUDA C++: compiled for the device at hand, cached on disk, launched on its streams.
//!
//! ```text
//!  cuda/*.cu ─ include_str! ─> Program ─ NVRTC ─> machine code ─ disk cache ─> CudaKernels
//! ```
//!
//! | file | what it holds | imports |
//! | --- | --- | --- |
//! | `params` | how parameters are laid out, on both sides | |
//! | `program` | a source, and its compilation for an architecture, which needs no GPU | `params` |
//! | `cache` | machine code on disk, by content and architecture | `program` |
//! | `module` | machine code loaded: kernels by name | `cache` |
//! | `site` | from checked arguments to a launch on a stream | |
//! | `q_insert`, `indexer_q`, … | one for each file in `cuda/`: parameters, names, launches | `module`, `site` |
//! | `kernels` | [`CudaKernels`], and [`PROGRAMS`] | all |
//!
//! Every kernel begins with `griddepcontrol.wait` where the architecture has it, so that a step that is
//! declared `dependent` is as safe as a full one.

mod attention;
mod cache;
mod compressor;
mod gather;
mod indexer_q;
mod indexer_topk;
mod kernels;
mod module;
mod params;
mod program;
mod q_insert;
mod site;
mod topk_map;

pub use kernels::{CudaKernels, PROGRAMS};
pub use program::{Architecture, Program};
