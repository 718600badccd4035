use scratchpool::scratch_pool;

#[scratch_pool(dims(n = 16 +, m = * 2, k = 3 4, l =))]
#[step(fill, when = layer = 1, writes(a))]
#[step(drain, when = layer > 0 & layer < 3, reads(a))]
struct Pool {
    #[group(a)]
    #[shape([3], "4", 2.5, n.m)]
    x: u8,
}

fn main() {}
