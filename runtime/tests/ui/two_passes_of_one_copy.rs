// Two passes of one copy cannot be open at once.
#[path = "../common/mod.rs"]
mod common;

use common::EagerScratch;
use scratchpool::{Error, Host};

fn main() -> Result<(), Error> {
    let mut pool = EagerScratch::allocate(&Host::in_order())?;
    let first = pool.begin(1)?;
    let second = pool.begin(1)?;
    drop((first, second));
    Ok(())
}
