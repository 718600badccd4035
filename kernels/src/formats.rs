//! The narrow number formats of the caches and of the indexer, bit for bit.
//!
//! | format | bits | values | who uses it |
//! | --- | --- | --- | --- |
//! | bf16 | 1 + 8 + 7 | the upper half of an f32 | queries, RoPE part of cache rows; from `half` |
//! | E4M3 | 1 + 4 + 3, bias 7 | ±448, no infinity, NaN at `S.1111.111` | cache values, index queries and keys |
//! | E8M0 | 8, bias 127 | powers of two, NaN at 255 | block scales |
//! | E2M1 | 1 + 2 + 1, bias 1 | 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives | MXFP4 codes |
//!
//! Sources: OCP 8-bit Floating Point Specification 1.0 (E4M3), OCP Microscaling Formats 1.0 (E8M0,
//! E2M1, MXFP4). Conversions round to nearest, ties to even, and saturate. Those to bf16 are
//! `half`'s; the others are here because they are a dozen lines each and the tests below hold
//! them to the definitions, over all codes and over every bf16 input.
//!
//! # What is not finite
//!
//! The device follows the same table, so that poison in the input shows in the output.
//!
//! | input | E4M3 code | E2M1 code | block scale |
//! | --- | --- | --- | --- |
//! | NaN element (in bf16: `0x7fff`) | `0x7f`, NaN | 7, that is 6: the format has no NaN | NaN elements do not count |
//! | infinite element of an E4M3 block | `0x7f` | | 255, NaN, and finite elements become ±0 |
//! | infinite element of an E2M1 block | | ±6 | 254, the largest |

use core::cmp::Ordering;

pub use half::bf16;

/// The largest finite E4M3 value.
pub const E4M3_MAX: f32 = 448.0;
/// The largest E2M1 value.
pub const E2M1_MAX: f32 = 6.0;
/// The least `amax` of an E4M3 block: smaller blocks share its scale.
pub const E4M3_AMAX_FLOOR: f32 = 1e-4;

/// The E4M3 code nearest to `x`; ties to even, saturating at ±448, NaN to `0x7f`.
///
/// ```
/// use scratchpool_kernels::formats::encode_e4m3;
/// assert_eq!(encode_e4m3(1.0), 0x38);
/// assert_eq!(encode_e4m3(-1e9), 0xfe);
/// assert_eq!(encode_e4m3(17.0), 0x58);   // halfway between 16 and 18: the even one
/// assert_eq!(encode_e4m3(f32::NAN), 0x7f);
/// ```
pub fn encode_e4m3(x: f32) -> u8 {
    // At 2^14 one unit in the last place of an f32 is 2^-9, the step of E4M3's subnormals.
    const STEP_AT: f32 = 16384.0;
    const LEAST_NORMAL: f32 = 0.015_625;
    if x.is_nan() {
        return 0x7f;
    }
    let magnitude = x.abs();
    let code = if magnitude < LEAST_NORMAL {
        (magnitude + STEP_AT).to_bits() - STEP_AT.to_bits()
    } else {
        let bits = magnitude.to_bits();
        let rounded = bits + 0x7_ffff + ((bits >> 20) & 1);
        ((rounded >> 20) - ((127 - 7) << 3)).min(0x7e)
    };
    low_byte(code) | sign(x) << 7
}

