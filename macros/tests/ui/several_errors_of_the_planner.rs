use scratchpool::scratch_pool;

#[scratch_pool(dims(n = 16), align = 384, exclusive(a, c))]
#[step(fill, writes(a))]
#[step(drain, after(fil), reads(a.z))]
struct Pool {
    #[group(a)]
    #[shape(n / 3)]
    x: u8,
    #[group(b)]
    #[shape(n - 16)]
    y: u8,
}

fn main() {}
