//! The indexer's logits and the choice of the largest, with sums in f64.
//!
//! Products of the formats are exact in f64, so the reference is the real number that f32 sums on
//! a device approximate: compare logits within a tolerance, and choices exactly, for the
//! same logits.

use scratchpool::{e8m0, f8e4m3};

use crate::formats::{decode_e4m3, descending};
use crate::ops::indexer_topk::{LogitsPlan, TopkPlan};
use crate::reference::cache::{EntryFormat, INDEX_DIM, decode_index_fp8, decode_mxfp4};

/// The quantised queries.
#[derive(Clone, Copy, Debug)]
pub enum Queries<'k> {
    /// E4M3 values.
    Fp8(&'k [f8e4m3]),
    /// MXFP4 codes and scales.
    Mxfp4(&'k [u8], &'k [e8m0]),
}

impl Queries<'_> {
    fn head(&self, index: usize, row: &mut [f32; INDEX_DIM]) {
        match self {
            Self::Fp8(values) => {
                let values = values.get(index * INDEX_DIM..).unwrap_or_default();
                for (x, value) in row.iter_mut().zip(values) {
                    *x = decode_e4m3(value.to_bits());
                }
            }
            Self::Mxfp4(values, scales) => {
                let values = values.get(index * INDEX_DIM / 2..(index + 1) * INDEX_DIM / 2);
                let mut bytes = [0; 4];
                for (byte, scale) in
                    bytes.iter_mut().zip(scales.get(index * 4..).unwrap_or_default())
                {
                    *byte = scale.to_bits();
                }
                decode_mxfp4(values.unwrap_or_default(), &bytes, row);
            }
        }
    }
}

/// What keys are found with.
#[derive(Clone, Copy, Debug)]
pub struct KeySlices<'k> {
    /// The cache.
    pub cache: &'k [u8],
    /// Blocks of each request.
    pub block_table: &'k [i32],
    /// Requests.
    pub token_to_req: &'k [i32],
    /// Positions.
    pub positions: &'k [i64],
}

/// Computes all logits. Slices are as the plan's checked shapes say.
pub fn indexer_logits(
    plan: &LogitsPlan,
    q: Queries<'_>,
    weights: &[f32],
    keys: KeySlices<'_>,
    logits: &mut [f32],
) {
    let mut heads = vec![[0.0; INDEX_DIM]; plan.heads];
    for (token, row) in logits.chunks_mut(plan.columns.max(1)).enumerate().take(plan.tokens) {
        for (index, head) in heads.iter_mut().enumerate() {
            q.head(token * plan.heads + index, head);
        }
        let weights = weights.get(token * plan.heads..(token + 1) * plan.heads).unwrap_or_default();
        let seen =
            keys.positions.get(token).map_or(0, |position| position.saturating_add(1).max(0));
        let ratio = i64::try_from(plan.ratio).unwrap_or(i64::MAX);
        let candidates = usize::try_from(seen / ratio).unwrap_or(0);
        let request = keys.token_to_req.get(token).copied().unwrap_or(-1);
        for (index, logit) in row.iter_mut().enumerate() {
            let key = if index < candidates { key(plan, &keys, request, index) } else { None };
            *logit = key.map_or(f32::NEG_INFINITY, |(key, scale)| {
                narrow(
                    heads
                        .iter()
                        .zip(weights)
                        .map(|(q, w)| f64::from(*w) * relu_dot(q, &key))
                        .sum::<f64>()
                        * scale,
                )
            });
        }
    }
}

fn relu_dot(q: &[f32; INDEX_DIM], key: &[f32; INDEX_DIM]) -> f64 {
    let dot: f64 = q.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
    // Not `max`, which would drop a NaN.
    if dot < 0.0 { 0.0 } else { dot }
}

