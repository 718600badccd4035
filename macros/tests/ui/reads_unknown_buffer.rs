use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(indexer))]
#[step(drain, reads(indexer.valeus))]
struct Pool {
    #[group(indexer)]
    #[shape(16)]
    values: u8,
}

fn main() {}
