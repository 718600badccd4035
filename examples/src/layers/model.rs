//! The model: its memory, and a pass over its layers.
//!
//! What lies between the projections of an attention layer runs here, over [`FlashScratch`] and at its full
//! widths: queries and KV rows, the indexer in MXFP4, both compressors, the map of chosen entries,
//! attention over the window and over compressed entries. The projections themselves are given:
//! random numbers stand for what the matrix products of a real model would leave.
//!
//! [`Model::forward`] is generic over the device and its kernels. The pool proves and issues the order of
//! the scratch. All else is the model's:
//!
//! | memory | what it holds | how a launch gets it |
//! | --- | --- | --- |
//! | [`Constant`] | weights, tables, the inputs of a pass | `on(stream)`, safe |
//! | [`Persistent`] | caches and results, of the table below | `on(stream)`, `unsafe` |
//!
//! # Who touches the persistent memory
//!
//! | memory of a layer | written in step (stream) | read in step (stream) | ordered by |
//! | --- | --- | --- | --- |
//! | window | `q_proj` (main) | `attention` (main) | the stream |
//! | C4 state, C4 entries | `q_proj` (main) | `q_proj`, `attention` (main) | the stream |
//! | C128 state | `compress` (aux1) | `compress` (aux1) | the stream |
//! | C128 entries | `compress` (aux1) | `attention` (main) | `join` after `compress`; the next pass's `compress` after `fork` |
//! | key state, keys, logits | `index_topk` (aux0) | `index_topk` (aux0) | the stream |
//! | chosen | `index_topk` (aux0) | `global_topk` (main) | `join` after `index_topk` |
//! | attended | `attention` (main) | the host, when all is done | the device is waited for |
//!
//! Nothing else touches it: that is the invariant behind the two `unsafe` blocks of this module, and
//! [`Model::forward`] keeps it.

use scratchpool::{Constant, Device, Element, Persistent, View, ViewMut, bf16};
use scratchpool_kernels::ops::attention::{Attention, Entries, Selected};
use scratchpool_kernels::ops::compressor::{
    Boundaries, Compress, CompressPool, CompressStore, SaveState, States, Store,
};
use scratchpool_kernels::ops::indexer_q::{IndexQuery, IndexerQ, Wide};
use scratchpool_kernels::ops::indexer_topk::{IndexQueryIn, IndexerLogits, IndexerTopk};
use scratchpool_kernels::ops::q_insert::{KvCache, QInsert, Query};
use scratchpool_kernels::ops::topk_map::{Placement, TopkMap};
use scratchpool_kernels::reference::cache::EntryFormat;
use scratchpool_kernels::{Error, Kernels};

use super::case::{
    Activations, COLUMNS, Case, EPSILON, HEAD_SCALE, HEADS, HostLayer, HostPass, INDEX_SCALE,
    MOST_ROWS, PAGE, SCALE, TOPK, Tables, Tokens, WINDOW_BLOCK, Weights,
};
use crate::deepseek::flash_scratch;

/// Persistent memory as an argument that is read.
fn reads<'v, T: Element, D: Device, const R: usize>(
    memory: &'v Persistent<T, D, R>,
    stream: &'v D::Stream,
) -> Result<View<'v, T, D, R>, scratchpool::Error> {
    // SAFETY: the module's table: who writes it is on this stream, or ordered by a declared `after`.
    unsafe { memory.on(stream) }
}

/// Persistent memory as an argument that is written.
fn writes<'v, T: Element, D: Device, const R: usize>(
    memory: &'v mut Persistent<T, D, R>,
    stream: &'v D::Stream,
) -> Result<ViewMut<'v, T, D, R>, scratchpool::Error> {
    // SAFETY: the module's table, as above, for who reads it too.
    unsafe { memory.on_mut(stream) }
}

/// A layer's weights and caches.
pub(super) struct Layer<D: Device> {
    /// Its number in the model.
    pub(super) index: usize,
    /// Tokens of a compressed entry; 0 where there are none.
    pub(super) ratio: usize,
    pub(super) weights: Weights<D>,
    pub(super) window: Persistent<u8, D, 2>,
    pub(super) state: Persistent<f32, D, 3>,
    pub(super) entries: Persistent<u8, D, 2>,
    pub(super) key_state: Persistent<f32, D, 3>,
    pub(super) keys: Persistent<u8, D, 2>,
}

