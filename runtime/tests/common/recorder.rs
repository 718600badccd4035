//! A device that executes nothing and writes down what it was asked.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use scratchpool::tables::Launch;
use scratchpool::{Device, Error, Progress};

#[derive(Clone, Debug, Default)]
pub struct Recorder {
    log: Rc<RefCell<Vec<String>>>,
    events: Rc<Cell<usize>>,
    /// Fails the operation with this name and number of calls left before it.
    fail: Rc<RefCell<Option<(&'static str, usize)>>>,
}

impl Recorder {
    /// What was issued since the last call.
    pub fn take(&self) -> Vec<String> {
        self.log.borrow_mut().drain(..).collect()
    }

    /// Makes the operation fail once, after `calls` that succeed.
    pub fn fail_after(&self, operation: &'static str, calls: usize) {
        *self.fail.borrow_mut() = Some((operation, calls));
    }

    fn note(&self, operation: &'static str, what: String) -> Result<(), Error> {
        let mut fail = self.fail.borrow_mut();
        match &mut *fail {
            Some((name, 0)) if *name == operation => {
                *fail = None;
                return Err(Error::device(std::io::Error::other(format!("{operation} failed"))));
            }
            Some((name, left)) if *name == operation => *left -= 1,
            _ => {}
        }
        self.log.borrow_mut().push(format!("{operation} {what}"));
        Ok(())
    }
}

/// A block, padded so that any alignment up to 4096 is found inside.
pub struct Memory(Vec<u8>);

// SAFETY: blocks are vectors that live until dropped, and nothing is ever executed in them.
unsafe impl Device for Recorder {
    type Memory = Memory;
    type Stream = &'static str;
    type Event = usize;

    fn allocate(&self, bytes: u64, align: u64) -> Result<Memory, Error> {
        self.note("allocate", format!("{bytes} to {align}"))?;
        Ok(Memory(vec![0; usize::try_from(bytes).unwrap() + 4096]))
    }

    fn retire<'s>(
        &self,
        memory: Memory,
        streams: impl Iterator<Item = &'s &'static str>,
    ) -> Result<(), Error> {
        let streams: Vec<&str> = streams.copied().collect();
        self.note("retire", format!("{} on {}", memory.0.len() - 4096, streams.join(",")))
    }

    fn adopt(&self, _: &[&'static str], _: &Memory) {}

    fn base(memory: &Memory) -> *mut u8 {
        let start = memory.0.as_ptr().cast_mut();
        start.wrapping_add(start.align_offset(4096))
    }

    fn create_stream(&self, name: &'static str) -> Result<&'static str, Error> {
        self.note("stream", name.into())?;
        Ok(name)
    }

    fn owns(&self, _: &&'static str) -> bool {
        true
    }

    fn create_event(&self) -> Result<usize, Error> {
        let event = self.events.get();
        self.events.set(event + 1);
        self.note("event", format!("e{event}"))?;
        Ok(event)
    }

    fn record(&self, stream: &&'static str, event: &usize) -> Result<(), Error> {
        self.note("record", format!("e{event} on {stream}"))
    }

    fn wait(&self, stream: &&'static str, event: &usize) -> Result<(), Error> {
        self.note("wait", format!("e{event} on {stream}"))
    }

    unsafe fn enter_step(&self, stream: &&'static str, launch: Launch) -> Result<(), Error> {
        self.note("enter", format!("{stream} {}", launch.as_str()))
    }

    fn leave_step(&self, stream: &&'static str) -> Result<(), Error> {
        self.note("leave", (*stream).into())
    }

    fn follow(&self, _: &[&'static str], _: &Progress) {}

    fn synchronize(&self) -> Result<(), Error> {
        self.note("synchronize", String::new())
    }

    unsafe fn read_bytes(&self, _: &&'static str, _: *const u8, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    unsafe fn write_bytes(&self, _: &&'static str, _: *mut u8, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}
