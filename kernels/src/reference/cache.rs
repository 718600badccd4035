//! Paged cache layouts: where the bytes of an entry are, and how an entry is made and read.
//!
//! A block of `block_size` entries keeps all data rows first, then all scale rows:
//!
//! ```text
//!  main:    | entry 0: 448 E4M3, 64 bf16 | entry 1 | … | scales 0: 7 E8M0, one 0 | scales 1 | … | padding |
//!            576 bytes each                              8 bytes each
//!  index, FP8:   | 128 E4M3 | … | one f32 scale | … |     128 + 4 bytes
//!  index, MXFP4: | 64 pairs of E2M1 | … | 4 E8M0 | … |    64 + 4 bytes
//! ```
//!
//! The stride of a block is at least `block_size` times data plus scales and may be padded. Slot
//! `s` is entry `s mod block_size` of block `s / block_size`; a negative slot, or one beyond the
//! cache, is no entry: nothing is written there, and nothing read.

use core::ops::Range;

use crate::formats::{
    BlockScale, amax, bf16, decode_e2m1, decode_e4m3, encode_e2m1, encode_e4m3, round_to_bf16,
    to_bf16,
};

/// Elements of a main entry.
pub const HEAD_DIM: usize = 512;
/// Elements of a main entry that are quantised; the other 64 are rotated and kept in bf16.
pub const NOPE_DIM: usize = 448;
/// Elements of an index entry.
pub const INDEX_DIM: usize = 128;
/// Elements that share a scale in a main entry.
pub const MAIN_BLOCK: usize = 64;
/// Elements that share a scale in MXFP4.
pub const MXFP4_BLOCK: usize = 32;

/// The formats of entries in a paged cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryFormat {
    /// 448 E4M3 with an E8M0 scale for each 64, and 64 bf16: 576 + 8 bytes.
    Main,
    /// 128 E4M3 with one f32 scale: 128 + 4 bytes.
    IndexFp8,
    /// 128 E2M1 with an E8M0 scale for each 32: 64 + 4 bytes.
    IndexMxfp4,
}

impl EntryFormat {
    /// Elements of an entry.
    pub const fn width(self) -> usize {
        match self {
            Self::Main => HEAD_DIM,
            Self::IndexFp8 | Self::IndexMxfp4 => INDEX_DIM,
        }
    }

    /// Bytes of an entry's data.
    pub const fn data_bytes(self) -> usize {
        match self {
            Self::Main => 576,
            Self::IndexFp8 => 128,
            Self::IndexMxfp4 => 64,
        }
    }

    /// Bytes read or written at a time: strides are multiples of it.
    pub const fn access_bytes(self) -> usize {
        match self {
            Self::Main => 8,
            Self::IndexFp8 | Self::IndexMxfp4 => 4,
        }
    }

    /// Bytes of an entry's scales.
    pub const fn scale_bytes(self) -> usize {
        match self {
            Self::Main => 8,
            Self::IndexFp8 | Self::IndexMxfp4 => 4,
        }
    }
}

/// Where entries are in a paged cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagedLayout {
    /// What an entry is.
    pub format: EntryFormat,
    /// Entries in a block, at least 1.
    pub block_size: usize,
    /// Bytes from one block to the next.
    pub stride: usize,
    /// Blocks in all.
    pub blocks: usize,
}

impl PagedLayout {
    /// The bytes that a block needs, without padding.
    pub const fn block_bytes(format: EntryFormat, block_size: usize) -> usize {
        block_size.saturating_mul(format.data_bytes() + format.scale_bytes())
    }

    /// The bytes of the data and of the scales of a slot; `None` where the slot is no entry.
    ///
    /// ```
    /// use scratchpool_kernels::reference::cache::{EntryFormat, PagedLayout};
    /// let layout = PagedLayout { format: EntryFormat::Main, block_size: 64, stride: 37_440, blocks: 2 };
    /// assert_eq!(layout.entry(65), Some((37_440 + 576..37_440 + 1152, 37_440 + 36_864 + 8..37_440 + 36_864 + 16)));
    /// assert_eq!(layout.entry(-1), None);
    /// assert_eq!(layout.entry(128), None);
    /// ```
    pub fn entry(&self, slot: i64) -> Option<(Range<usize>, Range<usize>)> {
        let slot = usize::try_from(slot).ok()?;
        let block = slot.checked_div(self.block_size)?;
        if block >= self.blocks {
            return None;
        }
        let (at, base) = (slot % self.block_size, block * self.stride);
        let (data, scale) = (self.format.data_bytes(), self.format.scale_bytes());
        let scales = base + self.block_size * data + at * scale;
        let data = base + at * data..base + (at + 1) * data;
        Some((data, scales..scales + scale))
    }
}

/// Quantises blocks of E4M3 that share an E8M0 scale; gives the scale bytes.
fn encode_blocks(values: &[f32], codes: &mut [u8], scales: &mut [u8]) {
    for ((block, codes), byte) in
        values.chunks(MAIN_BLOCK).zip(codes.chunks_mut(MAIN_BLOCK)).zip(scales)
    {
        let scale = BlockScale::e4m3(amax(block));
        *byte = scale.byte();
        for (code, x) in codes.iter_mut().zip(block) {
            *code = encode_e4m3(x * scale.inverse());
        }
    }
}

/// Makes a main entry of 448 values that are bf16 already and of 64 rotated values.
pub fn encode_main(nope: &[f32], rotated: &[f32], data: &mut [u8], scales: &mut [u8]) {
    let (codes, rope) = data.split_at_mut(NOPE_DIM);
    encode_blocks(nope, codes, scales);
    if let Some(last) = scales.last_mut() {
        *last = 0;
    }
    for (bytes, x) in rope.chunks_exact_mut(2).zip(rotated) {
        bytes.copy_from_slice(&to_bf16(*x).to_le_bytes());
    }
}

