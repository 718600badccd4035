//! Offsets from an order: the one formula that both compile time and start-up use.
//!
//! A packing fixes, for every pair of interfering buffers, which of the two is below. Given that,
//! the offsets follow from the sizes: each buffer lies at the highest end of those below it, rounded
//! up to its alignment. This holds for *any* sizes, so a layout whose sizes are known only when the
//! pool is allocated is as safe as a constant one: two interfering buffers are always a below and an
//! above, whatever the numbers.
//!
//! Formula: `offset[j] = max over i below j of align_up(offset[i] + bytes[i], align[j])`.

/// Writes each buffer's offset and returns the arena's size; `None` beyond 63 bits or where the
/// tables do not fit together.
///
/// `order` lists the buffers so that each comes after all that are below it; `below[j]` are the
/// buffers below j. `bytes` are rounded sizes, `aligns` powers of two.
///
/// ```
/// use scratchpool_tables::offsets::assign;
/// let mut offsets = [0; 3];
/// // 1 and 2 both lie on 0, and share bytes with each other.
/// let total = assign(&[0, 1, 2], &[&[], &[0], &[0]], &[256, 512, 1024], &[256; 3], &mut offsets);
/// assert_eq!((total, offsets), (Some(1280), [0, 256, 256]));
/// ```
#[expect(clippy::indexing_slicing, reason = "each index is checked against the length before")]
pub const fn assign(
    order: &[u16],
    below: &[&[u16]],
    bytes: &[u64],
    aligns: &[u64],
    offsets: &mut [u64],
) -> Option<u64> {
    let count = bytes.len();
    if aligns.len() != count || offsets.len() != count || below.len() != count {
        return None;
    }
    let mut total = 0;
    let mut position = 0;
    while position < order.len() {
        let buffer = order[position] as usize;
        if buffer >= count {
            return None;
        }
        let mut offset = 0;
        let mut each = 0;
        while each < below[buffer].len() {
            let under = below[buffer][each] as usize;
            if under >= count {
                return None;
            }
            let end = offsets[under] + bytes[under];
            if end > offset {
                offset = end;
            }
            each += 1;
        }
        let Some(offset) = align_up(offset, aligns[buffer]) else { return None };
        let Some(end) = offset.checked_add(bytes[buffer]) else { return None };
        if end > LARGEST {
            return None;
        }
        offsets[buffer] = offset;
        if end > total {
            total = end;
        }
        position += 1;
    }
    Some(total)
}

/// The largest arena: 63 bits.
pub const LARGEST: u64 = u64::MAX >> 1;

/// `value` rounded up to a multiple of `align`, a power of two; `None` on overflow.
pub const fn align_up(value: u64, align: u64) -> Option<u64> {
    if !align.is_power_of_two() {
        return None;
    }
    match value.checked_add(align - 1) {
        Some(sum) => Some(sum & !(align - 1)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut offsets = [0; 2];
        let half = 1 << 62;
        assert_eq!(assign(&[0, 1], &[&[], &[0]], &[half, half], &[1, 1], &mut offsets), None);
        assert_eq!(
            assign(&[0, 1], &[&[], &[0]], &[half, half - 1], &[1, 1], &mut offsets),
            Some(LARGEST)
        );
        assert_eq!(assign(&[2], &[&[], &[0]], &[1, 1], &[1, 1], &mut offsets), None);
        assert_eq!(assign(&[0], &[&[], &[0]], &[1, 1], &[3, 1], &mut offsets), None);
    }
}
