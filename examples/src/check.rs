//! Values that say who wrote them.
//!
//! A writer fills a buffer with values made from a [`Tag`]: the pass, the layer and the buffer. A
//! reader makes the same values from the tag of the live range that it should see, and compares
//! every element. A buffer overwritten while it was live, read too early, or handed out at a wrong
//! place gives other values.

use std::cell::Cell;
use std::rc::Rc;

use scratchpool::{Element, HostSlice, HostSliceMut, bf16, e8m0};

/// Whose value it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The forward pass.
    pub pass: u64,
    /// The layer.
    pub layer: u64,
    /// A number for the buffer.
    pub buffer: u64,
}

impl Tag {
    /// The same mixing of the three as in any good hash: one multiplication and shift each.
    const fn mixed(self) -> u64 {
        let mut mixed = 0x9e37_79b9_7f4a_7c15_u64;
        let parts = [self.pass, self.layer, self.buffer];
        let mut rest: &[u64] = &parts;
        while let [part, tail @ ..] = rest {
            mixed = (mixed ^ *part).wrapping_mul(0xff51_afd7_ed55_8ccd);
            mixed ^= mixed >> 32;
            rest = tail;
        }
        mixed
    }
}

/// Elements that can be made from a tag.
pub trait Tagged: Element {
    /// The element made from 64 bits; never a NaN, so that it equals itself.
    fn from_bits(bits: u64) -> Self;

    /// The element's own bits.
    fn bits(self) -> u64;
}

macro_rules! tagged {
    ($($element:ty: $bits:ident => $value:expr, $back:expr;)*) => {$(
        impl Tagged for $element {
            fn from_bits($bits: u64) -> Self {
                $value
            }

            fn bits(self) -> u64 {
                let back: fn(Self) -> u64 = $back;
                back(self)
            }
        }
    )*};
}

/// The lowest bits, as many as the type has.
macro_rules! low {
    ($bits:ident as $word:ty) => {
        <$word>::from_le_bytes(
            *$bits
                .to_le_bytes()
                .first_chunk::<{ size_of::<$word>() }>()
                .unwrap_or(&[0; size_of::<$word>()]),
        )
    };
}

tagged! {
    u8: bits => low!(bits as u8), u64::from;
    i32: bits => low!(bits as i32), |value| u64::from(value.cast_unsigned());
    e8m0: bits => Self::from_bits(low!(bits as u8)), |value| u64::from(value.to_bits());
    // Exponents below the highest: finite.
    bf16: bits => Self::from_bits(low!(bits as u16) & 0x3fff), |value| u64::from(value.to_bits());
    f32: bits => Self::from_bits(low!(bits as u32) & 0x3fff_ffff), |value| u64::from(value.to_bits());
}

/// The element at `index` of a buffer written under `tag`.
fn element<T: Tagged>(mixed: u64, index: u64) -> T {
    T::from_bits(mixed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 24)
}

/// Fills a buffer under a tag.
pub fn write<T: Tagged, const R: usize>(slice: &mut HostSliceMut<'_, T, R>, tag: Tag) {
    let mixed = tag.mixed();
    for (value, index) in slice.iter_mut().zip(0..) {
        *value = element(mixed, index);
    }
}

/// What readers found, shared by all kernels of a run.
#[derive(Clone, Debug, Default)]
pub struct Findings(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    reads: Cell<u64>,
    elements: Cell<u64>,
    wrong: Cell<u64>,
    first: Cell<Option<Wrong>>,
    digest: Cell<u64>,
}

/// A read that saw another value than its live range wrote.
#[derive(Clone, Copy, Debug)]
pub struct Wrong {
    /// What should have been there.
    pub tag: Tag,
    /// The first element that differs.
    pub index: u64,
}

impl Findings {
    /// Compares a buffer with what was written under `tag`. `first` is the index, in the whole
    /// buffer, of the slice's first element.
    pub fn read<T: Tagged, const R: usize>(
        &self,
        slice: &HostSlice<'_, T, R>,
        tag: Tag,
        first: u64,
    ) {
        let mixed = tag.mixed();
        let (mut wrong, mut at, mut sum) = (0, None, 0_u64);
        for (value, index) in slice.iter().zip(first..) {
            sum = sum.wrapping_add(value.bits().wrapping_mul(index | 1));
            if *value != element(mixed, index) {
                wrong += 1;
                at = at.or(Some(index));
            }
        }
        let add = |cell: &Cell<u64>, more: u64| cell.set(cell.get().wrapping_add(more));
        add(&self.0.reads, 1);
        add(&self.0.elements, u64::try_from(slice.len()).unwrap_or(u64::MAX));
        add(&self.0.wrong, wrong);
        if let (None, Some(index)) = (self.0.first.get(), at) {
            self.0.first.set(Some(Wrong { tag, index }));
        }
        // A sum, so that runs in different orders can be compared.
        add(&self.0.digest, sum.wrapping_mul(mixed | 1));
    }

    /// Reads checked.
    pub fn reads(&self) -> u64 {
        self.0.reads.get()
    }

    /// Elements compared.
    pub fn elements(&self) -> u64 {
        self.0.elements.get()
    }

    /// Elements that were wrong.
    pub fn wrong(&self) -> u64 {
        self.0.wrong.get()
    }

    /// The first wrong read.
    pub fn first_wrong(&self) -> Option<Wrong> {
        self.0.first.get()
    }

    /// A sum over all values read: two runs over the same batches have the same, whatever their
    /// order and wherever their buffers lay.
    pub fn digest(&self) -> u64 {
        self.0.digest.get()
    }
}
