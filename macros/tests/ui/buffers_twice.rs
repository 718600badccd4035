use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a.x)]
    #[shape(16)]
    first: u8,
    #[group(a.x)]
    #[shape(16)]
    second: u8,
}

fn main() {}
