//! The order in which the host device runs kernels, which its errors name.

use std::fmt;

/// The order in which a host device runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As launched.
    Issue,
    /// Any order that streams and events allow, chosen by this seed.
    Random(u64),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issue => f.write_str("order of issue"),
            Self::Random(seed) => write!(f, "random order, seed {seed}"),
        }
    }
}
