use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[group(a)]
#[group(a)]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
