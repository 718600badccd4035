//! Sets of node numbers as bits, one row a node: the form in which happens-before is kept.
//!
//! Two rows are combined word by word, which makes the closure of a schedule of thousands of nodes
//! a matter of microseconds, also in an unoptimised build.

/// A matrix of bits, `rows` × `columns`, all 0 at first.
#[derive(Clone, Debug)]
pub(crate) struct BitMatrix {
    words: usize,
    bits: Vec<u64>,
}

const WORD: usize = 64;

impl BitMatrix {
    pub(crate) fn new(rows: usize, columns: usize) -> Self {
        let words = columns.div_ceil(WORD).max(1);
        Self { words, bits: vec![0; rows * words] }
    }

    /// The bits of a row; empty if there is no such row.
    pub(crate) fn row(&self, row: usize) -> &[u64] {
        self.bits.get(row * self.words..(row + 1) * self.words).unwrap_or(&[])
    }

    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [u64] {
        self.bits.get_mut(row * self.words..(row + 1) * self.words).unwrap_or(&mut [])
    }

    /// How many bits are 1.
    pub(crate) fn count(&self) -> usize {
        // No word has more ones than a `u32` counts.
        self.bits.iter().map(|word| usize::try_from(word.count_ones()).unwrap_or(0)).sum()
    }

    pub(crate) fn get(&self, row: usize, column: usize) -> bool {
        get(self.row(row), column)
    }
}

/// Whether a bit is set.
pub(crate) fn get(bits: &[u64], column: usize) -> bool {
    bits.get(column / WORD).is_some_and(|word| word >> (column % WORD) & 1 == 1)
}

/// Sets a bit.
pub(crate) fn set(bits: &mut [u64], column: usize) {
    if let Some(word) = bits.get_mut(column / WORD) {
        *word |= 1 << (column % WORD);
    }
}

/// Adds all of `other`.
pub(crate) fn union(bits: &mut [u64], other: &[u64]) {
    for (word, other) in bits.iter_mut().zip(other) {
        *word |= other;
    }
}

/// Keeps what is in `other` too.
pub(crate) fn intersect(bits: &mut [u64], other: &[u64]) {
    for (word, other) in bits.iter_mut().zip(other) {
        *word &= other;
    }
}

/// Whether all of `bits` is in `other`.
pub(crate) fn subset(bits: &[u64], other: &[u64]) -> bool {
    bits.iter().zip(other).all(|(word, other)| word & !other == 0)
}
