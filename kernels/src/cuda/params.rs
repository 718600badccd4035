//! The parameters of kernels, laid out alike here and in the CUDA sources: a mismatch does not compile.
//!
//! A struct is declared here once, pointers first. The macro asserts, in Rust, that the fields follow
//! one another without a gap; and it makes the assertions that are compiled with the CUDA source, of the
//! struct's size and of every field's offset and size ([`Layout::assertions`]). What neither sees is the
//! meaning of two fields of one size that were exchanged in name and place on both sides.

use core::fmt::Write as _;

/// The layout of a parameter struct.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) name: &'static str,
    pub(super) size: usize,
    pub(super) fields: &'static [Field],
}

/// A field: its name, and its place in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) offset: usize,
    pub(super) size: usize,
}

impl Layout {
    /// What the CUDA source is compiled with. NVRTC has no `offsetof` without headers; `__INTADDR__` is
    /// what its front end makes of one.
    pub(super) fn assertions(&self) -> String {
        let Self { name, size, fields } = self;
        let text = format!("\"{name} is not laid out as in Rust\"");
        let mut all = format!("static_assert(sizeof({name}) == {size}, {text});\n");
        for Field { name: field, offset, size } in *fields {
            // Writing to a string cannot fail.
            let _ = writeln!(
                all,
                "static_assert(__INTADDR__(&(({name}*)0)->{field}) == {offset} \
                 && sizeof({name}::{field}) == {size}, {text});"
            );
        }
        all
    }

    /// Whether the fields follow one another without a gap, and end where the struct does but for the
    /// padding of its pointers: then their order and sizes say the whole layout.
    pub(super) const fn is_dense(&self) -> bool {
        let (mut end, mut rest) = (0, self.fields);
        while let [field, after @ ..] = rest {
            if field.offset != end {
                return false;
            }
            end += field.size;
            rest = after;
        }
        end.next_multiple_of(size_of::<u64>()) == self.size
    }
}

/// Declares parameter structs.
macro_rules! params {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub(super) struct $name {
            $(pub(super) $field: $ty,)*
        }

        impl $name {
            /// As the CUDA source declares it.
            pub(super) const LAYOUT: $crate::cuda::params::Layout = $crate::cuda::params::Layout {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: &[$($crate::cuda::params::Field {
                    name: stringify!($field),
                    offset: core::mem::offset_of!($name, $field),
                    size: size_of::<$ty>(),
                },)*],
            };
        }

        const _: () = assert!($name::LAYOUT.is_dense(), "a gap between fields");

        // SAFETY: plain numbers in C's layout, which the source asserts of its struct of that name.
        unsafe impl scratchpool::cuda::cudarc::driver::DeviceRepr for $name {}
    )*};
}

pub(super) use params;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_seen_in_front_and_behind() {
        let field = |offset, size| Field { name: "x", offset, size };
        let dense =
            |size, fields: Vec<Field>| Layout { name: "P", size, fields: fields.leak() }.is_dense();
        assert!(dense(16, vec![field(0, 8), field(8, 4)]));
        assert!(!dense(24, vec![field(0, 8), field(8, 4)]));
        assert!(!dense(16, vec![field(0, 4), field(8, 8)]));
    }
}
