//! DeepSeek-V4's eager region with its real kernels: one model code for every device.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `model` | the model and its pass: what to copy |
//! | `run` | eager, padded, or captured in a graph |
//! | `case` | random weights and inputs, and what the model is made of |
//! | `outcome` | what passes left behind, compared between devices |
//! | `dense` | the last pass again in float64, which shares no arithmetic with the kernels |

mod case;
mod dense;
mod model;
mod outcome;
mod run;

pub use case::{Case, MOST_ROWS};
pub use model::{Inputs, Model, Results};
pub use outcome::Outcome;
pub use run::{eager, padded, replayed};
