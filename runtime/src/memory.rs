//! Memory of one's own that kernels use beside the pool's: on one stream, or on whatever streams the
//! steps of a pool run.
//!
//! | type | written by | read by | a view |
//! | --- | --- | --- | --- |
//! | [`Tensor`] | work on its one stream | work on its one stream | safe |
//! | [`Constant`] | the host, while nothing runs | any step | safe on every stream |
//! | [`Persistent`] | the host, likewise, and steps | steps | `unsafe`: in declared order |
//!
//! Another library's memory becomes a view by [`View::from_raw_parts`].
//!
//! A pool proves the order of its own buffers. This memory is not its own: the declared steps order
//! it all the same, because each declared `after` is issued, but nothing checks that they do.
//!
//! Invariant of [`Elements`], which all owners of memory rest on: the block is of the device, has room
//! for the shape, and is not given back while work that was issued, or a graph that was captured
//! through this crate, could still touch it. Every view of it is made by [`Elements::used_by`], which
//! keeps the second part; `Device`'s contract keeps the first.

use core::fmt;
use core::marker::PhantomData;

use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::view::{View, ViewMut};

/// The alignment of memory: more than any element's, and enough for the widest loads of kernels.
const ALIGN: u64 = 256;

/// Device memory of a shape.
struct Elements<T: Element, D: Device, const R: usize> {
    device: D,
    memory: D::Memory,
    shape: [usize; R],
    of: PhantomData<T>,
}

impl<T: Element, D: Device, const R: usize> Elements<T, D, R> {
    /// Allocates with a method of the device.
    fn new(
        device: &D,
        shape: [usize; R],
        allocate: impl FnOnce(u64, u64) -> Result<D::Memory, Error>,
    ) -> Result<Self, Error> {
        let bytes = bytes::<T, R>(shape).ok_or_else(|| Error::Overflow { shape: shape.into() })?;
        let memory = allocate(bytes as u64, ALIGN)?;
        Ok(Self { device: device.clone(), memory, shape, of: PhantomData })
    }

    /// The first element, for work on a stream. Graphs of the stream keep the block from here on.
    fn used_by(&self, stream: &D::Stream) -> *mut T {
        self.device.adopt(core::slice::from_ref(stream), &self.memory);
        D::base(&self.memory).cast()
    }

    fn check(&self, stream: &D::Stream) -> Result<(), Error> {
        if self.device.owns(stream) { Ok(()) } else { Err(Error::ForeignMemory) }
    }

    /// A shared view for work on a stream.
    ///
    /// # Safety
    ///
    /// The stream is of the device, and points 2 and 3 of [`View::from_raw_parts`] hold; the type keeps
    /// point 1.
    unsafe fn view<'v>(&'v self, stream: &'v D::Stream) -> View<'v, T, D, R> {
        let start = self.used_by(stream).cast_const();
        // SAFETY: live by the type's invariant; the rest is the caller's promise.
        unsafe { View::from_raw_parts(start, self.shape, stream) }
    }

    /// An exclusive view for work on a stream.
    ///
    /// # Safety
    ///
    /// As [`view`](Self::view).
    unsafe fn view_mut<'v>(&'v self, stream: &'v D::Stream) -> ViewMut<'v, T, D, R> {
        let start = self.used_by(stream);
        // SAFETY: as above.
        unsafe { ViewMut::from_raw_parts(start, self.shape, stream) }
    }

    /// Overwrites all elements while nothing runs: waits for the device before and after.
    ///
    /// # Safety
    ///
    /// No other view of this memory can be used.
    unsafe fn replace(&self, stream: &D::Stream, values: &[T]) -> Result<(), Error> {
        self.check(stream)?;
        self.device.synchronize()?;
        // SAFETY: exclusive by the caller's promise, and in order because the device is idle.
        unsafe { self.view_mut(stream) }.fill_from(&self.device, values)?;
        self.device.synchronize()
    }
}

fn bytes<T, const R: usize>(shape: [usize; R]) -> Option<usize> {
    let len = shape.into_iter().try_fold(1_usize, usize::checked_mul)?;
    let bytes = len.checked_mul(size_of::<T>())?;
    isize::try_from(bytes).is_ok().then_some(bytes)
}

