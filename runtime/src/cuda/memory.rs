//! Blocks of device memory.
//!
//! Invariant: a block is given back once, when nothing in flight can touch it. A plain block (an
//! arena) waits for the context to be idle before it is freed, or, while a graph is captured, when
//! that may not be waited for, is put aside and freed later. It is shared: every graph that holds
//! its pointers holds the block. A stream-ordered block is freed in the order of its stream, after
//! the streams that may have used it.

use std::fmt;
use std::rc::Rc;

use cudarc::driver::sys::CUdeviceptr;

use super::stream::{Stream, join};
use super::{CudaError, Shared, raw};
use crate::error::Error;

/// Every allocation of the driver is aligned to this at least.
const NATURAL_ALIGN: u64 = 256;

/// A block of device memory.
#[derive(Debug)]
pub struct Memory {
    start: CUdeviceptr,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// No bytes.
    Nothing,
    Plain(Rc<Block>),
    Ordered(Option<Ordered>),
}

/// A plain allocation.
pub(super) struct Block {
    shared: Rc<Shared>,
    raw: CUdeviceptr,
}

/// A stream-ordered allocation.
#[derive(Debug)]
struct Ordered {
    stream: Stream,
    raw: CUdeviceptr,
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
            return Ok(Self { start: align, kind: Kind::Nothing });
        }
        shared.check_no_capture("allocating")?;
        shared.free_put_aside();
        let start =
            raw::allocate(&shared.context, size).map_err(|error| refused(error, bytes, align))?;
        let block = Rc::new(Block { shared: Rc::clone(shared), raw: start });
        Ok(Self { start: aligned(start, align), kind: Kind::Plain(block) })
    }

    pub(super) fn ordered(stream: &Stream, bytes: u64, align: u64) -> Result<Self, Error> {
        stream.check_eager("allocating for a live range (`Backing::PerCall`)")?;
        let size = padded(bytes, align)?;
        if bytes == 0 {
            return Ok(Self { start: align, kind: Kind::Nothing });
        }
        let start = raw::allocate_async(stream.give(), size)
            .map_err(|error| refused(error, bytes, align))?;
        let ordered = Ordered { stream: stream.clone(), raw: start };
        Ok(Self { start: aligned(start, align), kind: Kind::Ordered(Some(ordered)) })
    }

    /// The address of the first byte.
    pub(super) const fn start(&self) -> CUdeviceptr {
        self.start
    }

    /// The block that graphs share.
    pub(super) fn block(&self) -> Option<&Rc<Block>> {
        match &self.kind {
            Kind::Plain(block) => Some(block),
            Kind::Nothing | Kind::Ordered(_) => None,
        }
    }

    /// Gives it back after all that the streams hold, without waiting here.
    pub(super) fn retire<'s>(
        mut self,
        streams: impl Iterator<Item = &'s Stream>,
    ) -> Result<(), CudaError> {
        let Kind::Ordered(ordered) = &mut self.kind else { return Ok(()) };
        let Some(Ordered { stream, raw: start }) = ordered.take() else { return Ok(()) };
        let user = |other: &&Stream| other.lane.id != stream.lane.id;
        for other in streams.filter(user) {
            if let Err(error) = join(stream.give(), other) {
                // Unordered, it must not be freed here: its drop waits.
                *ordered = Some(Ordered { stream, raw: start });
                return Err(error);
            }
        }
        // SAFETY: allocated from this stream, taken out above, and all streams that may have used
        // it are joined.
        unsafe { raw::free_async(stream.give(), start) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Kind::Ordered(Some(Ordered { stream, raw: start })) = &self.kind {
            stream.lane.shared.free(*start);
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({:#x})", self.raw)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.shared.free(self.raw);
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
