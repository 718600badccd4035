use scratchpool::{Error, Host, View, ViewMut, bf16, e8m0, scratch_pool};

/// The scratch of one eager layer.
#[scratch_pool(
    config = "../examples/configs/deepseek-v4-flash.json",
    rows = max_num_tokens,
    dims(max_num_tokens: runtime, padded_q_heads = 64),
    layers(compress_ratio = compress_ratios, count = num_hidden_layers),
    exclusive(indexer, topk, compressor),
)]
#[step(fork)]
#[step(index_q, on = aux0, when = compress_ratio == 4, after(fork), writes(indexer))]
#[step(index_topk, on = aux0, when = compress_ratio == 4, reads(indexer))]
#[step(compress, on = aux1, when = compress_ratio == 128, after(fork), writes(compressor))]
#[step(q_proj, writes(q))]
#[step(join)]
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

fn takes(_: &View<'_, bf16, Host, 3>, _: Option<&View<'_, i32, Host, 2>>) {}

fn fills(
    _: &mut ViewMut<'_, u8, Host, 3>,
    _: &mut ViewMut<'_, e8m0, Host, 3>,
    _: &mut ViewMut<'_, f32, Host, 2>,
) {
}

fn main() -> Result<(), Error> {
    let device = Host::in_order();
    let dims = eager_scratch::Dims { max_num_tokens: 16 };
    let _ = eager_scratch::Plan::new(dims)?.total_bytes();
    let mut pool = EagerScratch::allocate(&device, dims)?;
    let _ = (pool.memory(), pool.held_bytes(), pool.device(), format!("{pool:?}"));
    let _ = eager_scratch::SCHEDULE;
    let mut pass = pool.begin(16)?;
    for index in 0..43 {
        let mut layer = pass.layer(index)?;
        layer.fork()?;
        if let Some(mut step) = layer.index_q()? {
            let rows = step.num_tokens();
            let mut out = step.buffers();
            fills(&mut out.index_values, &mut out.index_scales, &mut out.index_weights);
            assert_eq!(out.index_values.shape(), [rows, 64, 64]);
        }
        if let Some(mut step) = layer.index_topk()? {
            let input = step.buffers();
            assert_eq!(input.index_weights.shape(), [16, 64]);
        }
        if let Some(mut step) = layer.compress()? {
            let out: ViewMut<'_, f32, Host, 2> = step.buffers().compressor_kv;
            assert_eq!(out.rows(), 16);
        }
        {
            let mut step = layer.q_proj()?;
            let _ = step.stream();
            let out: ViewMut<'_, bf16, Host, 3> = step.buffers().q;
            let _ = out.rows();
        }
        layer.join()?;
        if let Some(mut step) = layer.global_topk()? {
            let out = step.buffers();
            let _: (ViewMut<'_, i32, Host, 2>, ViewMut<'_, i32, Host, 1>) =
                (out.topk_indices, out.topk_lens);
        }
        let mut step = layer.attention()?;
        let input = step.buffers();
        takes(&input.q, input.topk_indices.as_ref());
        let _ = input.topk_lens.map(|lens| lens.rows());
    }
    Ok(())
}
