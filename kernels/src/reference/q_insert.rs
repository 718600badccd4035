//! Query norm, RoPE and KV insertion, in the arithmetic of the definition.
//!
//! - **Head below `H`**: widen to f32; `r = 1 / sqrt(sum x^2 / 512 + eps)` with the sum in the
//!   order of [`sum_of_squares_by_chunks`]; `x r`; rotate the last 64; round once, to bf16 or, times
//!   `1 / scale`, to E4M3. Without the norm `r` is absent.
//! - **Head from `H` to `H_pad`**: +0.
//! - **KV**: with a norm of its own, `x r w` with `r` as above, all 512 rounded to bf16 and back; rotate
//!   in f32; round all 512 to bf16; then the cache's own format: E4M3 blocks of 64 with
//!   E8M0 scales over dims 0..448 and bf16 for the rest, or whole rows of bf16, or of E4M3.

use scratchpool::f8e4m3;

use crate::formats::{bf16, encode_e4m3, round_to_bf16, to_bf16};
use crate::ops::q_insert::QInsertPlan;
use crate::reference::arithmetic::{inverse_rms, sum_of_squares_by_chunks};
use crate::reference::cache::{HEAD_DIM, NOPE_DIM, encode_main};
use crate::reference::rope::RopeTable;

/// Where queries go.
#[derive(Debug)]
pub enum Queries<'k> {
    /// From a tensor to another in bf16.
    Bf16(&'k [bf16], &'k mut [bf16]),
    /// Over themselves.
    InPlace(&'k mut [bf16]),
    /// From a tensor to another in E4M3.
    Fp8(&'k [bf16], &'k mut [f8e4m3]),
}

/// Where KV rows go.
#[derive(Debug)]
pub enum Cache<'k> {
    /// The paged FP8 layout.
    Paged(&'k mut [u8]),
    /// Whole rows.
    Rows(&'k mut [bf16]),
    /// Whole rows in E4M3.
    Fp8(&'k mut [f8e4m3]),
}

/// One head: widened, normed, rotated, not rounded.
fn head(plan: &QInsertPlan, rope: RopeTable<'_>, position: i64, x: &[bf16]) -> [f32; HEAD_DIM] {
    let mut row = [0.0; HEAD_DIM];
    for (wide, x) in row.iter_mut().zip(x) {
        *wide = x.to_f32();
    }
    if plan.norm {
        let r = inverse_rms(sum_of_squares_by_chunks(&row), 512, plan.eps);
        for x in &mut row {
            *x *= r;
        }
    }
    let (_, last) = row.split_at_mut(NOPE_DIM);
    rope.rotate(position, last);
    row
}

/// Runs over all tokens. Slices are as the plan's checked shapes say.
#[expect(clippy::too_many_arguments, reason = "one for each argument of the launch")]
pub fn q_insert(
    plan: &QInsertPlan,
    queries: Queries<'_>,
    mut cache: Cache<'_>,
    kv: &[bf16],
    kv_norm: Option<&[f32]>,
    positions: &[i64],
    slots: &[i64],
    rope: &[f32],
) {
    let rope = RopeTable::new(rope);
    let (from_token, to_token) = (plan.heads * HEAD_DIM, plan.padded_heads * HEAD_DIM);
    match queries {
        Queries::Bf16(from, to) => {
            for (token, position) in positions.iter().enumerate() {
                let from = from.get(token * from_token..).unwrap_or_default();
                let to = to.get_mut(token * to_token..).unwrap_or_default();
                for index in 0..plan.padded_heads {
                    let to = to.get_mut(index * HEAD_DIM..(index + 1) * HEAD_DIM);
                    let to = to.unwrap_or_default();
                    if index >= plan.heads {
                        to.fill(bf16::ZERO);
                        continue;
                    }
                    let x = from.get(index * HEAD_DIM..(index + 1) * HEAD_DIM).unwrap_or_default();
                    for (to, x) in to.iter_mut().zip(head(plan, rope, *position, x)) {
                        *to = to_bf16(x);
                    }
                }
            }
        }
        Queries::InPlace(q) => {
            for (token, position) in q.chunks_mut(to_token.max(1)).zip(positions) {
                for q in token.chunks_mut(HEAD_DIM) {
                    let row = head(plan, rope, *position, q);
                    for (q, x) in q.iter_mut().zip(row) {
                        *q = to_bf16(x);
                    }
                }
            }
        }
        Queries::Fp8(from, to) => {
            for (token, position) in positions.iter().enumerate() {
                let from = from.get(token * from_token..).unwrap_or_default();
                let to = to.get_mut(token * to_token..).unwrap_or_default();
                for index in 0..plan.padded_heads {
                    let to = to.get_mut(index * HEAD_DIM..(index + 1) * HEAD_DIM);
                    let to = to.unwrap_or_default();
                    if index >= plan.heads {
                        to.fill(f8e4m3::from_bits(0));
                        continue;
                    }
                    let x = from.get(index * HEAD_DIM..(index + 1) * HEAD_DIM).unwrap_or_default();
                    for (to, x) in to.iter_mut().zip(head(plan, rope, *position, x)) {
                        *to = f8e4m3::from_bits(encode_e4m3(x * plan.q_inverse));
                    }
                }
            }
        }
    }
    for ((kv, position), slot) in kv.chunks(HEAD_DIM).zip(positions).zip(slots) {
        let mut row = [0.0; HEAD_DIM];
        for (wide, x) in row.iter_mut().zip(kv) {
            *wide = x.to_f32();
        }
        if let Some(weight) = kv_norm {
            let r = inverse_rms(sum_of_squares_by_chunks(&row), 512, plan.eps);
            for (x, weight) in row.iter_mut().zip(weight) {
                *x = round_to_bf16(*x * r * *weight);
            }
        }
        insert(plan, rope, &mut cache, row, *position, *slot);
    }
}

/// Writes one KV row at its slot.
fn insert(
    plan: &QInsertPlan,
    rope: RopeTable<'_>,
    cache: &mut Cache<'_>,
    mut row: [f32; HEAD_DIM],
    position: i64,
    slot: i64,
) {
    let Some((data, scales)) = plan.layout.entry(slot) else { return };
    let (_, last) = row.split_at_mut(NOPE_DIM);
    rope.rotate(position, last);
    for x in &mut row {
        *x = round_to_bf16(*x);
    }
    // Whole rows are dense: the slot counts rows.
    let whole = usize::try_from(slot).unwrap_or(0) * HEAD_DIM;
    let whole = whole..whole + HEAD_DIM;
    match cache {
        Cache::Paged(bytes) => {
            // A block's data rows end where its scales begin.
            let (bytes, rest) = bytes.split_at_mut(scales.start);
            let data = bytes.get_mut(data).unwrap_or_default();
            let scales = rest.get_mut(..scales.end - scales.start).unwrap_or_default();
            let (nope, rotated) = row.split_at(NOPE_DIM);
            encode_main(nope, rotated, data, scales);
        }
        Cache::Rows(rows) => {
            for (to, x) in rows.get_mut(whole).unwrap_or_default().iter_mut().zip(row) {
                *to = to_bf16(x);
            }
        }
        Cache::Fp8(rows) => {
            for (to, x) in rows.get_mut(whole).unwrap_or_default().iter_mut().zip(row) {
                *to = f8e4m3::from_bits(encode_e4m3(x * plan.kv_inverse));
            }
        }
    }
}
