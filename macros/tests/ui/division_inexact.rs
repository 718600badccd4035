use scratchpool::scratch_pool;

#[scratch_pool(dims(head_dim = 100))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(head_dim / 32)]
    x: u8,
}

fn main() {}
