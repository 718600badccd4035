use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[group(when = 1)]
#[group()]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
