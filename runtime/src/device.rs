//! What a pool needs of a device: memory, streams, events.
//!
//! A device executes what it is given in the order that streams and events guarantee, and in no
//! other: `spec-format`'s *happens-before* is the contract. The pool issues, for each step, in this
//! order: its waits, [`enter_step`](Device::enter_step), (the user's launches),
//! [`leave_step`](Device::leave_step), and [`record`](Device::record) where a later step waits. A wait
//! or a record that would change nothing is left out where the device can tell
//! ([`issued`](Device::issued)).

use crate::tables::Launch;

use crate::error::Error;
use crate::progress::{Progress, StreamUser};

/// Where scratch memory lives and kernels run.
///
/// # Errors
///
/// Every method returns what the device reports as [`Error::Device`], and what has a name of its
/// own under that name. A method that fails has done nothing.
///
/// Cloning gives a second handle to the same device.
///
/// # Safety
///
/// A pool hands out views on the word of these methods, so an implementor guarantees:
///
/// - a block is of at least the bytes asked, aligned as asked, disjoint from every other live
///   block, and its address does not change; where the host can dereference it, it is initialised;
/// - a block that is dropped or [retired](Self::retire) is not given back while work that was
///   issued before could still touch it;
/// - [`issued`](Self::issued) gives two equal numbers for a stream only where it was given nothing in
///   between;
/// - work on one stream and across events is ordered as the methods say, or, where it is not, no
///   memory is harmed (the host device runs one kernel at a time);
/// - [`take_turn`](Self::take_turn) says `true` only where it is so, and a device that wraps another
///   passes [`follow`](Self::follow) on;
/// - where `Stream` is [`HostStream`](crate::HostStream), memory is what [`Host`](crate::Host)
///   allocated.
#[expect(clippy::missing_errors_doc, reason = "said once, for all methods, above")]
pub unsafe trait Device: Clone + core::fmt::Debug {
    /// One block of device memory. Dropping it is always safe: it waits, or defers, or leaks.
    type Memory;
    /// A queue of work.
    type Stream;
    /// A point in a stream that other streams can wait for.
    type Event;

    /// Allocates `bytes` aligned to `align`, a power of two. Zero bytes are allowed.
    fn allocate(&self, bytes: u64, align: u64) -> Result<Self::Memory, Error>;

    /// Allocates memory that is used only by work ordered after what `stream` holds so far.
    fn allocate_on(
        &self,
        stream: &Self::Stream,
        bytes: u64,
        align: u64,
    ) -> Result<Self::Memory, Error> {
        if !self.owns(stream) {
            return Err(Error::ForeignMemory);
        }
        self.allocate(bytes, align)
    }

