//! Arguments of launches: typed, shaped device memory, from a pool's view or from elsewhere.
//!
//! Scratch comes as the pool's [`View`] and [`ViewMut`]; weights, activations and caches come from
//! outside. [`In`] and [`Out`] take both: `view.into()` for the pool's, [`Tensor`] for memory of
//! one's own, and the unsafe [`In::from_raw_parts`] for another library's.
//!
//! Invariant, which every launch relies on: what [`View`]'s module says of a view holds of an
//! [`In`], and what it says of an exclusive view of an [`Out`]: live memory of the device of
//! `stream`, in order on it, no other usable argument covering the bytes of an `Out`.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

use scratchpool::{Device, Element, HostArgs, HostStream, View, ViewMut};

use crate::error::Error;

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
    };
}

impl<'v, T: Element, D: Device, const R: usize> In<'v, T, D, R> {
    /// Memory of another library.
    ///
    /// # Safety
    ///
    /// The elements are live, aligned device memory until the work launched with them is done; every
    /// write to them is ordered before what `stream` is given next; nothing writes them before that
    /// work is done.
    pub const unsafe fn from_raw_parts(
        start: *const T,
        shape: [usize; R],
        stream: &'v D::Stream,
    ) -> Self {
        Self { start, shape, stream }
    }

    common!();

    /// The rows of `range`.
    ///
    /// # Errors
    ///
    /// [`scratchpool::Error::RowRange`] where the range is not inside the rows.
    pub fn slice_rows(self, range: Range<usize>) -> Result<Self, Error> {
        let Range { start, end } = range;
        let mut shape = self.shape;
        let rows = shape.first().copied().unwrap_or(0);
        if start > end || end > rows {
            return Err(scratchpool::Error::RowRange { start, end, rows }.into());
        }
        let width = self.len().checked_div(rows).unwrap_or(0);
        if let Some(first) = shape.first_mut() {
            *first = end - start;
        }
        Ok(Self { start: self.start.wrapping_add(start * width), shape, stream: self.stream })
    }

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
/// This is what the allocating forms return, and what holds weights and caches in examples and
/// tests. Fresh memory is initialised, with what the device says.
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
    device: D,
    memory: D::Memory,
    shape: [usize; R],
    stream: &'s D::Stream,
    elements: PhantomData<T>,
}

impl<T: Element, D: Device, const R: usize> fmt::Debug for Tensor<'_, T, D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {:?})", T::DTYPE.as_str(), self.shape)
    }
}

/// The alignment of a tensor, enough for any access of the kernels.
const ALIGN: u64 = 256;

impl<'s, T: Element, D: Device, const R: usize> Tensor<'s, T, D, R> {
    /// Allocates memory for work on `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`], and what the device refuses.
    pub fn new(device: &D, stream: &'s D::Stream, shape: [usize; R]) -> Result<Self, Error> {
        let bytes = bytes::<T, R>(shape).ok_or_else(|| Error::Overflow { shape: shape.into() })?;
        let memory = device.allocate_on(stream, bytes as u64, ALIGN)?;
        Ok(Self { device: device.clone(), memory, shape, stream, elements: PhantomData })
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
        let expected = self.view().len();
        if values.len() != expected {
            let error = scratchpool::Error::ValueCount { given: values.len(), expected };
            return Err(error.into());
        }
        // SAFETY: elements have no padding, so their bytes are initialised.
        let from = unsafe {
            core::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        // SAFETY: the block holds this many bytes, and `&mut self` leaves no other argument of it
        // that can be used; work launched with one is ordered before, on the same stream.
        unsafe { self.device.write_bytes(self.stream, D::base(&self.memory), from)? };
        Ok(())
    }

    /// The elements, after all that the stream holds so far.
    ///
    /// # Errors
    ///
    /// What the device refuses.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let len = self.view().len();
        let mut values = Vec::<T>::with_capacity(len);
        let room = values.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        let bytes = len.saturating_mul(size_of::<T>());
        // SAFETY: the vector has room for `len` elements, which nothing else refers to; zeroed, its
        // bytes are initialised. The block holds this many bytes. Every bit pattern is an element,
        // so after the copy `len` of them are initialised; after an error the length stays 0.
        unsafe {
            room.write_bytes(0, bytes);
            let into = core::slice::from_raw_parts_mut(room, bytes);
            self.device.read_bytes(self.stream, D::base(&self.memory), into)?;
            values.set_len(len);
        }
        Ok(values)
    }

    /// As an argument that is read.
    pub fn view(&self) -> In<'_, T, D, R> {
        let start = D::base(&self.memory).cast::<T>().cast_const();
        // SAFETY: the block is live while borrowed, and given back only when no work that was
        // issued could touch it (`Device`'s contract); all uses are on one stream.
        unsafe { In::from_raw_parts(start, self.shape, self.stream) }
    }

    /// As an argument that is written.
    pub fn view_mut(&mut self) -> Out<'_, T, D, R> {
        let start = D::base(&self.memory).cast::<T>();
        // SAFETY: as above, and exclusive because `self` is borrowed mutably.
        unsafe { Out::from_raw_parts(start, self.shape, self.stream) }
    }
}

fn bytes<T, const R: usize>(shape: [usize; R]) -> Option<usize> {
    let len = shape.into_iter().try_fold(1_usize, usize::checked_mul)?;
    let bytes = len.checked_mul(size_of::<T>())?;
    isize::try_from(bytes).is_ok().then_some(bytes)
}

/// A pointer and a length without a lifetime, while a host launch is queued.
#[doc(hidden)]
#[derive(Debug)]
pub struct Raw<T> {
    start: *mut T,
    len: usize,
}

// SAFETY: pointer and length are the argument's own.
unsafe impl<T, D, const R: usize> HostArgs for In<'_, T, D, R>
where
    T: Element,
    D: Device<Stream = HostStream>,
{
    type Raw = Raw<T>;
    type Slices<'k> = &'k [T];

    fn foreign(&self, stream: &HostStream) -> Option<&'static str> {
        (!core::ptr::eq(self.stream, stream)).then(|| self.stream.name())
    }

    fn into_raw(self) -> Raw<T> {
        Raw { start: self.start.cast_mut(), len: self.len() }
    }

    unsafe fn slices<'k>(raw: Raw<T>) -> &'k [T] {
        // SAFETY: in bounds, aligned and initialised by the module's invariant; shared with
        // nothing exclusive, by the same and because kernels run one at a time.
        unsafe { core::slice::from_raw_parts(raw.start, raw.len) }
    }
}

// SAFETY: pointer and length are the argument's own.
unsafe impl<T, D, const R: usize> HostArgs for Out<'_, T, D, R>
where
    T: Element,
    D: Device<Stream = HostStream>,
{
    type Raw = Raw<T>;
    type Slices<'k> = &'k mut [T];

    fn foreign(&self, stream: &HostStream) -> Option<&'static str> {
        (!core::ptr::eq(self.stream, stream)).then(|| self.stream.name())
    }

    fn into_raw(self) -> Raw<T> {
        Raw { start: self.start, len: self.len() }
    }

    unsafe fn slices<'k>(raw: Raw<T>) -> &'k mut [T] {
        // SAFETY: as above, and exclusive by the module's invariant.
        unsafe { core::slice::from_raw_parts_mut(raw.start, raw.len) }
    }
}

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
