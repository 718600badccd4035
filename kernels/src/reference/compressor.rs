//! The compressors, in the arithmetic of the definition.
//!
//! **Pooling**, each column for itself, over the window's rows: `m = max score`, NaN not counted;
//! `w = exp(score - m)` with [`exp`]; the weighted sum of kv over the sum of weights. Rows before
//! position 0, and rows whose page is missing, have kv 0 and score negative infinity. C4 adds its 8
//! rows in sequence. C128 adds 8 groups of 16 rows, each in sequence, and then groups in sequence.
//! Weighted sums use fused multiply-add.
//!
//! What is not finite: a score that is NaN, or infinite above, makes its column NaN. Where every score is
//! negative infinity there is no weight, and the column is 0, or NaN where a kv is not finite: also an
//! infinite kv of a row without weight shows. The norm then makes the whole entry NaN, as
//! [`formats`](crate::formats) lists for what is stored.
//!
//! **Store**: `x r w` with `r` over the sum of [`sum_of_squares_by_quads`], nothing rounded before. The
//! main entry takes dims 0..448 rounded to bf16, then quantised, and the last 64 rotated from the
//! unrounded vector. The index entry is rotated first, all of it rounded to bf16, then quantised.
//! The position of an entry is the first of its `ratio` tokens, `floor(p / ratio) * ratio`.

use crate::formats::round_to_bf16;
use crate::ops::compressor::{Compression, SavePlan, StatesPlan, StorePlan};
use crate::reference::arithmetic::{exp, inverse_rms, sum_of_squares_by_quads};
use crate::reference::cache::{
    EntryFormat, HEAD_DIM, INDEX_DIM, NOPE_DIM, encode_index_fp8, encode_main, encode_mxfp4,
};
use crate::reference::rope::{ROPE_DIM, RopeTable};

/// Rows that C128 adds in sequence.
const GROUP: usize = 16;

/// Saves partial states. Slices are as the plan's checked shapes say.
pub fn save_state(
    plan: &SavePlan,
    kv_score: &[f32],
    ape: &[f32],
    positions: &[i64],
    slots: &[i64],
    state: &mut [f32],
) {
    let both = 2 * plan.width;
    for ((row, position), slot) in kv_score.chunks(both).zip(positions).zip(slots) {
        let Some(slot) = usize::try_from(*slot).ok().filter(|slot| *slot < plan.slots) else {
            continue;
        };
        let phase = i64::try_from(plan.ratio).map_or(0, |ratio| position.rem_euclid(ratio));
        let ape = usize::try_from(phase).ok().and_then(|phase| ape.get(phase * plan.width..));
        let (kv, score) = row.split_at(plan.width);
        let to = state.get_mut(slot * both..(slot + 1) * both).unwrap_or_default();
        let (kv_to, score_to) = to.split_at_mut(plan.width);
        kv_to.copy_from_slice(kv);
        for ((to, score), ape) in score_to.iter_mut().zip(score).zip(ape.unwrap_or_default()) {
            *to = score + ape;
        }
    }
}

/// Whether a token finishes a window.
pub fn is_boundary(position: i64, state_slot: i64, ratio: usize) -> bool {
    let ratio = i64::try_from(ratio).unwrap_or(i64::MAX);
    position >= 0 && position % ratio == ratio - 1 && state_slot >= 0
}

/// What the windows are read from.
#[derive(Clone, Copy, Debug)]
pub struct StateSlices<'k> {
    /// The state cache.
    pub state: &'k [f32],
    /// Pages of each request.
    pub block_table: &'k [i32],
    /// Requests.
    pub token_to_req: &'k [i32],
    /// Positions.
    pub positions: &'k [i64],
    /// Slots in the state cache.
    pub slots: &'k [i64],
}

