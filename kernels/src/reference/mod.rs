//! The kernels in scalar Rust, over slices, in the exact arithmetic of the definitions.
//!
//! These are the definitions that the device's kernels are compared with: bit for bit wherever a
//! format is discrete, and within stated tolerances in the logits and in attention, whose sums are
//! f64 here. They are also the kernels of the host device ([`HostKernels`](crate::HostKernels)).
//!
//! | formula | source |
//! | --- | --- |
//! | E4M3; E8M0, E2M1, MXFP4 | OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0 |
//! | RMS norm | Zhang and Sennrich, *Root Mean Square Layer Normalization*, 2019 |
//! | rotary embedding, adjacent pairs | Su et al., *RoFormer*, 2021, in GPT-J's order of elements |
//! | index logits, `sum w relu(q . k)` | DeepSeek-AI, *DeepSeek-V3.2-Exp*, 2025 |
//! | attention over one latent row as key and value | DeepSeek-AI, *DeepSeek-V2*, 2024 |
//! | sink in the softmax's denominator | OpenAI, *gpt-oss model card*, 2025 |
//!
//! Positions count tokens, slots and lengths count entries, strides of caches are bytes; everything else
//! has no unit.
//!
//! Slices come with a plan, the result of an argument check, which fixes their lengths. Where a
//! slice is shorter all the same, what is missing is not read or written.

pub mod arithmetic;
pub mod attention;
pub mod cache;
pub mod compressor;
pub mod gather;
pub mod indexer_q;
pub mod indexer_topk;
pub mod q_insert;
pub mod rope;
pub mod topk_map;
