//! The kernels in scalar Rust, over slices, in the exact arithmetic of the definitions.
//!
//! These are the definitions that the device's kernels are compared with: bit for bit wherever a
//! format is discrete, and within stated tolerances in the logits and in attention, whose sums are
//! f64 here. They are also the kernels of the host device ([`HostKernels`](crate::HostKernels)).
//!
//! Slices come with a plan, the result of an argument check, which fixes their lengths. Where a
//! slice is shorter all the same, what is missing is not read or written.

pub mod arithmetic;
pub mod attention;
pub mod cache;
pub mod compressor;
pub mod indexer_q;
pub mod indexer_topk;
pub mod q_insert;
pub mod rope;
pub mod topk_map;
