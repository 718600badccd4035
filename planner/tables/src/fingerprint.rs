//! The hash by which two processes find out that their layouts agree.

use core::fmt;

use crate::dtype::DType;

/// A hash that is the same on every machine and in every release: FNV-1a with 128 bits.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// The hash of a pool with nothing in it yet.
    pub const fn new(align: u64, total_bytes: u64) -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d).number(align).number(total_bytes)
    }

    /// Adds one buffer. Buffers must be added in order of name.
    #[must_use]
    pub const fn buffer(
        self,
        name: &str,
        offset: u64,
        bytes: u64,
        dtype: DType,
        shape: &[u64],
    ) -> Self {
        let mut hash = self.text(name.as_bytes()).number(offset).number(bytes);
        hash = hash.text(dtype.as_str().as_bytes()).number(shape.len() as u64);
        let mut rest = shape;
        while let [extent, tail @ ..] = rest {
            hash = hash.number(*extent);
            rest = tail;
        }
        hash
    }

    const fn number(self, value: u64) -> Self {
        let mut hash = self;
        let mut shift = 0;
        while shift < 64 {
            hash = hash.byte(value >> shift & 0xff);
            shift += 8;
        }
        hash
    }

    const fn text(self, bytes: &[u8]) -> Self {
        let mut hash = self.number(bytes.len() as u64);
        let mut rest = bytes;
        while let [byte, tail @ ..] = rest {
            hash = hash.byte(*byte as u64);
            rest = tail;
        }
        hash
    }

    const fn byte(self, byte: u64) -> Self {
        Self((self.0 ^ byte as u128).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn fingerprints_follow_the_published_hash() {
        // FNV-1a of no bytes is its offset basis; of "a" as published with the algorithm.
        let empty = Fingerprint(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(empty.byte(0x61).to_string(), "d228cb696f1a8caf78912b704e4a8964");
    }
}
