//! The host device: what a pool needs of it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use super::block::Block;
use super::memory::HostMemory;
use super::queue::Queue;
use super::stream::{HostEvent, HostStream};
use crate::device::Device;
use crate::error::Error;
use crate::order::Order;
use crate::progress::{Progress, StreamUser};
use crate::tables::Launch;

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

impl Host {
    /// Whether a stream and an event are of this device: the numbers of another's nodes mean nothing
    /// here.
    #[inline]
    fn check(&self, stream: &HostStream, event: &HostEvent) -> Result<(), Error> {
        let own = |queue| Rc::ptr_eq(&self.queue, queue);
        if own(&stream.queue) && own(&event.queue) {
            return Ok(());
        }
        Err(Error::ForeignDevice { stream: stream.name })
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({})", self.queue.order)
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

    /// Nothing to do: kernels are kept by the queue, and a block waits for them.
    fn adopt(&self, _: &[HostStream], _: &HostMemory) {}

    fn base(memory: &HostMemory) -> *mut u8 {
        memory.start
    }

    fn create_stream(&self, name: &'static str) -> Result<HostStream, Error> {
        let lane = self.queue.with(|executor| executor.add_lane(name))?;
        Ok(HostStream {
            queue: Rc::clone(&self.queue),
            name,
            lane,
            given: Cell::new(0),
            user: Cell::new(None),
        })
    }

    fn owns(&self, stream: &HostStream) -> bool {
        Rc::ptr_eq(&self.queue, &stream.queue)
    }

    fn create_event(&self) -> Result<HostEvent, Error> {
        Ok(HostEvent { queue: Rc::clone(&self.queue), covered: RefCell::default() })
    }

    #[inline]
    fn record(&self, stream: &HostStream, event: &HostEvent) -> Result<(), Error> {
        self.check(stream, event)?;
        stream.queue.with(|executor| *event.covered.borrow_mut() = executor.record(stream.lane))
    }

    #[inline]
    fn wait(&self, stream: &HostStream, event: &HostEvent) -> Result<(), Error> {
        self.check(stream, event)?;
        stream.count();
        stream.queue.with(|executor| executor.wait(stream.lane, &event.covered.borrow()))
    }

    #[inline]
    fn issued(&self, stream: &HostStream) -> Option<u64> {
        // In the order of issue, waits and records do nothing anyway.
        self.queue.executor.is_some().then(|| stream.given.get())
    }

    #[inline]
    unsafe fn enter_step(&self, stream: &HostStream, launch: Launch) -> Result<(), Error> {
        stream.queue.with(|executor| executor.enter(stream.lane, launch))
    }

    #[inline]
    fn leave_step(&self, stream: &HostStream) -> Result<(), Error> {
        stream.queue.with(|executor| executor.leave(stream.lane))
    }

    fn take_turn(&self, stream: &HostStream, user: StreamUser) -> bool {
        stream.user.replace(Some(user)).is_none_or(|latest| latest == user)
    }

    fn follow(&self, _: &[HostStream], _: &Progress) {}

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