/// Device memory of one's own, bound to one stream. Copies and full launches on it are in order, on the
/// host device all of one step's too. Between steps that are launched programmatically they are where
/// the launches in between wait for one another; on CUDA the contract of
#[cfg_attr(feature = "cuda", doc = "[launching](crate::cuda::KernelCall::launch)")]
#[cfg_attr(not(feature = "cuda"), doc = "launching")]
/// asks for it.
///
/// This is what the allocating forms return. Weights, which several streams read, are a
/// [`Constant`]; caches, which several steps touch, are
/// [`Persistent`]. Fresh memory is initialised, with what the device says.
///
/// ```
/// use scratchpool::{Device, Host, Tensor};
///
/// let host = Host::in_order();
/// let stream = host.create_stream("main")?;
/// let tensor = Tensor::<f32, _, 2>::from_values(&host, &stream, [2, 3], &[1.0; 6])?;
/// assert_eq!(tensor.view().shape(), [2, 3]);
/// assert_eq!(tensor.to_vec()?, [1.0; 6]);
/// # Ok::<(), scratchpool::Error>(())
/// ```
pub struct Tensor<'s, T: Element, D: Device, const R: usize> {
    elements: Elements<T, D, R>,
    stream: &'s D::Stream,
}

impl<T: Element, D: Device, const R: usize> fmt::Debug for Tensor<'_, T, D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {:?})", T::DTYPE.as_str(), self.shape())
    }
}

impl<'s, T: Element, D: Device, const R: usize> Tensor<'s, T, D, R> {
    /// Allocates memory for work on `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`], [`Error::ForeignMemory`] where the stream is not the device's, and what the
    /// device refuses.
    pub fn new(device: &D, stream: &'s D::Stream, shape: [usize; R]) -> Result<Self, Error> {
        if !device.owns(stream) {
            return Err(Error::ForeignMemory);
        }
        let allocate = |bytes, align| device.allocate_on(stream, bytes, align);
        Ok(Self { elements: Elements::new(device, shape, allocate)?, stream })
    }

    /// Allocates memory and fills it.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and [`Error::ValueCount`] where the values do not fit the shape.
    pub fn from_values(
        device: &D,
        stream: &'s D::Stream,
        shape: [usize; R],
        values: &[T],
    ) -> Result<Self, Error> {
        let mut tensor = Self::new(device, stream, shape)?;
        tensor.fill_from(values)?;
        Ok(tensor)
    }

    /// The extents.
    pub const fn shape(&self) -> [usize; R] {
        self.elements.shape
    }

    /// Overwrites all elements.
    ///
    /// # Errors
    ///
    /// [`Error::ValueCount`], and what the device refuses.
    pub fn fill_from(&mut self, values: &[T]) -> Result<(), Error> {
        // SAFETY: `&mut self` leaves no other view of it that can be used; work launched with one is
        // ordered before, on the same stream.
        unsafe { self.elements.view_mut(self.stream) }.fill_from(&self.elements.device, values)
    }

    /// The elements, after all that the stream holds so far.
    ///
    /// # Errors
    ///
    /// What the device refuses.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        self.view().to_vec(&self.elements.device)
    }

    /// The elements, for work that reads them.
    pub fn view(&self) -> View<'_, T, D, R> {
        // SAFETY: all uses are on one stream, of this device; no exclusive view can be used while
        // `self` is borrowed.
        unsafe { self.elements.view(self.stream) }
    }

    /// The elements, for work that writes them.
    pub fn view_mut(&mut self) -> ViewMut<'_, T, D, R> {
        // SAFETY: as above, and exclusive because `self` is borrowed mutably.
        unsafe { self.elements.view_mut(self.stream) }
    }
}

/// What the device only reads: weights, tables, and the inputs of a pass. Safe on every stream, because
/// only the host writes it, and only while nothing runs. It may be dropped at any time: what runs is
/// waited for, and graphs captured by `Cuda::capture` keep what they read.
///
/// ```
/// use scratchpool::{Constant, Device, Host};
///
/// let host = Host::in_order();
/// let streams = [host.create_stream("main")?, host.create_stream("aux")?];
/// let [main, aux] = &streams;
/// let mut table = Constant::<f32, _, 2>::new(&host, main, [2, 3], &[1.0; 6])?;
/// for stream in &streams {
///     assert_eq!(table.on(stream)?.shape(), [2, 3]);         // a view, on either
/// }
/// table.replace(aux, &[2.0; 6])?;                            // for the next pass
///
/// let elsewhere = Host::in_order().create_stream("main")?;
/// let refused = table.on(&elsewhere).unwrap_err().to_string();
/// assert!(refused.contains("another device"));
/// # Ok::<(), scratchpool::Error>(())
/// ```
pub struct Constant<T: Element, D: Device, const R: usize>(Elements<T, D, R>);

