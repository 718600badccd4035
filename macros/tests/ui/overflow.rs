use scratchpool::scratch_pool;

#[scratch_pool(dims(n = 4611686018427387904))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(n * 2, n + n, align_up(n * 2 - 1, n))]
    x: u8,
}

fn main() {}
