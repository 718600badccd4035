// Two leases of overlapping bytes cannot be held at once: a step borrows the layer exclusively.
#[path = "../common/mod.rs"]
mod common;

use common::EagerScratch;
use scratchpool::{Error, Host};

fn main() -> Result<(), Error> {
    let mut pool = EagerScratch::allocate(&Host::in_order())?;
    let mut pass = pool.begin(1)?;
    let mut layer = pass.layer(2)?;
    let indexer = layer.index_q()?;
    let topk = layer.global_topk()?; // the same bytes
    drop((indexer, topk));
    Ok(())
}
