use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a, b, c))]
struct Pool {
    #[group(a)]
    #[shape(4611686018427387904)]
    a: u8,
    #[group(b)]
    #[shape(4611686018427387904)]
    b: u8,
    #[group(c)]
    #[shape(4611686018427387904)]
    c: u8,
}

fn main() {}
