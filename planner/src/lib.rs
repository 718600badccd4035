//! Under construction.
#![forbid(unsafe_code)]
mod bits;
pub mod error;
pub mod explain;
pub mod expr;
pub mod layout;
pub mod live;
mod names;
pub mod packing;
pub mod place;
pub mod plan;
pub mod schedule;
pub mod sizes;
pub mod spec;
pub mod structure;
pub mod sync;
pub mod tables;
pub mod verify;
