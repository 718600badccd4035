use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
#[step(between, launch = early)]
#[step(drain, launch = dependent, reads(a))]
#[step(rest)]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
