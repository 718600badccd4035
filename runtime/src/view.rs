//! Typed views of device memory: what a step hands out, and all that it hands out.
//!
//! A view is a pointer, a shape and the stream on which its bytes are in order. [`View`] is shared
//! and `Copy`; [`ViewMut`] is exclusive, moved into a launch, and [reborrowed](ViewMut::reborrow)
//! to be kept.
//!
//! ```text
//!  step guard ──&mut──> buffers() ──┬─ ViewMut  rows 0..n ──split_at_row──┬─ ViewMut rows 0..k
//!     │                             │                                     └─ ViewMut rows k..n
//!     └ drop: the event             └─ View (Copy)
//! ```
//!
//! What holds of every view, and what whoever makes one has to promise, is said once, at
//! [`View::from_raw_parts`]. A pool's step and [memory of one's own](crate::Tensor) make views that keep
//! it.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Bound, RangeBounds};

use crate::device::Device;
use crate::element::Element;
use crate::error::Error;

/// A shared view of rank `R`.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/relay.rs"));
/// # fn main() -> Result<(), scratchpool::Error> {
/// # let mut pool = Relay::allocate(&scratchpool::Host::in_order(), relay::Dims { max_rows: 8 })?;
/// # let [mut first, _] = pool.split();
/// # let mut pass = first.begin(6)?;
/// # let mut layer = pass.layer(0)?;
/// # let mut step = layer.consume()?;
/// let view = step.buffers().x;              // u32 [rows, 4], of a pass of 6 rows
/// assert_eq!((view.shape(), view.rows(), view.len()), ([6, 4], 6, 24));
/// let (prefill, decode) = view.split_at_row(5)?;
/// assert_eq!((prefill.rows(), decode.rows()), (5, 1));
/// assert_eq!(decode.address(), view.address() + 5 * 4 * 4);
/// assert!(view.split_at_row(7).is_err());
/// # Ok(())
/// # }
/// ```
pub struct View<'s, T: Element, D: Device, const R: usize> {
    start: *const T,
    shape: [usize; R],
    stream: &'s D::Stream,
}

/// An exclusive view of rank `R`.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/relay.rs"));
/// # fn main() -> Result<(), scratchpool::Error> {
/// # let host = scratchpool::Host::in_order();
/// # let mut pool = Relay::allocate(&host, relay::Dims { max_rows: 8 })?;
/// # let [mut first, _] = pool.split();
/// # let mut pass = first.begin(6)?;
/// # let mut layer = pass.layer(0)?;
/// # let mut step = layer.produce()?;
/// let stream = step.stream();
/// let mut x = step.buffers().x;
/// stream.launch(x.reborrow(), |mut x| x.fill(1))?;        // lent: `x` is still ours
/// let (prefill, decode) = x.split_at_row(4)?;             // given away, in two disjoint parts
/// stream.launch((prefill, decode), |(mut prefill, mut decode)| {
///     prefill.fill(2);
///     decode.fill(3);
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct ViewMut<'s, T: Element, D: Device, const R: usize> {
    start: *mut T,
    shape: [usize; R],
    stream: &'s D::Stream,
    exclusive: PhantomData<&'s mut T>,
}

// Not derived: that would ask the device to be `Copy`.
#[expect(clippy::expl_impl_clone_on_copy, reason = "see above")]
impl<T: Element, D: Device, const R: usize> Clone for View<'_, T, D, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element, D: Device, const R: usize> Copy for View<'_, T, D, R> {}

macro_rules! common {
    ($view:ident) => {
        /// The extents, row-major.
        pub const fn shape(&self) -> [usize; R] {
            self.shape
        }

        /// The leading extent. A scalar has one row.
        pub fn rows(&self) -> usize {
            self.shape.first().copied().unwrap_or(1)
        }

        /// Elements in all.
        pub fn len(&self) -> usize {
            product(&self.shape)
        }

        /// Whether there is no element, as in a pass of no rows.
        pub fn is_empty(&self) -> bool {
            self.shape.contains(&0)
        }

        /// Bytes in all.
        pub fn bytes(&self) -> usize {
            self.len().saturating_mul(size_of::<T>())
        }

        /// The device address of the first element.
        pub fn address(&self) -> u64 {
            self.start.addr() as u64
        }

        /// The address as the eight bytes that a kernel takes, for as long as the view is borrowed.
        #[cfg(feature = "cuda")]
        #[inline]
        pub(crate) const fn address_slot(&self) -> &u64 {
            const { assert!(size_of::<*const T>() == size_of::<u64>(), "addresses of 64 bits") };
            // SAFETY: a thin pointer of 64 bits is read as an integer of 64 bits, whose alignment
            // is the same; a device pointer has no provenance to lose.
            unsafe { &*(&raw const self.start).cast::<u64>() }
        }

        /// The stream on which the bytes are in order.
        pub const fn stream(&self) -> &'s D::Stream {
            self.stream
        }

        fn elements_before(&self, row: usize) -> usize {
            product(self.shape.get(1..).unwrap_or_default()).saturating_mul(row)
        }

        fn with_rows(&self, rows: usize) -> [usize; R] {
            let mut shape = self.shape;
            if let Some(first) = shape.first_mut() {
                *first = rows;
            }
            shape
        }

        fn check(&self, start: usize, end: usize) -> Result<(), Error> {
            let rows = self.rows();
            if R == 0 || start > end || end > rows {
                return Err(Error::RowRange { start, end, rows });
            }
            Ok(())
        }
    };
}

