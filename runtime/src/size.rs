//! Sizes that only the running program knows: extents from dims, and offsets from extents.
//!
//! Everything here is a `const fn`, so a layout is a constant where its dims are. Values are 63-bit
//! integers carried as `Option`: `None` is an overflow, an inexact division or a zero divisor, and
//! stays `None` to the end, where it becomes an error that names the buffer. The rules are those of
//! the planner's expressions.
//!
//! Invariant of [`lay`]: buffers that interfere are a *below* and an *above* in the tables it is
//! given, and the above starts at or after the end of the below, whatever the sizes.

use scratchpool_tables::offsets::{LARGEST, align_up as round_up, assign};

/// A size at which a buffer is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// A dim below 1 that is an extent itself, or one beyond 63 bits.
    #[error("dim `{dim}` is {value}; as an extent of `{buffer}` it must be 1 to 2^63 - 1")]
    Dim {
        /// The dim.
        dim: &'static str,
        /// Its value.
        value: usize,
        /// The first buffer of which it is an extent.
        buffer: &'static str,
    },
    /// An extent that is no whole number of at least 1.
    #[error(
        "with these dims an extent of `{buffer}` is not a whole number of at least 1; check the \
         dims against the shape that the pool declares"
    )]
    Extent {
        /// The buffer.
        buffer: &'static str,
    },
    /// A buffer beyond 63 bits.
    #[error("with these dims `{buffer}` takes more than 2^63 - 1 bytes")]
    Bytes {
        /// The buffer.
        buffer: &'static str,
    },
    /// An offset that is no multiple of the element's size. Only where the pool's alignment is
    /// below that size.
    #[error(
        "with these dims `{buffer}` lies where its elements are not aligned; raise the pool's \
         `align` to the size of its largest element"
    )]
    Element {
        /// The buffer.
        buffer: &'static str,
    },
    /// An arena beyond 63 bits.
    #[error("with these dims the arena takes more than 2^63 - 1 bytes")]
    Arena,
}

/// A value, or none.
pub type Value = Option<i64>;

/// An integer of the declaration.
pub const fn int(value: i64) -> Value {
    Some(value)
}

/// A dim given by the caller.
pub const fn dim(value: usize) -> Value {
    let wide = value as u64;
    if wide > LARGEST {
        return None;
    }
    Some(wide.cast_signed())
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident($left:ident, $right:ident) $body:expr;)*) => {$(
        $(#[$doc])*
        pub const fn $name(left: Value, right: Value) -> Value {
            match (left, right) {
                (Some($left), Some($right)) => $body,
                _ => None,
            }
        }
    )*};
}

binary! {
    /// `left + right`.
    add(left, right) left.checked_add(right);
    /// `left - right`.
    sub(left, right) left.checked_sub(right);
    /// `left * right`.
    mul(left, right) left.checked_mul(right);
    /// `left / right`, exact.
    div(left, right) match left.checked_rem(right) {
        Some(0) => left.checked_div(right),
        _ => None,
    };
    /// `left % right`, with the sign of `left`.
    rem(left, right) match (right, left.checked_rem(right)) {
        (0, _) => None,
        (_, Some(rest)) => Some(rest),
        // The remainder by -1, where the quotient would not fit.
        (_, None) => Some(0),
    };
    /// The smaller.
    min(left, right) Some(if left < right { left } else { right });
    /// The larger.
    max(left, right) Some(if left > right { left } else { right });
    /// `left / right` rounded up; `right` is at least 1.
    ceil_div(left, right) if right < 1 {
        None
    } else {
        Some(left.div_euclid(right) + (left.rem_euclid(right) != 0) as i64)
    };
    /// The least multiple of `right` that is not below `left`; `right` is at least 1.
    align_up(left, right) mul(ceil_div(Some(left), Some(right)), Some(right));
    /// 1 if equal.
    eq(left, right) Some((left == right) as i64);
    /// 1 if different.
    ne(left, right) Some((left != right) as i64);
    /// 1 if below.
    lt(left, right) Some((left < right) as i64);
    /// 1 if not above.
    le(left, right) Some((left <= right) as i64);
    /// 1 if above.
    gt(left, right) Some((left > right) as i64);
    /// 1 if not below.
    ge(left, right) Some((left >= right) as i64);
}

/// 1 if both are not 0. The right side counts only where the left side is not 0.
pub const fn and(left: Value, right: Value) -> Value {
    match (left, right) {
        (Some(0), _) => Some(0),
        (Some(_), Some(right)) => Some((right != 0) as i64),
        _ => None,
    }
}

/// 1 if one is not 0. The right side counts only where the left side is 0.
pub const fn or(left: Value, right: Value) -> Value {
    match (left, right) {
        (Some(0), Some(right)) => Some((right != 0) as i64),
        (Some(0) | None, _) => None,
        (Some(_), _) => Some(1),
    }
}

/// `-value`.
pub const fn neg(value: Value) -> Value {
    match value {
        Some(value) => value.checked_neg(),
        None => None,
    }
}

/// 1 if 0, else 0.
pub const fn not(value: Value) -> Value {
    match value {
        Some(value) => Some((value == 0) as i64),
        None => None,
    }
}

/// A dim given by the caller that is an extent of `buffer`.
///
/// # Errors
///
/// Below 1, or beyond 63 bits.
pub const fn whole(
    name: &'static str,
    value: usize,
    buffer: &'static str,
) -> Result<(), SizeError> {
    match dim(value) {
        Some(1..) => Ok(()),
        _ => Err(SizeError::Dim { dim: name, value, buffer }),
    }
}

