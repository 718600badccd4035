//! Kernels of the host device, and what they are called with: slices, made from views when the
//! kernel runs.
//!
//! # Why a kernel that runs later is safe
//!
//! A launch takes its views by value and keeps their pointers, not their lifetimes. When the kernel
//! runs, slices are made from the pointers. That is sound because
//!
//! 1. **the memory is there**: a block is not freed before all kernels that were launched while it
//!    lived have run or been thrown away (`HostMemory`'s `Drop`);
//! 2. **the slices of one kernel do not alias**: an exclusive view is moved in or lent, so no other
//!    view of its bytes can be among the arguments of the same launch (the view's invariant);
//! 3. **two kernels never run at the same time**: the device runs on one thread, and refuses to be
//!    used from inside a kernel ([`Error::InsideKernel`]), so the slices of one are gone before
//!    those of the next are made. Kernels out of order give wrong values, never a data race.
//!
//! All of it holds for any device whose streams are host streams, such as one that wraps [`Host`] to
//! observe it: a stream of the host takes memory of the host only, which such a device promises by
//! being one.
//!
//! [`Error::InsideKernel`]: crate::Error::InsideKernel
//! [`Host`]: crate::Host

use core::ops::{Deref, DerefMut};

use super::stream::HostStream;
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::view::{View, ViewMut};

impl HostStream {
    /// Launches a kernel: a closure that gets a slice for each view of `args`, which is one view
    /// or a tuple of up to eight. Views are moved in; [`ViewMut::reborrow`] keeps one.
    ///
    /// The closure may run later, so it owns what it captures.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] where a view belongs to another stream, and
    /// [`Error::InsideKernel`] in a kernel.
    pub fn launch<A, F>(&self, args: A, kernel: F) -> Result<(), Error>
    where
        A: HostArgs,
        F: for<'k> FnOnce(A::Slices<'k>) + 'static,
    {
        if let Some(view) = args.foreign(self) {
            return Err(Error::ForeignStream { view, launch: self.name });
        }
        let raw = args.into_raw();
        self.give(move || {
            // SAFETY: called once, by the queue, which runs one kernel at a time and keeps the
            // memory until then; the views were checked to be disjoint by the borrow checker.
            let slices = unsafe { A::slices(raw) };
            kernel(slices);
        })
    }

    /// Launches a kernel that fills a view.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch).
    pub fn fill<T, D, const R: usize>(
        &self,
        view: ViewMut<'_, T, D, R>,
        value: T,
    ) -> Result<(), Error>
    where
        T: Element,
        D: Device<Stream = Self>,
    {
        self.launch(view, move |mut elements| elements.fill(value))
    }
}

/// The elements of a [`View`], as a host kernel sees them: a slice with a shape.
#[derive(Clone, Copy, Debug)]
pub struct HostSlice<'k, T, const R: usize> {
    elements: &'k [T],
    shape: [usize; R],
}

/// The elements of a [`ViewMut`], as a host kernel sees them: a slice with a shape.
#[derive(Debug)]
pub struct HostSliceMut<'k, T, const R: usize> {
    elements: &'k mut [T],
    shape: [usize; R],
}

macro_rules! shaped {
    ($($slice:ident($elements:ty))*) => {$(
        impl<'k, T, const R: usize> $slice<'k, T, R> {
            /// Elements and a shape, for implementations of [`HostArgs`]. What is not among the
            /// elements cannot be reached, whatever the shape says.
            pub const fn new(elements: $elements, shape: [usize; R]) -> Self {
                Self { elements, shape }
            }

            /// The elements, row-major, without their shape.
            pub const fn into_elements(self) -> $elements {
                self.elements
            }

            /// The extents, row-major.
            pub const fn shape(&self) -> [usize; R] {
                self.shape
            }

            /// The leading extent. A scalar has one row.
            pub fn rows(&self) -> usize {
                self.shape.first().copied().unwrap_or(1)
            }

            /// The elements of one row; none where there is no such row.
            pub fn row(&self, row: usize) -> &[T] {
                let width = self.width();
                let start = row.saturating_mul(width);
                self.elements.get(start..start.saturating_add(width)).unwrap_or_default()
            }

            fn width(&self) -> usize {
                self.elements.len().checked_div(self.rows()).unwrap_or(0)
            }
        }

        impl<T, const R: usize> Deref for $slice<'_, T, R> {
            type Target = [T];

            fn deref(&self) -> &[T] {
                self.elements
            }
        }
    )*};
}

shaped!(HostSlice(&'k [T]) HostSliceMut(&'k mut [T]));

impl<T, const R: usize> HostSliceMut<'_, T, R> {
    /// The elements of one row; none where there is no such row.
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        let width = self.width();
        let start = row.saturating_mul(width);
        self.elements.get_mut(start..start.saturating_add(width)).unwrap_or_default()
    }
}

impl<T, const R: usize> DerefMut for HostSliceMut<'_, T, R> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.elements
    }
}

/// Views that can be passed to a host kernel: one view, one that may be absent, or a tuple of up to
/// eight.
///
/// # Safety
///
/// `slices` makes slices of exactly the bytes of the views that `into_raw` took.
pub unsafe trait HostArgs {
    /// The views without their lifetimes.
    type Raw: 'static;
    /// What the kernel is called with.
    type Slices<'k>;

