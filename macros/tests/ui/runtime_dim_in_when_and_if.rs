use scratchpool::scratch_pool;

#[scratch_pool(dims(n: runtime, m = n * 2), layers(count = 3))]
#[step(fill, when = n > 3, writes(a))]
#[group(a, when = m == 2, if = n > 0)]
struct Pool {
    #[group(a)]
    #[shape(n)]
    x: u8,
}

fn main() {}