/// An entry of a request and its scale, where there is one.
fn key(
    plan: &LogitsPlan,
    keys: &KeySlices<'_>,
    request: i32,
    index: usize,
) -> Option<([f32; INDEX_DIM], f64)> {
    let request = usize::try_from(request).ok().filter(|row| *row < plan.requests)?;
    let column = index.checked_div(plan.layout.block_size).filter(|it| *it < plan.table_columns)?;
    let block = *keys.block_table.get(request * plan.table_columns + column)?;
    let block = usize::try_from(block).ok()?;
    let slot = block.checked_mul(plan.layout.block_size)? + index % plan.layout.block_size;
    let (data, scales) = plan.layout.entry(i64::try_from(slot).ok()?)?;
    let (data, scales) = (keys.cache.get(data)?, keys.cache.get(scales)?);
    let mut row = [0.0; INDEX_DIM];
    let scale = if plan.layout.format == EntryFormat::IndexFp8 {
        f64::from(decode_index_fp8(data, scales, &mut row))
    } else {
        decode_mxfp4(data, scales, &mut row);
        1.0
    };
    Some((row, scale))
}

#[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is what is meant")]
const fn narrow(x: f64) -> f32 {
    x as f32
}

/// Chooses from all rows: of equal logits the lower columns, and all in ascending order. Slices are as
/// the plan's checked shapes say.
pub fn indexer_topk(plan: &TopkPlan, logits: &[f32], indices: &mut [i32]) {
    for (token, row) in indices.chunks_mut(plan.topk.max(1)).enumerate() {
        let logits = logits.get(token * plan.columns..(token + 1) * plan.columns);
        let mut candidates: Vec<(usize, f32)> = logits
            .unwrap_or_default()
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, logit)| *logit > f32::NEG_INFINITY)
            .collect();
        candidates.sort_by(|a, b| descending(a.1, b.1));
        candidates.truncate(plan.topk);
        candidates.sort_unstable_by_key(|(column, _)| *column);
        row.fill(-1);
        for (to, (index, _)) in row.iter_mut().zip(candidates) {
            *to = i32::try_from(index).unwrap_or(-1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::cache::PagedLayout;

    #[test]
    fn a_logit_is_the_weighted_sum_of_what_is_positive() {
        let layout =
            PagedLayout { format: EntryFormat::IndexFp8, block_size: 1, stride: 132, blocks: 3 };
        let (tokens, heads, columns, requests, table_columns, ratio) = (1, 2, 4, 1, 4, 4);
        let plan = LogitsPlan { tokens, heads, columns, layout, requests, table_columns, ratio };
        // Heads of 1 and of -1, keys of 2 with the scale 0.5.
        let mut q = vec![f8e4m3::from_bits(0x38); 128];
        q.extend([f8e4m3::from_bits(0xb8); 128]);
        let mut key = vec![0x40; 128];
        key.extend(0.5_f32.to_le_bytes());
        let cache = key.repeat(3);
        let (block_table, token_to_req, positions) = (&[2, -1, 0, 1], &[0], &[14]);
        let keys = KeySlices { cache: &cache, block_table, token_to_req, positions };
        let mut logits = [0.0; 4];
        indexer_logits(&plan, Queries::Fp8(&q), &[3.0, 5.0], keys, &mut logits);
        // The second has no block, the fourth is not finished.
        assert_eq!(logits, [384.0, f32::NEG_INFINITY, 384.0, f32::NEG_INFINITY]);
    }

    #[test]
    fn the_largest_are_chosen_in_order_and_of_equals_the_lower() {
        let logits = [3.0, f32::NAN, 1.0, 3.0, f32::NEG_INFINITY, 2.0, -0.0, 0.0];
        let choose = |topk| {
            let mut indices = vec![9; topk];
            indexer_topk(&TopkPlan { tokens: 1, columns: 8, topk }, &logits, &mut indices);
            indices
        };
        assert_eq!(choose(1), [0]);
        assert_eq!(choose(3), [0, 3, 5]);
        assert_eq!(choose(5), [0, 2, 3, 5, 6]);
        assert_eq!(choose(8), [0, 2, 3, 5, 6, 7, -1, -1]);
    }
}
