// A layer is part of its pass.
#[path = "../common/mod.rs"]
mod common;

use common::EagerScratch;
use scratchpool::{Error, Host};

fn main() -> Result<(), Error> {
    let mut pool = EagerScratch::allocate(&Host::in_order())?;
    let mut pass = pool.begin(1)?;
    let mut layer = pass.layer(2)?;
    drop(pass);
    layer.fork()?;
    Ok(())
}