/// Reads a main entry: values times scales, rounded to bf16, and the 64 as stored.
pub fn decode_main(data: &[u8], scales: &[u8], row: &mut [f32]) {
    let (codes, rope) = data.split_at(NOPE_DIM);
    let (nope, rotated) = row.split_at_mut(NOPE_DIM);
    for ((block, codes), byte) in
        nope.chunks_mut(MAIN_BLOCK).zip(codes.chunks(MAIN_BLOCK)).zip(scales)
    {
        let scale = stored(*byte);
        for (x, code) in block.iter_mut().zip(codes) {
            *x = round_to_bf16(decode_e4m3(*code) * scale);
        }
    }
    for (x, bytes) in rotated.iter_mut().zip(rope.chunks_exact(2)) {
        if let [low, high] = bytes {
            *x = bf16::from_le_bytes([*low, *high]).to_f32();
        }
    }
}

/// Makes an FP8 index entry of 128 values that are bf16 already.
pub fn encode_index_fp8(values: &[f32], data: &mut [u8], scales: &mut [u8]) {
    let scale = BlockScale::e4m3(amax(values));
    for (code, x) in data.iter_mut().zip(values) {
        *code = encode_e4m3(x * scale.inverse());
    }
    scales.copy_from_slice(&scale.value().to_le_bytes());
}

/// Makes an MXFP4 row of values that are bf16 already: two codes a byte, the even element low.
pub fn encode_mxfp4(values: &[f32], data: &mut [u8], scales: &mut [u8]) {
    for ((block, bytes), byte) in
        values.chunks(MXFP4_BLOCK).zip(data.chunks_mut(MXFP4_BLOCK / 2)).zip(scales)
    {
        let scale = BlockScale::mxfp4(amax(block));
        *byte = scale.byte();
        for (packed, pair) in bytes.iter_mut().zip(block.chunks(2)) {
            if let [even, odd] = pair {
                let code = |x: &f32| encode_e2m1(x * scale.inverse());
                *packed = code(even) | code(odd) << 4;
            }
        }
    }
}

/// Reads an FP8 index entry: its values, and its scale.
pub fn decode_index_fp8(data: &[u8], scales: &[u8], row: &mut [f32]) -> f32 {
    for (x, code) in row.iter_mut().zip(data) {
        *x = decode_e4m3(*code);
    }
    match scales {
        [a, b, c, d] => f32::from_le_bytes([*a, *b, *c, *d]),
        _ => f32::NAN,
    }
}

/// Reads an MXFP4 row: codes times scales.
pub fn decode_mxfp4(data: &[u8], scales: &[u8], row: &mut [f32]) {
    for ((block, bytes), byte) in
        row.chunks_mut(MXFP4_BLOCK).zip(data.chunks(MXFP4_BLOCK / 2)).zip(scales)
    {
        let scale = stored(*byte);
        for (pair, packed) in block.chunks_mut(2).zip(bytes) {
            if let [even, odd] = pair {
                *even = decode_e2m1(packed & 15) * scale;
                *odd = decode_e2m1(packed >> 4) * scale;
            }
        }
    }
}

/// The value of a stored scale: in a cache, 255 is not a number.
fn stored(byte: u8) -> f32 {
    if byte == 255 { f32::NAN } else { BlockScale::from_byte(byte).value() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_entry_reads_back_within_sixteen_scales() {
        for magnitude in [1e-30_f32, 0.001, 1.0, 100.0, 1e30] {
            let row: Vec<f32> = (0..512_u16)
                .map(|i| round_to_bf16((f32::from(i * 37 % 101) - 50.0) * magnitude / 50.0))
                .collect();
            let (mut data, mut scales) = ([0xAA; 576], [0xAA; 8]);
            encode_main(&row[..448], &row[448..], &mut data, &mut scales);
            assert_eq!(scales[7], 0);
            let mut back = [0.0; 512];
            decode_main(&data, &scales, &mut back);
            assert_eq!(back[448..], row[448..]);
            for i in 0..448 {
                let scale = BlockScale::from_byte(scales[i / 64]).value();
                assert!((back[i] - row[i]).abs() <= 16.0 * scale, "{i}");
            }
        }
    }

    #[test]
    fn an_infinite_element_poisons_its_own_block_only() {
        let mut row = [1.0; 512];
        row[70] = f32::INFINITY;
        let (mut data, mut scales) = ([0; 576], [0; 8]);
        encode_main(&row[..448], &row[448..], &mut data, &mut scales);
        let mut back = [0.0; 512];
        decode_main(&data, &scales, &mut back);
        assert!(back[64..128].iter().all(|x| x.is_nan()));
        assert!(back[..64].iter().chain(&back[128..]).all(|x| *x == 1.0));
    }

    #[test]
    fn entries_of_a_block_do_not_overlap_and_fill_it() {
        for format in [EntryFormat::Main, EntryFormat::IndexFp8, EntryFormat::IndexMxfp4] {
            for block_size in [1, 2, 16, 64] {
                let bytes = PagedLayout::block_bytes(format, block_size);
                let layout = PagedLayout { format, block_size, stride: bytes, blocks: 3 };
                let mut covered = vec![0_u8; bytes * 3];
                for slot in 0..i64::try_from(block_size * 3).unwrap() {
                    let (data, scales) = layout.entry(slot).unwrap();
                    covered[data].iter_mut().for_each(|n| *n += 1);
                    covered[scales].iter_mut().for_each(|n| *n += 1);
                }
                assert!(covered.iter().all(|n| *n == 1));
            }
        }
    }
}
