use scratchpool::scratch_pool;

#[scratch_pool(align = 384)]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    #[align(768)]
    x: u8,
}

fn main() {}