/// An extent of a buffer.
///
/// # Errors
///
/// No whole number of at least 1, or more than an address.
pub const fn extent(buffer: &'static str, value: Value) -> Result<usize, SizeError> {
    match value {
        Some(value) if value >= 1 && value.cast_unsigned() <= usize::MAX as u64 => {
            #[expect(clippy::cast_possible_truncation, reason = "compared with usize::MAX above")]
            let extent = value.cast_unsigned() as usize;
            Ok(extent)
        }
        _ => Err(SizeError::Extent { buffer }),
    }
}

/// What one buffer needs.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    buffer: &'static str,
    bytes: Result<u64, SizeError>,
    /// Bytes of an element, a power of two.
    element: u64,
}

/// Bytes of a tensor with these extents and this element size; none if no step accesses it.
pub const fn need(buffer: &'static str, extents: &[Value], element: u64, accessed: bool) -> Need {
    let mut bytes = Some(element);
    let mut rest = extents;
    while let [first, tail @ ..] = rest {
        let extent = match extent(buffer, *first) {
            Ok(extent) => extent,
            Err(error) => return Need { buffer, bytes: Err(error), element },
        };
        bytes = match bytes {
            Some(bytes) => bytes.checked_mul(extent as u64),
            None => None,
        };
        rest = tail;
    }
    let bytes = match bytes {
        _ if !accessed => Ok(0),
        Some(bytes) => Ok(bytes),
        None => Err(SizeError::Bytes { buffer }),
    };
    Need { buffer, bytes, element }
}

/// Offsets and sizes.
#[derive(Clone, Copy, Debug)]
pub struct Laid<const B: usize> {
    /// Byte offset of each buffer.
    pub offsets: [usize; B],
    /// Size of the arena.
    pub total_bytes: u64,
    /// Size of the buffers apart.
    pub sum_bytes: u64,
}

/// Places buffers: `order` lists each after all `below` it; sizes are rounded up to `align`.
///
/// # Errors
///
/// The first buffer that is impossible, or an arena beyond 63 bits or beyond an address.
#[expect(clippy::indexing_slicing, reason = "every array has B entries and the loops stop there")]
pub const fn lay<const B: usize>(
    align: u64,
    order: &[u16],
    below: &[&[u16]; B],
    aligns: &[u64; B],
    needs: [Need; B],
) -> Result<Laid<B>, SizeError> {
    let mut bytes = [0; B];
    let mut sum_bytes: u64 = 0;
    let mut buffer = 0;
    while buffer < B {
        let name = needs[buffer].buffer;
        let needed = match needs[buffer].bytes {
            Ok(needed) => needed,
            Err(error) => return Err(error),
        };
        bytes[buffer] = match round_up(needed, align) {
            Some(rounded) if rounded <= LARGEST => rounded,
            _ => return Err(SizeError::Bytes { buffer: name }),
        };
        sum_bytes = match sum_bytes.checked_add(bytes[buffer]) {
            Some(sum) if sum <= LARGEST => sum,
            _ => return Err(SizeError::Arena),
        };
        buffer += 1;
    }
    let mut offsets = [0; B];
    let total_bytes = match assign(order, below, &bytes, aligns, &mut offsets) {
        Some(total) if total <= usize::MAX as u64 => total,
        _ => return Err(SizeError::Arena),
    };
    let mut addresses = [0; B];
    let mut buffer = 0;
    while buffer < B {
        #[expect(clippy::cast_possible_truncation, reason = "below the total, which fits usize")]
        let address = offsets[buffer] as usize;
        if !offsets[buffer].is_multiple_of(needs[buffer].element) {
            return Err(SizeError::Element { buffer: needs[buffer].buffer });
        }
        addresses[buffer] = address;
        buffer += 1;
    }
    Ok(Laid { offsets: addresses, total_bytes, sum_bytes })
}

/// Bytes of a tensor with these extents, or as many as there are.
pub fn tensor_bytes(extents: &[usize], element: u64) -> u64 {
    extents.iter().fold(element, |bytes, extent| bytes.saturating_mul(*extent as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_follow_the_planners_rules() {
        let int = Some;
        for (value, expected) in [
            (div(int(7), int(2)), None),
            (div(int(8), int(2)), Some(4)),
            (div(int(8), int(0)), None),
            (div(int(i64::MIN), int(-1)), None),
            (rem(int(-7), int(3)), Some(-1)),
            (rem(int(7), int(0)), None),
            (rem(int(i64::MIN), int(-1)), Some(0)),
            (ceil_div(int(-7), int(2)), Some(-3)),
            (ceil_div(int(7), int(0)), None),
            (align_up(int(i64::MAX), int(2)), None),
            (add(int(i64::MAX), int(1)), None),
            (and(int(0), None), Some(0)),
            (and(int(2), int(3)), Some(1)),
            (or(int(1), None), Some(1)),
            (or(int(0), int(0)), Some(0)),
            (or(None, int(1)), None),
            (not(int(5)), Some(0)),
            (neg(int(i64::MIN)), None),
        ] {
            assert_eq!(value, expected);
        }
    }

    #[test]
    fn impossible_sizes_name_the_buffer() {
        let lay_one = |extent| lay(256, &[0], &[&[]], &[256], [need("a.x", &[extent], 4, true)]);
        assert_eq!(lay_one(Some(1000)).map(|laid| laid.total_bytes), Ok(4096));
        assert_eq!(lay_one(Some(0)).map(|_| ()), Err(SizeError::Extent { buffer: "a.x" }));
        assert_eq!(lay_one(None).map(|_| ()), Err(SizeError::Extent { buffer: "a.x" }));
        assert_eq!(lay_one(Some(i64::MAX)).map(|_| ()), Err(SizeError::Bytes { buffer: "a.x" }));
    }
}
