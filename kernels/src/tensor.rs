//! Arguments of launches: typed, shaped device memory, from a pool's view or from elsewhere.
//!
//! Scratch comes as the pool's [`View`] and [`ViewMut`]; weights, activations and caches come from
//! outside. [`In`] and [`Out`] take both:
//!
//! | memory | argument |
//! | --- | --- |
//! | a pool's view | `view.into()` |
//! | weights, tables, a pass's inputs: written by the host, while nothing runs | [`Constant::on`](crate::Constant::on) a stream |
//! | caches, results: written and read by steps | [`Persistent::on`](crate::Persistent::on) a stream, `unsafe`: in declared order |
//! | of one's own, on one stream | [`Tensor`] |
//! | another library's | [`In::from_raw_parts`], `unsafe` |
//!
//! They go to [`Kernels`](crate::Kernels), to kernels of one's own on the CUDA device
//! ([`KernelArg`]), and to closures on the host device, which get them as [`HostSlice`] and
//! [`HostSliceMut`], with their shapes.
//!
//! Invariant, which every launch relies on: what [`View`]'s module says of a view holds of an
//! [`In`], and what it says of an exclusive view of an [`Out`]: live memory of the device of
//! `stream`, in order on it, no other usable argument covering the bytes of an `Out`.

use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

use scratchpool::cuda::{KernelArg, Stream};
use scratchpool::{Device, Element, HostArgs, HostSlice, HostSliceMut, HostStream, View, ViewMut};

use crate::error::Error;
use crate::memory::Elements;

/// What a kernel reads: rank `R`, row-major, contiguous.
pub struct In<'v, T: Element, D: Device, const R: usize> {
    start: *const T,
    shape: [usize; R],
    stream: &'v D::Stream,
}

/// What a kernel writes: rank `R`, row-major, contiguous, exclusive.
pub struct Out<'v, T: Element, D: Device, const R: usize> {
    start: *mut T,
    shape: [usize; R],
    stream: &'v D::Stream,
    exclusive: PhantomData<&'v mut T>,
}

#[expect(clippy::expl_impl_clone_on_copy, reason = "a derive would ask it of the device")]
impl<T: Element, D: Device, const R: usize> Clone for In<'_, T, D, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element, D: Device, const R: usize> Copy for In<'_, T, D, R> {}

macro_rules! common {
    () => {
        /// The extents.
        pub const fn shape(&self) -> [usize; R] {
            self.shape
        }

        /// Elements in all. A shape that fits memory has a product that fits.
        pub fn len(&self) -> usize {
            self.shape.iter().fold(1, |all, extent| all.saturating_mul(*extent))
        }

        /// Whether there is no element.
        pub fn is_empty(&self) -> bool {
            self.shape.contains(&0)
        }

        /// The device address of the first element.
        pub fn address(&self) -> u64 {
            self.start.addr() as u64
        }

        /// The stream on which the bytes are in order.
        pub const fn stream(&self) -> &'v D::Stream {
            self.stream
        }

        /// The rows of `range`.
        ///
        /// # Errors
        ///
        /// [`scratchpool::Error::RowRange`] where the range is not inside the rows.
        pub fn slice_rows(mut self, range: Range<usize>) -> Result<Self, Error> {
            let Range { start, end } = range;
            let rows = self.shape.first().copied().unwrap_or(0);
            if start > end || end > rows {
                return Err(scratchpool::Error::RowRange { start, end, rows }.into());
            }
            let width = self.len().checked_div(rows).unwrap_or(0);
            self.start = self.start.wrapping_add(start * width);
            if let Some(first) = self.shape.first_mut() {
                *first = end - start;
            }
            Ok(self)
        }
    };
}

impl<'v, T: Element, D: Device, const R: usize> In<'v, T, D, R> {
    /// Memory of another library.
    ///
    /// # Safety
    ///
    /// The elements are live, aligned device memory until the work launched with them is done, replays
    /// of a graph that it was captured in included; every write to them is ordered before what
    /// `stream` is given next; nothing writes them before that work is done.
    pub const unsafe fn from_raw_parts(
        start: *const T,
        shape: [usize; R],
        stream: &'v D::Stream,
    ) -> Self {
        Self { start, shape, stream }
    }