impl<'s, T: Element, D: Device, const R: usize> View<'s, T, D, R> {
    /// A view of the `shape.product()` elements from `start` on: of another library's memory, say.
    ///
    /// # Safety
    ///
    /// These are the invariants of all views, on which every launch relies. *Work* is what is
    /// launched or copied with the view, and the replays of a graph that it was captured in.
    ///
    /// 1. **Live**: the elements lie in one block of memory of the device of `stream`, aligned for `T`,
    ///    and stay there until all work is done.
    /// 2. **Exclusive or shared**: while a [`ViewMut`] can be used, no other view that can be used
    ///    covers any of its bytes.
    /// 3. **In order**: every access to the bytes by anybody else, of which one of the two is a write, is
    ///    ordered before whatever `stream` is given next, or after all work. That one stream was given
    ///    both is not enough where its steps are launched programmatically: a full launch comes after
    ///    all that its stream was given before it; a dependent one after the launch just before it, and
    ///    what that one comes after; an early one after the latter alone.
    pub const unsafe fn from_raw_parts(
        start: *const T,
        shape: [usize; R],
        stream: &'s D::Stream,
    ) -> Self {
        Self { start, shape, stream }
    }

    common!(View);

    /// The device pointer. Only on the host may it be dereferenced, and only by work in order on
    /// [`stream`](Self::stream).
    pub const fn as_ptr(&self) -> *const T {
        self.start
    }

    /// The elements, row-major, copied to the host after all that the stream holds so far.
    ///
    /// ```
    /// use scratchpool::{Device, Host, Tensor};
    /// let host = Host::in_order();
    /// let stream = host.create_stream("main")?;
    /// let mut tensor = Tensor::new(&host, &stream, [2, 2])?;
    /// tensor.view_mut().fill_from(&host, &[1, 2, 3, 4])?;
    /// assert_eq!(tensor.view().slice_rows(1..)?.to_vec(&host)?, [3, 4]);
    /// assert!(tensor.view().to_vec(&Host::in_order()).is_err());       // another device
    /// # Ok::<(), scratchpool::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ForeignMemory`] where `device` is not the view's, and what the device refuses.
    pub fn to_vec(&self, device: &D) -> Result<Vec<T>, Error> {
        if !device.owns(self.stream) {
            return Err(Error::ForeignMemory);
        }
        let mut values = Vec::<T>::with_capacity(self.len());
        let room = values.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: the vector has room for `len` elements, that is `bytes` bytes, which nothing else
        // refers to. Zeroing first makes them initialised bytes, so the slice is sound. The view's
        // invariant puts the source in a live block of this device, which owns its stream. Every
        // bit pattern is an element, so after a complete copy `len` elements are initialised; after
        // an error the length stays 0.
        unsafe {
            room.write_bytes(0, self.bytes());
            let into = core::slice::from_raw_parts_mut(room, self.bytes());
            device.read_bytes(self.stream, self.start.cast(), into)?;
            values.set_len(self.len());
        }
        Ok(values)
    }

    /// The rows before `row`, and the rest.
    ///
    /// # Errors
    ///
    /// [`Error::RowRange`] where `row` is beyond the rows.
    pub fn split_at_row(self, row: usize) -> Result<(Self, Self), Error> {
        self.check(0, row)?;
        Ok((self.cut(0, row), self.cut(row, self.rows())))
    }

    /// The rows of `range`.
    ///
    /// # Errors
    ///
    /// [`Error::RowRange`] where the range is not inside the rows.
    pub fn slice_rows(self, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        let (start, end) = bounds(&range, self.rows());
        self.check(start, end)?;
        Ok(self.cut(start, end))
    }

    /// Rows `start..end`, which the caller has checked.
    fn cut(self, start: usize, end: usize) -> Self {
        Self {
            start: self.start.wrapping_add(self.elements_before(start)),
            shape: self.with_rows(end - start),
            stream: self.stream,
        }
    }
}

