//! One body for both devices: each case runs a kernel on a rig and gives back the whole arena of its
//! outputs, guards included.

use scratchpool::{Device, bf16, bool8, e8m0, f8e4m3};
use scratchpool_kernels::Kernels;
use scratchpool_kernels::ops::attention::{Attention, Entries, Selected};
use scratchpool_kernels::ops::compressor::{
    Boundaries, Compress, CompressPool, CompressStore, Compression, SaveState, States, Store,
};
use scratchpool_kernels::ops::indexer_q::{IndexQuery, IndexerQ, Wide};
use scratchpool_kernels::ops::indexer_topk::{IndexQueryIn, IndexerLogits, IndexerTopk};
use scratchpool_kernels::ops::q_insert::{KvCache, QInsert, Query};
use scratchpool_kernels::ops::topk_map::{CombineIndices, Placement, TopkMap};
use scratchpool_kernels::reference::cache::{EntryFormat, PagedLayout};

use super::{Arena, Random, Rig, bytes_of, part, part_in, rope_table};

pub const MAX_POS: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QForm {
    Out,
    InPlace,
    Fp8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheForm {
    Paged,
    Rows,
    Fp8,
}

#[derive(Clone, Copy, Debug)]
pub struct QCase {
    pub tokens: usize,
    pub heads: usize,
    pub padded: usize,
    pub block_size: usize,
    pub stride_extra: usize,
    pub inserted: usize,
    pub q: QForm,
    pub cache: CacheForm,
    pub norm: bool,
    pub wild: bool,
    pub seed: u64,
}

impl QCase {
    pub fn run<D: Device, K: Kernels<D>>(&self, rig: &Rig<D, K>) -> Vec<u8> {
        let mut random = Random(self.seed);
        let Self { tokens, heads, padded, block_size, inserted, .. } = *self;
        let blocks = (tokens + 3) / block_size + 2;
        let (q, kv) = if self.wild {
            (random.wild_rows(tokens * heads, 512), random.wild_rows(tokens, 512))
        } else {
            (random.bf16s(tokens * heads * 512, 2.0), random.bf16s(tokens * 512, 3.0))
        };
        let mut positions: Vec<i64> =
            (0..tokens).map(|_| i64::try_from(random.below(MAX_POS)).unwrap()).collect();
        if self.wild && tokens > 5 {
            positions[3] = -1;
            positions[5] = i64::try_from(MAX_POS).unwrap();
        }
        let slots = random.slots(inserted, blocks * block_size, self.wild);
        let stride = PagedLayout::block_bytes(EntryFormat::Main, block_size) + self.stride_extra;

        let mut arena = Arena::new();
        let q_at = match self.q {
            QForm::Out => arena.room::<bf16>(tokens * padded * 512),
            QForm::InPlace => arena.room_for(&bytes_of(&q)),
            QForm::Fp8 => arena.room::<f8e4m3>(tokens * padded * 512),
        };
        let cache_at = match self.cache {
            CacheForm::Paged => arena.room::<u8>(blocks * stride),
            CacheForm::Rows => arena.room::<bf16>(blocks * block_size * 512),
            CacheForm::Fp8 => arena.room::<f8e4m3>(blocks * block_size * 512),
        };
        let mut memory = rig.load([arena.bytes.len()], &arena.bytes);
        let mut second = rig.load([arena.bytes.len()], &arena.bytes);
        let from = rig.load([tokens, heads, 512], &q);
        let kv = rig.load([tokens, 512], &kv);
        let positions = rig.load([tokens], &positions);
        let slots = rig.load([inserted], &slots);
        let rope = rig.load([MAX_POS, 64], &rope_table(MAX_POS));
        let from = from.view();
        // SAFETY: the parts are of two arenas.
        let (q, cache) = unsafe {
            let q = match self.q {
                QForm::Out => {
                    Query::Out { from, to: part(&mut memory, q_at, [tokens, padded, 512]) }
                }
                QForm::InPlace => Query::InPlace(part(&mut memory, q_at, [tokens, heads, 512])),
                QForm::Fp8 => Query::Fp8 {
                    from,
                    to: part(&mut memory, q_at, [tokens, padded, 512]),
                    scale: 0.03,
                },
            };
            let rows = [blocks, block_size, 512];
            let cache = match self.cache {
                CacheForm::Paged => KvCache::Paged {
                    bytes: part(&mut second, cache_at, [blocks, stride]),
                    block_size,
                },
                CacheForm::Rows => KvCache::Rows(part(&mut second, cache_at, rows)),
                CacheForm::Fp8 => {
                    KvCache::Fp8 { rows: part(&mut second, cache_at, rows), scale: 0.07 }
                }
            };
            (q, cache)
        };
        let args = QInsert {
            q,
            kv: kv.view(),
            kv_norm: None,
            positions: positions.view(),
            slots: slots.view(),
            rope: rope.view(),
            cache,
            eps: 1e-6,
            norm: self.norm,
        };
        rig.launch(|kernels, stream| kernels.q_insert(stream, args));
        let mut all = memory.to_vec().unwrap();
        all.extend(second.to_vec().unwrap());
        all
    }
}

#[derive(Clone, Copy, Debug)]
pub struct IndexerQCase {
    pub tokens: usize,
    pub heads: usize,
    pub fp4: bool,
    pub narrow_rope: bool,
    pub narrow_weights: bool,
    pub seed: u64,
}

impl IndexerQCase {
    pub fn run<D: Device, K: Kernels<D>>(&self, rig: &Rig<D, K>) -> Vec<u8> {
        let mut random = Random(self.seed);
        let Self { tokens, heads, .. } = *self;
        let q = random.wild_rows(tokens * heads, 128);
        let positions: Vec<i64> =
            (0..tokens).map(|_| i64::try_from(random.below(MAX_POS + 2)).unwrap() - 1).collect();
        let table = rope_table(MAX_POS);
        let narrow = |values: &[f32]| values.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
        let weights = random.floats(tokens * heads, 4.0);

        let q = rig.load([tokens, heads, 128], &q);
        let positions = rig.load([tokens], &positions);
        let rope_narrow = rig.load([MAX_POS, 64], &narrow(&table));
        let rope_wide = rig.load([MAX_POS, 64], &table);
        let weights_narrow = rig.load([tokens, heads], &narrow(&weights));
        let weights_wide = rig.load([tokens, heads], &weights);

        let mut arenas = Vec::new();
        for len in [tokens * heads * if self.fp4 { 64 } else { 128 }, tokens * heads * 4] {
            let mut arena = Arena::new();
            let at = arena.room::<u8>(len);
            arenas.push((rig.load([arena.bytes.len()], &arena.bytes), at));
        }
        let mut arena = Arena::new();
        let at = arena.room::<f32>(tokens * heads);
        let mut weights_out = rig.load([arena.bytes.len()], &arena.bytes);
        let [(values, values_at), (scales, scales_at)] = &mut arenas[..] else { panic!() };
        // SAFETY: parts of different arenas.
        let out = unsafe {
            let weights = part(&mut weights_out, at, [tokens, heads]);
            if self.fp4 {
                IndexQuery::Mxfp4 {
                    values: part(values, *values_at, [tokens, heads, 64]),
                    scales: part::<e8m0, _, 3>(scales, *scales_at, [tokens, heads, 4]),
                    weights,
                }
            } else {
                let values = part(values, *values_at, [tokens, heads, 128]);
                IndexQuery::Fp8 { values, weights }
            }
        };
        let args = IndexerQ {
            q: q.view(),
            positions: positions.view(),
            rope: if self.narrow_rope {
                Wide::Bf16(rope_narrow.view())
            } else {
                Wide::F32(rope_wide.view())
            },
            weights: if self.narrow_weights {
                Wide::Bf16(weights_narrow.view())
            } else {
                Wide::F32(weights_wide.view())
            },
            softmax_scale: 128_f32.powf(-0.5),
            head_scale: 64_f32.powf(-0.5),
            out,
        };
        rig.launch(|kernels, stream| kernels.indexer_q(stream, args));
        let mut all = values.to_vec().unwrap();
        all.extend(scales.to_vec().unwrap());
        all.extend(canonical(&weights_out.to_vec().unwrap()));
        all
    }
}

/// NaN in one form: a device and a host make different ones.
fn canonical(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len());
    for word in bytes.chunks(4) {
        match word {
            [a, b, c, d] if f32::from_le_bytes([*a, *b, *c, *d]).is_nan() => all.extend([0xff; 4]),
            word => all.extend(word),
        }
    }
    all
}

