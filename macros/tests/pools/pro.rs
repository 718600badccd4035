//! DeepSeek-V4-Pro: the same declaration with another configuration.

use scratchpool::scratch_pool;

/// The scratch of DeepSeek-V4-Pro.
#[scratch_pool(
    align = 256,
    config = "../examples/configs/deepseek-v4-pro.json",
    rows = max_num_tokens,
    dims(max_num_tokens = 8192, padded_q_heads = 64),
    layers(compress_ratio = compress_ratios, count = num_hidden_layers),
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
pub struct EagerScratch {
    /// Queries after norm and RoPE, padding heads zeroed.
    #[group(q)]
    #[shape(max_num_tokens, padded_q_heads, head_dim)]
    pub q: bf16,
    /// Packed FP4 codes of the indexer's queries.
    #[group(indexer.values)]
    #[shape(max_num_tokens, index_n_heads, index_head_dim / 2)]
    pub index_values: u8,
    /// Block scales of the codes.
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
    /// Pooled vectors before the norm.
    #[group(compressor.kv)]
    #[shape(max_num_tokens, head_dim)]
    pub compressor_kv: f32,
}

fn main() {}
