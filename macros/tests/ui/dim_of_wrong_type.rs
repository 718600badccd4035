use scratchpool::scratch_pool;

#[scratch_pool(dims(n: runtyme, m: runtime(many), k: 3))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(n, m, k)]
    x: u8,
}

fn main() {}