/// Weights, tables and caches, on a device.
pub struct Model<D: Device> {
    pub(super) tables: Tables<D>,
    pub(super) layers: Vec<Layer<D>>,
    pub(super) logits: Persistent<f32, D, 2>,
}

/// What a pass reads besides: its tokens, and what projections made of them.
pub struct Inputs<D: Device> {
    pub(super) rows: usize,
    pub(super) tokens: Tokens<D>,
    pub(super) layers: Vec<Activations<D>>,
}

/// What a pass leaves behind, for each layer.
pub struct Results<D: Device> {
    pub(super) chosen: Vec<Persistent<i32, D, 2>>,
    pub(super) attended: Vec<Persistent<bf16, D, 3>>,
}

impl<D: Device> Layer<D> {
    fn new(device: &D, load: &D::Stream, host: &HostLayer) -> Result<Self, Error> {
        let mut layer = Self {
            index: host.index,
            ratio: host.ratio,
            weights: Weights::new(device, load, &host.weights)?,
            window: Persistent::new(device, host.window.shape)?,
            state: Persistent::new(device, host.state.shape)?,
            entries: Persistent::new(device, host.entries.shape)?,
            key_state: Persistent::new(device, host.key_state.shape)?,
            keys: Persistent::new(device, host.keys.shape)?,
        };
        layer.window.fill_from(load, &host.window.values)?;
        layer.state.fill_from(load, &host.state.values)?;
        layer.entries.fill_from(load, &host.entries.values)?;
        layer.key_state.fill_from(load, &host.key_state.values)?;
        layer.keys.fill_from(load, &host.keys.values)?;
        Ok(layer)
    }
}

impl<D: Device> Inputs<D> {
    pub(super) fn new(device: &D, load: &D::Stream, host: &HostPass) -> Result<Self, Error> {
        let tokens = Tokens::new(device, load, &host.tokens)?;
        let layers = host.layers.iter().map(|layer| Activations::new(device, load, layer));
        Ok(Self { rows: host.rows, tokens, layers: layers.collect::<Result<_, _>>()? })
    }

    /// Puts another pass's values in the same places, as a graph needs it.
    pub(super) fn replace(&mut self, load: &D::Stream, host: &HostPass) -> Result<(), Error> {
        self.tokens.replace(load, &host.tokens)?;
        self.layers.iter_mut().zip(&host.layers).try_for_each(|(to, from)| to.replace(load, from))
    }
}

impl<D: Device> Results<D> {
    pub(super) fn new(device: &D, layers: usize, rows: usize) -> Result<Self, Error> {
        let chosen = (0..layers).map(|_| Persistent::new(device, [rows, TOPK]));
        let attended = (0..layers).map(|_| Persistent::new(device, [rows, HEADS, 512]));
        Ok(Self {
            chosen: chosen.collect::<Result<_, _>>()?,
            attended: attended.collect::<Result<_, _>>()?,
        })
    }
}

/// A compressor of ratio 4: of a layer's entries, or of its indexer's keys.
struct ByFour<'l, D: Device> {
    kv_score: &'l Constant<f32, D, 2>,
    ape: &'l Constant<f32, D, 2>,
    norm: &'l Constant<f32, D, 1>,
    rope: &'l Constant<f32, D, 2>,
    state: &'l mut Persistent<f32, D, 3>,
    entries: &'l mut Persistent<u8, D, 2>,
    format: EntryFormat,
}

impl<D: Device> ByFour<'_, D> {
    /// Saves the tokens' partial states, and writes the entries that these tokens finish.
    fn compress(
        self,
        kernels: &impl Kernels<D>,
        stream: &D::Stream,
        tables: &Tables<D>,
        tokens: &Tokens<D>,
    ) -> Result<(), Error> {
        kernels.save_state(
            stream,
            SaveState {
                kv_score: self.kv_score.on(stream)?,
                ape: self.ape.on(stream)?,
                positions: tokens.positions.on(stream)?,
                slots: tokens.state_slots_4.on(stream)?,
                state: writes(self.state, stream)?,
            },
        )?;
        kernels.compress(
            stream,
            Compress {
                states: States {
                    state: reads(self.state, stream)?,
                    block_table: tables.state_pages_4.on(stream)?,
                    token_to_req: tokens.requests.on(stream)?,
                    positions: tokens.positions.on(stream)?,
                    slots: tokens.state_slots_4.on(stream)?,
                },
                store: Store {
                    slots: tokens.entry_slots_4.on(stream)?,
                    norm_weight: self.norm.on(stream)?,
                    eps: EPSILON,
                    rope: self.rope.on(stream)?,
                    cache: writes(self.entries, stream)?,
                    block_size: PAGE / 4,
                    format: self.format,
                },
                boundaries: Boundaries::Possible,
            },
        )
    }
}

