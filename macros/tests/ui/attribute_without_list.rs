use scratchpool::scratch_pool;

#[scratch_pool]
#[step]
#[group = "a"]
#[step(fill, writes(a))]
struct Pool {
    #[group]
    #[shape = 16]
    x: u8,
}

fn main() {}
