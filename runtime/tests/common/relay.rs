// Kept free of inner comments, so that it can be included anywhere.

/// A pool of two buffers on two streams, in two copies, sized at start-up.
#[::scratchpool::scratch_pool(
    rows = max_rows,
    ubatches = 2,
    dims(max_rows: runtime, width = 4),
    layers(count = 2),
    exclusive(x, y),
)]
#[step(produce, after(prev.report), writes(x))]
#[step(consume, on = side, after(produce), reads(x))]
#[step(reduce, on = side, writes(y))]
#[step(report, on = side, reads(y))]
pub struct Relay {
    #[group(x)]
    #[shape(max_rows, width)]
    pub x: u32,
    #[group(y)]
    #[shape(max_rows)]
    pub y: u64,
}