    common!();

    /// The device pointer. Only on the host may it be dereferenced.
    pub const fn as_ptr(&self) -> *const T {
        self.start
    }
}

impl<'v, T: Element, D: Device> In<'v, T, D, 3> {
    /// The rows of all matrices as those of one: `[a, b, c]` as `[a b, c]`.
    ///
    /// ```
    /// use scratchpool::{Device, Host};
    /// let host = Host::in_order();
    /// let stream = host.create_stream("main")?;
    /// let workspace = scratchpool_kernels::alloc::workspace(&host, &stream, 4, 300)?;
    /// assert_eq!(workspace.view().flatten_rows().shape(), [1200, 512]);
    /// # Ok::<(), scratchpool_kernels::Error>(())
    /// ```
    pub const fn flatten_rows(self) -> In<'v, T, D, 2> {
        let [matrices, rows, columns] = self.shape;
        // A shape that fits memory has a product that fits, or no element.
        let shape = [matrices.saturating_mul(rows), columns];
        In { start: self.start, shape, stream: self.stream }
    }
}

impl<'v, T: Element, D: Device, const R: usize> Out<'v, T, D, R> {
    /// Memory of another library.
    ///
    /// # Safety
    ///
    /// As [`In::from_raw_parts`], and every other access to the elements is ordered before what
    /// `stream` is given next, or after the work launched with them.
    pub const unsafe fn from_raw_parts(
        start: *mut T,
        shape: [usize; R],
        stream: &'v D::Stream,
    ) -> Self {
        Self { start, shape, stream, exclusive: PhantomData }
    }

    common!();

    /// The device pointer. Only on the host may it be dereferenced.
    pub const fn as_mut_ptr(&mut self) -> *mut T {
        self.start
    }

    /// The same for a shorter time, so that this one can be used again afterwards.
    pub const fn reborrow(&mut self) -> Out<'_, T, D, R> {
        Out { start: self.start, shape: self.shape, stream: self.stream, exclusive: PhantomData }
    }
}

impl<'v, T: Element, D: Device, const R: usize> From<View<'v, T, D, R>> for In<'v, T, D, R> {
    fn from(view: View<'v, T, D, R>) -> Self {
        Self { start: view.as_ptr(), shape: view.shape(), stream: view.stream() }
    }
}

impl<'v, T: Element, D: Device, const R: usize> From<ViewMut<'v, T, D, R>> for Out<'v, T, D, R> {
    fn from(mut view: ViewMut<'v, T, D, R>) -> Self {
        let (shape, stream) = (view.shape(), view.stream());
        Self { start: view.as_mut_ptr(), shape, stream, exclusive: PhantomData }
    }
}

macro_rules! debug {
    ($($name:ident)*) => {$(
        impl<T: Element, D: Device, const R: usize> fmt::Debug for $name<'_, T, D, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let dtype = T::DTYPE.as_str();
                write!(f, concat!(stringify!($name), "({} {:?} at {:#x})"), dtype, self.shape, self.address())
            }
        }
    )*};
}

debug!(In Out);

/// Device memory of one's own, bound to one stream, on which all its uses are in order.
///
/// This is what the allocating forms return. Weights, which several streams read, are a
/// [`Constant`](crate::Constant); caches, which several steps touch, are
/// [`Persistent`](crate::Persistent). Fresh memory is initialised, with what the device says.
///
/// ```
/// use scratchpool::{Device, Host};
/// use scratchpool_kernels::Tensor;
///
/// let host = Host::in_order();
/// let stream = host.create_stream("main")?;
/// let tensor = Tensor::<f32, _, 2>::from_values(&host, &stream, [2, 3], &[1.0; 6])?;
/// assert_eq!(tensor.view().shape(), [2, 3]);
/// assert_eq!(tensor.to_vec()?, [1.0; 6]);
/// # Ok::<(), scratchpool_kernels::Error>(())
/// ```
pub struct Tensor<'s, T: Element, D: Device, const R: usize> {
    elements: Elements<T, D, R>,
    stream: &'s D::Stream,
}

