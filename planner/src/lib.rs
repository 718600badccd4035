//! Proves which scratch buffers can never be live together, and packs them into one arena.
#![forbid(unsafe_code)]

pub mod packing;
pub mod verify;
