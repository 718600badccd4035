use scratchpool::scratch_pool;

#[scratch_pool(dims(n = 0))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16 / n, 16 % n, ceil_div(16, n))]
    x: u8,
}

fn main() {}
