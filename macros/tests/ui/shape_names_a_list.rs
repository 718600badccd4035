use scratchpool::scratch_pool;

#[scratch_pool(dims(ratios = [4]))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(ratios)]
    x: u8,
}

fn main() {}
