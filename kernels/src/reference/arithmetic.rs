//! Arithmetic that the device repeats operation by operation.
//!
//! Sums and exponentials depend on the order of operations. To be comparable bit for bit, the
//! order is part of the definition here, chosen so that a warp can follow it: each of 32 lanes adds
//! a few elements in sequence with fused multiply-add, then halves are added (lane `i` and lane
//! `i + 16`, then `i + 8`, …). Square root and division are correctly rounded.

/// A warp's sum of 32 partial sums: halves are added until one is left.
fn halve(mut lanes: [f32; 32]) -> f32 {
    for half in [16, 8, 4, 2, 1] {
        let (low, high) = lanes.split_at_mut(half);
        for (a, b) in low.iter_mut().zip(high) {
            *a += *b;
        }
    }
    let [sum, ..] = lanes;
    sum
}

fn squares<'x>(values: impl IntoIterator<Item = &'x f32>) -> f32 {
    values.into_iter().fold(0.0, |sum, x| x.mul_add(*x, sum))
}

/// The sum of squares of a query row of 512: lane `i` adds elements `8i..8i+8`, then
/// `256+8i..256+8i+8`, as a warp loads them.
pub fn sum_of_squares_by_chunks(row: &[f32]) -> f32 {
    let (low, high) = row.split_at(row.len() / 2);
    let mut lanes = [0.0; 32];
    for (lane, (a, b)) in lanes.iter_mut().zip(low.chunks(8).zip(high.chunks(8))) {
        *lane = squares(a.iter().chain(b));
    }
    halve(lanes)
}

/// The sum of squares of a compressed row: for each 128 elements in turn, lane `i` adds elements
/// `4i..4i+4`; the warps' sums are added in sequence.
pub fn sum_of_squares_by_quads(row: &[f32]) -> f32 {
    let mut sum = 0.0;
    for warp in row.chunks(128) {
        let mut lanes = [0.0; 32];
        for (lane, quad) in lanes.iter_mut().zip(warp.chunks(4)) {
            *lane = squares(quad);
        }
        sum += halve(lanes);
    }
    sum
}

/// `1 / sqrt(sum / width + eps)`. The widths are powers of two, so the mean is exact.
pub fn inverse_rms(sum_of_squares: f32, width: u16, eps: f32) -> f32 {
    1.0 / (sum_of_squares / f32::from(width) + eps).sqrt()
}

/// `exp(x)` of `x <= 0`, within 2 units in the last place; 0 below -87, where softmax weights are
/// below 2^-125 of the largest. NaN stays NaN.
///
/// The usual reduction: `n = round(x / ln 2)` by adding 1.5 * 2^23, `r = x - n ln 2` in two
/// parts, a polynomial of degree 6 in `r`, times `2^n` put together from bits.
pub fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_145_75;
    const LN2_LOW: f32 = 1.428_606_8e-6;
    const COEFFICIENTS: [f32; 6] = [8.333_334e-3, 4.166_666_8e-2, 1.666_666_7e-1, 0.5, 1.0, 1.0];
    if x < -87.0 {
        return 0.0;
    }
    let shifted = x.mul_add(core::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let value = COEFFICIENTS.into_iter().fold(1.388_888_9e-3, |sum: f32, c| sum.mul_add(r, c));
    value * f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_of_the_last_place() {
        let mut x = 0.0_f32;
        while x > -87.0 {
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) / exact - 1.0).abs();
            assert!(error < 2.0 * f64::from(f32::EPSILON), "{x} {error:e}");
            x -= 0.000_731;
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-87.5), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sums_of_squares_agree_with_float64() {
        let row: Vec<f32> = (0..512_u16).map(|i| f32::from(i % 97) * 0.37 - 11.0).collect();
        let exact: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        for sum in [sum_of_squares_by_chunks(&row), sum_of_squares_by_quads(&row)] {
            assert!((f64::from(sum) / exact - 1.0).abs() < 1e-6);
        }
        assert_eq!(sum_of_squares_by_chunks(&[2.0; 512]), 2048.0);
        assert_eq!(sum_of_squares_by_quads(&[2.0; 128]), 512.0);
    }
}
