//! The kernels of the host device: the references, launched on its streams.

use scratchpool::{Device, HostStream, View};

use crate::error::Error;
use crate::flat::Flat;
use crate::ops::Kernels;
use crate::ops::attention::{Attention, Entries, Selected};
use crate::ops::compressor::{Boundaries, Compress, CompressPool, CompressStore, SaveState};
use crate::ops::gather::{Gather, KvCacheIn};
use crate::ops::indexer_q::{IndexQuery, IndexerQ, Wide};
use crate::ops::indexer_topk::{IndexQueryIn, IndexerLogits, IndexerTopk};
use crate::ops::q_insert::{KvCache, QInsert, Query};
use crate::ops::topk_map::{CombineIndices, TopkMap};
use crate::reference;
use crate::reference::attention::{Chosen, Rows};
use crate::reference::compressor::{StateSlices, StoreSlices};
use crate::reference::indexer_topk::KeySlices;

/// The reference kernels, for any device with host streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostKernels;

/// A widened copy of an input that may be bf16.
fn widen(wide: Option<&[f32]>, narrow: Option<&[scratchpool::bf16]>) -> Vec<f32> {
    match (wide, narrow) {
        (Some(wide), _) => wide.to_vec(),
        (None, Some(narrow)) => narrow.iter().map(|x| x.to_f32()).collect(),
        (None, None) => Vec::new(),
    }
}

/// An input in one of its two types.
type WideArgs<'v, D> = (Option<View<'v, f32, D, 2>>, Option<View<'v, scratchpool::bf16, D, 2>>);

fn parts<'v, D: Device>(wide: &Wide<'v, D>) -> WideArgs<'v, D> {
    match *wide {
        Wide::F32(wide) => (Some(wide), None),
        Wide::Bf16(narrow) => (None, Some(narrow)),
    }
}

/// The arguments of a source, with the form of its rows.
type SourceArgs<'v, D> = (
    Option<View<'v, u8, D, 2>>,
    Option<View<'v, scratchpool::bf16, D, 2>>,
    View<'v, i32, D, 2>,
    View<'v, i32, D, 1>,
);

fn source<'v, D: Device>(selected: &Selected<'v, D>) -> SourceArgs<'v, D> {
    let (paged, rows) = match selected.entries {
        Entries::Paged { cache, .. } => (Some(cache), None),
        Entries::Rows(rows) => (None, Some(rows)),
    };
    (paged, rows, selected.indices, selected.lens)
}

/// The slices of a source.
type SourceSlices<'k> = (Option<&'k [u8]>, Option<&'k [scratchpool::bf16]>, &'k [i32], &'k [i32]);

