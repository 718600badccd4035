//! The queue of a host device: runs kernels as they come, or leaves them to the executor.
//!
//! Invariant: one kernel runs at a time, and while it runs, the device refuses to be used.

use std::cell::{Cell, RefCell};
use std::fmt;

use super::executor::{Executor, Task};
use crate::error::Error;
use crate::order::Order;

/// What all handles, streams and blocks of one device share.
pub(super) struct Queue {
    pub(super) order: Order,
    /// Whether a kernel is running.
    running: Cell<bool>,
    /// `None` in the order of issue: kernels run when launched.
    pub(super) executor: Option<RefCell<Executor>>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({})", self.order)
    }
}

impl Queue {
    pub(super) fn new(order: Order) -> Self {
        let executor = match order {
            Order::Issue => None,
            Order::Random(seed) => Some(RefCell::new(Executor::new(seed))),
        };
        Self { order, running: Cell::new(false), executor }
    }

    /// Refuses use from inside a kernel, which the safety of deferred kernels rests on.
    #[inline]
    fn check(&self) -> Result<(), Error> {
        if self.running.get() {
            return Err(Error::InsideKernel { order: self.order });
        }
        Ok(())
    }

    /// Does something with the executor, where there is one.
    #[inline]
    pub(super) fn with<T: Default>(
        &self,
        act: impl FnOnce(&mut Executor) -> T,
    ) -> Result<T, Error> {
        self.check()?;
        Ok(match &self.executor {
            None => T::default(),
            Some(executor) => deferred(executor, act),
        })
    }

    /// Runs a kernel, with the mark that one is running, which a panic takes away too.
    fn run(&self, kernel: impl FnOnce()) {
        struct Mark<'q>(&'q Cell<bool>);
        impl Drop for Mark<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        self.running.set(true);
        let mark = Mark(&self.running);
        kernel();
        drop(mark);
    }

    /// Runs one deferred kernel, if one may run.
    fn run_one(&self, executor: &RefCell<Executor>, drain: bool) -> bool {
        /// Reports the node as run even when its kernel panics, so that the rest still can.
        struct Ran<'e>(&'e RefCell<Executor>, u64);
        impl Drop for Ran<'_> {
            fn drop(&mut self) {
                self.0.borrow_mut().ran(self.1);
            }
        }
        let Some((node, kernel)) = executor.borrow_mut().pick(drain) else { return false };
        let ran = Ran(executor, node);
        self.run(kernel);
        drop(ran);
        true
    }

    pub(super) fn launch(&self, lane: usize, kernel: impl FnOnce() + 'static) -> Result<(), Error> {
        self.check()?;
        let Some(executor) = &self.executor else {
            self.run(kernel);
            return Ok(());
        };
        let kernel: Task = Box::new(kernel);
        executor.borrow_mut().enqueue(lane, kernel);
        let turns = executor.borrow_mut().turns();
        for _ in 0..turns {
            if !self.run_one(executor, false) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn synchronize(&self) -> Result<(), Error> {
        self.check()?;
        if let Some(executor) = &self.executor {
            executor.borrow_mut().cut_all();
            while self.run_one(executor, true) {}
        }
        Ok(())
    }
}

/// Out of line, so that the order of issue stays a few instructions.
#[cold]
fn deferred<T>(executor: &RefCell<Executor>, act: impl FnOnce(&mut Executor) -> T) -> T {
    act(&mut executor.borrow_mut())
}
