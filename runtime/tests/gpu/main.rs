//! Tests of the CUDA device. Where there is no driver, those that need one say that they are skipped,
//! and how many so far; the same bodies run on the host device where that makes sense.
//!
//! `SCRATCHPOOL_GPU_PASSES=n` and `SCRATCHPOOL_GPU_DELAYED=n` set how many passes are run, as issued and
//! with each step delayed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::pedantic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

mod common {
    pub(crate) use crate::toy;
}
mod flash;
mod flash_pool;
mod graphs;
mod lab;
mod libraries;
mod memory;
mod programmatic;
mod sanitize;
/// What the crate's own tests make schedules from.
#[path = "../common/toy.rs"]
#[allow(dead_code, reason = "its views are for the crate's own tests")]
mod toy;
mod views;
