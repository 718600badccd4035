use scratchpool::scratch_pool;

#[scratch_pool(rows = tokens, dims(token = 16))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(token)]
    x: u8,
}

fn main() {}
