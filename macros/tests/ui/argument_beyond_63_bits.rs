use scratchpool::scratch_pool;

#[scratch_pool(align = 9_223_372_036_854_775_808)]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
