//! RoPE and quantisation of the indexer's queries, in the arithmetic of the definition.
//!
//! A head of 128 is widened, its last 64 rotated, all of it rounded to bf16. Then, in E4M3: one scale
//! `sc = 2^ceil(log2(max(amax, 1e-4) / 448))`, codes of `x / sc`, and the weight
//! `w * sc * softmax_scale * head_scale`, multiplied in that order. Or in MXFP4: a scale for each
//! 32, and the weight `w * softmax_scale * head_scale`.

use scratchpool::{e8m0, f8e4m3};

use crate::formats::{BlockScale, amax, bf16, encode_e4m3, round_to_bf16};
use crate::ops::indexer_q::IndexerQPlan;
use crate::reference::cache::{INDEX_DIM, MXFP4_BLOCK, encode_mxfp4};
use crate::reference::rope::{ROPE_DIM, RopeTable};

/// Where quantised queries go.
#[derive(Debug)]
pub enum Quantised<'k> {
    /// E4M3 values.
    Fp8(&'k mut [f8e4m3]),
    /// MXFP4 codes and scales.
    Mxfp4(&'k mut [u8], &'k mut [e8m0]),
}

/// Runs over all heads of all tokens. Slices are as the plan's checked shapes say.
pub fn indexer_q(
    plan: &IndexerQPlan,
    q: &[bf16],
    positions: &[i64],
    rope: &[f32],
    weights: &[f32],
    mut out: Quantised<'_>,
    weights_out: &mut [f32],
) {
    let rope = RopeTable::new(rope);
    let heads = q.chunks(INDEX_DIM).zip(weights.iter().zip(weights_out)).enumerate();
    for (index, (q, (weight, weight_out))) in heads {
        let position = positions.get(index / plan.heads.max(1)).copied().unwrap_or(-1);
        let mut row = [0.0; INDEX_DIM];
        for (wide, x) in row.iter_mut().zip(q) {
            *wide = x.to_f32();
        }
        let (_, last) = row.split_at_mut(INDEX_DIM - ROPE_DIM);
        rope.rotate(position, last);
        for x in &mut row {
            *x = round_to_bf16(*x);
        }
        match &mut out {
            Quantised::Fp8(values) => {
                let scale = BlockScale::e4m3(amax(&row));
                let values = values.get_mut(index * INDEX_DIM..).unwrap_or_default();
                for (value, x) in values.iter_mut().zip(row) {
                    *value = f8e4m3::from_bits(encode_e4m3(x * scale.inverse()));
                }
                *weight_out = weight * scale.value() * plan.softmax_scale * plan.head_scale;
            }
            Quantised::Mxfp4(values, scales) => {
                let mut bytes = [0; INDEX_DIM / MXFP4_BLOCK];
                let values = values.get_mut(index * INDEX_DIM / 2..(index + 1) * INDEX_DIM / 2);
                encode_mxfp4(&row, values.unwrap_or_default(), &mut bytes);
                let scales = scales.get_mut(index * bytes.len()..).unwrap_or_default();
                for (scale, byte) in scales.iter_mut().zip(bytes) {
                    *scale = e8m0::from_bits(byte);
                }
                *weight_out = weight * plan.softmax_scale * plan.head_scale;
            }
        }
    }
}
