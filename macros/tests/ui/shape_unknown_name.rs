use scratchpool::scratch_pool;

#[scratch_pool(dims(max_num_tokens = 16))]
#[step(fill, writes(a))]
#[step(drain, reads(a))]
struct Pool {
    #[group(a)]
    #[shape(max_num_token)]
    x: u8,
}

fn main() {}