    /// Gives memory back once everything issued so far on `streams` is done, without waiting here.
    fn retire<'s>(
        &self,
        memory: Self::Memory,
        streams: impl Iterator<Item = &'s Self::Stream>,
    ) -> Result<(), Error>
    where
        Self::Stream: 's,
    {
        let _ = streams;
        drop(memory);
        Ok(())
    }

    /// Says that work of these streams uses this block: the arena of one copy of a pool, or memory of
    /// one's own. What keeps their work to be executed later, such as a graph captured from them by
    /// this crate, keeps the block too. Saying it again costs next to nothing.
    ///
    /// A device that executes work as it is issued and keeps none has nothing to do here.
    fn adopt(&self, streams: &[Self::Stream], memory: &Self::Memory);

    /// The device address of a block. It is a number to compute with; only on the host may it be
    /// dereferenced, and there it carries the block's provenance.
    fn base(memory: &Self::Memory) -> *mut u8;

    /// Creates a stream. The name is for people.
    fn create_stream(&self, name: &'static str) -> Result<Self::Stream, Error>;

    /// Whether a stream belongs to this device, so that it may work on its memory.
    fn owns(&self, stream: &Self::Stream) -> bool;

    /// Creates an event that has not been recorded. Waiting for it does nothing.
    fn create_event(&self) -> Result<Self::Event, Error>;

    /// Makes `event` stand for all that `stream` holds so far. Waits already issued keep what the
    /// event stood for then.
    fn record(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), Error>;

    /// Orders whatever `stream` is given next, and all after that, after `event`.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), Error>;

    /// How much `stream` has been given so far, where the device sees all of it: launches, copies,
    /// allocations, waits; everything but records. Two equal answers mean that it was given nothing in
    /// between, and then the pool leaves out the waits and records that would change nothing. The
    /// waits are counted too, because another pool may share the stream.
    ///
    /// `None`, as here, where work can come to the stream past the device: then each wait and each
    /// record is issued.
    fn issued(&self, stream: &Self::Stream) -> Option<u64> {
        let _ = stream;
        None
    }

    /// Says that the launches up to [`leave_step`](Self::leave_step) are one step, whose first
    /// launch relates to the step before it on `stream` as `launch` says.
    ///
    /// A step without a launch is a step all the same: what is launched next comes after all that
    /// the empty step would have come after. A device that has no empty kernel to launch
    /// strengthens the next launch instead: after an empty `Full` step it must be full, after an
    /// empty `Dependent` one dependent, or full where it is early and its kernel does not wait.
    ///
    /// # Safety
    ///
    /// What `launch` leaves without an order may be without one: whatever `stream` is given from now on,
    /// by whomever, touches nothing that work in front of it touches, or is ordered after that work
    /// by what the launch kinds promise, or by events. A pool calls it on the word of its proof, between
    /// its own steps. [`Launch::Full`] leaves nothing without an order.
    unsafe fn enter_step(&self, stream: &Self::Stream, launch: Launch) -> Result<(), Error>;

    /// Ends the step begun last on `stream`: what is launched until the next one is full.
    fn leave_step(&self, stream: &Self::Stream) -> Result<(), Error>;

    /// Notes that `user` is about to enter a step that is not full, and says whether the latest such
    /// step on `stream`, if there was one, was this user's too. If not, the pool enters the step as a
    /// full one: "the launch before" would be another pool's, of which the proof knows nothing.
    ///
    /// `false`, as here, where the device cannot tell: then every step is a full one.
    fn take_turn(&self, stream: &Self::Stream, user: StreamUser) -> bool {
        let _ = (stream, user);
        false
    }

    /// Says that these are the streams of one copy of a pool, and how to ask how far it has come. What
    /// executes their work later than it is issued, such as a graph, does so only where the copy's own
    /// order allows it. A device that wraps another passes the call on; one that executes work
    /// once, where it is issued, has nothing to do.
    fn follow(&self, streams: &[Self::Stream], progress: &Progress);

    /// Waits until everything issued so far is done.
    fn synchronize(&self) -> Result<(), Error>;

    /// Whether what the stream is given now is recorded for later instead of executed.
    fn is_capturing(&self, stream: &Self::Stream) -> bool {
        let _ = stream;
        false
    }

    /// Copies device bytes to the host, after all that `stream` holds so far, and waits for it.
    ///
    /// # Safety
    ///
    /// `from` and the `into.len()` bytes after it are in one live block of this device.
    unsafe fn read_bytes(
        &self,
        stream: &Self::Stream,
        from: *const u8,
        into: &mut [u8],
    ) -> Result<(), Error>;

    /// Copies host bytes to the device, after all that `stream` holds so far. The bytes may be
    /// changed as soon as the call returns.
    ///
    /// # Safety
    ///
    /// `to` and the `from.len()` bytes after it are in one live block of this device, and no other
    /// view of them exists.
    unsafe fn write_bytes(
        &self,
        stream: &Self::Stream,
        to: *mut u8,
        from: &[u8],
    ) -> Result<(), Error>;

    /// Fills device bytes with one value, in order on `stream`.
    ///
    /// # Safety
    ///
    /// As [`write_bytes`](Self::write_bytes), for `bytes` bytes.
    unsafe fn fill_bytes(
        &self,
        stream: &Self::Stream,
        to: *mut u8,
        bytes: usize,
        value: u8,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.write_bytes(stream, to, &vec![value; bytes]) }
    }

    /// The first of `bytes` device bytes that is not `value`, after all that `stream` holds so far.
    ///
    /// # Safety
    ///
    /// As [`read_bytes`](Self::read_bytes), for `bytes` bytes.
    unsafe fn find_other(
        &self,
        stream: &Self::Stream,
        from: *const u8,
        bytes: usize,
        value: u8,
    ) -> Result<Option<usize>, Error> {
        // SAFETY: the caller's promise.
        unsafe { find_other(self, stream, from, bytes, value) }
    }

    /// A digest of device bytes, after all that `stream` holds so far: equal for equal bytes, and
    /// very likely different for others.
    ///
    /// # Safety
    ///
    /// As [`read_bytes`](Self::read_bytes), for `bytes` bytes.
    unsafe fn digest(
        &self,
        stream: &Self::Stream,
        from: *const u8,
        bytes: usize,
    ) -> Result<u64, Error> {
        // SAFETY: the caller's promise.
        unsafe { digest(self, stream, from, bytes) }
    }

    /// An address in a view of `stream`'s that was handed to another stream, each once, where the
    /// device can tell.
    fn take_foreign_use(&self, stream: &Self::Stream) -> Option<u64> {
        let _ = stream;
        None
    }
}

/// The default of [`Device::find_other`], which reads piece by piece.
///
/// # Safety
///
/// As there.
unsafe fn find_other<D: Device>(
    device: &D,
    stream: &D::Stream,
    from: *const u8,
    bytes: usize,
    value: u8,
) -> Result<Option<usize>, Error> {
    let mut found = None;
    // SAFETY: the caller's promise.
    unsafe {
        pieces(device, stream, from, bytes, |start, piece| {
            if found.is_none() {
                found = piece.iter().position(|byte| *byte != value).map(|at| start + at);
            }
        })
    }?;
    Ok(found)
}

/// The default of [`Device::digest`], which reads piece by piece.
///
/// # Safety
///
/// As there.
unsafe fn digest<D: Device>(
    device: &D,
    stream: &D::Stream,
    from: *const u8,
    bytes: usize,
) -> Result<u64, Error> {
    let mut sum = 0_u64;
    // SAFETY: the caller's promise.
    unsafe {
        pieces(device, stream, from, bytes, |start, piece| {
            for (at, byte) in piece.iter().enumerate() {
                sum = sum.wrapping_add(weigh((start + at) as u64, *byte));
            }
        })
    }?;
    Ok(sum)
}

/// What a byte adds to a digest at its place. The order of adding does not matter.
const fn weigh(at: u64, byte: u8) -> u64 {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(byte as u64 + 1)
}

/// Reads device bytes in pieces of bounded size.
unsafe fn pieces<D: Device>(
    device: &D,
    stream: &D::Stream,
    from: *const u8,
    bytes: usize,
    mut each: impl FnMut(usize, &[u8]),
) -> Result<(), Error> {
    const PIECE: usize = 1 << 20;
    let mut buffer = vec![0; bytes.min(PIECE)];
    let mut start = 0;
    while start < bytes {
        let length = PIECE.min(bytes - start);
        let Some(piece) = buffer.get_mut(..length) else { break };
        // SAFETY: the caller's promise, for a part of the bytes.
        unsafe { device.read_bytes(stream, from.wrapping_add(start), piece) }?;
        each(start, piece);
        start += length;
    }
    Ok(())
}
