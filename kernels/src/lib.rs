//! The kernels whose inputs and outputs live in DeepSeek-V4's scratch pool, with a CPU reference of
//! each.
//!
//! ```text
//!  a pool's steps ───────┐                               ┌─> HostKernels   the references, on the host device
//!  Constant, Persistent ─┼─> View, ViewMut ─> arguments ─┤
//!  Tensor, raw pointers ─┘                    .check()   └─> CudaKernels   CUDA C++, compiled for the device at hand
//! ```
//!
//! Model code is written once, for a pool of any device and its kernels:
//!
//! ```
//! use scratchpool::{Constant, Device, Host, Persistent, bf16, scratch_pool};
//! use scratchpool_kernels::ops::attention::{Attention, Entries, Selected};
//! use scratchpool_kernels::{Error, HostKernels, Kernels};
//!
//! #[scratch_pool(align = 256, rows = rows, dims(rows = 8, heads = 4), layers(count = 2))]
//! #[step(project, writes(q))]
//! #[step(attend, reads(q))]
//! pub struct Scratch {
//!     #[group(q)]
//!     #[shape(rows, heads, 512)]
//!     pub q: bf16,
//! }
//!
//! /// What stays in the device's memory from pass to pass.
//! struct Model<D: Device> {
//!     sinks: Constant<f32, D, 1>,
//!     rows: Constant<bf16, D, 2>,
//!     indices: Constant<i32, D, 2>,
//!     lens: Constant<i32, D, 1>,
//!     out: Persistent<bf16, D, 3>,
//! }
//!
//! impl<D: Device> Model<D> {
//!     fn forward(
//!         &mut self,
//!         pass: &mut scratch::Pass<'_, D>,
//!         kernels: &impl Kernels<D>,
//!     ) -> Result<(), Error> {
//!         let mut layer = pass.layer(0)?;
//!         // …the step `project` writes the queries…
//!         let mut step = layer.attend()?;
//!         let stream = step.stream();
//!         kernels.attention(stream, Attention {
//!             q: step.buffers().q,
//!             first: Selected {
//!                 entries: Entries::Rows(self.rows.on(stream)?),
//!                 indices: self.indices.on(stream)?,
//!                 lens: self.lens.on(stream)?,
//!             },
//!             second: None,
//!             sinks: self.sinks.on(stream)?,
//!             scale: 512_f32.powf(-0.5),
//!             // SAFETY: this step alone touches it, and its stream orders its runs.
//!             out: unsafe { self.out.on_mut(stream)? },
//!         })
//!     }
//! }
//!
//! let device = Host::in_order();                    // or Cuda::open(0)? with CudaKernels::new(&cuda)?
//! let load = device.create_stream("load")?;
//! let mut model = Model {
//!     sinks: Constant::new(&device, &load, [4], &[f32::NEG_INFINITY; 4])?,
//!     rows: Constant::new(&device, &load, [2, 512], &[bf16::from_f32(2.0); 1024])?,
//!     indices: Constant::new(&device, &load, [1, 2], &[0, 1])?,
//!     lens: Constant::new(&device, &load, [1], &[2])?,
//!     out: Persistent::new(&device, [1, 4, 512])?,
//! };
//! let mut pool = Scratch::allocate(&device)?;
//! model.forward(&mut pool.begin(1)?, &HostKernels)?;
//! assert!(model.out.to_vec(&load)?.iter().all(|x| x.to_f32() == 2.0));
//! # Ok::<(), Error>(())
//! ```
//!
//! The examples crate has DeepSeek-V4's whole eager region in this form (`layers`).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`ops`] | the arguments of each kernel, their checks, and the trait [`Kernels`] |
//! | [`mod@reference`] | the definitions: scalar Rust over slices |
//! | [`formats`] | E4M3, E8M0, E2M1 and block scales, bit for bit |
//! | [`alloc`] | outputs for callers without a pool |
//! | `cuda` | the CUDA sources, their compilation and launch; with the feature of that name, which is on by default |
//!
//! Every launch checks shapes and numbers first, and an error names the argument. What stands *in*
//! the arguments cannot make a kernel touch memory outside of them.

#![allow(clippy::doc_markdown, reason = "RoPE is a word of the field, not an item")]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "the tests are about exact values"))]

pub mod alloc;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod formats;
pub mod ops;
pub mod reference;

mod error;
mod flat;
mod host;

pub use error::Error;
pub use host::HostKernels;
pub use ops::Kernels;