impl<'k> StateSlices<'k> {
    /// The state row of a position of a request, where there is one.
    fn row(&self, plan: &StatesPlan, request: i32, position: i64) -> Option<&'k [f32]> {
        let request = usize::try_from(request).ok().filter(|row| *row < plan.requests)?;
        let position = usize::try_from(position).ok()?;
        let column = position.checked_div(plan.page_tokens).filter(|it| *it < plan.columns)?;
        let page = *self.block_table.get(request * plan.columns + column)?;
        let page = usize::try_from(page).ok().filter(|page| *page < plan.pages)?;
        let width = 2 * plan.compression.halves() * plan.width;
        let row = page * plan.page_tokens + position % plan.page_tokens;
        self.state.get(row * width..(row + 1) * width)
    }

    /// The window that ends at `token`: kv and score of each row.
    fn window(&self, plan: &StatesPlan, token: usize) -> Vec<Option<(&'k [f32], &'k [f32])>> {
        let (rows, width) = (plan.compression.window(), plan.width);
        let columns = plan.compression.halves() * width;
        let request = self.token_to_req.get(token).copied().unwrap_or(-1);
        let last = self.positions.get(token).copied().unwrap_or(-1);
        (0..rows)
            .map(|row| {
                let back = i64::try_from(rows - 1 - row).ok()?;
                let state = self.row(plan, request, last - back)?;
                let half = if plan.compression == Compression::C4 { row / 4 * width } else { 0 };
                let kv = state.get(half..half + width)?;
                Some((kv, state.get(columns + half..columns + half + width)?))
            })
            .collect()
    }
}

/// Pools one column of a window.
fn pool_column(rows: &[Option<(&[f32], &[f32])>], column: usize, group: usize) -> f32 {
    let at = |row: &Option<(&[f32], &[f32])>| {
        let there = row.and_then(|(kv, score)| Some((*kv.get(column)?, *score.get(column)?)));
        there.unwrap_or((0.0, f32::NEG_INFINITY))
    };
    let max = rows.iter().map(at).fold(f32::NEG_INFINITY, |max, (_, s)| max.max(s));
    let zero = if max == f32::NEG_INFINITY { 0.0 } else { max };
    // What adding to changes nothing, also not the sign of a zero.
    let (mut weights, mut sum) = (-0.0, -0.0);
    for group in rows.chunks(group) {
        let (mut group_weights, mut group_sum) = (0.0, 0.0);
        for (kv, score) in group.iter().map(at) {
            let weight = exp(score - zero);
            group_weights += weight;
            group_sum = kv.mul_add(weight, group_sum);
        }
        weights += group_weights;
        sum += group_sum;
    }
    if weights == 0.0 { sum } else { sum / weights }
}

/// Pools the window that ends at `token`.
fn pool(plan: &StatesPlan, states: &StateSlices<'_>, token: usize, pooled: &mut [f32]) {
    let rows = states.window(plan, token);
    let group = if plan.compression == Compression::C4 { rows.len() } else { GROUP };
    for (column, to) in pooled.iter_mut().enumerate() {
        *to = pool_column(&rows, column, group);
    }
}

/// C128's first stage. Slices are as the plan's checked shapes say.
pub fn compress_pool(plan: &StatesPlan, states: &StateSlices<'_>, scratch: &mut [f32]) {
    let rows = scratch.chunks_mut(HEAD_DIM).zip(states.positions.iter().zip(states.slots));
    for (token, (row, (position, slot))) in rows.enumerate() {
        if is_boundary(*position, *slot, plan.compression.ratio()) {
            pool(plan, states, token, row);
        }
    }
}

/// What entries are made with.
#[derive(Debug)]
pub struct StoreSlices<'k> {
    /// Slots in the cache.
    pub slots: &'k [i64],
    /// Weight of the norm.
    pub norm_weight: &'k [f32],
    /// Cosines and sines.
    pub rope: &'k [f32],
    /// The cache.
    pub cache: &'k mut [u8],
}

