use scratchpool::{Error, Host, scratch_pool};

#[scratch_pool]
#[step(fill)]
struct Pool(u8);

fn main() -> Result<(), Error> {
    let mut pool = Pool::allocate(&Host::in_order())?;
    pool.begin()?.layer(0)?.fill()?;
    Ok(())
}
