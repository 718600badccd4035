use scratchpool::scratch_pool;

#[scratch_pool(layers(ratio = [0, 4, 0]))]
#[step(topk_map, when = ratio == 4, writes(topk))]
#[step(attend, reads(topk, gate, stray))]
#[step(route, writes(gate))]
struct Pool {
    #[group(topk.indices)]
    #[shape(16)]
    indices: u8,
    #[group(topk.lens)]
    #[shape(16)]
    lens: u8,
    #[group(gate)]
    #[shape(16)]
    gate: u8,
    #[group(stray)]
    #[shape(16)]
    stray: u8,
}

fn main() {}
