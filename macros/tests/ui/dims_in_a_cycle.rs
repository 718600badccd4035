use scratchpool::scratch_pool;

#[scratch_pool(dims(n = m / 2, m = k, k = n * 2, free = n))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(n)]
    x: u8,
}

fn main() {}
