//! The host device, deaf on one ear: it can be told to ignore one wait.

use std::cell::Cell;

use scratchpool::tables::Launch;
use scratchpool::{Device, Error, Host, HostEvent, HostMemory, HostStream, Progress, StreamUser};

/// Ignores every wait of a stream for an event, counted in the order of creation.
#[derive(Clone, Debug)]
pub struct Deaf {
    pub host: Host,
    pub mute: Option<(&'static str, usize)>,
    created: std::rc::Rc<Cell<usize>>,
}

impl Deaf {
    pub fn new(host: Host, mute: Option<(&'static str, usize)>) -> Self {
        Self { host, mute, created: std::rc::Rc::default() }
    }
}

// SAFETY: memory, streams and kernels are the host's, which runs one kernel at a time, so a missing
// wait gives wrong values and no more.
unsafe impl Device for Deaf {
    type Memory = HostMemory;
    type Stream = HostStream;
    type Event = (usize, HostEvent);

    fn allocate(&self, bytes: u64, align: u64) -> Result<HostMemory, Error> {
        self.host.allocate(bytes, align)
    }

    fn adopt(&self, _: &[HostStream], _: &HostMemory) {}

    fn base(memory: &HostMemory) -> *mut u8 {
        Host::base(memory)
    }

    fn create_stream(&self, name: &'static str) -> Result<HostStream, Error> {
        self.host.create_stream(name)
    }

    fn owns(&self, stream: &HostStream) -> bool {
        self.host.owns(stream)
    }

    fn create_event(&self) -> Result<Self::Event, Error> {
        let event = self.created.get();
        self.created.set(event + 1);
        Ok((event, self.host.create_event()?))
    }

    fn record(&self, stream: &HostStream, event: &Self::Event) -> Result<(), Error> {
        self.host.record(stream, &event.1)
    }

    fn wait(&self, stream: &HostStream, event: &Self::Event) -> Result<(), Error> {
        if self.mute == Some((stream.name(), event.0)) {
            return Ok(());
        }
        self.host.wait(stream, &event.1)
    }

    unsafe fn enter_step(&self, stream: &HostStream, launch: Launch) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.host.enter_step(stream, launch) }
    }

    fn leave_step(&self, stream: &HostStream) -> Result<(), Error> {
        self.host.leave_step(stream)
    }

    fn take_turn(&self, stream: &HostStream, user: StreamUser) -> bool {
        self.host.take_turn(stream, user)
    }

    fn follow(&self, streams: &[HostStream], progress: &Progress) {
        self.host.follow(streams, progress);
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.host.synchronize()
    }

    unsafe fn read_bytes(
        &self,
        stream: &HostStream,
        from: *const u8,
        into: &mut [u8],
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.host.read_bytes(stream, from, into) }
    }

    unsafe fn write_bytes(
        &self,
        stream: &HostStream,
        to: *mut u8,
        from: &[u8],
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.host.write_bytes(stream, to, from) }
    }
}
