use scratchpool::scratch_pool;

#[scratch_pool]
#[step(writes(a))]
#[step()]
#[step(fill, writes(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