impl<'s, T: Element, D: Device> View<'s, T, D, 3> {
    /// The rows of all matrices as those of one: `[a, b, c]` as `[a b, c]`.
    ///
    /// ```
    /// use scratchpool::{Device, Host, Tensor};
    /// let host = Host::in_order();
    /// let stream = host.create_stream("main")?;
    /// let workspace = Tensor::<f32, _, 3>::new(&host, &stream, [4, 300, 512])?;
    /// assert_eq!(workspace.view().flatten_rows().shape(), [1200, 512]);
    /// # Ok::<(), scratchpool::Error>(())
    /// ```
    pub const fn flatten_rows(self) -> View<'s, T, D, 2> {
        let [matrices, rows, columns] = self.shape;
        // A shape that fits memory has a product that fits, or no element.
        let shape = [matrices.saturating_mul(rows), columns];
        View { start: self.start, shape, stream: self.stream }
    }
}

impl<'s, T: Element, D: Device, const R: usize> ViewMut<'s, T, D, R> {
    /// An exclusive view of the `shape.product()` elements from `start` on.
    ///
    /// # Safety
    ///
    /// The invariants of all views: see [`View::from_raw_parts`].
    pub const unsafe fn from_raw_parts(
        start: *mut T,
        shape: [usize; R],
        stream: &'s D::Stream,
    ) -> Self {
        Self { start, shape, stream, exclusive: PhantomData }
    }

    common!(ViewMut);

    /// The device pointer. Only on the host may it be dereferenced, and only by work in order on
    /// [`stream`](Self::stream).
    pub const fn as_mut_ptr(&mut self) -> *mut T {
        self.start
    }

    /// The same view for a shorter time, so that this one can be used again afterwards.
    pub const fn reborrow(&mut self) -> ViewMut<'_, T, D, R> {
        ViewMut {
            start: self.start,
            shape: self.shape,
            stream: self.stream,
            exclusive: PhantomData,
        }
    }

    /// A shared view of the same bytes; this one cannot be used while it lives.
    pub const fn as_view(&self) -> View<'_, T, D, R> {
        View { start: self.start, shape: self.shape, stream: self.stream }
    }

    /// Gives exclusiveness up for good.
    pub const fn into_view(self) -> View<'s, T, D, R> {
        View { start: self.start, shape: self.shape, stream: self.stream }
    }

    /// Overwrites all elements from host memory, after all that the stream holds so far: `values` are
    /// as many as there are elements.
    ///
    /// # Errors
    ///
    /// [`Error::ValueCount`], [`Error::ForeignMemory`] where `device` is not the view's, and what the
    /// device refuses.
    pub fn fill_from(&mut self, device: &D, values: &[T]) -> Result<(), Error> {
        if !device.owns(self.stream) {
            return Err(Error::ForeignMemory);
        }
        if values.len() != self.len() {
            return Err(Error::ValueCount { given: values.len(), expected: self.len() });
        }
        // SAFETY: an element has no padding, so its bytes are initialised and may be read; the view's
        // invariant puts the target in a live block of this device and makes it exclusive.
        unsafe {
            let from = core::slice::from_raw_parts(values.as_ptr().cast::<u8>(), self.bytes());
            device.write_bytes(self.stream, self.start.cast(), from)
        }
    }

    /// The rows before `row`, and the rest: two disjoint views, both exclusive.
    ///
    /// # Errors
    ///
    /// [`Error::RowRange`] where `row` is beyond the rows.
    pub fn split_at_row(self, row: usize) -> Result<(Self, Self), Error> {
        self.check(0, row)?;
        Ok((self.part(0, row), self.part(row, self.rows())))
    }

    /// The rows of `range`.
    ///
    /// # Errors
    ///
    /// [`Error::RowRange`] where the range is not inside the rows.
    pub fn slice_rows(self, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        let (start, end) = bounds(&range, self.rows());
        self.check(start, end)?;
        Ok(self.part(start, end))
    }

    /// Rows `start..end`, which the caller has checked. Callers consume `self` and hand out
    /// disjoint parts only.
    fn part(&self, start: usize, end: usize) -> Self {
        Self {
            start: self.start.wrapping_add(self.elements_before(start)),
            shape: self.with_rows(end - start),
            stream: self.stream,
            exclusive: PhantomData,
        }
    }
}

macro_rules! debug {
    ($($view:ident)*) => {$(
        impl<T: Element, D: Device, const R: usize> fmt::Debug for $view<'_, T, D, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let dtype = T::DTYPE.as_str();
                write!(f, concat!(stringify!($view), "({} {:?} at {:#x})"), dtype, self.shape, self.address())
            }
        }
    )*};
}

debug!(View ViewMut);

/// A shape that fits memory has a product that fits; where one extent is 0 the others may not.
fn product(extents: &[usize]) -> usize {
    extents.iter().fold(1, |all, &extent| all.saturating_mul(extent))
}

fn bounds(range: &impl RangeBounds<usize>, rows: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => rows,
    };
    (start, end)
}
