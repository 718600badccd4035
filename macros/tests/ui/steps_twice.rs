use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[step(fill, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
