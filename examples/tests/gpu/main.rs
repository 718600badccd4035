//! Tests of the CUDA device. Where there is no driver, those that need one say that they are skipped,
//! and how many so far; the same bodies run on the host device where that makes sense.
#![allow(clippy::unwrap_used, clippy::panic, clippy::pedantic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation)]

mod flash;
mod graphs;
mod lab;
mod views;
