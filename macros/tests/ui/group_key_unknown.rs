use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[group(a, wen = 1)]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
