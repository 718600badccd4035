use scratchpool::scratch_pool;

#[scratch_pool]
#[stepp(fill, writes(a))]
#[repr(C)]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
