use scratchpool::scratch_pool;

#[scratch_pool(config = "confg.json")]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