impl<D: Device> Model<D> {
    /// Puts a case's weights and caches on a device, through a stream of it.
    ///
    /// # Errors
    ///
    /// What the device refuses.
    pub fn new(device: &D, load: &D::Stream, case: &Case) -> Result<Self, Error> {
        let layers = case.layers.iter().map(|layer| Layer::new(device, load, layer));
        Ok(Self {
            tables: Tables::new(device, load, &case.tables)?,
            layers: layers.collect::<Result<_, _>>()?,
            logits: Persistent::new(device, [MOST_ROWS, COLUMNS * PAGE / 4])?,
        })
    }

    /// The eager region of all its layers, in one pass of the pool.
    ///
    /// # Errors
    ///
    /// What does not fit, and what the device refuses.
    pub fn forward(
        &mut self,
        pass: &mut flash_scratch::Pass<'_, D>,
        kernels: &impl Kernels<D>,
        inputs: &Inputs<D>,
        results: &mut Results<D>,
    ) -> Result<(), Error> {
        let Self { tables, layers, logits } = self;
        let Inputs { tokens, .. } = inputs;
        let results = results.chosen.iter_mut().zip(&mut results.attended);
        for ((model, given), (chosen, attended)) in
            layers.iter_mut().zip(&inputs.layers).zip(results)
        {
            let weights = &model.weights;
            let rope = if model.ratio == 0 { &tables.rope } else { &tables.long_rope };
            let mut layer = pass.layer(model.index)?;
            layer.fork()?;

            if let Some(mut step) = layer.index_q()? {
                let stream = step.stream();
                let out = step.buffers();
                kernels.indexer_q(
                    stream,
                    IndexerQ {
                        q: given.index_q.on(stream)?,
                        positions: tokens.positions.on(stream)?,
                        rope: Wide::F32(rope.on(stream)?),
                        weights: Wide::F32(given.index_weights.on(stream)?),
                        softmax_scale: INDEX_SCALE,
                        head_scale: HEAD_SCALE,
                        out: IndexQuery::Mxfp4 {
                            values: out.index_values,
                            scales: out.index_scales,
                            weights: out.index_weights,
                        },
                    },
                )?;
            }

            // The keys of entries that these tokens finish, then the choice among all of them.
            if let Some(mut step) = layer.index_topk()? {
                let stream = step.stream();
                let keys = ByFour {
                    kv_score: &given.key_kv_score,
                    ape: &weights.key_ape,
                    norm: &weights.key_norm,
                    rope,
                    state: &mut model.key_state,
                    entries: &mut model.keys,
                    format: EntryFormat::IndexMxfp4,
                };
                keys.compress(kernels, stream, tables, tokens)?;
                let read = step.buffers();
                kernels.indexer_logits(
                    stream,
                    IndexerLogits {
                        q: IndexQueryIn::Mxfp4 {
                            values: read.index_values,
                            scales: read.index_scales,
                        },
                        weights: read.index_weights,
                        cache: reads(&model.keys, stream)?,
                        block_size: PAGE / 4,
                        block_table: tables.pages.on(stream)?,
                        token_to_req: tokens.requests.on(stream)?,
                        positions: tokens.positions.on(stream)?,
                        ratio: 4,
                        logits: writes(logits, stream)?.slice_rows(0..inputs.rows)?,
                    },
                )?;
                kernels.indexer_topk(
                    stream,
                    IndexerTopk {
                        logits: reads(logits, stream)?.slice_rows(0..inputs.rows)?,
                        indices: writes(chosen, stream)?,
                    },
                )?;
            }

            if let Some(mut step) = layer.compress()? {
                let stream = step.stream();
                kernels.save_state(
                    stream,
                    SaveState {
                        kv_score: given.kv_score.on(stream)?,
                        ape: weights.ape.on(stream)?,
                        positions: tokens.positions.on(stream)?,
                        slots: tokens.state_slots_128.on(stream)?,
                        state: writes(&mut model.state, stream)?,
                    },
                )?;
                // Both stages are one step, so the second sees what the first wrote.
                let mut pooled = step.buffers().compressor_kv;
                kernels.compress_pool(
                    stream,
                    CompressPool {
                        states: States {
                            state: reads(&model.state, stream)?,
                            block_table: tables.state_pages_128.on(stream)?,
                            token_to_req: tokens.requests.on(stream)?,
                            positions: tokens.positions.on(stream)?,
                            slots: tokens.state_slots_128.on(stream)?,
                        },
                        scratch: pooled.reborrow(),
                        boundaries: Boundaries::Possible,
                    },
                )?;
                kernels.compress_store(
                    stream,
                    CompressStore {
                        scratch: pooled.as_view(),
                        positions: tokens.positions.on(stream)?,
                        state_slots: tokens.state_slots_128.on(stream)?,
                        store: Store {
                            slots: tokens.entry_slots_128.on(stream)?,
                            norm_weight: weights.norm.on(stream)?,
                            eps: EPSILON,
                            rope: rope.on(stream)?,
                            cache: writes(&mut model.entries, stream)?,
                            block_size: PAGE / 128,
                            format: EntryFormat::Main,
                        },
                        boundaries: Boundaries::Possible,
                    },
                )?;
            }

            let mut step = layer.q_proj()?;
            let stream = step.stream();
            kernels.q_insert(
                stream,
                QInsert {
                    q: Query::Out { from: given.q.on(stream)?, to: step.buffers().q },
                    kv: given.kv.on(stream)?,
                    kv_norm: Some(weights.kv_norm.on(stream)?),
                    positions: tokens.positions.on(stream)?,
                    slots: tokens.window_slots.on(stream)?,
                    rope: rope.on(stream)?,
                    cache: KvCache::Paged {
                        bytes: writes(&mut model.window, stream)?,
                        block_size: WINDOW_BLOCK,
                    },
                    eps: EPSILON,
                    norm: true,
                },
            )?;
            if model.ratio == 4 {
                let entries = ByFour {
                    kv_score: &given.kv_score,
                    ape: &weights.ape,
                    norm: &weights.norm,
                    rope,
                    state: &mut model.state,
                    entries: &mut model.entries,
                    format: EntryFormat::Main,
                };
                entries.compress(kernels, stream, tables, tokens)?;
            }
            drop(step);

            // From here on the main stream comes after the side streams.
            layer.join()?;
            if let Some(mut step) = layer.global_topk()? {
                let stream = step.stream();
                let out = step.buffers();
                kernels.topk_map(
                    stream,
                    TopkMap {
                        topk: reads(chosen, stream)?,
                        token_to_req: tokens.requests.on(stream)?,
                        block_table: tables.pages.on(stream)?,
                        columns: COLUMNS,
                        valid: tokens.valid.on(stream)?,
                        block_size: PAGE / 4,
                        placement: Placement::PackedLeft,
                        indices: out.topk_indices,
                        lens: out.topk_lens,
                    },
                )?;
            }

            let mut step = layer.attention()?;
            let stream = step.stream();
            let read = step.buffers();
            let chosen: Option<(View<'_, i32, D, 2>, View<'_, i32, D, 1>)> =
                match (read.topk_indices, read.topk_lens) {
                    (Some(indices), Some(lens)) => Some((indices, lens)),
                    // All finished entries, which the host knows.
                    _ if model.ratio == 128 => {
                        Some((tokens.finished.on(stream)?, tokens.finished_lens.on(stream)?))
                    }
                    _ => None,
                };
            let second = match chosen {
                None => None,
                Some((indices, lens)) => {
                    let block_size = PAGE / model.ratio;
                    let cache = reads(&model.entries, stream)?;
                    Some(Selected { entries: Entries::Paged { cache, block_size }, indices, lens })
                }
            };
            kernels.attention(
                stream,
                Attention {
                    q: read.q,
                    first: Selected {
                        entries: Entries::Paged {
                            cache: reads(&model.window, stream)?,
                            block_size: WINDOW_BLOCK,
                        },
                        indices: tokens.window.on(stream)?,
                        lens: tokens.window_lens.on(stream)?,
                    },
                    second,
                    sinks: weights.sinks.on(stream)?,
                    scale: SCALE,
                    out: writes(attended, stream)?,
                },
            )?;
        }
        Ok(())
    }
}
