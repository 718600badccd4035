//! GPU scratch memory whose overlay is proved at compile time, and whose order is issued from the
//! same declaration.
//!
//! A pool is declared once: buffers, and the steps of a layer that write and read them on named
//! streams. The macro proves which buffers can never be live together, packs those onto the same
//! bytes, and emits the schedule as a constant. This crate executes that constant: it allocates the
//! arena, hands out typed views step by step, and issues exactly the waits and events that the
//! proof rests on.
//!
//! ```text
//!  Pool::allocate(&device)         one arena, streams and events, once
//!   └ begin(num_tokens)            a pass; more than planned for is an error
//!      └ layer(k)                  in increasing order; may be skipped
//!         └ step()                 in declared order; may be skipped; waits issued here
//!            ├ stream(), buffers() typed views of what the step declares, and nothing else
//!            └ drop                the event, if a later step waits for it
//! ```
//!
//! | module | what it holds |
//! | --- | --- |
//! | crate root | [`Device`], [`Host`], [`View`], [`ViewMut`], [`Tensor`], [`Constant`], [`Persistent`], element types, [`Error`], [`MemoryReport`] |
//! | `cuda` | the CUDA device, with the feature of that name, which is on by default |
//! | [`tables`] | the constant schedule and layout that the macro emits |
//! | `generated` | what generated code calls; not for people |
//!
//! # Levels
//!
//! A file imports files of the levels above its own row, and of its own folder those that the folder's
//! table allows. Nothing imports in a circle.
//!
//! | level | files | what they are |
//! | --- | --- | --- |
//! | 0 | [`tables`] | the vocabulary shared with the macro |
//! | 1 | `element`, `size`, `check`, `order`, `progress`, `violation`, `cuda/error` | what stands by itself |
//! | 2 | `error` | everything that can go wrong |
//! | 3 | `device` | what a pool needs of a device |
//! | 4 | `view` | typed views |
//! | 5 | `memory` | memory of one's own, for any device |
//! | 5 | `host/*`, `cuda/*` | the devices |
//! | 5 | `pool/*` | pools, for any device |
//!
//! # Safety
//!
//! What safe code can do with a pool cannot race, given a declaration that names every access.
//! That rests on three things, each kept in one place: the order is issued as declared (the
//! invariant of `pool/walk.rs`), views of overlapping bytes cannot be held together (borrows, in
//! `pool/guards.rs`), and views point into live memory (the invariant of `view.rs`). On the host even a
//! wrong schedule cannot race in memory: kernels run one at a time.

mod check;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod element;
mod error;
mod host;
mod memory;
mod order;
mod pool;
mod progress;
mod size;
pub mod tables;
mod view;
mod violation;

pub use device::Device;
pub use element::{Element, bf16, bool8, e8m0, f8e4m3, f8e5m2, f16};
pub use error::Error;
pub use host::{
    Host, HostArgs, HostEvent, HostMemory, HostSlice, HostSliceMut, HostStream, RawView,
};
pub use memory::{Constant, Persistent, Tensor};
pub use order::Order;
pub use pool::{Backing, MemoryReport};
pub use progress::{Progress, StreamUser};
pub use scratchpool_macros::scratch_pool;
pub use size::SizeError;
pub use view::{View, ViewMut};
pub use violation::{MissingEdge, Violation, ViolationKind};

/// What generated code is made of. Not for people: contracts may change with the macro.
#[doc(hidden)]
pub mod generated {
    /// Sizes given at start-up.
    pub mod size {
        pub use crate::size::*;
    }
    /// The check of the constants that rustc makes.
    pub mod check {
        pub use crate::check::*;
    }
    pub use crate::pool::{Described, Place, Plan};
    pub use crate::pool::{LayerCore, PassCore, PoolCore, StepCore, UbatchCore};
    pub use crate::size::tensor_bytes;
}