#[derive(Clone, Copy, Debug)]
pub struct MapCase {
    pub tokens: usize,
    pub topk: usize,
    pub block_size: usize,
    pub packed: bool,
    pub seed: u64,
}

impl MapCase {
    pub fn run<D: Device, K: Kernels<D>>(&self, rig: &Rig<D, K>) -> Vec<u8> {
        let mut random = Random(self.seed);
        let Self { tokens, topk, block_size, .. } = *self;
        let (requests, stride, columns) = (7, 33, 29);
        let any = |random: &mut Random, most: usize| i32::try_from(random.below(most)).unwrap();
        let most = (columns + 2) * block_size;
        let local: Vec<i32> = (0..tokens * topk)
            .map(|_| match random.below(12) {
                0 => -1,
                1 => i32::MIN + any(&mut random, 5),
                2 => i32::MAX - any(&mut random, 5),
                _ => any(&mut random, most),
            })
            .collect();
        let of: Vec<i32> = (0..tokens).map(|_| any(&mut random, requests + 2) - 1).collect();
        let table: Vec<i32> = (0..requests * stride)
            .map(|_| if random.below(20) == 0 { -1 } else { any(&mut random, 1 << 30) })
            .collect();
        let valid: Vec<bool8> =
            (0..tokens).map(|_| bool8::from_bits(u8::try_from(random.below(3)).unwrap())).collect();
        let mut arena = Arena::new();
        let indices_at = arena.room::<i32>(tokens * topk);
        let lens_at = arena.room::<i32>(tokens);
        let mut memory = rig.load([arena.bytes.len()], &arena.bytes);
        let mut second = rig.load([arena.bytes.len()], &arena.bytes);
        let (local, of) = (rig.load([tokens, topk], &local), rig.load([tokens], &of));
        let (table, valid) = (rig.load([requests, stride], &table), rig.load([tokens], &valid));
        let args = TopkMap {
            topk: local.view(),
            token_to_req: of.view(),
            block_table: table.view(),
            columns,
            valid: valid.view(),
            block_size,
            placement: if self.packed { Placement::PackedLeft } else { Placement::InPlace },
            // SAFETY: parts of different arenas.
            indices: unsafe { part(&mut memory, indices_at, [tokens, topk]) },
            // SAFETY: as above.
            lens: unsafe { part(&mut second, lens_at, [tokens]) },
        };
        rig.launch(|kernels, stream| kernels.topk_map(stream, args));
        let mut all = memory.to_vec().unwrap();
        all.extend(second.to_vec().unwrap());
        all
    }
}

