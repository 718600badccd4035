use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, write(a))]
#[step(drain, stream = aux)]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
