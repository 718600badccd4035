//! Sizes that only the running program knows, and rows that each pass brings.

use scratchpool::scratch_pool;

/// The scratch of a layer with experts.
#[scratch_pool(
    rows = max_num_tokens,
    ubatches = 2,
    dims(
        max_num_tokens: runtime(8192),
        hidden: runtime(4096),
        experts = 64,
        slots = align_up(max_num_tokens * 6, 128),
        blocks = ceil_div(hidden, 128),
    ),
    layers(dense = [1, 0, 0, 0]),
)]
#[step(route, when = !dense, writes(routing))]
#[step(quantize, on = aux, after(route), writes(packed))]
#[step(experts, after(quantize), when = !dense, reads(routing, packed), writes(partial))]
#[step(combine, after(quantize), reads(partial))]
#[step(release, on = aux, after(combine))]
#[group(routing, when = !dense)]
#[group(partial, when = !dense)]
pub struct Experts {
    /// Where each token goes.
    #[group(routing.slots)]
    #[shape(slots)]
    pub slots: i32,
    /// How many go to each expert.
    #[group(routing.counts)]
    #[shape(experts)]
    pub counts: i32,
    /// The tokens, packed.
    #[group(packed.values)]
    #[shape(max_num_tokens, hidden)]
    pub values: f8e4m3,
    /// A scale for each block of them.
    #[group(packed.scales)]
    #[shape(max_num_tokens, blocks)]
    pub scales: f32,
    /// What the experts give back.
    #[group(partial)]
    #[shape(slots, hidden)]
    #[align(1024)]
    pub partial: bf16,
}

fn main() {}
