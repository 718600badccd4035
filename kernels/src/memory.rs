//! Memory of one's own that the steps of a pool use, on whatever streams they run.
//!
//! ```text
//!             written by                               read by                 `on` a stream is
//!  Constant   the host, while nothing runs             any step                safe
//!  Persistent the host, likewise, and steps            steps                   unsafe: in declared order
//! ```
//!
//! A pool proves the order of its own buffers. This memory is not its own: the declared steps order
//! it all the same, because each declared `after` is issued, but nothing checks that they do.
//!
//! Invariant of [`Elements`], which all owners of memory rest on: the block is of the device, has room
//! for the shape, and is not given back while work that was issued, or a graph that was captured
//! through [`scratchpool::cuda::Cuda::capture`], could still touch it. [`Elements::used_by`] keeps
//! the second part, `Device`'s contract the first.

use core::fmt;
use core::marker::PhantomData;

use scratchpool::{Device, Element};

use crate::error::Error;
use crate::tensor::{In, Out};

/// The alignment of memory, enough for any access of the kernels.
const ALIGN: u64 = 256;

/// Device memory of a shape.
pub(crate) struct Elements<T: Element, D: Device, const R: usize> {
    device: D,
    memory: D::Memory,
    shape: [usize; R],
    of: PhantomData<T>,
}

impl<T: Element, D: Device, const R: usize> Elements<T, D, R> {
    /// Allocates with a method of the device.
    pub(crate) fn new(
        device: &D,
        shape: [usize; R],
        allocate: impl FnOnce(u64, u64) -> Result<D::Memory, scratchpool::Error>,
    ) -> Result<Self, Error> {
        let bytes = bytes::<T, R>(shape).ok_or_else(|| Error::Overflow { shape: shape.into() })?;
        let memory = allocate(bytes as u64, ALIGN)?;
        Ok(Self { device: device.clone(), memory, shape, of: PhantomData })
    }

    pub(crate) const fn shape(&self) -> [usize; R] {
        self.shape
    }

    /// Elements in all, which fit memory.
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The first element, for work on a stream. Graphs of the stream keep the block from here on.
    pub(crate) fn used_by(&self, stream: &D::Stream) -> *mut T {
        self.device.adopt(core::slice::from_ref(stream), &self.memory);
        D::base(&self.memory).cast()
    }

    /// The same, where the stream is known to be of the device.
    fn on(&self, stream: &D::Stream) -> Result<*mut T, Error> {
        if self.device.owns(stream) { Ok(self.used_by(stream)) } else { Err(Error::ForeignDevice) }
    }

