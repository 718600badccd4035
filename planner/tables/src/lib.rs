//! The words that `scratchpool`'s planner, macro and runtime share.
//!
//! The planner proves a pool and writes it down in these tables; the macro emits them as constants;
//! the runtime executes them. This crate holds the words alone, no step of a proof: it depends on
//! nothing, so a program that runs a pool links no prover.
//!
//! | module | what it holds |
//! | --- | --- |
//! | crate root | [`DType`] and [`Launch`]; [`ScheduleTable`] and [`LayoutTable`]; [`Fingerprint`]; [`Span`], a place in a spec's source; [`layer_list`] |
//! | [`offsets`] | offsets from an order of placing: one formula for compile time and start-up |
//!
//! The tables hold only `'static` references and integers, so that a whole schedule and layout is a
//! `const` in the user's crate.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod dtype;
mod fingerprint;
mod launch;
mod layers;
mod layout;
pub mod offsets;
mod schedule;
mod span;

pub use dtype::{DType, RustType};
pub use fingerprint::Fingerprint;
pub use launch::Launch;
pub use layers::layer_list;
pub use layout::{BufferRow, LayoutTable};
pub use schedule::{LayerKind, ScheduleTable, StepInLayer, StepRow, WaitRow};
pub use span::{Name, Span, Spanned};
