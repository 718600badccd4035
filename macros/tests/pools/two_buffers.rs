//! The smallest pool with an overlay.

use scratchpool::scratch_pool;

/// Two buffers that are never live together.
#[scratch_pool(exclusive(first, second))]
#[step(fill, writes(first))]
#[step(drain, reads(first))]
#[step(refill, writes(second))]
pub struct TwoBuffers {
    /// Written and read.
    #[group(first)]
    #[shape(1000)]
    pub first: f32,
    /// Written after that.
    #[group(second)]
    #[shape(500, 2)]
    pub second: bf16,
}

fn main() {}