    /// Overwrites all elements, in order on a stream.
    ///
    /// # Safety
    ///
    /// No other argument of this memory can be used, and work launched with one is ordered before.
    pub(crate) unsafe fn write(&self, stream: &D::Stream, values: &[T]) -> Result<(), Error> {
        let (given, expected) = (values.len(), self.len());
        if given != expected {
            return Err(scratchpool::Error::ValueCount { given, expected }.into());
        }
        // SAFETY: elements have no padding, so their bytes are initialised.
        let from = unsafe {
            core::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        // SAFETY: the block holds this many bytes, and the caller's promise.
        unsafe { self.device.write_bytes(stream, D::base(&self.memory), from)? };
        Ok(())
    }

    /// The elements, after all that a stream holds so far.
    pub(crate) fn read(&self, stream: &D::Stream) -> Result<Vec<T>, Error> {
        let len = self.len();
        let mut values = Vec::<T>::with_capacity(len);
        let room = values.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        let bytes = len.saturating_mul(size_of::<T>());
        // SAFETY: the vector has room for `len` elements, which nothing else refers to; zeroed, its
        // bytes are initialised. The block holds this many bytes. Every bit pattern is an element,
        // so after the copy `len` of them are initialised; after an error the length stays 0.
        unsafe {
            room.write_bytes(0, bytes);
            let into = core::slice::from_raw_parts_mut(room, bytes);
            self.device.read_bytes(stream, D::base(&self.memory), into)?;
            values.set_len(len);
        }
        Ok(values)
    }

    /// Overwrites all elements while nothing runs: waits for the device before and after.
    ///
    /// # Safety
    ///
    /// No other argument of this memory can be used.
    unsafe fn replace(&self, stream: &D::Stream, values: &[T]) -> Result<(), Error> {
        self.on(stream)?;
        self.device.synchronize()?;
        // SAFETY: the caller's promise, and nothing is left that was launched with one.
        unsafe { self.write(stream, values)? };
        Ok(self.device.synchronize()?)
    }
}

fn bytes<T, const R: usize>(shape: [usize; R]) -> Option<usize> {
    let len = shape.into_iter().try_fold(1_usize, usize::checked_mul)?;
    let bytes = len.checked_mul(size_of::<T>())?;
    isize::try_from(bytes).is_ok().then_some(bytes)
}

/// What the device only reads: weights, tables, and the inputs of a pass. Safe on every stream, because
/// only the host writes it, and only while nothing runs. It may be dropped at any time: what runs is
/// waited for, and graphs captured by [`scratchpool::cuda::Cuda::capture`] keep what they read.
///
/// ```
/// use scratchpool::{Device, Host};
/// use scratchpool_kernels::Constant;
///
/// let host = Host::in_order();
/// let streams = [host.create_stream("main")?, host.create_stream("aux")?];
/// let [main, aux] = &streams;
/// let mut table = Constant::<f32, _, 2>::new(&host, main, [2, 3], &[1.0; 6])?;
/// for stream in &streams {
///     assert_eq!(table.on(stream)?.shape(), [2, 3]);         // an argument, on either
/// }
/// table.replace(aux, &[2.0; 6])?;                            // for the next pass
///
/// let elsewhere = Host::in_order().create_stream("main")?;
/// let refused = table.on(&elsewhere).unwrap_err().to_string();
/// assert!(refused.contains("another device"));
/// # Ok::<(), scratchpool_kernels::Error>(())
/// ```
pub struct Constant<T: Element, D: Device, const R: usize>(Elements<T, D, R>);

impl<T: Element, D: Device, const R: usize> Constant<T, D, R> {
    /// Allocates memory, fills it through a stream, and waits for the device.
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`], [`Error::ForeignDevice`], [`scratchpool::Error::ValueCount`] where the
    /// values do not fit the shape, and what the device refuses, such as all of it while a graph is
    /// captured.
    pub fn new(
        device: &D,
        stream: &D::Stream,
        shape: [usize; R],
        values: &[T],
    ) -> Result<Self, Error> {
        let elements = Elements::new(device, shape, |bytes, align| device.allocate(bytes, align))?;
        // SAFETY: nobody else has it yet.
        unsafe { elements.replace(stream, values)? };
        Ok(Self(elements))
    }

    /// The extents.
    pub const fn shape(&self) -> [usize; R] {
        self.0.shape()
    }

    /// Overwrites all elements through a stream, at the same address: waits until the device is idle, and
    /// again until they are there. Replays of a graph read what was written before them.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn replace(&mut self, stream: &D::Stream, values: &[T]) -> Result<(), Error> {
        // SAFETY: `&mut self` leaves no argument of it that can be used.
        unsafe { self.0.replace(stream, values) }
    }

    /// As an argument of launches on a stream.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignDevice`].
    pub fn on<'v>(&'v self, stream: &'v D::Stream) -> Result<In<'v, T, D, R>, Error> {
        let start = self.0.on(stream)?.cast_const();
        // SAFETY: the block stays by the module's invariant. It is written in `replace` alone, for
        // which no argument may be left, before which all launched work is done, and after which
        // the values are there for whatever any stream is given next.
        Ok(unsafe { In::from_raw_parts(start, self.shape(), stream) })
    }
}

