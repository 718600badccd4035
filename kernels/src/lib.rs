//! The kernels whose inputs and outputs live in DeepSeek-V4's scratch pool, with a CPU reference of
//! each.
//!
//! ```text
//!  pool's views ──┐                        ┌─> HostKernels   the references, on the host device
//!  own Tensors ───┼─> In, Out ─> arguments ┤
//!  raw pointers ──┘              .check()  └─> CudaKernels   CUDA C++, compiled for the device at hand
//! ```
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`ops`] | the arguments of each kernel, their checks, and the trait [`Kernels`] |
//! | [`mod@reference`] | the definitions: scalar Rust over slices |
//! | [`formats`] | E4M3, E8M0, E2M1 and block scales, bit for bit |
//! | [`alloc`] | outputs for callers without a pool |
//! | [`cuda`] | the CUDA sources, their compilation and launch |
//!
//! Every launch checks shapes and numbers first, and an error names the argument. What stands *in*
//! the arguments cannot make a kernel touch memory outside of them.

#![allow(clippy::doc_markdown, reason = "RoPE is a word of the field, not an item")]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "the tests are about exact values"))]

pub mod alloc;
pub mod cuda;
pub mod formats;
pub mod ops;
pub mod reference;

mod error;
mod host;
mod tensor;

pub use error::Error;
pub use host::HostKernels;
pub use ops::Kernels;
pub use tensor::{In, Out, Raw, Tensor};
