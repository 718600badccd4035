//! Two pools, and devices that record what is issued or do not hear all of it.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used
)]

pub mod counting;
pub mod deaf;
pub mod ledger;
pub mod recorder;
pub mod toy;

#[rustfmt::skip]
mod pools {
    include!("eager.rs");
    include!("relay.rs");
}

pub use pools::*;