impl<T: Element, D: Device, const R: usize> Constant<T, D, R> {
    /// Allocates memory, fills it through a stream, and waits for the device.
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`], [`Error::ForeignMemory`], [`Error::ValueCount`] where the
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
        self.0.shape
    }

    /// Overwrites all elements through a stream, at the same address: waits until the device is idle, and
    /// again until they are there. Replays of a graph read what was written before them.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn replace(&mut self, stream: &D::Stream, values: &[T]) -> Result<(), Error> {
        // SAFETY: `&mut self` leaves no view of it that can be used.
        unsafe { self.0.replace(stream, values) }
    }

    /// A view for launches on a stream.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignMemory`].
    pub fn on<'v>(&'v self, stream: &'v D::Stream) -> Result<View<'v, T, D, R>, Error> {
        self.0.check(stream)?;
        // SAFETY: it is written in `replace` alone, for which no view may be left, before which all
        // launched work is done, and after which the values are there for whatever any stream is
        // given next.
        Ok(unsafe { self.0.view(stream) })
    }
}

/// What steps write and read, and what outlives a pass: caches, and results.
///
/// The pool knows nothing of it. Order it by steps: let the step that writes it and the steps that
/// read it be full launches of one stream, or declare `after` from the one to the other (and from the
/// readers to the next writer, `prev.step` included). Each declared `after` is issued, also where no buffer
/// of the pool needs it. A step declared `dependent` comes after the step just before it on its stream and
/// what that one comes after, and a step declared `early` after the latter alone: behind those, one
/// stream is not enough. A sanitized pool does not look at it, and waits so often that it hides what is
/// missing: run the model on [`Host::random`](crate::Host::random) under many seeds. Dropping it
/// is as safe as for a [`Constant`].
///
/// ```
/// use scratchpool::{Device, Host, Persistent};
///
/// let host = Host::in_order();
/// let stream = host.create_stream("main")?;
/// let mut cache = Persistent::<u8, _, 2>::new(&host, [4, 584])?;
/// // SAFETY: all that touches the cache is given to one stream, in full launches.
/// stream.launch(unsafe { cache.on_mut(&stream)? }, |mut cache| cache.row_mut(3).fill(7))?;
/// assert_eq!(cache.to_vec(&stream)?[3 * 584], 7);
/// # Ok::<(), scratchpool::Error>(())
/// ```
pub struct Persistent<T: Element, D: Device, const R: usize>(Elements<T, D, R>);

impl<T: Element, D: Device, const R: usize> Persistent<T, D, R> {
    /// Allocates memory, initialised with what the device says: zeros on [`Host`](crate::Host) and on
    /// `Cuda`.
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`], and what the device refuses.
    pub fn new(device: &D, shape: [usize; R]) -> Result<Self, Error> {
        Elements::new(device, shape, |bytes, align| device.allocate(bytes, align)).map(Self)
    }

    /// The extents.
    pub const fn shape(&self) -> [usize; R] {
        self.0.shape
    }

    /// Overwrites all elements through a stream: waits until the device is idle, and again until they
    /// are there.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignMemory`], [`Error::ValueCount`], and what the device refuses.
    pub fn fill_from(&mut self, stream: &D::Stream, values: &[T]) -> Result<(), Error> {
        // SAFETY: `&mut self` leaves no view of it that can be used.
        unsafe { self.0.replace(stream, values) }
    }

    /// The elements, copied through a stream once the device is idle.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignMemory`], and what the device refuses.
    pub fn to_vec(&self, stream: &D::Stream) -> Result<Vec<T>, Error> {
        self.0.check(stream)?;
        self.0.device.synchronize()?;
        // SAFETY: the device is idle, so all that writes is done; `self` is borrowed, so no exclusive
        // view can be used.
        unsafe { self.0.view(stream) }.to_vec(&self.0.device)
    }

    /// A view that launches on a stream read.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignMemory`].
    ///
    /// # Safety
    ///
    /// Every launch that writes this memory, given to whatever stream, this one included, is ordered
    /// either before the launches with this view or after them: by events, or on one stream as
    /// [`View::from_raw_parts`] says under "in order". That holds for the replays of a graph too.
    pub unsafe fn on<'v>(&'v self, stream: &'v D::Stream) -> Result<View<'v, T, D, R>, Error> {
        self.0.check(stream)?;
        // SAFETY: the order is the caller's promise.
        Ok(unsafe { self.0.view(stream) })
    }

    /// A view that launches on a stream write. That no launch gets it twice is checked by
    /// the borrow.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignMemory`].
    ///
    /// # Safety
    ///
    /// As [`on`](Self::on), for every launch that writes or reads this memory.
    pub unsafe fn on_mut<'v>(
        &'v mut self,
        stream: &'v D::Stream,
    ) -> Result<ViewMut<'v, T, D, R>, Error> {
        self.0.check(stream)?;
        // SAFETY: as above, and exclusive because `self` is borrowed mutably.
        Ok(unsafe { self.0.view_mut(stream) })
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
