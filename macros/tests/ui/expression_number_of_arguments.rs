use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(ceil_div(16), min(3), align_up(1, 2, 3))]
    x: u8,
}

fn main() {}
