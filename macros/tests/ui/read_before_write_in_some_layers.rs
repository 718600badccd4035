use scratchpool::scratch_pool;

#[scratch_pool(layers(ratio = [0, 4, 4, 128]))]
#[step(fill, when = ratio == 4, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
