use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill)]
enum Pool {
    A,
}

fn main() {}
