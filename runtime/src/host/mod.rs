//! The host device: aligned memory, and kernels that are Rust closures.
//!
//! [`Host::in_order`] runs each kernel when it is launched. [`Host::random`] defers kernels and
//! runs them in a random order that streams, events and launch kinds allow, the same order for the
//! same seed: a schedule that lacks an event gives wrong values under some seed. Both run on one
//! thread; only the order is explored, so even a wrong schedule is no data race.
//!
//! | file | what it holds | imports |
//! | --- | --- | --- |
//! | `block` | aligned memory | |
//! | `executor` | the random orders | `block` |
//! | `queue` | what all handles of a device share | `executor` |
//! | `stream` | streams and events | `queue` |
//! | `memory` | blocks handed out, and when they are given back | `queue` |
//! | `launch` | kernels, and what they are called with | `stream` |
//! | `device` | the device | `stream`, `memory` |

mod block;
mod device;
mod executor;
mod launch;
mod memory;
mod queue;
mod stream;

pub use device::Host;
pub use launch::{HostArgs, HostSlice, HostSliceMut, RawView};
pub use memory::HostMemory;
pub use stream::{HostEvent, HostStream};
