//! Streams and events of the host device.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use super::queue::Queue;
use crate::error::Error;
use crate::progress::StreamUser;

/// A stream of the host device.
///
/// A [`Device`] other than [`Host`] may use these streams, and then hands out only memory that
/// [`Host`] allocated: kernels dereference it.
///
/// [`Device`]: crate::Device
/// [`Host`]: crate::Host
pub struct HostStream {
    pub(super) queue: Rc<Queue>,
    pub(super) name: &'static str,
    pub(super) lane: usize,
    /// How often it was given something.
    pub(super) given: Cell<u64>,
    /// Whose step, of those that are not full, it was given last.
    pub(super) user: Cell<Option<StreamUser>>,
}

/// An event of the host device: the nodes it stands for.
#[derive(Debug)]
pub struct HostEvent {
    pub(super) queue: Rc<Queue>,
    pub(super) covered: RefCell<Vec<u64>>,
}

impl fmt::Debug for HostStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostStream({} in {})", self.name, self.queue.order)
    }
}

impl HostStream {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn give(&self, kernel: impl FnOnce() + 'static) -> Result<(), Error> {
        self.count();
        self.queue.launch(self.lane, kernel)
    }

    #[inline]
    pub(super) fn count(&self) {
        self.given.set(self.given.get() + 1);
    }
}
