//! What the macro emits for two pools, written by hand, and a device that records what is issued.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::pedantic, clippy::unwrap_used)]

pub mod counting;
pub mod deaf;
pub mod recorder;
pub mod toy;

#[rustfmt::skip]
mod pools {
    include!("eager.rs");
    include!("relay.rs");
}

pub use pools::*;
