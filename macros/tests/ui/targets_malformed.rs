use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a, 3, a.x.y))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
