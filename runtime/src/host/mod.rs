//! The host device: aligned memory, and kernels that are Rust closures.
//!
//! [`Host::in_order`] runs each kernel when it is launched. [`Host::random`] defers kernels and
//! runs them in a random order that streams, events and launch kinds allow, the same order for the
//! same seed: a schedule that lacks an event gives wrong values under some seed. Both run on one
//! thread; only the order is explored, so even a wrong schedule is no data race.

mod args;
mod block;
mod executor;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use scratchpool_planner::spec::Launch;

use self::block::Block;
use self::executor::{Executor, Task};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::view::ViewMut;

pub use self::args::{HostArgs, HostSlice, HostSliceMut, RawView};

/// The order in which a host device runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As launched.
    Issue,
    /// Any order that streams and events allow, chosen by this seed.
    Random(u64),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issue => f.write_str("order of issue"),
            Self::Random(seed) => write!(f, "random order, seed {seed}"),
        }
    }
}

/// The host device. Cloning gives another handle to the same one.
///
/// ```
/// use scratchpool::{Device, Host, Order};
/// use std::{cell::RefCell, rc::Rc};
///
/// let host = Host::random(7);
/// assert_eq!(host.order().to_string(), "random order, seed 7");
///
/// // Two streams and an event: `b` may run before `a1` and `a2`, never before `a0`.
/// let (a, b) = (host.create_stream("a")?, host.create_stream("b")?);
/// let event = host.create_event()?;
/// let log = Rc::new(RefCell::new(Vec::new()));
/// let note = |word| { let log = Rc::clone(&log); move |()| log.borrow_mut().push(word) };
/// a.launch((), note("a0"))?;
/// host.record(&a, &event)?;
/// a.launch((), note("a1"))?;
/// a.launch((), note("a2"))?;
/// host.wait(&b, &event)?;
/// b.launch((), note("b"))?;
/// host.synchronize()?;
/// let log = log.borrow();
/// let at = |word| log.iter().position(|it| *it == word);
/// assert!(at("a0") < at("a1") && at("a1") < at("a2") && at("a0") < at("b"));
/// # Ok::<(), scratchpool::Error>(())
/// ```
#[derive(Clone)]
pub struct Host {
    queue: Rc<Queue>,
}

/// What all handles, streams and blocks of one device share.
struct Queue {
    order: Order,
    /// Whether a kernel is running.
    running: Cell<bool>,
    /// `None` in the order of issue: kernels run when launched.
    executor: Option<RefCell<Executor>>,
}

/// A stream of the host device.
///
/// A [`Device`] other than [`Host`] may use these streams, and then hands out only memory that
/// [`Host`] allocated: kernels dereference it.
pub struct HostStream {
    queue: Rc<Queue>,
    name: &'static str,
    lane: usize,
    /// How often it was given something.
    given: Cell<u64>,
}

/// An event of the host device: the nodes it stands for.
#[derive(Debug, Default)]
pub struct HostEvent {
    covered: RefCell<Vec<u64>>,
}

/// A block of host memory.
#[derive(Debug)]
pub struct HostMemory {
    /// `None` only while it is being dropped.
    block: Option<Block>,
    start: *mut u8,
    queue: Rc<Queue>,
}

impl Host {
    /// A device that runs each kernel when it is launched.
    pub fn in_order() -> Self {
        Self { queue: Rc::new(Queue::new(Order::Issue)) }
    }

    /// A device that defers kernels and runs them in an order chosen by `seed`.
    pub fn random(seed: u64) -> Self {
        Self { queue: Rc::new(Queue::new(Order::Random(seed))) }
    }

    /// The order in which it runs kernels.
    pub fn order(&self) -> Order {
        self.queue.order
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({})", self.queue.order)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({})", self.order)
    }
}

impl fmt::Debug for HostStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostStream({} in {})", self.name, self.queue.order)
    }
}

