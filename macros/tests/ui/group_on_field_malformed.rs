use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group("a")]
    #[shape(16)]
    x: u8,
    #[group(a.y.z)]
    #[shape(16)]
    y: u8,
}

fn main() {}
