//! Element types: one table, a row for each.
//!
//! A row gives the variant, the word of a spec, the bytes of an element, and the Rust type: one of
//! `core::primitive`, or one that the runtime defines or re-exports at its root. Rust's `bool` is
//! not valid for every bit pattern, and device memory may hold any, so a spec's `bool` is `bool8`.

macro_rules! dtypes {
    ($($variant:ident $word:literal $bytes:literal $home:ident $rust:literal,)*) => {
        /// Element type of a buffer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DType {
            $(#[doc = concat!("`", $word, "`, ", $bytes, " byte(s) an element.")] $variant,)*
        }

        impl DType {
            /// All element types.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word used in specs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Bytes of one element.
            pub const fn bytes(self) -> u64 {
                match self { $(Self::$variant => $bytes,)* }
            }

            /// The Rust type of an element.
            pub const fn rust(self) -> RustType {
                match self { $(Self::$variant => RustType::$home($rust),)* }
            }
        }
    };
}

dtypes! {
    Bool   "bool"   1 Runtime   "bool8",
    U8     "u8"     1 Primitive "u8",
    I8     "i8"     1 Primitive "i8",
    F8E4M3 "f8e4m3" 1 Runtime   "f8e4m3",
    F8E5M2 "f8e5m2" 1 Runtime   "f8e5m2",
    E8M0   "e8m0"   1 Runtime   "e8m0",
    U16    "u16"    2 Primitive "u16",
    I16    "i16"    2 Primitive "i16",
    F16    "f16"    2 Runtime   "f16",
    BF16   "bf16"   2 Runtime   "bf16",
    U32    "u32"    4 Primitive "u32",
    I32    "i32"    4 Primitive "i32",
    F32    "f32"    4 Primitive "f32",
    U64    "u64"    8 Primitive "u64",
    I64    "i64"    8 Primitive "i64",
    F64    "f64"    8 Primitive "f64",
}

/// Where Rust has the type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RustType {
    /// This name in `core::primitive`.
    Primitive(&'static str),
    /// This name at the root of the runtime crate.
    Runtime(&'static str),
}

impl DType {
    /// The element type that a spec's word names.
    ///
    /// ```
    /// use scratchpool_tables::DType;
    /// assert_eq!(DType::from_word("bf16").map(DType::bytes), Some(2));
    /// assert_eq!(DType::from_word("bf17"), None);
    /// ```
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.as_str() == word)
    }
}