impl Queue {
    fn new(order: Order) -> Self {
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
    fn with<T: Default>(&self, act: impl FnOnce(&mut Executor) -> T) -> Result<T, Error> {
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

    fn launch(&self, lane: usize, kernel: impl FnOnce() + 'static) -> Result<(), Error> {
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

    fn synchronize(&self) -> Result<(), Error> {
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

impl HostStream {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    fn give(&self, kernel: impl FnOnce() + 'static) -> Result<(), Error> {
        self.count();
        self.queue.launch(self.lane, kernel)
    }

    #[inline]
    fn count(&self) {
        self.given.set(self.given.get() + 1);
    }

    /// Launches a kernel: a closure that gets a slice for each view of `args`, which is one view
    /// or a tuple of up to eight. Views are moved in; [`ViewMut::reborrow`] keeps one.
    ///
    /// The closure may run later, so it owns what it captures.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] where a view belongs to another stream, and
    /// [`Error::InsideKernel`] in a kernel.
    pub fn launch<A, F>(&self, args: A, kernel: F) -> Result<(), Error>
    where
        A: HostArgs,
        F: for<'k> FnOnce(A::Slices<'k>) + 'static,
    {
        if let Some(view) = args.foreign(self) {
            return Err(Error::ForeignStream { view, launch: self.name });
        }
        let raw = args.into_raw();
        self.give(move || {
            // SAFETY: called once, by the queue, which runs one kernel at a time and keeps the
            // memory until then; the views were checked to be disjoint by the borrow checker.
            let slices = unsafe { A::slices(raw) };
            kernel(slices);
        })
    }

    /// Launches a kernel that fills a view.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch).
    pub fn fill<T, D, const R: usize>(
        &self,
        view: ViewMut<'_, T, D, R>,
        value: T,
    ) -> Result<(), Error>
    where
        T: Element,
        D: Device<Stream = Self>,
    {
        self.launch(view, move |mut elements| elements.fill(value))
    }
}

// SAFETY: blocks are aligned and zeroed by `Block`, stay where they are, and are given back by
// `HostMemory::drop` only when no kernel that could touch them is left to run. In the order of
// issue every kernel has run when its launch returns, which is after all that was issued before;
// in random order the executor keeps the order of streams and events. Whatever is given to a stream
// goes to the queue that the stream belongs to, which a pool has checked to be its memory's.
unsafe impl Device for Host {
    type Memory = HostMemory;
    type Stream = HostStream;
    type Event = HostEvent;

    fn allocate(&self, bytes: u64, align: u64) -> Result<HostMemory, Error> {
        let block = Block::zeroed(bytes, align)?;
        let start = block.start();
        Ok(HostMemory { block: Some(block), start, queue: Rc::clone(&self.queue) })
    }

    fn base(memory: &HostMemory) -> *mut u8 {
        memory.start
    }

    fn create_stream(&self, name: &'static str) -> Result<HostStream, Error> {
        let lane = self.queue.with(Executor::add_lane)?;
        Ok(HostStream { queue: Rc::clone(&self.queue), name, lane, given: Cell::new(0) })
    }

    fn owns(&self, stream: &HostStream) -> bool {
        Rc::ptr_eq(&self.queue, &stream.queue)
    }

    fn create_event(&self) -> Result<HostEvent, Error> {
        Ok(HostEvent::default())
    }

    #[inline]
    fn record(&self, stream: &HostStream, event: &HostEvent) -> Result<(), Error> {
        stream.queue.with(|executor| *event.covered.borrow_mut() = executor.record(stream.lane))
    }

    #[inline]
    fn wait(&self, stream: &HostStream, event: &HostEvent) -> Result<(), Error> {
        stream.count();
        stream.queue.with(|executor| executor.wait(stream.lane, &event.covered.borrow()))
    }

    #[inline]
    fn issued(&self, stream: &HostStream) -> Option<u64> {
        // In the order of issue, waits and records do nothing anyway.
        self.queue.executor.is_some().then(|| stream.given.get())
    }

    #[inline]
    fn enter_step(&self, stream: &HostStream, launch: Launch) -> Result<(), Error> {
        stream.queue.with(|executor| executor.enter(stream.lane, launch))
    }

    #[inline]
    fn leave_step(&self, stream: &HostStream) -> Result<(), Error> {
        stream.queue.with(|executor| executor.leave(stream.lane))
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.queue.synchronize()
    }

    unsafe fn read_bytes(
        &self,
        stream: &HostStream,
        from: *const u8,
        into: &mut [u8],
    ) -> Result<(), Error> {
        stream.queue.synchronize()?;
        // SAFETY: the caller's promise; `into` is a host slice of the same length, disjoint from
        // device blocks because they are reachable through views only; no kernel is running.
        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    unsafe fn write_bytes(
        &self,
        stream: &HostStream,
        to: *mut u8,
        from: &[u8],
    ) -> Result<(), Error> {
        let from: Box<[u8]> = from.into();
        stream.give(move || {
            // SAFETY: the caller's promise, and the queue keeps the block until this has run, one
            // kernel at a time.
            unsafe { from.as_ptr().copy_to_nonoverlapping(to, from.len()) };
        })
    }
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
