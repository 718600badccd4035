use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, when, writes(a))]
#[group(a, when(1), if)]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