    /// The first view's stream that is not `stream`.
    fn foreign(&self, stream: &HostStream) -> Option<&'static str>;

    /// Gives up the lifetimes.
    fn into_raw(self) -> Self::Raw;

    /// Makes the slices.
    ///
    /// # Safety
    ///
    /// Called once for a launch, while its kernel runs, under the three points of the module.
    unsafe fn slices<'k>(raw: Self::Raw) -> Self::Slices<'k>;
}

/// The pointer and shape of a view.
#[derive(Debug)]
pub struct RawView<T, const R: usize> {
    start: *mut T,
    len: usize,
    shape: [usize; R],
}

// SAFETY: pointer, length and shape are the view's own.
unsafe impl<T, D, const R: usize> HostArgs for View<'_, T, D, R>
where
    T: Element,
    D: Device<Stream = HostStream>,
{
    type Raw = RawView<T, R>;
    type Slices<'k> = HostSlice<'k, T, R>;

    fn foreign(&self, stream: &HostStream) -> Option<&'static str> {
        (!core::ptr::eq(self.stream(), stream)).then(|| self.stream().name())
    }

    fn into_raw(self) -> Self::Raw {
        RawView { start: self.as_ptr().cast_mut(), len: self.len(), shape: self.shape() }
    }

    unsafe fn slices<'k>(raw: Self::Raw) -> Self::Slices<'k> {
        // SAFETY: in bounds, aligned and initialised by point 1 of the view's invariant and
        // because elements are valid for every bit pattern; shared with nothing exclusive by
        // points 2 and 3 of this module.
        let elements = unsafe { core::slice::from_raw_parts(raw.start, raw.len) };
        HostSlice::new(elements, raw.shape)
    }
}

// SAFETY: pointer, length and shape are the view's own.
unsafe impl<T, D, const R: usize> HostArgs for ViewMut<'_, T, D, R>
where
    T: Element,
    D: Device<Stream = HostStream>,
{
    type Raw = RawView<T, R>;
    type Slices<'k> = HostSliceMut<'k, T, R>;

    fn foreign(&self, stream: &HostStream) -> Option<&'static str> {
        (!core::ptr::eq(self.stream(), stream)).then(|| self.stream().name())
    }

    fn into_raw(mut self) -> Self::Raw {
        RawView { start: self.as_mut_ptr(), len: self.len(), shape: self.shape() }
    }

    unsafe fn slices<'k>(raw: Self::Raw) -> Self::Slices<'k> {
        // SAFETY: as above, and exclusive by points 2 and 3 of this module.
        let elements = unsafe { core::slice::from_raw_parts_mut(raw.start, raw.len) };
        HostSliceMut::new(elements, raw.shape)
    }
}

macro_rules! tuples {
    ($(($($arg:ident)*))*) => {$(
        // SAFETY: each part is the part's own implementation.
        unsafe impl<$($arg: HostArgs),*> HostArgs for ($($arg,)*) {
            type Raw = ($($arg::Raw,)*);
            type Slices<'k> = ($($arg::Slices<'k>,)*);

            #[expect(non_snake_case, reason = "one name for a part's type and value")]
            #[allow(unused_variables, reason = "the empty tuple has no part")]
            fn foreign(&self, stream: &HostStream) -> Option<&'static str> {
                let ($($arg,)*) = self;
                None$(.or_else(|| $arg.foreign(stream)))*
            }

            #[expect(non_snake_case, reason = "one name for a part's type and value")]
            fn into_raw(self) -> Self::Raw {
                let ($($arg,)*) = self;
                ($($arg.into_raw(),)*)
            }

            #[expect(non_snake_case, reason = "one name for a part's type and value")]
            unsafe fn slices<'k>(raw: Self::Raw) -> Self::Slices<'k> {
                let ($($arg,)*) = raw;
                // SAFETY: the caller's promise holds for each part.
                unsafe { ($($arg::slices($arg),)*) }
            }
        }
    )*};
}

tuples! {
    (A)
    (A B)
    (A B C)
    (A B C E)
    (A B C E F)
    (A B C E F G)
    (A B C E F G H)
    (A B C E F G H I)
}

// SAFETY: the part's own implementation, where there is one.
unsafe impl<A: HostArgs> HostArgs for Option<A> {
    type Raw = Option<A::Raw>;
    type Slices<'k> = Option<A::Slices<'k>>;

    fn foreign(&self, stream: &HostStream) -> Option<&'static str> {
        self.as_ref().and_then(|args| args.foreign(stream))
    }

    fn into_raw(self) -> Self::Raw {
        self.map(A::into_raw)
    }

    unsafe fn slices<'k>(raw: Self::Raw) -> Self::Slices<'k> {
        // SAFETY: the caller's promise holds for the part.
        raw.map(|raw| unsafe { A::slices(raw) })
    }
}

// SAFETY: no views, no slices.
unsafe impl HostArgs for () {
    type Raw = ();
    type Slices<'k> = ();

    fn foreign(&self, _: &HostStream) -> Option<&'static str> {
        None
    }

    fn into_raw(self) {}

    unsafe fn slices<'k>((): ()) -> Self::Slices<'k> {}
}
