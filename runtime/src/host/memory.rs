//! Blocks of host memory.
//!
//! Invariant: a block is given back once no kernel that could touch it is left to run.

use std::rc::Rc;

use super::block::Block;
use super::queue::Queue;

/// A block of host memory.
#[derive(Debug)]
pub struct HostMemory {
    /// `None` only while it is being dropped.
    pub(super) block: Option<Block>,
    pub(super) start: *mut u8,
    pub(super) queue: Rc<Queue>,
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        match &self.queue.executor {
            // In the order of issue every kernel has run, except one that is running now and
            // drops the pool it was launched from: that one's borrow kept the pool alive, so it
            // cannot be this block's.
            None => drop(block),
            Some(executor) => match executor.try_borrow_mut() {
                Ok(mut executor) => executor.retire(block),
                // Not reachable: no caller's code runs while the executor is borrowed. Leaking is
                // the safe answer all the same.
                Err(_) => std::mem::forget(block),
            },
        }
    }
}
