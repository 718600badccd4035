//! The last pass again, in float64: no views, no streams, no tiles, one token after the other.
//!
//! From the kernels' crate this takes how bytes of a cache are read, and nothing that computes.

use scratchpool::bf16;
use scratchpool_kernels::reference::cache::{PagedLayout, decode_main, decode_mxfp4, encode_mxfp4};

use super::case::{
    Case, EPSILON, HEAD_SCALE, HEADS, HostActivations, HostLayer, INDEX_SCALE, LAST, SCALE, TOPK,
    WINDOW, entry_layout, entry_slot, frequency, key_layout, state_slot, theta, tokens_of,
    window_layout, window_slot,
};
use super::outcome::{Caches, Outcome, distance};

/// How far an entry of 448 E4M3 and 64 bf16 may be from what it was made of, of its norm: a rounding to 3
/// bits, on average less than half of the 2^-4 that it is at most.
const STORED: f64 = 0.04;
/// How far attention may be: queries and results are rounded to bf16.
const ATTENDED: f64 = 1e-2;

/// A request, a position, and the row of the pass.
#[derive(Clone, Copy)]
struct Token {
    request: usize,
    position: usize,
    row: usize,
}

/// Row `row` of values of rows of `width`.
fn row<T>(values: &[T], row: usize, width: usize) -> &[T] {
    values.get(row * width..(row + 1) * width).unwrap_or_default()
}

fn wide(values: &[bf16]) -> Vec<f64> {
    values.iter().map(|x| x.to_f64()).collect()
}

/// Divides by the root of the mean square, and multiplies with weights, if any.
fn normed(values: &mut [f64], weights: Option<&[f32]>) {
    let count = f64::from(u16::try_from(values.len()).unwrap_or(u16::MAX));
    let mean = values.iter().map(|x| x * x).sum::<f64>() / count;
    let r = 1.0 / (mean + f64::from(EPSILON)).sqrt();
    for x in values.iter_mut() {
        *x *= r;
    }
    for (x, weight) in values.iter_mut().zip(weights.unwrap_or_default()) {
        *x *= f64::from(*weight);
    }
}

/// Turns the last 64 elements by the angles of a position.
fn rotate(values: &mut [f64], ratio: usize, position: usize) {
    let start = values.len().saturating_sub(64);
    let position = f64::from(u32::try_from(position).unwrap_or(u32::MAX));
    let pairs = values.get_mut(start..).unwrap_or_default().chunks_exact_mut(2);
    for (pair, number) in pairs.zip(0..) {
        let (sin, cos) = (position * frequency(theta(ratio), ratio != 0, number)).sin_cos();
        if let [even, odd] = pair {
            (*even, *odd) = (*even * cos - *odd * sin, *even * sin + *odd * cos);
        }
    }
}

/// The entry of a slot, read with `decode`.
fn entry(
    layout: &PagedLayout,
    bytes: &[u8],
    slot: Option<usize>,
    decode: fn(&[u8], &[u8], &mut [f32]),
) -> Option<Vec<f64>> {
    let (data, scales) = layout.entry(i64::try_from(slot?).ok()?)?;
    let mut values = vec![0.0; layout.format.width()];
    decode(bytes.get(data)?, bytes.get(scales)?, &mut values);
    Some(values.into_iter().map(f64::from).collect())
}

/// The mean of a window's kv, each column weighted by a softmax of its scores.
fn pooled(state: &[f32], token: Token, ratio: usize, width: usize) -> Vec<f64> {
    let halves = if ratio == 4 { 2 } else { 1 };
    let columns = halves * width;
    let window = (0..halves * ratio).filter_map(|at| {
        let position = (token.position + 1 + at).checked_sub(halves * ratio)?;
        let values = row(state, state_slot(ratio, token.request, position), 2 * columns);
        // Of overlapping windows the earlier tokens have the first columns.
        let from = if halves == 2 { at / ratio * width } else { 0 };
        Some((values.get(from..from + width)?, values.get(columns + from..columns + from + width)?))
    });
    let window: Vec<(&[f32], &[f32])> = window.collect();
    (0..width)
        .map(|column| {
            let at = |values: &[f32]| values.get(column).copied().map_or(f64::NAN, f64::from);
            let most = window.iter().map(|(_, score)| at(score)).fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = window.iter().map(|(_, s)| (at(s) - most).exp()).collect();
            let sum: f64 = window.iter().zip(&weights).map(|((kv, _), w)| at(kv) * w).sum();
            sum / weights.iter().sum::<f64>()
        })
        .collect()
}

