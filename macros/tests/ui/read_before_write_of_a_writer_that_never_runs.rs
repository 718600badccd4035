use scratchpool::scratch_pool;

#[scratch_pool(layers(ratio = [0, 4]))]
#[step(topk_map, when = ratio == 5, writes(topk))]
#[step(attend, reads(topk))]
#[group(topk, when = ratio == 4)]
struct Pool {
    #[group(topk)]
    #[shape(16)]
    x: u8,
}

fn main() {}
