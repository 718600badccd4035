use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(9223372036854775808)]
    x: u8,
}

fn main() {}
