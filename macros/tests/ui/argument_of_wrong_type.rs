use scratchpool::scratch_pool;

#[scratch_pool(align = "256", rows = 3, config = 7, ubatches = two)]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
