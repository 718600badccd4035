use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(indxer))]
struct Pool {
    #[group(indexer)]
    #[shape(16)]
    x: u8,
}

fn main() {}
