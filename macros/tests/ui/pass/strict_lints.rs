//! A crate that denies what can be denied, forbids unsafe code of its own, and shows its pool.
#![deny(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    rust_2018_idioms,
    unused,
    unused_qualifications,
    nonstandard_style,
    clippy::all,
    clippy::pedantic
)]
#![forbid(unsafe_code)]

use scratchpool::{Error, Host, scratch_pool};

/// Declared in public, so that every generated item must be documented.
#[scratch_pool(rows = n, dims(n = 16), layers(ratio = [4, 0]))]
#[step(fill, when = ratio == 4, writes(a))]
#[step(drain, reads(a), writes(b.y))]
#[group(a, when = ratio == 4)]
pub struct Pool {
    /// The first.
    #[group(a)]
    #[shape(n, 3)]
    pub x: u8,
    // A field without a doc comment, and without `pub`.
    #[group(b)]
    #[shape(n)]
    y: bf16,
}

/// With sizes given at start-up, in two copies.
#[scratch_pool(rows = n, ubatches = 2, dims(n: runtime, half = ceil_div(n, 2)))]
#[step(fill, writes(a))]
pub struct Later {
    /// The only one.
    #[group(a)]
    #[shape(half, 3)]
    pub x: f32,
}

fn main() -> Result<(), Error> {
    let device = Host::in_order();
    let mut pool = Pool::allocate(&device)?;
    pool.begin(16)?.layer(0)?.fill()?;
    let mut later = Later::allocate(&device, later::Dims { n: 5 })?;
    let [mut first, mut second] = later.split();
    let (mut a, mut b) = (first.begin(5)?, second.begin(3)?);
    assert_eq!(a.layer(0)?.fill()?.buffers().x.shape(), [3, 3]);
    assert_eq!(b.layer(0)?.fill()?.buffers().x.shape(), [2, 3]);
    Ok(())
}
