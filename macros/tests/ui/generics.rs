use scratchpool::scratch_pool;

#[scratch_pool]
#[step(fill, writes(a))]
struct Pool<T>
where
    T: Copy,
{
    #[group(a)]
    #[shape(16)]
    x: u8,
}

fn main() {}