impl StoreSlices<'_> {
    /// Norms, rotates, quantises and stores one pooled vector.
    fn store(&mut self, plan: &StorePlan, token: usize, position: i64, pooled: &[f32]) {
        let slot = self.slots.get(token).copied().unwrap_or(-1);
        let Some((data, scales)) = plan.layout.entry(slot) else { return };
        let main = plan.layout.format == EntryFormat::Main;
        let width = if main { 512 } else { 128 };
        let r = inverse_rms(sum_of_squares_by_quads(pooled), width, plan.eps);
        let mut row: Vec<f32> =
            pooled.iter().zip(self.norm_weight).map(|(x, weight)| x * r * weight).collect();
        let rope = RopeTable::new(self.rope);
        let ratio = i64::try_from(plan.ratio).unwrap_or(i64::MAX);
        let first = position / ratio * ratio;
        let (bytes, rest) = self.cache.split_at_mut(scales.start);
        let data = bytes.get_mut(data).unwrap_or_default();
        let scales = rest.get_mut(..scales.len()).unwrap_or_default();
        let nope = if main { NOPE_DIM } else { INDEX_DIM - ROPE_DIM };
        let (low, last) = row.split_at_mut(nope);
        rope.rotate(first, last);
        low.iter_mut().chain(last).for_each(|x| *x = round_to_bf16(*x));
        match plan.layout.format {
            EntryFormat::Main => {
                let (nope, rotated) = row.split_at(NOPE_DIM);
                encode_main(nope, rotated, data, scales);
            }
            EntryFormat::IndexFp8 => encode_index_fp8(&row, data, scales),
            EntryFormat::IndexMxfp4 => encode_mxfp4(&row, data, scales),
        }
    }
}

/// C128's second stage. Slices are as the plan's checked shapes say.
pub fn compress_store(
    plan: &StorePlan,
    scratch: &[f32],
    positions: &[i64],
    state_slots: &[i64],
    mut store: StoreSlices<'_>,
) {
    let rows = scratch.chunks(HEAD_DIM).zip(positions.iter().zip(state_slots)).enumerate();
    for (token, (row, (position, slot))) in rows {
        if is_boundary(*position, *slot, plan.ratio) {
            store.store(plan, token, *position, row);
        }
    }
}

/// C4 in one pass. Slices are as the plans' checked shapes say.
pub fn compress(
    states_plan: &StatesPlan,
    plan: &StorePlan,
    states: &StateSlices<'_>,
    mut store: StoreSlices<'_>,
) {
    let mut pooled = vec![0.0; states_plan.width];
    for (token, (position, slot)) in states.positions.iter().zip(states.slots).enumerate() {
        if is_boundary(*position, *slot, plan.ratio) {
            pool(states_plan, states, token, &mut pooled);
            store.store(plan, token, *position, &pooled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pools one column of rows of kv and score.
    fn pooled(rows: &[Option<[f32; 2]>], group: usize) -> f32 {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                row.as_ref()
                    .map(|[kv, score]| (core::slice::from_ref(kv), core::slice::from_ref(score)))
            })
            .collect();
        pool_column(&rows, 0, group)
    }

    #[test]
    fn a_window_is_the_weighted_mean_of_its_rows() {
        assert_eq!(pooled(&[Some([3.0, 1.0]), Some([5.0, 1.0])], 2), 4.0);
        assert_eq!(pooled(&[None, Some([5.0, -3.0])], 2), 5.0);
        assert_eq!(pooled(&[None, None], 1), 0.0);
    }

    #[test]
    fn what_underflows_in_a_sequence_of_rows_keeps_its_sign() {
        let mean = pooled(&[Some([-1e-40, -80.0]), Some([-0.0, 0.0])], 2);
        assert!(mean == 0.0 && mean.is_sign_negative(), "{mean}");
    }

    #[test]
    fn what_is_not_finite_follows_the_documentation() {
        const INF: f32 = f32::INFINITY;
        let beside = |row| pooled(&[Some(row), Some([1.0, 0.0])], 2);
        assert!(beside([1.0, f32::NAN]).is_nan() && beside([1.0, INF]).is_nan());
        assert_eq!(beside([7.0, -INF]), 1.0);
        assert!(beside([INF, -INF]).is_nan());
        assert_eq!(beside([INF, 0.0]), INF);
        // No weight at all.
        assert_eq!(pooled(&[Some([7.0, -INF]), None], 2), 0.0);
        assert!(pooled(&[Some([INF, -INF]), None], 2).is_nan());
        assert!(pooled(&[Some([7.0, f32::NAN]), None], 2).is_nan());
    }
}
