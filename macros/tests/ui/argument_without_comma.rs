use scratchpool::scratch_pool;

#[scratch_pool(dims(n = 16) align = 256)]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(n)]
    x: u8,
}

fn main() {}