/// What a compressor saves of a token: kv as it is, and the score with its bias.
fn saved(kv_score: &[f32], ape: &[f32], token: Token, ratio: usize) -> Vec<f32> {
    let width = ape.len() / ratio;
    let values = row(kv_score, token.row, 2 * width);
    let bias = row(ape, token.position % ratio, width);
    let (kv, score) = values.split_at(width);
    kv.iter().copied().chain(score.iter().zip(bias).map(|(s, b)| s + b)).collect()
}

/// What one layer was given, and left behind.
struct Bench<'c> {
    layer: &'c HostLayer,
    given: &'c HostActivations,
    caches: &'c Caches,
    chosen: &'c [i32],
    attended: &'c [bf16],
}

impl Outcome {
    /// Computes the tokens of the last pass anew, in float64 and token by token, from what was given and
    /// from the caches: keys, entries, choices, attention. Gives the largest difference of
    /// attention, of a head's norm.
    ///
    /// # Errors
    ///
    /// What differs first, in words.
    pub fn verify(&self, case: &Case) -> Result<f64, String> {
        verify(case, self)
    }
}

fn verify(case: &Case, outcome: &Outcome) -> Result<f64, String> {
    let passes = case.passes(false);
    let (Some(given), Some(found)) = (passes.get(LAST), outcome.passes.get(LAST)) else {
        return Err("the last pass was not run".into());
    };
    let mut worst = 0.0_f64;
    let layers = case.layers.iter().zip(&given.layers).zip(&outcome.caches);
    let left = found.chosen.iter().zip(&found.attended);
    for (((layer, given), caches), (chosen, attended)) in layers.zip(left) {
        let bench = Bench { layer, given, caches, chosen, attended };
        for (row, (request, position)) in tokens_of(LAST).enumerate() {
            let token = Token { request, position, row };
            let off = bench.token(token).map_err(|what| {
                format!("layer {}, position {position} of request {request}: {what}", layer.index)
            })?;
            worst = worst.max(off);
        }
    }
    Ok(worst)
}

