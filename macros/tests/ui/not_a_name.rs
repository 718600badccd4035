use scratchpool::scratch_pool;

#[scratch_pool(dims(self = 3))]
#[step(crate, writes(a))]
struct Pool {
    #[group(super)]
    #[shape(16)]
    x: u8,
}

fn main() {}
