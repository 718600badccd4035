use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: bf61,
}

fn main() {}
