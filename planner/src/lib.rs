//! Under construction.
#![forbid(unsafe_code)]
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod error;
pub mod expr;
pub mod spec;
#[cfg(feature = "toml")]
pub mod toml_spec;
