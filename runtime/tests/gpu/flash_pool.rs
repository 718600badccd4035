//! The pool that most tests run: that of a real model, with the numbers of its configuration.

use scratchpool::scratch_pool;

/// Scratch of DeepSeek-V4-Flash, shared by all 43 layers, with its maximum given at start-up.
#[scratch_pool(
    align = 256,
    rows = max_num_tokens,
    dims(
        max_num_tokens: runtime(8192),
        padded_q_heads = 64,
        head_dim = 512,
        index_n_heads = 64,
        index_head_dim = 128,
        index_topk = 512,
        compress_ratios = [0, 0, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4],
    ),
    layers(compress_ratio = compress_ratios),
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
#[group(indexer, when = compress_ratio == 4)]
#[group(topk, when = compress_ratio == 4)]
#[group(compressor, when = compress_ratio == 128)]
pub struct FlashScratch {
    /// Queries after norm and RoPE, padding heads zeroed.
    #[group(q)]
    #[shape(max_num_tokens, padded_q_heads, head_dim)]
    pub q: bf16,

    /// The indexer's queries, two FP4 codes a byte.
    #[group(indexer.values)]
    #[shape(max_num_tokens, index_n_heads, index_head_dim / 2)]
    pub index_values: u8,
    /// A scale for each 32 codes.
    #[group(indexer.scales)]
    #[shape(max_num_tokens, index_n_heads, index_head_dim / 32)]
    pub index_scales: e8m0,
    /// Weights of the index heads.
    #[group(indexer.weights)]
    #[shape(max_num_tokens, index_n_heads)]
    pub index_weights: f32,

    /// Cache slots of the selected entries.
    #[group(topk.indices)]
    #[shape(max_num_tokens, index_topk)]
    pub topk_indices: i32,
    /// How many of them are valid.
    #[group(topk.lens)]
    #[shape(max_num_tokens)]
    pub topk_lens: i32,

    /// Pooled vectors before their norm.
    #[group(compressor.kv)]
    #[shape(max_num_tokens, head_dim)]
    pub compressor_kv: f32,
}
