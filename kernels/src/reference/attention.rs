//! Sparse attention with a sink, with sums in f64: the real number that f32 sums on a device
//! approximate. Entries are read as the definition says: E4M3 times its scale rounded to bf16.

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
    let max = logits.iter().copied().fold(f64::from(sink), f64::max);
    let total = logits.iter().map(|s| (s - max).exp()).sum::<f64>() + (f64::from(sink) - max).exp();
    for (entry, logit) in entries.iter().zip(logits) {
        let weight = (logit - max).exp() / total;
        for (to, k) in out.iter_mut().zip(entry) {
            *to += weight * f64::from(*k);
        }
    }
    out
}
