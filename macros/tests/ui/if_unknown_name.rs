use scratchpool::scratch_pool;

#[scratch_pool(dims(use_fp4 = 1))]
#[step(fill, writes(a))]
#[group(a, if = use_fp8 == 1)]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
