use scratchpool::scratch_pool;

#[scratch_pool(exclusive(a, indxer))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
    #[group(indexer)]
    #[shape(16)]
    y: u8,
}

fn main() {}
