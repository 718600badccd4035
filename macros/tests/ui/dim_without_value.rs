use scratchpool::scratch_pool;

#[scratch_pool(dims(n, m(3)))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(n, m)]
    x: u8,
}

fn main() {}
