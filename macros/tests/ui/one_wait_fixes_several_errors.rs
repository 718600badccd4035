//! `combine` forgets to wait for `shared_expert`.
use scratchpool::scratch_pool;

#[scratch_pool(dims(n = 64), layers(count = 3))]
#[step(attend, writes(hidden))]
#[step(router, reads(hidden), writes(scores))]
#[step(shared_expert, on = side, after(attend), reads(hidden), writes(shared))]
#[step(experts, reads(hidden, scores))]
#[step(combine, reads(shared))]
pub struct Pool {
    #[group(hidden)]
    #[shape(n)]
    pub hidden: f32,
    #[group(scores)]
    #[shape(n)]
    pub scores: f32,
    #[group(shared)]
    #[shape(n)]
    pub shared: f32,
}

fn main() {}
