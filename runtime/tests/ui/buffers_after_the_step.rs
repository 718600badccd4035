// The views of a step are gone when the step is: later steps may overwrite the bytes.
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
    let q = step.buffers().q;
    drop(step);
    stream.launch(q, |_| {})
}
