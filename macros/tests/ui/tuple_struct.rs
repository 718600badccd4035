use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill)]
struct Pool(u8, u8);

fn main() {}