/// The value of an E4M3 code.
pub fn decode_e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(code >> 3 & 15), u32::from(code & 7));
    let magnitude = match (exponent, mantissa) {
        (15, 7) => f32::NAN,
        (0, _) => f32::from(code & 7) / 512.0,
        _ => f32::from_bits((exponent + 127 - 7) << 23 | mantissa << 20),
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The E2M1 code nearest to `x`, in the low four bits; ties to even, saturating at ±6.
///
/// ```
/// use scratchpool_kernels::formats::encode_e2m1;
/// assert_eq!(encode_e2m1(2.5), 4);       // halfway between 2 and 3: the even one
/// assert_eq!(encode_e2m1(-100.0), 15);
/// ```
pub fn encode_e2m1(x: f32) -> u8 {
    if x.is_nan() {
        return 7;
    }
    let m = x.abs();
    let passed = [m > 0.25, m >= 0.75, m > 1.25, m >= 1.75, m > 2.5, m >= 3.5, m > 5.0];
    passed.into_iter().map(u8::from).sum::<u8>() | sign(x) << 3
}

/// The value of an E2M1 code, in the low four bits.
pub fn decode_e2m1(code: u8) -> f32 {
    let magnitude = match code & 7 {
        0 => 0.0,
        1 => 0.5,
        2 => 1.0,
        3 => 1.5,
        4 => 2.0,
        5 => 3.0,
        6 => 4.0,
        _ => 6.0,
    };
    if code & 8 == 0 { magnitude } else { -magnitude }
}

/// The scale of a block: `2^exponent`, as an E8M0 byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockScale(u8);

impl BlockScale {
    /// The scale of an E4M3 block whose largest magnitude is `amax`:
    /// `e = ceil(log2(max(amax, 1e-4) / 448))`, the byte `clamp(e + 127, 0, 255)`.
    ///
    /// The floor is on `amax`, so the smallest exponent is -22. For bf16 `amax` the device's
    /// rounding of the quotient gives the same byte (tested over all).
    ///
    /// ```
    /// use scratchpool_kernels::formats::BlockScale;
    /// assert_eq!(BlockScale::e4m3(448.0).byte(), 127);
    /// assert_eq!(BlockScale::e4m3(449.0).byte(), 128);
    /// assert_eq!(BlockScale::e4m3(0.0).byte(), 105);
    /// ```
    pub fn e4m3(amax: f32) -> Self {
        Self(ceil_log2_byte(amax.max(E4M3_AMAX_FLOOR) * (1.0 / E4M3_MAX)))
    }

    /// The scale of an MXFP4 block: `e = clamp(ceil(log2(max(amax, 6 * 2^-126) / 6)), -127, 127)`.
    ///
    /// ```
    /// use scratchpool_kernels::formats::BlockScale;
    /// assert_eq!(BlockScale::mxfp4(6.0).byte(), 127);
    /// assert_eq!(BlockScale::mxfp4(0.0).byte(), 1);
    /// ```
    pub fn mxfp4(amax: f32) -> Self {
        let floor = E2M1_MAX * f32::MIN_POSITIVE;
        Self(ceil_log2_byte(amax.max(floor) / E2M1_MAX).min(254))
    }

    /// A scale that was stored.
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// The E8M0 byte.
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// `2^exponent`; infinite for byte 255, which is what the formula gives before it is stored.
    pub fn value(self) -> f32 {
        match self.0 {
            0 => f32::from_bits(1 << 22),
            byte => f32::from_bits(u32::from(byte) << 23),
        }
    }

    /// `2^-exponent`, exact; 0 for byte 255.
    pub fn inverse(self) -> f32 {
        match self.0 {
            255 => 0.0,
            254 => f32::from_bits(1 << 22),
            byte => f32::from_bits((254 - u32::from(byte)) << 23),
        }
    }
}

/// `ceil(log2(x)) + 127` of a positive normal or infinite `x`: one more than the exponent field
/// unless all mantissa bits are 0.
fn ceil_log2_byte(x: f32) -> u8 {
    low_byte((x.to_bits() + 0x7f_ffff) >> 23)
}

/// The largest magnitude, NaN not counted; 0 of none.
pub fn amax(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |amax: f32, x| amax.max(x.abs()))
}

/// The bf16 nearest to `x`, ties to even; any NaN becomes `0x7fff`, as on the device.
///
/// ```
/// use scratchpool_kernels::formats::to_bf16;
/// assert_eq!(to_bf16(1.0).to_bits(), 0x3f80);
/// assert_eq!(to_bf16(-f32::NAN).to_bits(), 0x7fff);
/// ```
pub fn to_bf16(x: f32) -> bf16 {
    if x.is_nan() { bf16::from_bits(0x7fff) } else { bf16::from_f32(x) }
}

/// To bf16 and back.
pub fn round_to_bf16(x: f32) -> f32 {
    to_bf16(x).to_f32()
}

/// Orders floats by value, with NaN last, for the largest first.
pub(crate) fn descending(a: f32, b: f32) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => b.partial_cmp(&a).unwrap_or(Ordering::Equal),
        (a, b) => a.cmp(&b),
    }
}

fn sign(x: f32) -> u8 {
    u8::from(x.is_sign_negative())
}

