use scratchpool::scratch_pool;

#[scratch_pool(rows = n, dims(n = 16, half = n / 2))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(n - 1)]
    x: u8,
    #[group(a)]
    #[shape(half, 3)]
    y: u8,
    #[group(a)]
    #[shape(64 - n)]
    z: u8,
}

fn main() {}
