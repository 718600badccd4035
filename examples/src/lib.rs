//! Programs to copy from: pools of real models, planned and run on the host.
//!
//! | program | what it shows |
//! | --- | --- |
//! | `deepseek_v4_flash` | DeepSeek-V4's scratch: planned from the model's configuration, run over all layers in many legal orders, every read checked |
//! | `deepseek_v4_layers` | the same pool with its real kernels: one model code on the host and on a GPU, eager and in a graph |
//! | `qwen3_moe` | a pool from nothing: the scratch of a mixture-of-experts layer |
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`deepseek`] | the annotated structs for Flash and Pro, and one forward pass for both |
//! | [`layers`] | the model code of Flash's eager region, generic over device and kernels, and its check in float64 |
//! | [`check`] | values that say who wrote them, and the count of those that were not what they should be |

pub mod check;
pub mod deepseek;
pub mod layers;

// The README's declaration compiles, from the folder whose configuration it names.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