#[derive(Clone, Copy, Debug)]
pub struct CombineCase {
    pub tokens: usize,
    pub most: usize,
    pub listed: bool,
    pub ratio: usize,
    pub window: usize,
    pub seed: u64,
}

impl CombineCase {
    pub fn run<D: Device, K: Kernels<D>>(&self, rig: &Rig<D, K>) -> Vec<u8> {
        let mut random = Random(self.seed);
        let Self { tokens, most, ratio, window, .. } = *self;
        let (requests, rows, compressed) = (4, 900, 500);
        let any = |random: &mut Random, most: usize| i32::try_from(random.below(most)).unwrap();
        let local: Vec<i32> = (0..tokens * most).map(|_| any(&mut random, 520) - 10).collect();
        let of: Vec<i32> = (0..tokens).map(|_| any(&mut random, requests + 2) - 1).collect();
        let positions: Vec<i64> =
            (0..tokens).map(|_| i64::try_from(random.below(2000)).unwrap() - 20).collect();
        let seq: Vec<i32> = (0..requests).map(|_| 1000 + any(&mut random, 1000)).collect();
        let gathered: Vec<i32> = (0..requests).map(|_| any(&mut random, 400)).collect();
        let width = scratchpool_kernels::ops::topk_map::combined_width(most, window);
        let mut arena = Arena::new();
        let indices_at = arena.room::<i32>(tokens * width);
        let lens_at = arena.room::<i32>(tokens);
        let mut memory = rig.load([arena.bytes.len()], &arena.bytes);
        let mut second = rig.load([arena.bytes.len()], &arena.bytes);
        let (local, of) = (rig.load([tokens, most], &local), rig.load([tokens], &of));
        let (positions, seq) = (rig.load([tokens], &positions), rig.load([requests], &seq));
        let gathered = rig.load([requests], &gathered);
        let args = CombineIndices {
            topk: self.listed.then(|| local.view()),
            most,
            token_to_req: of.view(),
            positions: positions.view(),
            seq_lens: seq.view(),
            gather_lens: gathered.view(),
            ratio,
            window,
            workspace_rows: rows,
            compressed_rows: compressed,
            // SAFETY: parts of different arenas.
            indices: unsafe { part(&mut memory, indices_at, [tokens, width]) },
            // SAFETY: as above.
            lens: unsafe { part(&mut second, lens_at, [tokens]) },
        };
        rig.launch(|kernels, stream| kernels.combine_indices(stream, args));
        let mut all = memory.to_vec().unwrap();
        all.extend(second.to_vec().unwrap());
        all
    }
}

