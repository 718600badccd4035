use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, after(drain), writes(a))]
#[step(drain, on = aux, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