/// What steps write and read, and what outlives a pass: caches, and results.
///
/// The pool knows nothing of it. Order it by steps: let the step that writes it and the steps that
/// read it be on one stream, or declare `after` from the one to the other (and from the readers to
/// the next writer, `prev.step` included). Each declared `after` is issued, also where no buffer of
/// the pool needs it. A sanitized pool does not look at it, and waits so often that it hides what is
/// missing: run the model on [`Host::random`](scratchpool::Host::random) under many seeds. Dropping it
/// is as safe as for a [`Constant`].
///
/// ```
/// use scratchpool::{Device, Host};
/// use scratchpool_kernels::Persistent;
///
/// let host = Host::in_order();
/// let stream = host.create_stream("main")?;
/// let mut cache = Persistent::<u8, _, 2>::new(&host, [4, 584])?;
/// // SAFETY: all that touches the cache is given to one stream.
/// stream.launch(unsafe { cache.on_mut(&stream)? }, |mut cache| cache.row_mut(3).fill(7))?;
/// assert_eq!(cache.to_vec(&stream)?[3 * 584], 7);
/// # Ok::<(), scratchpool_kernels::Error>(())
/// ```
pub struct Persistent<T: Element, D: Device, const R: usize>(Elements<T, D, R>);

impl<T: Element, D: Device, const R: usize> Persistent<T, D, R> {
    /// Allocates memory, initialised with what the device says: zeros on [`scratchpool::Host`] and on
    /// [`scratchpool::cuda::Cuda`].
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`], and what the device refuses.
    pub fn new(device: &D, shape: [usize; R]) -> Result<Self, Error> {
        Elements::new(device, shape, |bytes, align| device.allocate(bytes, align)).map(Self)
    }

    /// The extents.
    pub const fn shape(&self) -> [usize; R] {
        self.0.shape()
    }

    /// Overwrites all elements through a stream: waits until the device is idle, and again until they
    /// are there.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignDevice`], [`scratchpool::Error::ValueCount`], and what the device refuses.
    pub fn fill_from(&mut self, stream: &D::Stream, values: &[T]) -> Result<(), Error> {
        // SAFETY: `&mut self` leaves no argument of it that can be used.
        unsafe { self.0.replace(stream, values) }
    }

    /// The elements, copied through a stream once the device is idle.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignDevice`], and what the device refuses.
    pub fn to_vec(&self, stream: &D::Stream) -> Result<Vec<T>, Error> {
        self.0.on(stream)?;
        self.0.device.synchronize()?;
        self.0.read(stream)
    }

    /// As an argument that launches on a stream read.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignDevice`].
    ///
    /// # Safety
    ///
    /// Of work given to other streams, every launch that writes this memory is ordered, by events,
    /// either before what `stream` is given next or after the launches with this argument.
    pub unsafe fn on<'v>(&'v self, stream: &'v D::Stream) -> Result<In<'v, T, D, R>, Error> {
        let start = self.0.on(stream)?.cast_const();
        // SAFETY: the block stays by the module's invariant; the order is the caller's promise.
        Ok(unsafe { In::from_raw_parts(start, self.shape(), stream) })
    }

    /// As an argument that launches on a stream write. That no launch gets it twice is checked by
    /// the borrow.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignDevice`].
    ///
    /// # Safety
    ///
    /// As [`on`](Self::on), for every launch that writes or reads this memory.
    pub unsafe fn on_mut<'v>(
        &'v mut self,
        stream: &'v D::Stream,
    ) -> Result<Out<'v, T, D, R>, Error> {
        let start = self.0.on(stream)?;
        // SAFETY: as above, and exclusive because `self` is borrowed mutably.
        Ok(unsafe { Out::from_raw_parts(start, self.shape(), stream) })
    }
}

macro_rules! debug {
    ($($name:ident)*) => {$(
        impl<T: Element, D: Device, const R: usize> fmt::Debug for $name<T, D, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (dtype, shape) = (T::DTYPE.as_str(), self.shape());
                write!(f, concat!(stringify!($name), "({} {:?})"), dtype, shape)
            }
        }
    )*};
}

debug!(Constant Persistent);
