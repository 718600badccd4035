use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, on = "aux", writes(a))]
#[step(drain, on, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
