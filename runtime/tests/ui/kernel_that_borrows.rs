// A kernel may run later, so it owns what it captures.
#[path = "../common/mod.rs"]
mod common;

use common::EagerScratch;
use scratchpool::{Error, Host};

fn main() -> Result<(), Error> {
    let mut pool = EagerScratch::allocate(&Host::in_order())?;
    let mut pass = pool.begin(1)?;
    let mut layer = pass.layer(2)?;
    let mut step = layer.q_proj()?;
    let stream = step.stream();
    let mut rows = 0;
    stream.launch(step.buffers().q, |q| rows = q.rows())?;
    assert_eq!(rows, 1);
    Ok(())
}
