use scratchpool::scratch_pool;

#[scratch_pool(align = 512)]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    #[align(256)]
    x: u8,
}

fn main() {}
