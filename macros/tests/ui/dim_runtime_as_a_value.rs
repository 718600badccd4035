use scratchpool::scratch_pool;

#[scratch_pool(dims(max_tokens = runtime(64), width = runtime))]
#[step(fill, writes(a))]
pub struct Pool {
    #[group(a)]
    #[shape(max_tokens, width)]
    pub x: f32,
}

fn main() {}
