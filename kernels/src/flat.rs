//! Arguments of host launches without their shapes, which a checked launch knows already.

use scratchpool::{HostArgs, HostSlice, HostSliceMut, HostStream};

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
