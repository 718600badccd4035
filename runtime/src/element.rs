//! Element types of buffers.
//!
//! Names are the words of the pool spec, in lower case like `half`'s: what a spec calls `f8e4m3`
//! is [`f8e4m3`] here. One differs: the spec's `bool` is [`bool8`], because Rust's `bool` is not
//! valid for every bit pattern and device memory may hold any.
//!
//! Invariant, relied on wherever device bytes become host values: an [`Element`] is plain old data
//! without padding, valid for every bit pattern, of the size that its [`DType`] states.

use crate::tables::DType;

pub use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// A type that buffers can hold.
///
/// ```
/// use scratchpool::{Element, bf16, tables::DType};
/// assert_eq!(bf16::DTYPE, DType::BF16);
/// ```
///
/// # Safety
///
/// Implementors are `Copy`, without padding, valid for every bit pattern, and of
/// [`DType::bytes`] of [`Element::DTYPE`]. The trait is sealed.
pub unsafe trait Element:
    sealed::Sealed + Copy + PartialEq + core::fmt::Debug + 'static
{
    /// The element type by its name in specs.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty: $dtype:ident,)*) => {
        /// The largest alignment of an element.
        pub(crate) const LARGEST: usize = {
            let mut largest = 1;
            $(if align_of::<$ty>() > largest { largest = align_of::<$ty>(); })*
            largest
        };
        $(
        impl sealed::Sealed for $ty {}

        const _: () = assert!(size_of::<$ty>() as u64 == DType::$dtype.bytes());

        // SAFETY: an integer, a float or a transparent wrapper of one: plain old data, every bit
        // pattern valid; the assertion above keeps the size.
        unsafe impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

macro_rules! byte_elements {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[expect(non_camel_case_types, reason = "the spec's word, like half's bf16")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// The element with these bits.
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// Its bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }
        }
    )*};
}

byte_elements! {
    /// An 8-bit float with 4 exponent and 3 mantissa bits, bias 7, no infinities (OCP E4M3).
    f8e4m3,
    /// An 8-bit float with 5 exponent and 2 mantissa bits, bias 15 (OCP E5M2).
    f8e5m2,
    /// A power of two: the exponent plus 127; 255 is not a number (OCP E8M0).
    e8m0,
    /// A truth value in one byte: 0 is false, anything else true.
    ///
    /// ```
    /// use scratchpool::bool8;
    /// assert!(bool8::from(true).get());
    /// assert!(bool8::from_bits(7).get());
    /// ```
    bool8,
}

impl bool8 {
    /// Its truth value.
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for bool8 {
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}

elements! {
    bool8: Bool,
    u8: U8,
    i8: I8,
    f8e4m3: F8E4M3,
    f8e5m2: F8E5M2,
    e8m0: E8M0,
    u16: U16,
    i16: I16,
    f16: F16,
    bf16: BF16,
    u32: U32,
    i32: I32,
    f32: F32,
    u64: U64,
    i64: I64,
    f64: F64,
}
