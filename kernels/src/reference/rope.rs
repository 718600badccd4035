//! Rotary position embedding on the last 64 dims, GPT-J style: adjacent elements are a pair.
//!
//! The table is f32 `[max_pos, 64]`: cosines in columns 0..32, sines in 32..64. Pair `i` with
//! `c = cos[i]`, `s = sin[i]`: `even' = even c - odd s`, `odd' = even s + odd c`, each product and
//! sum rounded to f32 on its own, without fused multiply-add. A position without a row in the table
//! gives NaN: wrong positions show, and nothing outside the table is read.

/// How many dims are rotated.
pub const ROPE_DIM: usize = 64;

/// A table of cosines and sines, `[max_pos, 64]`.
#[derive(Clone, Copy, Debug)]
pub struct RopeTable<'t> {
    rows: &'t [f32],
}

impl<'t> RopeTable<'t> {
    /// A table of rows of 64.
    pub const fn new(rows: &'t [f32]) -> Self {
        Self { rows }
    }

    fn row(&self, position: i64) -> Option<&'t [f32]> {
        let start = usize::try_from(position).ok()?.checked_mul(ROPE_DIM)?;
        self.rows.get(start..start.checked_add(ROPE_DIM)?)
    }

    /// Rotates the 64 elements of `last` in place.
    ///
    /// ```
    /// use scratchpool_kernels::reference::rope::RopeTable;
    /// let mut table = vec![0.0; 64];
    /// table[32..].fill(1.0);                       // a quarter turn: cos 0, sin 1
    /// let mut last: Vec<f32> = (0..64_u8).map(f32::from).collect();
    /// RopeTable::new(&table).rotate(0, &mut last);
    /// assert_eq!(last[2..4], [-3.0, 2.0]);
    /// RopeTable::new(&table).rotate(1, &mut last); // beyond the table
    /// assert!(last.iter().all(|x| x.is_nan()));
    /// ```
    pub fn rotate(&self, position: i64, last: &mut [f32]) {
        let Some(row) = self.row(position) else {
            last.fill(f32::NAN);
            return;
        };
        let (cosines, sines) = row.split_at(ROPE_DIM / 2);
        for (pair, (c, s)) in last.chunks_exact_mut(2).zip(cosines.iter().zip(sines)) {
            if let [even, odd] = pair {
                let (e, o) = (*even, *odd);
                *even = e * c - o * s;
                *odd = e * s + o * c;
            }
        }
    }
}
