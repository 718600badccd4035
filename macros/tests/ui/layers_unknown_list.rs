use scratchpool::scratch_pool;

#[scratch_pool(dims(ratios = [4]), layers(ratio = ratio))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
