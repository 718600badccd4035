use scratchpool::scratch_pool;

#[scratch_pool(align = 256, , rows = n, dims(n = 16))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(n)]
    x: u8,
}

fn main() {}
