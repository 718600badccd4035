use scratchpool::scratch_pool;

#[scratch_pool(layers(ratio = [4, 128]))]
#[step(fill, when = ration == 4, writes(a))]
#[group(a, when = raito == 4)]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