impl<T: Element, D: Device, const R: usize> fmt::Debug for Tensor<'_, T, D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {:?})", T::DTYPE.as_str(), self.elements.shape())
    }
}

impl<'s, T: Element, D: Device, const R: usize> Tensor<'s, T, D, R> {
    /// Allocates memory for work on `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`], and what the device refuses.
    pub fn new(device: &D, stream: &'s D::Stream, shape: [usize; R]) -> Result<Self, Error> {
        let allocate = |bytes, align| device.allocate_on(stream, bytes, align);
        Ok(Self { elements: Elements::new(device, shape, allocate)?, stream })
    }

    /// Allocates memory and fills it.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and [`scratchpool::Error::ValueCount`] where the values do not fit
    /// the shape.
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

    /// Overwrites all elements.
    ///
    /// # Errors
    ///
    /// [`scratchpool::Error::ValueCount`], and what the device refuses.
    pub fn fill_from(&mut self, values: &[T]) -> Result<(), Error> {
        // SAFETY: `&mut self` leaves no other argument of it that can be used; work launched with one
        // is ordered before, on the same stream.
        unsafe { self.elements.write(self.stream, values) }
    }

    /// The elements, after all that the stream holds so far.
    ///
    /// # Errors
    ///
    /// What the device refuses.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        self.elements.read(self.stream)
    }

    /// As an argument that is read.
    pub fn view(&self) -> In<'_, T, D, R> {
        let start = self.elements.used_by(self.stream).cast_const();
        // SAFETY: the block is live while borrowed, and given back only when no work that was
        // issued, and no graph, could touch it (`Elements`); all uses are on one stream.
        unsafe { In::from_raw_parts(start, self.elements.shape(), self.stream) }
    }

    /// As an argument that is written.
    pub fn view_mut(&mut self) -> Out<'_, T, D, R> {
        let start = self.elements.used_by(self.stream);
        // SAFETY: as above, and exclusive because `self` is borrowed mutably.
        unsafe { Out::from_raw_parts(start, self.elements.shape(), self.stream) }
    }
}

/// A pointer and a shape without a lifetime, while a host launch is queued.
#[doc(hidden)]
#[derive(Debug)]
pub struct Raw<T, const R: usize> {
    start: *mut T,
    len: usize,
    shape: [usize; R],
}

// SAFETY: pointer, length and shape are the argument's own.
unsafe impl<T, D, const R: usize> HostArgs for In<'_, T, D, R>
where
    T: Element,
    D: Device<Stream = HostStream>,
{
    type Raw = Raw<T, R>;
    type Slices<'k> = HostSlice<'k, T, R>;

    fn foreign(&self, stream: &HostStream) -> Option<&'static str> {
        (!core::ptr::eq(self.stream, stream)).then(|| self.stream.name())
    }

    fn into_raw(self) -> Raw<T, R> {
        Raw { start: self.start.cast_mut(), len: self.len(), shape: self.shape }
    }

    unsafe fn slices<'k>(raw: Raw<T, R>) -> HostSlice<'k, T, R> {
        // SAFETY: in bounds, aligned and initialised by the module's invariant; shared with
        // nothing exclusive, by the same and because kernels run one at a time.
        let elements = unsafe { core::slice::from_raw_parts(raw.start, raw.len) };
        HostSlice::new(elements, raw.shape)
    }
}

// SAFETY: pointer, length and shape are the argument's own.
unsafe impl<T, D, const R: usize> HostArgs for Out<'_, T, D, R>
where
    T: Element,
    D: Device<Stream = HostStream>,
{
    type Raw = Raw<T, R>;
    type Slices<'k> = HostSliceMut<'k, T, R>;

    fn foreign(&self, stream: &HostStream) -> Option<&'static str> {
        (!core::ptr::eq(self.stream, stream)).then(|| self.stream.name())
    }

    fn into_raw(self) -> Raw<T, R> {
        Raw { start: self.start, len: self.len(), shape: self.shape }
    }

    unsafe fn slices<'k>(raw: Raw<T, R>) -> HostSliceMut<'k, T, R> {
        // SAFETY: as above, and exclusive by the module's invariant.
        let elements = unsafe { core::slice::from_raw_parts_mut(raw.start, raw.len) };
        HostSliceMut::new(elements, raw.shape)
    }
}

