//! The queue of a host device: runs kernels as they come, or leaves them to the executor.
//!
//! Invariant: one kernel runs at a time, and while it runs, the device refuses to be used.
//!
//! # A kernel that panics
//!
//! In the order of issue it runs in its launch, and the panic goes on from there. A deferred one runs in
//! whatever call comes later, a `Drop` during another panic among them, so its panic ends here. As on a
//! GPU, the device has then failed: kernels that were given to it are thrown away, for they might read
//! what the one left half done, and every call says so until [`Queue::synchronize`] has said it once.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::executor::{Executor, Task};
use crate::error::Error;
use crate::order::Order;

/// What all handles, streams and blocks of one device share.
pub(super) struct Queue {
    pub(super) order: Order,
    state: Cell<State>,
    /// What the panic of a deferred kernel said, and whose it was, while the device has failed.
    failure: RefCell<Option<Failure>>,
    /// `None` in the order of issue: kernels run when launched.
    pub(super) executor: Option<RefCell<Executor>>,
}

/// What a queue is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// A kernel is running.
    Running,
    /// A deferred kernel has panicked.
    Failed,
}

/// A deferred kernel that panicked.
#[derive(Debug)]
struct Failure {
    stream: &'static str,
    message: String,
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
        Self { order, state: Cell::new(State::Idle), failure: RefCell::default(), executor }
    }

    /// Refuses use from inside a kernel, which the safety of deferred kernels rests on, and use of a
    /// device that has failed.
    #[inline]
    fn check(&self) -> Result<(), Error> {
        match self.state.get() {
            State::Idle => Ok(()),
            refused => Err(self.refusal(refused)),
        }
    }

    #[cold]
    fn refusal(&self, state: State) -> Error {
        match &*self.failure.borrow() {
            Some(Failure { stream, message }) if state == State::Failed => {
                Error::KernelPanicked { stream, message: message.clone(), order: self.order }
            }
            _ => Error::InsideKernel { order: self.order },
        }
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
        struct Mark<'q>(&'q Cell<State>);
        impl Drop for Mark<'_> {
            fn drop(&mut self) {
                self.0.set(State::Idle);
            }
        }
        self.state.set(State::Running);
        let mark = Mark(&self.state);
        kernel();
        drop(mark);
    }

    /// Runs one deferred kernel; says whether there was one that may run.
    fn run_one(&self, executor: &RefCell<Executor>, drain: bool) -> Result<bool, Error> {
        let Some((node, kernel)) = executor.borrow_mut().pick(drain) else { return Ok(false) };
        let ran = catch_unwind(AssertUnwindSafe(|| self.run(kernel)));
        let stream = executor.borrow_mut().ran(node);
        let Err(panic) = ran else { return Ok(true) };
        let failure = Failure { stream, message: message(panic.as_ref()) };
        quietly(|| drop(panic));
        self.failure.replace(Some(failure));
        // What kernels own is dropped while the device refuses to be used, and the executor is free.
        self.state.set(State::Failed);
        let thrown_away = executor.borrow_mut().throw_away();
        for task in thrown_away {
            quietly(|| drop(task));
        }
        Err(self.refusal(State::Failed))
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
            if !self.run_one(executor, false)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs everything. After a failure says so, once, and the device can be used again.
    pub(super) fn synchronize(&self) -> Result<(), Error> {
        let done = self.check().and_then(|()| self.drain());
        if self.state.get() == State::Failed {
            self.state.set(State::Idle);
            self.failure.take();
        }
        done
    }

    fn drain(&self) -> Result<(), Error> {
        if let Some(executor) = &self.executor {
            executor.borrow_mut().cut_all();
            while self.run_one(executor, true)? {}
        }
        Ok(())
    }
}

/// Does what may panic and must not: what users' values do when they are dropped.
fn quietly(act: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(act)) {
        // Dropping it could panic again.
        std::mem::forget(panic);
    }
}

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "what it panicked with is no text".to_owned())
}

/// Out of line, so that the order of issue stays a few instructions.
#[cold]
fn deferred<T>(executor: &RefCell<Executor>, act: impl FnOnce(&mut Executor) -> T) -> T {
    act(&mut executor.borrow_mut())
}
