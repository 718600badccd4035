use scratchpool::scratch_pool;

#[scratch_pool(layers(count = 4))]
#[step(fill, writes(a))]
#[step(drain, on = aux, after(fill), reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
