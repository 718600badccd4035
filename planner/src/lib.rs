//! Under construction.
#![forbid(unsafe_code)]
pub mod error;
pub mod expr;
pub mod spec;
pub mod tables;
