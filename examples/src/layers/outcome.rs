//! What passes left behind, and how it compares with what another device left.

use scratchpool::{Device, bf16};
use scratchpool_kernels::Error;

use super::case::{HEADS, TOPK};
use super::model::{Model, Results};

/// The norm of the difference, of the first one's norm.
pub(super) fn distance(wanted: &[f64], found: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let off = norm(&mut wanted.iter().zip(found).map(|(a, b)| a - b));
    let all = norm(&mut wanted.iter().copied());
    if off == 0.0 { 0.0 } else { off / all }
}

/// What a pass left behind, for each layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) chosen: Vec<Vec<i32>>,
    pub(super) attended: Vec<Vec<bf16>>,
}

/// A layer's caches after all passes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Caches {
    pub(super) window: Vec<u8>,
    pub(super) state: Vec<f32>,
    pub(super) entries: Vec<u8>,
    pub(super) key_state: Vec<f32>,
    pub(super) keys: Vec<u8>,
}

/// What all passes left behind.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub(super) passes: Vec<Found>,
    pub(super) caches: Vec<Caches>,
}

/// How far attention may be from the host's, of a head's norm: as far as the kernel's own tolerance, and the
/// rounding of both to bf16.
const TOLERANCE: f64 = 1e-2;

impl Outcome {
    /// Compares with what another device found: choices and caches byte for byte, attention within its
    /// tolerance. Gives the largest difference, of a head's norm.
    ///
    /// # Errors
    ///
    /// What differs first, in words.
    pub fn compare(&self, found: &Self) -> Result<f64, String> {
        let mut worst = 0.0_f64;
        for (pass, (here, there)) in self.passes.iter().zip(&found.passes).enumerate() {
            if here.chosen != there.chosen {
                return Err(format!("pass {pass}: other entries were chosen"));
            }
            for (layer, (here, there)) in here.attended.iter().zip(&there.attended).enumerate() {
                if here.len() != there.len() {
                    return Err(format!("pass {pass}, layer {layer}: other rows"));
                }
                for (head, (here, there)) in here.chunks(512).zip(there.chunks(512)).enumerate() {
                    let wide = |row: &[bf16]| row.iter().map(|x| x.to_f64()).collect::<Vec<_>>();
                    let off = distance(&wide(here), &wide(there));
                    if off.is_nan() || off > TOLERANCE {
                        let (token, head) = (head / HEADS, head % HEADS);
                        return Err(format!(
                            "pass {pass}, layer {layer}, token {token}, head {head}: attention is off by {off:.1e}"
                        ));
                    }
                    worst = worst.max(off);
                }
            }
        }
        let counts = [self.passes.len(), self.caches.len()];
        if counts != [found.passes.len(), found.caches.len()] {
            return Err("other passes or layers".into());
        }
        match self.caches.iter().zip(&found.caches).position(|(here, there)| here != there) {
            Some(layer) => Err(format!("the caches of layer {layer} differ")),
            None => Ok(worst),
        }
    }
}

impl<D: Device> Results<D> {
    /// The first `rows` rows, as the host sees them.
    pub(super) fn read(&self, load: &D::Stream, rows: usize) -> Result<Found, Error> {
        let mut found = Found { chosen: Vec::new(), attended: Vec::new() };
        for (chosen, attended) in self.chosen.iter().zip(&self.attended) {
            let (mut chosen, mut attended) = (chosen.to_vec(load)?, attended.to_vec(load)?);
            chosen.truncate(rows * TOPK);
            attended.truncate(rows * HEADS * 512);
            found.chosen.push(chosen);
            found.attended.push(attended);
        }
        Ok(found)
    }
}

impl<D: Device> Model<D> {
    /// All caches, as the host sees them.
    pub(super) fn caches(&self, load: &D::Stream) -> Result<Vec<Caches>, Error> {
        self.layers
            .iter()
            .map(|layer| {
                Ok(Caches {
                    window: layer.window.to_vec(load)?,
                    state: layer.state.to_vec(load)?,
                    entries: layer.entries.to_vec(load)?,
                    key_state: layer.key_state.to_vec(load)?,
                    keys: layer.keys.to_vec(load)?,
                })
            })
            .collect()
    }
}
