//! The pool: guards that hand out memory, and what they drive.
//!
//! | file | what it holds | imports |
//! | --- | --- | --- |
//! | `plan` | what generated code says of a pool | |
//! | `clock` | what happens before what, by what was issued; for the sanitizer | |
//! | `elide` | which waits and records would change nothing | |
//! | `storage` | where the bytes are | `plan` |
//! | `walk` | the order, issued as declared | `clock`, `elide` |
//! | `sanitize` | the watch over how a pool is used | `clock`, `storage` |
//! | `guards` | pool, micro-batch, pass, layer and step | `walk`, `sanitize` |

mod clock;
mod elide;
mod guards;
mod plan;
mod sanitize;
mod storage;
mod walk;

pub use guards::{LayerCore, PassCore, PoolCore, StepCore, UbatchCore};
pub use plan::{Described, MemoryReport, Place, Plan};
pub use storage::Backing;