#[derive(Clone, Copy, Debug)]
pub struct CompressCase {
    pub tokens: usize,
    pub compression: Compression,
    pub format: EntryFormat,
    pub block_size: usize,
    pub stride_extra: usize,
    pub decode: bool,
    pub magnitude: f32,
    pub seed: u64,
}

impl CompressCase {
    /// Saves states, then compresses: the state cache, the scratch and the entry cache.
    pub fn run<D: Device, K: Kernels<D>>(&self, rig: &Rig<D, K>) -> Vec<u8> {
        let mut random = Random(self.seed);
        let Self { tokens, compression, format, block_size, .. } = *self;
        let (ratio, width) = (compression.ratio(), format.width());
        let columns_of_state = 2 * compression.halves() * width;
        let page_tokens = if compression == Compression::C4 { 4 } else { 8 };
        let requests = 3;
        let table_columns = (tokens + 400).div_ceil(page_tokens) + 1;
        let pages = requests * table_columns;
        // In prefill a few long runs of positions, in decode single ones at and near boundaries.
        let run = tokens.div_ceil(requests).max(1);
        let mut of = Vec::new();
        let mut positions = Vec::new();
        for token in 0..tokens {
            let request = (token / run).min(requests - 1);
            of.push(i32::try_from(request).unwrap());
            let at = if self.decode {
                (1 + random.below(2)) * ratio - 1 + random.below(2)
            } else {
                token - request * run + 5 * request
            };
            positions.push(i64::try_from(at).unwrap());
        }
        // A shuffled table, with a missing page here and there.
        let mut order = random.slots(pages, pages, false);
        for page in &mut order {
            if random.below(40) == 0 {
                *page = -1;
            }
        }
        let table: Vec<i32> = order.iter().map(|page| i32::try_from(*page).unwrap()).collect();
        let mut slots: Vec<i64> = positions
            .iter()
            .zip(&of)
            .map(|(position, of)| {
                let at = usize::try_from(*position).unwrap();
                let column = at / page_tokens;
                let page = table[usize::try_from(*of).unwrap() * table_columns + column];
                let within = i64::try_from(at % page_tokens).unwrap();
                if page < 0 { -1 } else { i64::from(page) * page_tokens as i64 + within }
            })
            .collect();
        if self.decode {
            // Two tokens must not save into one slot.
            let mut seen = std::collections::HashSet::new();
            for slot in &mut slots {
                if !seen.insert(*slot) {
                    *slot = -1;
                }
            }
        }
        let state = random.floats(pages * page_tokens * columns_of_state, self.magnitude);
        let kv_score = random.floats(tokens * columns_of_state, self.magnitude);
        let ape = random.floats(ratio * columns_of_state / 2, 1.0);
        let weight = random.floats(width, 2.0);
        let blocks = tokens / block_size + 2;
        let kv_slots = random.slots(tokens, blocks * block_size, true);
        let stride = PagedLayout::block_bytes(format, block_size) + self.stride_extra;

        let mut states_arena = Arena::new();
        let state_at = states_arena.room_for(&bytes_of(&state));
        let mut states_memory = rig.load([states_arena.bytes.len()], &states_arena.bytes);
        let mut arena = Arena::new();
        let cache_at = arena.room::<u8>(blocks * stride);
        let mut memory = rig.load([arena.bytes.len()], &arena.bytes);
        let mut scratch_arena = Arena::new();
        let scratch_at = scratch_arena.room::<f32>(tokens * 512);
        let mut scratch = rig.load([scratch_arena.bytes.len()], &scratch_arena.bytes);

        let kv_score = rig.load([tokens, columns_of_state], &kv_score);
        let ape = rig.load([ratio, columns_of_state / 2], &ape);
        let (positions, of) = (rig.load([tokens], &positions), rig.load([tokens], &of));
        let (slots, kv_slots) = (rig.load([tokens], &slots), rig.load([tokens], &kv_slots));
        let table = rig.load([requests, table_columns], &table);
        let weight = rig.load([width], &weight);
        let rope = rig.load([MAX_POS, 64], &rope_table(MAX_POS));
        let state_shape = [pages, page_tokens, columns_of_state];

        let save = SaveState {
            kv_score: kv_score.view(),
            ape: ape.view(),
            positions: positions.view(),
            slots: slots.view(),
            // SAFETY: a part of its own arena.
            state: unsafe { part(&mut states_memory, state_at, state_shape) },
        };
        rig.launch(|kernels, stream| kernels.save_state(stream, save));
        let states = States {
            // SAFETY: not written from here on.
            state: unsafe { part_in(&states_memory, state_at, state_shape) },
            block_table: table.view(),
            token_to_req: of.view(),
            positions: positions.view(),
            slots: slots.view(),
        };
        let store = Store {
            slots: kv_slots.view(),
            norm_weight: weight.view(),
            eps: 1e-6,
            rope: rope.view(),
            // SAFETY: a part of its own arena.
            cache: unsafe { part(&mut memory, cache_at, [blocks, stride]) },
            block_size,
            format,
        };
        let boundaries = Boundaries::Possible;
        match compression {
            Compression::C4 => {
                rig.launch(|kernels, stream| {
                    kernels.compress(stream, Compress { states, store, boundaries })
                });
            }
            Compression::C128 => {
                // SAFETY: a part of its own arena.
                let to = unsafe { part(&mut scratch, scratch_at, [tokens, 512]) };
                let pool = CompressPool { states, scratch: to, boundaries };
                rig.launch(|kernels, stream| kernels.compress_pool(stream, pool));
                let store = CompressStore {
                    // SAFETY: not written from here on.
                    scratch: unsafe { part_in(&scratch, scratch_at, [tokens, 512]) },
                    positions: positions.view(),
                    state_slots: slots.view(),
                    store,
                    boundaries,
                };
                rig.launch(|kernels, stream| kernels.compress_store(stream, store));
            }
        }
        let mut all = states_memory.to_vec().unwrap();
        all.extend(scratch.to_vec().unwrap());
        all.extend(memory.to_vec().unwrap());
        all
    }
}

