use scratchpool::scratch_pool;

#[scratch_pool(algin = 256, dims(n = 16))]
#[step(fill, writes(a), lanch = early)]
#[step(drain, when = layer < , reads(a))]
struct Pool {
    #[group(a)]
    #[shape(n, m)]
    x: bf61,
    #[group(a)]
    y: u8,
    #[group(a)]
    #[shape(n / 3)]
    z: u8,
}

fn main() {}
