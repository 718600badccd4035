use scratchpool::scratch_pool;

#[scratch_pool(layers(ratio = [4]))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(ratio)]
    x: u8,
}

fn main() {}