#[derive(Clone, Copy, Debug)]
pub struct LogitsCase {
    pub tokens: usize,
    pub heads: usize,
    pub columns: usize,
    pub topk: usize,
    pub fp4: bool,
    pub seed: u64,
}

impl LogitsCase {
    /// Logits, and the columns chosen from them.
    pub fn run<D: Device, K: Kernels<D>>(&self, rig: &Rig<D, K>) -> (Vec<f32>, Vec<i32>) {
        let mut random = Random(self.seed);
        let Self { tokens, heads, columns, topk, fp4, .. } = *self;
        let format = if fp4 { EntryFormat::IndexMxfp4 } else { EntryFormat::IndexFp8 };
        let (block_size, requests) = (64, 3);
        let table_columns = columns.div_ceil(block_size) + 1;
        let blocks = requests * table_columns;
        let stride = PagedLayout::block_bytes(format, block_size);
        let row = if fp4 { 64 } else { 128 };
        // Any byte but E4M3's NaNs; scales near 1.
        let mut codes = |n: usize| -> Vec<u8> {
            (0..n)
                .map(|_| {
                    let code = u8::try_from(random.next() & 0xff).unwrap();
                    if code & 0x7f == 0x7f { 0 } else { code }
                })
                .collect()
        };
        let values = codes(tokens * heads * row);
        let mut cache = codes(blocks * stride);
        let scales: Vec<e8m0> = (0..tokens * heads * 4)
            .map(|_| e8m0::from_bits(u8::try_from(124 + random.below(6)).unwrap()))
            .collect();
        for block in cache.chunks_mut(stride) {
            for scale in block[block_size * row..].chunks_mut(4) {
                let bytes = if fp4 {
                    [0; 4].map(|_: u8| u8::try_from(123 + random.below(7)).unwrap())
                } else {
                    (random.unit() + 1.5).to_le_bytes()
                };
                scale.copy_from_slice(&bytes);
            }
        }
        let weights = random.floats(tokens * heads, 1.0);
        let table: Vec<i32> = random
            .slots(blocks, blocks, false)
            .iter()
            .map(|block| if random.below(30) == 0 { -1 } else { i32::try_from(*block).unwrap() })
            .collect();
        let of: Vec<i32> =
            (0..tokens).map(|_| i32::try_from(random.below(requests)).unwrap()).collect();
        let positions: Vec<i64> = (0..tokens)
            .map(|_| i64::try_from(random.below(4 * columns + 60)).unwrap() - 1)
            .collect();
        let fp8: Vec<f8e4m3> = values.iter().map(|code| f8e4m3::from_bits(*code)).collect();
        let fp8 = (!fp4).then(|| rig.load([tokens, heads, 128], &fp8));
        let packed = fp4.then(|| rig.load([tokens, heads, 64], &values));
        let scales = rig.load([tokens, heads, 4], &scales);
        let weights = rig.load([tokens, heads], &weights);
        let cache = rig.load([blocks, stride], &cache);
        let table = rig.load([requests, table_columns], &table);
        let (of, positions) = (rig.load([tokens], &of), rig.load([tokens], &positions));
        let poison = vec![f32::NAN; tokens * columns];
        let mut logits = rig.load([tokens, columns], &poison);
        let mut indices = rig.load([tokens, topk], &vec![-77; tokens * topk]);
        let q = match (&fp8, &packed) {
            (Some(values), _) => IndexQueryIn::Fp8 { values: values.view() },
            (None, Some(values)) => {
                IndexQueryIn::Mxfp4 { values: values.view(), scales: scales.view() }
            }
            _ => panic!(),
        };
        let args = IndexerLogits {
            q,
            weights: weights.view(),
            cache: cache.view(),
            block_size,
            block_table: table.view(),
            token_to_req: of.view(),
            positions: positions.view(),
            ratio: 4,
            logits: logits.view_mut(),
        };
        rig.launch(|kernels, stream| kernels.indexer_logits(stream, args));
        let args = IndexerTopk { logits: logits.view(), indices: indices.view_mut() };
        rig.launch(|kernels, stream| kernels.indexer_topk(stream, args));
        (logits.to_vec().unwrap(), indices.to_vec().unwrap())
    }
}

