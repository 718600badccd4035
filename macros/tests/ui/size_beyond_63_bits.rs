use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(4611686018427387904, 2)]
    x: u8,
}

fn main() {}
