use scratchpool::scratch_pool;

#[scratch_pool(dims(n: runtime, m = n * 2), layers(count = n))]
#[step(fill, writes(a))]
struct Pool {
    #[group(a)]
    #[shape(n)]
    x: u8,
}

fn main() {}