#[derive(Clone, Copy, Debug)]
pub struct AttentionCase {
    pub tokens: usize,
    pub heads: usize,
    pub window: usize,
    pub compressed: usize,
    pub whole_rows: bool,
    pub seed: u64,
}

impl AttentionCase {
    pub fn run<D: Device, K: Kernels<D>>(&self, rig: &Rig<D, K>) -> Vec<bf16> {
        let mut random = Random(self.seed);
        let Self { tokens, heads, window, compressed, .. } = *self;
        let (block_size, blocks) = (64, 24);
        let stride = 37_440;
        // Entries as the format makes them, through the reference.
        let mut cache = vec![0_u8; blocks * stride];
        let layout = PagedLayout { format: EntryFormat::Main, block_size, stride, blocks };
        for slot in 0..i64::try_from(blocks * block_size).unwrap() {
            let (data, scales) = layout.entry(slot).unwrap();
            let row = random.bf16s(512, 4.0);
            let row: Vec<f32> = row.iter().map(|x| x.to_f32()).collect();
            let (mut d, mut s) = ([0; 576], [0; 8]);
            scratchpool_kernels::reference::cache::encode_main(
                &row[..448],
                &row[448..],
                &mut d,
                &mut s,
            );
            cache[data].copy_from_slice(&d);
            cache[scales].copy_from_slice(&s);
        }
        let rows = random.bf16s(700 * 512, 4.0);
        let q = random.bf16s(tokens * heads * 512, 2.0);
        let entries = if self.whole_rows { 700 } else { blocks * block_size };
        let choose = |width: usize, entries: usize, seed: u64| {
            let mut random = Random(seed);
            let indices: Vec<i32> = (0..tokens * width)
                .map(|_| match random.below(15) {
                    0 => -1,
                    1 => i32::try_from(entries).unwrap(),
                    _ => i32::try_from(random.below(entries)).unwrap(),
                })
                .collect();
            let lens: Vec<i32> = (0..tokens)
                .map(|token| match token % 4 {
                    0 => i32::try_from(width).unwrap(),
                    1 => 0,
                    2 => i32::try_from(random.below(width + 1)).unwrap(),
                    _ => i32::try_from(width + 9).unwrap(),
                })
                .collect();
            (indices, lens)
        };
        let (first, first_lens) = choose(window, entries, self.seed ^ 1);
        let (second, second_lens) = choose(compressed, blocks * block_size, self.seed ^ 2);
        let mut sinks = random.floats(heads, 3.0);
        sinks[0] = f32::NEG_INFINITY;
        let cache = rig.load([blocks, stride], &cache);
        let rows = rig.load([700, 512], &rows);
        let q = rig.load([tokens, heads, 512], &q);
        let (first, first_lens) =
            (rig.load([tokens, window], &first), rig.load([tokens], &first_lens));
        let (second, second_lens) =
            (rig.load([tokens, compressed], &second), rig.load([tokens], &second_lens));
        let sinks = rig.load([heads], &sinks);
        let mut out =
            rig.load([tokens, heads, 512], &vec![bf16::from_bits(0x7fc1); tokens * heads * 512]);
        let paged = || Entries::Paged { cache: cache.view(), block_size };
        let args = Attention {
            q: q.view(),
            first: Selected {
                entries: if self.whole_rows { Entries::Rows(rows.view()) } else { paged() },
                indices: first.view(),
                lens: first_lens.view(),
            },
            second: (compressed > 0).then(|| Selected {
                entries: paged(),
                indices: second.view(),
                lens: second_lens.view(),
            }),
            sinks: sinks.view(),
            scale: 512_f32.powf(-0.5),
            out: out.view_mut(),
        };
        rig.launch(|kernels, stream| kernels.attention(stream, args));
        out.to_vec().unwrap()
    }
}