const fn low_byte(x: u32) -> u8 {
    let [low, ..] = x.to_le_bytes();
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All finite bf16 values, both signs.
    fn all_bf16() -> impl Iterator<Item = f32> {
        (0..=u16::MAX).map(|bits| bf16::from_bits(bits).to_f32()).filter(|x| x.is_finite())
    }

    /// The code whose value is nearest, by search; of two, the even one.
    fn nearest(x: f32, codes: core::ops::Range<u8>, decode: fn(u8) -> f32) -> u8 {
        // Beyond the largest value all distances look the same in f64.
        let x = x.abs().min(decode(codes.end - 1));
        let distance = |code: u8| (f64::from(decode(code)) - f64::from(x)).abs();
        codes
            .min_by(|&a, &b| {
                distance(a).partial_cmp(&distance(b)).unwrap().then((a & 1).cmp(&(b & 1)))
            })
            .unwrap()
    }

    #[test]
    fn every_e4m3_code_is_what_the_definition_says() {
        for code in 0..=u8::MAX {
            let (e, m) = (i32::from(code >> 3 & 15), f64::from(code & 7));
            let magnitude = match e {
                15 if code & 7 == 7 => f64::NAN,
                0 => m / 8.0 * 2f64.powi(-6),
                _ => (1.0 + m / 8.0) * 2f64.powi(e - 7),
            };
            let value = f64::from(decode_e4m3(code));
            assert!(value.abs() == magnitude || value.is_nan() && magnitude.is_nan(), "{code:#x}");
            if !value.is_nan() {
                assert_eq!(value.is_sign_negative(), code >= 128, "{code:#x}");
                assert_eq!(encode_e4m3(decode_e4m3(code)), code);
            }
        }
    }

    #[test]
    fn every_e2m1_code_survives_a_round_trip() {
        for code in 0..16 {
            let (e, m) = (i32::from(code >> 1 & 3), f64::from(code & 1));
            let magnitude = if e == 0 { m / 2.0 } else { (1.0 + m / 2.0) * 2f64.powi(e - 1) };
            assert_eq!(f64::from(decode_e2m1(code)).abs(), magnitude);
            assert_eq!(encode_e2m1(decode_e2m1(code)), code);
        }
    }

    #[test]
    fn encoding_gives_the_nearest_code_for_every_bf16_value() {
        for x in all_bf16() {
            let e4m3 = nearest(x, 0..0x7f, decode_e4m3) | sign(x) << 7;
            assert_eq!(encode_e4m3(x), e4m3, "{x:e}");
            let e2m1 = nearest(x, 0..8, decode_e2m1) | sign(x) << 3;
            assert_eq!(encode_e2m1(x), e2m1, "{x:e}");
        }
    }

    #[test]
    fn encoding_is_exact_at_and_beside_every_midpoint() {
        for (top, decode, encode, sign_bit) in [
            (0x7e_u8, decode_e4m3 as fn(u8) -> f32, encode_e4m3 as fn(f32) -> u8, 0x80),
            (7, decode_e2m1, encode_e2m1, 8),
        ] {
            for code in 0..top {
                let middle = f32::midpoint(decode(code), decode(code + 1));
                let even = code + (code & 1);
                for (x, expected) in
                    [(middle.next_down(), code), (middle, even), (middle.next_up(), code + 1)]
                {
                    assert_eq!(encode(x), expected, "{x:e}");
                    assert_eq!(encode(-x), expected | sign_bit, "-{x:e}");
                }
            }
        }
    }

    #[test]
    fn block_scales_are_the_least_power_that_holds_every_bf16_amax() {
        for amax in all_bf16().filter(|x| *x >= 0.0) {
            let least = |max: f64, floor: f64| {
                let amax = f64::from(amax).max(floor);
                (-127..=127).find(|&e| max * 2f64.powi(e) >= amax).unwrap()
            };
            let e = least(448.0, f64::from(E4M3_AMAX_FLOOR));
            assert_eq!(i32::from(BlockScale::e4m3(amax).byte()), e + 127, "{amax:e}");
            let e = least(6.0, 6.0 * 2f64.powi(-126));
            assert_eq!(i32::from(BlockScale::mxfp4(amax).byte()), e + 127, "{amax:e}");
        }
    }

    #[test]
    fn dividing_by_the_maximum_or_multiplying_by_its_inverse_gives_the_same_scale() {
        for amax in all_bf16().filter(|x| *x >= 0.0) {
            let floored = amax.max(E4M3_AMAX_FLOOR);
            assert_eq!(ceil_log2_byte(floored / 448.0), ceil_log2_byte(floored * (1.0 / 448.0)));
            let floored = amax.max(6.0 * f32::MIN_POSITIVE);
            assert_eq!(ceil_log2_byte(floored / 6.0), ceil_log2_byte(floored * (1.0 / 6.0)));
        }
    }

    #[test]
    fn scale_and_inverse_multiply_to_one() {
        for byte in 0..255 {
            let scale = BlockScale::from_byte(byte);
            assert_eq!(scale.value() * scale.inverse(), 1.0, "{byte}");
        }
    }

    #[test]
    fn what_is_not_finite_follows_the_table() {
        assert_eq!(encode_e4m3(f32::INFINITY), 0x7e);
        assert_eq!(encode_e4m3(-f32::NAN), 0x7f);
        assert_eq!(encode_e2m1(f32::NEG_INFINITY), 15);
        assert_eq!(BlockScale::e4m3(f32::INFINITY).byte(), 255);
        assert_eq!(encode_e4m3(f32::INFINITY * BlockScale::from_byte(255).inverse()), 0x7f);
        assert_eq!(BlockScale::mxfp4(f32::INFINITY).byte(), 254);
        assert_eq!(amax(&[1.0, f32::NAN, -3.0]), 3.0);
    }

    #[test]
    fn bf16_of_half_rounds_to_nearest_even_on_both_sides_of_every_midpoint() {
        for bits in 0..0x7f7f_u16 {
            let (low, high) = (bf16::from_bits(bits), bf16::from_bits(bits + 1));
            let middle = f32::from_bits(u32::from(bits) << 16 | 0x8000);
            assert_eq!(bf16::from_f32(middle.next_down()), low);
            assert_eq!(bf16::from_f32(middle.next_up()), high);
            assert_eq!(bf16::from_f32(middle).to_bits() & 1, 0);
        }
    }
}