impl Bench<'_> {
    /// Checks all that a token wrote; gives how far its attention is off.
    fn token(&self, token: Token) -> Result<f64, String> {
        self.row(token)?;
        if self.layer.ratio != 0 {
            self.compressed(token)?;
        }
        if self.layer.ratio == 4 {
            self.choice(token)?;
        }
        self.attention(token)
    }

    /// The token's own row in the window's cache.
    fn row(&self, token: Token) -> Result<(), String> {
        let mut wanted = wide(row(&self.given.kv.values, token.row, 512));
        normed(&mut wanted, Some(&self.layer.weights.kv_norm.values));
        rotate(&mut wanted, self.layer.ratio, token.position);
        near("its row", &wanted, &self.window(token.request, token.position)?, STORED)
    }

    fn window(&self, request: usize, position: usize) -> Result<Vec<f64>, String> {
        let slot = Some(window_slot(request, position));
        entry(&window_layout(), &self.caches.window, slot, decode_main).ok_or("no row".into())
    }

    /// What the token saved, and the entries that it finished.
    fn compressed(&self, token: Token) -> Result<(), String> {
        let HostLayer { ratio, weights, .. } = self.layer;
        let ratio = *ratio;
        let wanted = saved(&self.given.kv_score.values, &weights.ape.values, token, ratio);
        let slot = state_slot(ratio, token.request, token.position);
        if wanted != row(&self.caches.state, slot, wanted.len()) {
            return Err("its state is not what was projected".into());
        }
        if !(token.position + 1).is_multiple_of(ratio) {
            return Ok(());
        }
        let number = token.position / ratio;
        let finish = |state: &[f32], width: usize, weights: &[f32]| {
            let mut wanted = pooled(state, token, ratio, width);
            normed(&mut wanted, Some(weights));
            rotate(&mut wanted, ratio, number * ratio);
            wanted
        };
        let slot = entry_slot(ratio, token.request, number);
        let wanted = finish(&self.caches.state, 512, &weights.norm.values);
        let found = entry(&entry_layout(ratio), &self.caches.entries, slot, decode_main);
        near("the entry it finishes", &wanted, &found.unwrap_or_default(), STORED)?;
        if ratio == 4 {
            let key = saved(&self.given.key_kv_score.values, &weights.key_ape.values, token, 4);
            let at = state_slot(4, token.request, token.position);
            if key != row(&self.caches.key_state, at, key.len()) {
                return Err("its key's state is not what was projected".into());
            }
            let wanted = finish(&self.caches.key_state, 128, &weights.key_norm.values);
            let found = entry(&key_layout(), &self.caches.keys, slot, decode_mxfp4);
            // One bit of mantissa: a quarter of the value at most.
            near("the key it finishes", &wanted, &found.unwrap_or_default(), 0.2)?;
        }
        Ok(())
    }

    /// The indexer's choice: the entries of the largest logits.
    fn choice(&self, token: Token) -> Result<(), String> {
        let heads = HEADS;
        let queries = (0..heads).map(|head| {
            let mut query = wide(row(&self.given.index_q.values, token.row * heads + head, 128));
            rotate(&mut query, 4, token.position);
            let narrow: Vec<f32> = query.iter().map(|x| bf16::from_f64(*x).to_f32()).collect();
            let (mut codes, mut scales, mut back) = ([0; 64], [0; 4], [0.0; 128]);
            encode_mxfp4(&narrow, &mut codes, &mut scales);
            decode_mxfp4(&codes, &scales, &mut back);
            back.map(f64::from)
        });
        let weights = row(&self.given.index_weights.values, token.row, heads);
        let queries: Vec<_> = queries.zip(weights).collect();
        let logit = |number: usize| {
            let slot = entry_slot(4, token.request, number);
            let key = entry(&key_layout(), &self.caches.keys, slot, decode_mxfp4)?;
            let terms = queries.iter().map(|(query, weight)| {
                let dot: f64 = query.iter().zip(&key).map(|(q, k)| q * k).sum();
                f64::from(**weight) * f64::from(INDEX_SCALE * HEAD_SCALE) * dot.max(0.0)
            });
            Some((terms.sum::<f64>(), number))
        };
        let mut logits: Vec<(f64, usize)> =
            (0..(token.position + 1) / 4).filter_map(logit).collect();
        logits.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(first.cmp(second)));
        let mut wanted: Vec<i32> = logits
            .iter()
            .take(TOPK)
            .filter_map(|(_, number)| i32::try_from(*number).ok())
            .collect();
        wanted.sort_unstable();
        wanted.resize(TOPK, -1);
        if wanted == row(self.chosen, token.row, TOPK) {
            Ok(())
        } else {
            Err("other entries were chosen than those of the largest logits".into())
        }
    }

    /// Attention over all that the token sees.
    fn attention(&self, token: Token) -> Result<f64, String> {
        let first = (token.position + 1).saturating_sub(WINDOW);
        let mut keys = (first..=token.position)
            .map(|position| self.window(token.request, position))
            .collect::<Result<Vec<_>, _>>()?;
        let ratio = self.layer.ratio;
        let chosen: Vec<usize> = match ratio {
            4 => row(self.chosen, token.row, TOPK)
                .iter()
                .flat_map(|it| usize::try_from(*it))
                .collect(),
            128 => (0..(token.position + 1) / 128).collect(),
            _ => Vec::new(),
        };
        for number in chosen {
            let slot = entry_slot(ratio, token.request, number);
            let found = entry(&entry_layout(ratio), &self.caches.entries, slot, decode_main);
            keys.push(found.ok_or("no entry")?);
        }
        let mut worst = 0.0_f64;
        for (head, sink) in self.layer.weights.sinks.values.iter().enumerate() {
            let at = token.row * HEADS + head;
            let mut query = wide(row(&self.given.q.values, at, 512));
            normed(&mut query, None);
            rotate(&mut query, ratio, token.position);
            let dot = |key: &Vec<f64>| key.iter().zip(&query).map(|(k, q)| k * q).sum::<f64>();
            let weights: Vec<f64> =
                keys.iter().map(|key| (f64::from(SCALE) * dot(key)).exp()).collect();
            let all = weights.iter().sum::<f64>() + f64::from(*sink).exp();
            let mut wanted = vec![0.0; 512];
            for (key, weight) in keys.iter().zip(&weights) {
                wanted.iter_mut().zip(key).for_each(|(sum, k)| *sum += weight / all * k);
            }
            let found = wide(row(self.attended, at, 512));
            near("attention", &wanted, &found, ATTENDED)?;
            worst = worst.max(distance(&wanted, &found));
        }
        Ok(worst)
    }
}

fn near(what: &str, wanted: &[f64], found: &[f64], most: f64) -> Result<(), String> {
    let off = distance(wanted, found);
    // Not a number is not near.
    if wanted.len() == found.len() && off <= most {
        return Ok(());
    }
    Err(format!("{what} is off by {off:.1e} of its norm; at most {most:.1e} was expected"))
}
