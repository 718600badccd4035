// A pass uses its pool's memory.
#[path = "../common/mod.rs"]
mod common;

use common::EagerScratch;
use scratchpool::{Error, Host};

fn main() -> Result<(), Error> {
    let mut pool = EagerScratch::allocate(&Host::in_order())?;
    let mut pass = pool.begin(1)?;
    drop(pool);
    pass.layer(2)?;
    Ok(())
}
