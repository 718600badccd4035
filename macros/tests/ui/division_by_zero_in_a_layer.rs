use scratchpool::scratch_pool;

#[scratch_pool(layers(ratio = [4, 0]))]
#[step(fill, when = 8 % ratio == 0, writes(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