fn chosen((paged, rows, indices, lens): SourceSlices<'_>) -> Chosen<'_> {
    Chosen { rows: either(paged, rows), indices, lens }
}

/// The form of rows that there is.
fn either<'k>(paged: Option<&'k [u8]>, rows: Option<&'k [scratchpool::bf16]>) -> Rows<'k> {
    match (paged, rows) {
        (Some(bytes), _) => Rows::Paged(bytes),
        (None, rows) => Rows::Whole(rows.unwrap_or_default()),
    }
}

impl<D: Device<Stream = HostStream>> Kernels<D> for HostKernels {
    fn q_insert(&self, stream: &HostStream, args: QInsert<'_, D>) -> Result<(), Error> {
        use reference::q_insert::{Cache, Queries, q_insert};
        let plan = args.check()?;
        let queries = match args.q {
            Query::Out { from, to } => (Some(from), Some(to), None),
            Query::InPlace(q) => (None, Some(q), None),
            Query::Fp8 { from, to, .. } => (Some(from), None, Some(to)),
        };
        let cache = match args.cache {
            KvCache::Paged { bytes, .. } => (Some(bytes), None, None),
            KvCache::Rows(rows) => (None, Some(rows), None),
            KvCache::Fp8 { rows, .. } => (None, None, Some(rows)),
        };
        let rest = (args.kv, args.kv_norm, args.positions, args.slots, args.rope);
        stream.launch(Flat((queries, cache, rest)), move |(queries, cache, rest)| {
            let queries = match queries {
                (Some(from), Some(to), _) => Queries::Bf16(from, to),
                (None, Some(q), _) => Queries::InPlace(q),
                (from, _, to) => Queries::Fp8(from.unwrap_or_default(), to.unwrap_or_default()),
            };
            let cache = match cache {
                (Some(bytes), ..) => Cache::Paged(bytes),
                (_, Some(rows), _) => Cache::Rows(rows),
                (.., rows) => Cache::Fp8(rows.unwrap_or_default()),
            };
            let (kv, kv_norm, positions, slots, rope) = rest;
            q_insert(&plan, queries, cache, kv, kv_norm, positions, slots, rope);
        })?;
        Ok(())
    }

    fn indexer_q(&self, stream: &HostStream, args: IndexerQ<'_, D>) -> Result<(), Error> {
        use reference::indexer_q::{Quantised, indexer_q};
        let plan = args.check()?;
        let (fp8, mxfp4, weights_out) = match args.out {
            IndexQuery::Fp8 { values, weights } => (Some(values), None, weights),
            IndexQuery::Mxfp4 { values, scales, weights } => {
                (None, Some((values, scales)), weights)
            }
        };
        let input = (args.q, args.positions, parts(&args.rope), parts(&args.weights));
        stream.launch(
            Flat((input, fp8, mxfp4, weights_out)),
            move |(input, fp8, mxfp4, weights_out)| {
                let (q, positions, rope, weights) = input;
                let (rope, weights) = (widen(rope.0, rope.1), widen(weights.0, weights.1));
                let out = match (fp8, mxfp4) {
                    (None, Some((values, scales))) => Quantised::Mxfp4(values, scales),
                    (values, _) => Quantised::Fp8(values.unwrap_or_default()),
                };
                indexer_q(&plan, q, positions, &rope, &weights, out, weights_out);
            },
        )?;
        Ok(())
    }

    fn topk_map(&self, stream: &HostStream, args: TopkMap<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let TopkMap { topk, token_to_req, block_table, valid, indices, lens, .. } = args;
        stream.launch(
            Flat((topk, token_to_req, block_table, valid, indices, lens)),
            move |(topk, requests, table, valid, indices, lens)| {
                reference::topk_map::topk_map(&plan, topk, requests, table, valid, indices, lens);
            },
        )?;
        Ok(())
    }

    fn combine_indices(
        &self,
        stream: &HostStream,
        args: CombineIndices<'_, D>,
    ) -> Result<(), Error> {
        let plan = args.check()?;
        let CombineIndices { topk, token_to_req, positions, seq_lens, gather_lens, .. } = args;
        stream.launch(
            Flat((topk, token_to_req, positions, seq_lens, gather_lens, args.indices, args.lens)),
            move |(topk, requests, positions, seq_lens, gather_lens, indices, lens)| {
                reference::topk_map::combine_indices(
                    &plan,
                    topk,
                    requests,
                    positions,
                    seq_lens,
                    gather_lens,
                    indices,
                    lens,
                );
            },
        )?;
        Ok(())
    }

    fn gather(&self, stream: &HostStream, args: Gather<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let (paged, rows) = match args.cache {
            KvCacheIn::Paged { bytes, .. } => (Some(bytes), None),
            KvCacheIn::Rows(rows) => (None, Some(rows)),
        };
        let Gather { block_table, seq_lens, gather_lens, out, .. } = args;
        stream.launch(
            Flat((paged, rows, block_table, seq_lens, gather_lens, out)),
            move |(paged, rows, block_table, seq_lens, gather_lens, out)| {
                let cache = either(paged, rows);
                reference::gather::gather(&plan, cache, block_table, seq_lens, gather_lens, out);
            },
        )?;
        Ok(())
    }

    fn save_state(&self, stream: &HostStream, args: SaveState<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let SaveState { kv_score, ape, positions, slots, state } = args;
        stream.launch(
            Flat((kv_score, ape, positions, slots, state)),
            move |(kv_score, ape, positions, slots, state)| {
                reference::compressor::save_state(&plan, kv_score, ape, positions, slots, state);
            },
        )?;
        Ok(())
    }

    fn compress(&self, stream: &HostStream, args: Compress<'_, D>) -> Result<(), Error> {
        let (states_plan, plan) = args.check()?;
        if args.boundaries == Boundaries::None {
            return Ok(());
        }
        let Compress { states, store, .. } = args;
        let states =
            (states.state, states.block_table, states.token_to_req, states.positions, states.slots);
        let store = (store.slots, store.norm_weight, store.rope, store.cache);
        stream.launch(Flat((states, store)), move |(states, store)| {
            let (state, block_table, token_to_req, positions, slots) = states;
            let states = StateSlices { state, block_table, token_to_req, positions, slots };
            let (slots, norm_weight, rope, cache) = store;
            let store = StoreSlices { slots, norm_weight, rope, cache };
            reference::compressor::compress(&states_plan, &plan, &states, store);
        })?;
        Ok(())
    }

    fn compress_pool(&self, stream: &HostStream, args: CompressPool<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        if args.boundaries == Boundaries::None {
            return Ok(());
        }
        let CompressPool { states, scratch, .. } = args;
        let states =
            (states.state, states.block_table, states.token_to_req, states.positions, states.slots);
        stream.launch(Flat((states, scratch)), move |(states, scratch)| {
            let (state, block_table, token_to_req, positions, slots) = states;
            let states = StateSlices { state, block_table, token_to_req, positions, slots };
            reference::compressor::compress_pool(&plan, &states, scratch);
        })?;
        Ok(())
    }

    fn compress_store(&self, stream: &HostStream, args: CompressStore<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        if args.boundaries == Boundaries::None {
            return Ok(());
        }
        let CompressStore { scratch, positions, state_slots, store, .. } = args;
        let store = (store.slots, store.norm_weight, store.rope, store.cache);
        stream.launch(
            Flat((scratch, positions, state_slots, store)),
            move |(scratch, positions, state_slots, (slots, norm_weight, rope, cache))| {
                let store = StoreSlices { slots, norm_weight, rope, cache };
                reference::compressor::compress_store(
                    &plan,
                    scratch,
                    positions,
                    state_slots,
                    store,
                );
            },
        )?;
        Ok(())
    }

    fn indexer_logits(&self, stream: &HostStream, args: IndexerLogits<'_, D>) -> Result<(), Error> {
        use reference::indexer_topk::{Queries, indexer_logits};
        let plan = args.check()?;
        let (fp8, mxfp4) = match args.q {
            IndexQueryIn::Fp8 { values } => (Some(values), None),
            IndexQueryIn::Mxfp4 { values, scales } => (None, Some((values, scales))),
        };
        let keys = (args.cache, args.block_table, args.token_to_req, args.positions);
        stream.launch(
            Flat((fp8, mxfp4, args.weights, keys, args.logits)),
            move |(fp8, mxfp4, weights, keys, logits)| {
                let q = match (fp8, mxfp4) {
                    (None, Some((values, scales))) => Queries::Mxfp4(values, scales),
                    (values, _) => Queries::Fp8(values.unwrap_or_default()),
                };
                let (cache, block_table, token_to_req, positions) = keys;
                let keys = KeySlices { cache, block_table, token_to_req, positions };
                indexer_logits(&plan, q, weights, keys, logits);
            },
        )?;
        Ok(())
    }

    fn indexer_topk(&self, stream: &HostStream, args: IndexerTopk<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        stream.launch(Flat((args.logits, args.indices)), move |(logits, indices)| {
            reference::indexer_topk::indexer_topk(&plan, logits, indices);
        })?;
        Ok(())
    }

    fn attention(&self, stream: &HostStream, args: Attention<'_, D>) -> Result<(), Error> {
        let plan = args.check()?;
        let (first, second) = (source(&args.first), args.second.as_ref().map(source));
        stream.launch(
            Flat((args.q, first, second, args.sinks, args.out)),
            move |(q, first, second, sinks, out)| {
                let second = second.map(chosen);
                reference::attention::attention(&plan, q, chosen(first), second, sinks, out);
            },
        )?;
        Ok(())
    }
}
