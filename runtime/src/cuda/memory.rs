//! Blocks of device memory.
//!
//! Invariant: a block is given back once, when nothing in flight can touch it. A plain block (an
//! arena) waits for the context to be idle before it is freed, or, while a graph is captured, when
//! that may not be waited for, is put aside and freed later. A stream-ordered block is retired in the
//! order of its stream, after the streams that may have used it; dropped, it is freed like a plain one.
//! Either is shared: every graph that may hold its pointers holds the block, and the last one to
//! let go of it frees it.

use std::rc::Rc;

use cudarc::driver::sys::CUdeviceptr;

use super::error::CudaError;
use super::raw;
use super::state::{Block, Shared};
use super::stream::{Stream, join};
use crate::error::Error;

/// Every allocation of the driver is aligned to this at least.
const NATURAL_ALIGN: u64 = 256;

/// A block of device memory.
#[derive(Debug)]
pub struct Memory {
    start: CUdeviceptr,
    /// `None` where there are no bytes.
    block: Option<Rc<Block>>,
    /// The stream that a stream-ordered block was allocated from.
    ordered: Option<Stream>,
}

/// Bytes to ask for so that an aligned start is found inside.
fn padded(bytes: u64, align: u64) -> Result<usize, Error> {
    let padding = if align > NATURAL_ALIGN { align } else { 0 };
    bytes
        .checked_add(padding)
        .and_then(|all| usize::try_from(all).ok())
        .filter(|all| isize::try_from(*all).is_ok())
        .ok_or(Error::TooLarge { bytes, align })
}

/// The first aligned address; the padding of [`padded`] has room for it.
fn aligned(raw: CUdeviceptr, align: u64) -> CUdeviceptr {
    raw.checked_next_multiple_of(align.max(1)).unwrap_or(raw)
}

/// Turns the driver's "out of memory" into the crate's.
fn refused(error: CudaError, bytes: u64, align: u64) -> Error {
    if raw::is_out_of_memory(&error) { Error::OutOfMemory { bytes, align } } else { error.into() }
}

impl Memory {
    pub(super) fn plain(shared: &Rc<Shared>, bytes: u64, align: u64) -> Result<Self, Error> {
        let size = padded(bytes, align)?;
        if bytes == 0 {
            return Ok(Self { start: align, block: None, ordered: None });
        }
        shared.check_no_capture("allocating")?;
        shared.free_put_aside();
        let start =
            raw::allocate(&shared.context, size).map_err(|error| refused(error, bytes, align))?;
        let block = Some(Block::new(shared, start));
        Ok(Self { start: aligned(start, align), block, ordered: None })
    }

    pub(super) fn ordered(stream: &Stream, bytes: u64, align: u64) -> Result<Self, Error> {
        stream.check_eager("allocating for a live range (`Backing::PerCall`)")?;
        let size = padded(bytes, align)?;
        if bytes == 0 {
            return Ok(Self { start: align, block: None, ordered: None });
        }
        let start = raw::allocate_async(stream.give(), size)
            .map_err(|error| refused(error, bytes, align))?;
        let block = Some(Block::new(&stream.lane.shared, start));
        Ok(Self { start: aligned(start, align), block, ordered: Some(stream.clone()) })
    }

    /// The address of the first byte.
    pub(super) const fn start(&self) -> CUdeviceptr {
        self.start
    }

    /// Notes that work of a stream uses the block, so that graphs of the stream keep it.
    pub(super) fn adopt(&self, stream: &Stream) {
        let Some(block) = &self.block else { return };
        let id = stream.lane.id;
        if block.users.borrow().contains(&id) {
            return;
        }
        block.users.borrow_mut().push(id);
        let mut arenas = stream.lane.arenas.borrow_mut();
        arenas.retain(|arena| arena.strong_count() > 0);
        arenas.push(Rc::downgrade(block));
        // A capture that is going on began without it, and it may be dropped before the end.
        stream.keep(block);
    }

    /// Gives it back after all that the streams hold, without waiting here.
    pub(super) fn retire<'s>(
        self,
        streams: impl Iterator<Item = &'s Stream>,
    ) -> Result<(), CudaError> {
        let (Some(stream), Some(block)) = (self.ordered, self.block) else { return Ok(()) };
        let user = |other: &&Stream| other.lane.id != stream.lane.id;
        for other in streams.filter(user) {
            // Where this fails it must not be freed here: the block's drop waits.
            join(stream.give(), other)?;
        }
        // Where a graph has it too, the last of them frees it.
        let Ok(block) = Rc::try_unwrap(block) else { return Ok(()) };
        let start = block.into_raw();
        // SAFETY: allocated from this stream, nobody else's any more, and all streams that may have
        // used it are joined.
        unsafe { raw::free_async(stream.give(), start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_address_holds_are_errors_and_alignment_finds_room() {
        assert!(matches!(padded(u64::MAX, 512), Err(Error::TooLarge { .. })));
        assert!(matches!(padded(1 << 63, 1), Err(Error::TooLarge { .. })));
        assert_eq!(padded(1000, 256).ok(), Some(1000));
        assert_eq!(padded(1000, 4096).ok(), Some(5096));
        assert_eq!(aligned(0x7000_0100, 4096), 0x7000_1000);
        assert_eq!(aligned(0x7000_1000, 4096), 0x7000_1000);
    }
}
