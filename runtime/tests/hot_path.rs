//! What a pass costs beside pointer arithmetic and the declared events: nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::needless_for_each,
    clippy::too_many_lines,
    clippy::similar_names,
    reason = "a test fails by panicking"
)]

mod common;

use common::EagerScratch;
use common::counting::{Counting, allocations};
use scratchpool::{Error, Host, bf16};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_pass_allocates_nothing() -> Result<(), Error> {
    let host = Host::in_order();
    let mut pool = EagerScratch::allocate(&host)?;
    let before = allocations();
    for rows in [1, 0, 2] {
        let mut pass = pool.begin(rows)?;
        for layer in 0..43 {
            let mut layer = pass.layer(layer)?;
            if let Some(mut step) = layer.index_q()? {
                let stream = step.stream();
                let out = step.buffers();
                stream.launch(
                    (out.index_values, out.index_scales),
                    |(mut values, mut scales)| {
                        values.fill(1);
                        scales.fill(2);
                    },
                )?;
            }
            let mut step = layer.q_proj()?;
            let stream = step.stream();
            stream.fill(step.buffers().q, bf16::ONE)?;
        }
    }
    assert_eq!(allocations(), before);
    Ok(())
}
