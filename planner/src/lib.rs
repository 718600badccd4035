//! Proves which GPU scratch buffers can never be live together, and packs them into one arena.
//!
//! The input is a [`spec::Spec`]: the layers of a model, the steps of a layer on their streams, the
//! events they wait for, and the buffers they write and read. Data flows one way, each stage taking
//! the type of the stage before and returning its own:
//!
//! ```text
//! spec ─> structure ─> schedule ─> live ─────> layout ─> tables
//!    └──> sizes ─────────┬────────────────────────^
//!                        └─> explain, sync (why, and which events)
//! ```
//!
//! | stage | what it decides |
//! | --- | --- |
//! | [`structure`], [`sizes`] | which steps run in which layers and touch what; how large it is |
//! | [`schedule`] | what streams and events guarantee about order |
//! | [`live`] | live ranges, races, reuse, interference |
//! | [`packing`], [`layout`] | offsets, proven minimal where they can be |
//! | [`verify`] | a second opinion on every layout, sharing no code with the packer |
//! | [`explain`], [`sync`] | paths, counterexamples, and the events that the runtime issues |
//!
//! ```
//! # #[cfg(feature = "toml")] {
//! use scratchpool_planner::{plan::plan, toml_spec};
//!
//! let spec = toml_spec::read(
//!     r#"
//!     pool = { name = "Small" }
//!     step = [
//!         { name = "produce", writes = ["a"] },
//!         { name = "convert", reads = ["a"], writes = ["b"] },
//!         { name = "consume", reads = ["b"], writes = ["c"] },
//!         { name = "finish", reads = ["c"] },
//!     ]
//!     group = [
//!         { name = "a", buffer = [{ name = "x", dtype = "f32", shape = [1000] }] },
//!         { name = "b", buffer = [{ name = "x", dtype = "f32", shape = [2000] }] },
//!         { name = "c", buffer = [{ name = "x", dtype = "f32", shape = [1000] }] },
//!     ]
//!     "#,
//!     std::path::Path::new("."),
//! )
//! .whole()
//! .expect("well-formed");
//! let plan = plan(&spec).expect("one stream orders everything");
//! // `a` and `c` are never live together, so they share bytes.
//! assert_eq!(plan.layout.total_bytes, 4096 + 8192);
//! assert_eq!(plan.layout.sum_bytes, 4096 + 8192 + 4096);
//! # }
//! ```
#![forbid(unsafe_code)]

mod bits;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod error;
pub mod explain;
pub mod expr;
mod fix;
mod json;
pub mod layout;
pub mod lint;
pub mod live;
mod names;
pub mod packing;
pub mod plan;
#[cfg(feature = "cli")]
pub mod report;
pub mod schedule;
pub mod sizes;
pub mod spec;
pub mod structure;
pub mod sync;
#[cfg(feature = "toml")]
pub mod toml_spec;
mod value;
pub mod verify;

pub use scratchpool_tables as tables;