macro_rules! kernel_args {
    ($($name:ident)*) => {$(
        // SAFETY: a kernel takes a device pointer as eight bytes, which are those of the argument's
        // own pointer: thin, and of 64 bits wherever there is CUDA.
        unsafe impl<T: Element, D: Device<Stream = Stream>, const R: usize> KernelArg
            for $name<'_, T, D, R>
        {
            #[inline]
            fn slot(&self) -> *const c_void {
                const { assert!(size_of::<*const T>() == size_of::<u64>(), "addresses of 64 bits") };
                (&raw const self.start).cast()
            }

            #[inline]
            fn stream(&self) -> Option<&Stream> {
                Some(self.stream)
            }
        }
    )*};
}

kernel_args!(In Out);

/// An argument that may be absent.
pub(crate) struct Maybe<A>(pub(crate) Option<A>);

// SAFETY: the part's own implementation, where there is one.
unsafe impl<A: HostArgs> HostArgs for Maybe<A> {
    type Raw = Option<A::Raw>;
    type Slices<'k> = Option<A::Slices<'k>>;

    fn foreign(&self, stream: &HostStream) -> Option<&'static str> {
        self.0.as_ref().and_then(|args| args.foreign(stream))
    }

    fn into_raw(self) -> Self::Raw {
        self.0.map(A::into_raw)
    }

    unsafe fn slices<'k>(raw: Self::Raw) -> Self::Slices<'k> {
        // SAFETY: the caller's promise holds for the part.
        raw.map(|raw| unsafe { A::slices(raw) })
    }
}

/// Arguments whose shapes a plan knows already: plain slices for the kernel.
pub(crate) struct Flat<A>(pub(crate) A);

// SAFETY: the part's own implementation.
unsafe impl<A> HostArgs for Flat<A>
where
    A: HostArgs,
    for<'k> A::Slices<'k>: Flatten,
{
    type Raw = A::Raw;
    type Slices<'k> = <A::Slices<'k> as Flatten>::Flat;

    fn foreign(&self, stream: &HostStream) -> Option<&'static str> {
        self.0.foreign(stream)
    }

    fn into_raw(self) -> Self::Raw {
        self.0.into_raw()
    }

    unsafe fn slices<'k>(raw: Self::Raw) -> Self::Slices<'k> {
        // SAFETY: the caller's promise holds for the part.
        unsafe { A::slices(raw) }.flatten()
    }
}

/// What a kernel is called with, without shapes.
pub(crate) trait Flatten {
    type Flat;

    fn flatten(self) -> Self::Flat;
}

impl<'k, T, const R: usize> Flatten for HostSlice<'k, T, R> {
    type Flat = &'k [T];

    fn flatten(self) -> &'k [T] {
        self.into_elements()
    }
}

impl<'k, T, const R: usize> Flatten for HostSliceMut<'k, T, R> {
    type Flat = &'k mut [T];

    fn flatten(self) -> &'k mut [T] {
        self.into_elements()
    }
}

impl<S: Flatten> Flatten for Option<S> {
    type Flat = Option<S::Flat>;

    fn flatten(self) -> Self::Flat {
        self.map(S::flatten)
    }
}

macro_rules! tuples {
    ($(($($part:ident)*))*) => {$(
        impl<$($part: Flatten),*> Flatten for ($($part,)*) {
            type Flat = ($($part::Flat,)*);

            #[expect(non_snake_case, reason = "one name for a part's type and value")]
            fn flatten(self) -> Self::Flat {
                let ($($part,)*) = self;
                ($($part.flatten(),)*)
            }
        }
    )*};
}

tuples! {
    (A B)
    (A B C)
    (A B C E)
    (A B C E F)
    (A B C E F G)
    (A B C E F G H)
    (A B C E F G H I)
}
