// The rows of a buffer are handed out once: prefill and decode get theirs by splitting.
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
    let prefill = step.buffers().q;
    let decode = step.buffers().q;
    stream.launch((prefill, decode), |_| {})
}
