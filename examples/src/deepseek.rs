//! The scratch of DeepSeek-V4's attention layers, and a forward pass over it.
//!
//! A layer with compression ratio 4 has an indexer that selects compressed entries on a side stream;
//! a layer with ratio 128 compresses on another; all attend on the main stream. Three families of
//! buffers are never live together, and overlay one another in one arena.
//!
//! The two structs differ in the configuration that they are planned from, and in nothing else.

use scratchpool::{Backing, Error, Host, scratch_pool};

use crate::check::{Findings, Tag, write};

/// Scratch of DeepSeek-V4-Flash, shared by all 43 layers.
#[scratch_pool(
    align = 256,
    config = "configs/deepseek-v4-flash.json",
    rows = max_num_tokens,
    dims(max_num_tokens: runtime(8192), padded_q_heads = 64),
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

/// Scratch of DeepSeek-V4-Pro, shared by all 61 layers.
#[scratch_pool(
    align = 256,
    config = "configs/deepseek-v4-pro.json",
    rows = max_num_tokens,
    dims(max_num_tokens: runtime(8192), padded_q_heads = 64),
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
pub struct ProScratch {
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

/// One batch: rows of prefill, then rows of decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Rows of prompts.
    pub prefill: usize,
    /// Rows of running requests, one token each.
    pub decode: usize,
}

impl Batch {
    /// Rows in all.
    pub const fn rows(self) -> usize {
        self.prefill + self.decode
    }
}

/// A pool that the forward pass can run on.
pub trait Model: Sized {
    /// Layers of the backbone.
    const LAYERS: usize;

    /// Allocates the pool, or, with [`Backing::PerCall`], prepares to do without one.
    ///
    /// # Errors
    /// What the host refuses.
    fn allocate(host: &Host, max_num_tokens: usize, backing: Backing) -> Result<Self, Error>;

    /// Runs all layers over a batch. Writers tag what they write; readers check it.
    ///
    /// # Errors
    /// More rows than the pool was allocated for.
    fn forward(&mut self, batch: Batch, pass: u64, findings: &Findings) -> Result<(), Error>;
}

// One forward pass, for each of the two structs.
macro_rules! forward {
    ($pool:ident, $module:ident) => {
        impl Model for $pool<Host> {
            const LAYERS: usize = $module::SCHEDULE.layers.len();

            fn allocate(
                host: &Host,
                max_num_tokens: usize,
                backing: Backing,
            ) -> Result<Self, Error> {
                Self::allocate_with(host, $module::Dims { max_num_tokens }, backing)
            }

            fn forward(
                &mut self,
                batch: Batch,
                pass: u64,
                findings: &Findings,
            ) -> Result<(), Error> {
                let mut scratch = self.begin(batch.rows())?;
                for index in 0..Self::LAYERS {
                    let layer_tag = move |buffer| Tag { pass, layer: index as u64, buffer };
                    let mut layer = scratch.layer(index)?;
                    // The point at which the side streams start.
                    layer.fork()?;

                    // Indexer, on its own stream: quantise queries, then select entries.
                    if let Some(mut step) = layer.index_q()? {
                        let stream = step.stream();
                        let out = step.buffers();
                        let views = (out.index_values, out.index_scales, out.index_weights);
                        stream.launch(views, move |(mut values, mut scales, mut weights)| {
                            write(&mut values, layer_tag(1));
                            write(&mut scales, layer_tag(2));
                            write(&mut weights, layer_tag(3));
                        })?;
                    }
                    if let Some(mut step) = layer.index_topk()? {
                        let (stream, findings) = (step.stream(), findings.clone());
                        let read = step.buffers();
                        let views = (read.index_values, read.index_scales, read.index_weights);
                        stream.launch(views, move |(values, scales, weights)| {
                            findings.read(&values, layer_tag(1), 0);
                            findings.read(&scales, layer_tag(2), 0);
                            findings.read(&weights, layer_tag(3), 0);
                        })?;
                    }

                    // Compressor, on another: pool, then normalise and store. Both kernels are one
                    // step, so the second sees what the first wrote.
                    if let Some(mut step) = layer.compress()? {
                        let (stream, findings) = (step.stream(), findings.clone());
                        let mut kv = step.buffers().compressor_kv;
                        stream.launch(kv.reborrow(), move |mut kv| write(&mut kv, layer_tag(4)))?;
                        stream.launch(kv.as_view(), move |kv| {
                            findings.read(&kv, layer_tag(4), 0);
                        })?;
                    }

                    // Queries on the main stream, while the side streams work.
                    let mut step = layer.q_proj()?;
                    let stream = step.stream();
                    stream.launch(step.buffers().q, move |mut q| write(&mut q, layer_tag(0)))?;
                    drop(step);

                    // From here on the main stream comes after the side streams.
                    layer.join()?;
                    if let Some(mut step) = layer.global_topk()? {
                        let stream = step.stream();
                        let out = step.buffers();
                        let views = (out.topk_indices, out.topk_lens);
                        stream.launch(views, move |(mut indices, mut lens)| {
                            write(&mut indices, layer_tag(5));
                            write(&mut lens, layer_tag(6));
                        })?;
                    }

                    // Prefill rows and decode rows are two kernels over disjoint rows.
                    let mut step = layer.attention()?;
                    let stream = step.stream();
                    let read = step.buffers();
                    let (prefill, decode) = read.q.split_at_row(batch.prefill)?;
                    for (q, first_row) in [(prefill, 0), (decode, batch.prefill)] {
                        let findings = findings.clone();
                        let first = (first_row * q.shape()[1] * q.shape()[2]) as u64;
                        stream.launch(q, move |q| findings.read(&q, layer_tag(0), first))?;
                    }
                    // No `topk` in layers without an indexer.
                    if let (Some(indices), Some(lens)) = (read.topk_indices, read.topk_lens) {
                        let findings = findings.clone();
                        stream.launch((indices, lens), move |(indices, lens)| {
                            findings.read(&indices, layer_tag(5), 0);
                            findings.read(&lens, layer_tag(6), 0);
                        })?;
                    }
                }
                Ok(())
            }
        }
    };
}

forward!(FlashScratch, flash_scratch);
forward!(ProScratch, pro_scratch);
