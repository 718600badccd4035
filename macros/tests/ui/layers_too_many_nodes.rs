use scratchpool::scratch_pool;

#[scratch_pool(layers(count = 4096))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
#[step(rest)]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
