// Kept free of inner comments, so that it can be included anywhere.

/// DeepSeek-V4-Flash's eager scratch, with the numbers of its configuration.
#[::scratchpool::scratch_pool(
    rows = max_num_tokens,
    dims(
        max_num_tokens = 8192,
        heads = 64,
        head_dim = 512,
        index_heads = 64,
        index_dim = 128,
        index_topk = 512,
        ratios = [0, 0, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4],
    ),
    layers(compress_ratio = ratios),
    exclusive(indexer, topk, compressor),
)]
#[step(fork)]
#[step(index_q, on = aux0, when = compress_ratio == 4, after(fork), writes(indexer))]
#[step(index_topk, on = aux0, when = compress_ratio == 4, reads(indexer))]
#[step(compress, on = aux1, when = compress_ratio == 128, after(fork), writes(compressor))]
#[step(q_proj, writes(q))]
#[step(join, after(index_topk, compress))]
#[step(global_topk, when = compress_ratio == 4, writes(topk))]
#[step(attention, reads(q, topk))]
#[group(q)]
#[group(indexer, when = compress_ratio == 4)]
#[group(topk, when = compress_ratio == 4)]
#[group(compressor, when = compress_ratio == 128)]
pub struct EagerScratch {
    #[group(q)]
    #[shape(max_num_tokens, heads, head_dim)]
    pub q: bf16,
    #[group(indexer.values)]
    #[shape(max_num_tokens, index_heads, index_dim / 2)]
    pub index_values: u8,
    #[group(indexer.scales)]
    #[shape(max_num_tokens, index_heads, index_dim / 32)]
    pub index_scales: u8,
    #[group(indexer.weights)]
    #[shape(max_num_tokens, index_heads)]
    pub index_weights: f32,
    #[group(topk.indices)]
    #[shape(max_num_tokens, index_topk)]
    pub topk_indices: i32,
    #[group(topk.lens)]
    #[shape(max_num_tokens)]
    pub topk_lens: i32,
    #[group(compressor.kv)]
    #[shape(max_num_tokens, head_dim)]
    pub compressed: f32,
}
