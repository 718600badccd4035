use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[group(a, when = 1, when = 0)]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
