// A step that declares to read a buffer gets a view to read.
#[path = "../common/mod.rs"]
mod common;

use common::EagerScratch;
use scratchpool::{Error, Host};

fn main() -> Result<(), Error> {
    let mut pool = EagerScratch::allocate(&Host::in_order())?;
    let mut pass = pool.begin(1)?;
    let mut layer = pass.layer(2)?;
    let mut step = layer.attention()?;
    let stream = step.stream();
    let read = step.buffers();
    stream.fill(read.q, scratchpool::bf16::ONE)?;
    stream.launch(read.q, |mut q| q.fill(scratchpool::bf16::ONE))
}
