//! Sparse attention with a sink, with sums in f64: the real number that f32 sums on a device
//! approximate. Entries are read as the definition says: E4M3 times its scale rounded to bf16.
//!
//! The maximum is that of the scores, NaN not counted and without the sink: only then does what is not finite
//! come out as [`ops::attention`](crate::ops::attention) says, on every device.

use crate::formats::bf16;
use crate::ops::attention::{AttentionPlan, SourcePlan};
use crate::reference::cache::{HEAD_DIM, decode_main};

/// The rows of a source.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'k> {
    /// A paged FP8 cache.
    Paged(&'k [u8]),
    /// A bf16 workspace.
    Whole(&'k [bf16]),
}

/// A source and what is chosen from it.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'k> {
    /// The rows.
    pub rows: Rows<'k>,
    /// Chosen rows.
    pub indices: &'k [i32],
    /// How many of each row count.
    pub lens: &'k [i32],
}

impl Chosen<'_> {
    /// Appends the entries chosen for a token.
    fn gather(&self, plan: &SourcePlan, token: usize, into: &mut Vec<[f32; HEAD_DIM]>) {
        let row = self.indices.get(token * plan.width..(token + 1) * plan.width);
        let len = self.lens.get(token).and_then(|len| usize::try_from(*len).ok()).unwrap_or(0);
        for index in row.unwrap_or_default().iter().take(len) {
            let mut entry = [0.0; HEAD_DIM];
            match self.rows {
                Rows::Paged(bytes) => {
                    let Some((data, scales)) = plan.layout.entry(i64::from(*index)) else {
                        continue;
                    };
                    let (Some(data), Some(scales)) = (bytes.get(data), bytes.get(scales)) else {
                        continue;
                    };
                    decode_main(data, scales, &mut entry);
                }
                Rows::Whole(rows) => {
                    let row = usize::try_from(*index).ok().and_then(|index| {
                        rows.get(index.checked_mul(HEAD_DIM)?..(index + 1).checked_mul(HEAD_DIM)?)
                    });
                    let Some(row) = row else { continue };
                    for (x, value) in entry.iter_mut().zip(row) {
                        *x = value.to_f32();
                    }
                }
            }
            into.push(entry);
        }
    }
}

/// Runs over all heads of all tokens. Slices are as the plan's checked shapes say.
pub fn attention(
    plan: &AttentionPlan,
    q: &[bf16],
    first: Chosen<'_>,
    second: Option<Chosen<'_>>,
    sinks: &[f32],
    out: &mut [bf16],
) {
    let width = plan.heads * HEAD_DIM;
    let mut entries = Vec::new();
    for (token, (q, out)) in q.chunks(width.max(1)).zip(out.chunks_mut(width.max(1))).enumerate() {
        entries.clear();
        first.gather(&plan.first, token, &mut entries);
        if let (Some(plan), Some(second)) = (&plan.second, second) {
            second.gather(plan, token, &mut entries);
        }
        for ((q, out), sink) in q.chunks(HEAD_DIM).zip(out.chunks_mut(HEAD_DIM)).zip(sinks) {
            for (to, x) in out.iter_mut().zip(head(q, &entries, *sink, plan.scale)) {
                *to = if x.is_nan() { bf16::from_bits(0x7fff) } else { bf16::from_f64(x) };
            }
        }
    }
}

/// The output of one head.
fn head(q: &[bf16], entries: &[[f32; HEAD_DIM]], sink: f32, scale: f32) -> [f64; HEAD_DIM] {
    let mut out = [0.0; HEAD_DIM];
    if entries.is_empty() {
        return out;
    }
    let logit = |entry: &[f32; HEAD_DIM]| {
        let dot: f64 = q.iter().zip(entry).map(|(q, k)| q.to_f64() * f64::from(*k)).sum();
        dot * f64::from(scale)
    };
    let logits: Vec<f64> = entries.iter().map(logit).collect();
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let none = max == f64::NEG_INFINITY;
    let zero = if none { 0.0 } else { max };
    let sum = logits.iter().map(|s| (s - zero).exp()).sum::<f64>();
    let inverse = if none { 0.0 } else { 1.0 / (sum + (f64::from(sink) - zero).exp()) };
    for (entry, logit) in entries.iter().zip(logits) {
        let weight = (logit - zero).exp() * inverse;
        for (to, k) in out.iter_mut().zip(entry) {
            *to += weight * f64::from(*k);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f32 = f32::INFINITY;

    /// One head of queries all `q` over entries that are all their number: what all dims become.
    fn attend(q: f32, entries: &[f32], sink: f32) -> f64 {
        let entries: Vec<_> = entries.iter().map(|k| [*k; HEAD_DIM]).collect();
        let out = head(&[bf16::from_f32(q); HEAD_DIM], &entries, sink, 1.0);
        assert!(out.iter().all(|x| x.to_bits() == out[0].to_bits() || x.is_nan()));
        out[0]
    }

    #[test]
    fn weights_are_a_softmax_with_a_sink() {
        assert_eq!(attend(1.0, &[3.0], -INF), 3.0);
        assert_eq!(attend(0.0, &[3.0], 0.0), 1.5);
        assert_eq!(attend(0.0, &[3.0, 5.0], -INF), 4.0);
        assert_eq!(attend(1.0, &[], 0.0), 0.0);
    }

    #[test]
    fn what_is_not_finite_follows_the_documentation() {
        const NAN: f32 = f32::NAN;
        assert!(attend(NAN, &[3.0], 0.0).is_nan() && attend(1.0, &[NAN, 1.0], 0.0).is_nan());
        assert!(attend(INF, &[3.0], 0.0).is_nan());
        assert!(attend(INF, &[-3.0, 1.0], 0.0).is_nan());
        assert_eq!(attend(NAN, &[], NAN), 0.0);
        // No weight at all, with and without a sink.
        assert_eq!((attend(INF, &[-3.0], 0.0), attend(INF, &[-3.0], -INF)), (0.0, 0.0));
        assert_eq!((attend(INF, &[-3.0], NAN), attend(1.0, &[3.0], INF)), (0.0, 0.0));
        assert!(attend(1.0, &[3.0], NAN).is_nan());
        // An entry of weight 0 shows in its infinite dim alone.
        let mut entry = [1.0; HEAD_DIM];
        entry[7] = -INF;
        let out = head(&[bf16::ONE; HEAD_DIM], &[entry, [2.0; HEAD_DIM]], -INF, 1.0);
        assert!(out[7].is_nan() && out[..7].iter().chain(&out[8..]).all(|x| *x == 2.0));
    }
}
