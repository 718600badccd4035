use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, when = 0 < layer < 3, writes(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
