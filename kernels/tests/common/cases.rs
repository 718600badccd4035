//! One body for both devices: each case runs a kernel, or a few that belong together, on inputs that
//! its seed makes.

use std::sync::OnceLock;

use scratchpool::{Device, Host, ViewMut, bf16, bool8, e8m0, f8e4m3};
use scratchpool_kernels::ops::attention::{Attention, Entries, Selected};
use scratchpool_kernels::ops::compressor::{
    Boundaries, Compress, CompressPool, CompressStore, Compression, SaveState, States, Store,
};
use scratchpool_kernels::ops::gather::{Gather, KvCacheIn};
use scratchpool_kernels::ops::indexer_q::{IndexQuery, IndexerQ, Wide};
use scratchpool_kernels::ops::indexer_topk::{IndexQueryIn, IndexerLogits, IndexerTopk, TopkPlan};
use scratchpool_kernels::ops::q_insert::{KvCache, QInsert, Query};
use scratchpool_kernels::ops::topk_map::{CombineIndices, Placement, TopkMap, combined_width};
use scratchpool_kernels::reference::cache::{EntryFormat, PagedLayout, encode_main};
use scratchpool_kernels::reference::indexer_topk::indexer_topk;
use scratchpool_kernels::{HostKernels, Kernels, alloc};

use super::pooled::Shapes;
use super::{
    Bench, Case, Outcome, Place, Random, Rig, bf16s_of, canonical, floats_of, ints_of, rope_table,
};

pub const MAX_POS: usize = 300;

/// Puts positions that are none among others.
fn far(positions: &mut [i64]) {
    for (position, far) in positions.iter_mut().skip(1).step_by(7).zip([i64::MAX, i64::MIN, -1]) {
        *position = far;
    }
}

/// A table for all positions below [`MAX_POS`].
fn rope() -> &'static [f32] {
    static TABLE: OnceLock<Vec<f32>> = OnceLock::new();
    TABLE.get_or_init(|| rope_table(MAX_POS))
}

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
    pub kv_norm: bool,
    pub wild: bool,
    pub seed: u64,
}

impl Case for QCase {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn shapes(&self) -> Shapes {
        Shapes { heads: self.padded, bf16s: 512, f8s: 512, ..Shapes::default() }
    }

    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome {
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

        let from = bench.load([tokens, heads, 512], &q);
        let kv = bench.load([tokens, 512], &kv);
        let positions = bench.load([tokens], &positions);
        let slots = bench.load([inserted], &slots);
        let kv_weight = bench.load([512], &random.floats(512, 2.0));
        let rope = bench.load([MAX_POS, 64], rope());
        let shape = [tokens, padded, 512];
        let (mut to, mut over, mut to_fp8) = (None, None, None);
        match self.q {
            QForm::Out => {
                to =
                    Some(bench.out(shape, |device, stream| {
                        alloc::queries(device, stream, tokens, padded)
                    }));
            }
            QForm::InPlace => over = Some(bench.kept(shape, &q)),
            QForm::Fp8 => {
                to_fp8 = Some(bench.out(shape, |device, stream| {
                    alloc::queries_fp8(device, stream, tokens, padded)
                }));
            }
        }
        let rows = [blocks, block_size, 512];
        let (mut paged, mut whole, mut fp8) = (None, None, None);
        match self.cache {
            CacheForm::Paged => paged = Some(bench.kept::<u8, 2>([blocks, stride], &[])),
            CacheForm::Rows => whole = Some(bench.kept::<bf16, 3>(rows, &[])),
            CacheForm::Fp8 => fp8 = Some(bench.kept::<f8e4m3, 3>(rows, &[])),
        }
        let args = QInsert {
            q: match (&mut to, &mut over, &mut to_fp8) {
                (Some(to), ..) => Query::Out { from: from.view(), to: to.out() },
                (_, Some(q), _) => Query::InPlace(q.out()),
                (.., to) => {
                    Query::Fp8 { from: from.view(), to: to.as_mut().unwrap().out(), scale: 0.03 }
                }
            },
            kv: kv.view(),
            kv_norm: self.kv_norm.then(|| kv_weight.view()),
            positions: positions.view(),
            slots: slots.view(),
            rope: rope.view(),
            cache: match (&mut paged, &mut whole, &mut fp8) {
                (Some(bytes), ..) => KvCache::Paged { bytes: bytes.out(), block_size },
                (_, Some(rows), _) => KvCache::Rows(rows.out()),
                (.., rows) => KvCache::Fp8 { rows: rows.as_mut().unwrap().out(), scale: 0.07 },
            },
            eps: 1e-6,
            norm: self.norm,
        };
        bench.launch(|kernels, stream| kernels.q_insert(stream, args));
        let q = match (&to, &over, &to_fp8) {
            (Some(q), ..) | (_, Some(q), _) => q.bytes(),
            (.., q) => q.as_ref().unwrap().bytes(),
        };
        let cache = match (&paged, &whole, &fp8) {
            (Some(cache), ..) => cache.bytes(),
            (_, Some(cache), _) => cache.bytes(),
            (.., cache) => cache.as_ref().unwrap().bytes(),
        };
        Outcome(vec![("q", q), ("cache", cache)])
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Queries {
    /// Random, of all magnitudes.
    Wild,
    /// [`every_value_under_every_scale`].
    EveryValue,
}

#[derive(Clone, Copy, Debug)]
pub struct IndexerQCase {
    pub tokens: usize,
    pub heads: usize,
    pub fp4: bool,
    pub narrow_rope: bool,
    pub narrow_weights: bool,
    pub queries: Queries,
    pub seed: u64,
}

impl Case for IndexerQCase {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn shapes(&self) -> Shapes {
        let Self { heads, .. } = *self;
        Shapes { heads, f8s: 128, u8s: 64, e8m0s: 4, f32s: heads, ..Shapes::default() }
    }

    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome {
        let mut random = Random(self.seed);
        let Self { tokens, heads, .. } = *self;
        let q = match self.queries {
            Queries::Wild => random.wild_rows(tokens * heads, 128),
            Queries::EveryValue => every_value_under_every_scale(self.seed),
        };
        let positions: Vec<i64> =
            (0..tokens).map(|_| i64::try_from(random.below(MAX_POS + 2)).unwrap() - 1).collect();
        let table = rope();
        let narrow = |values: &[f32]| values.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
        let weights = random.floats(tokens * heads, 4.0);

        let q = bench.load([tokens, heads, 128], &q);
        let positions = bench.load([tokens], &positions);
        let rope_narrow = bench.load([MAX_POS, 64], &narrow(table));
        let rope_wide = bench.load([MAX_POS, 64], table);
        let weights_narrow = bench.load([tokens, heads], &narrow(&weights));
        let weights_wide = bench.load([tokens, heads], &weights);
        let launch = |out: IndexQuery<'_, D>| {
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
            bench.launch(|kernels, stream| kernels.indexer_q(stream, args));
        };
        if bench.rig.place == Place::Allocated {
            return self.allocated(bench, launch);
        }
        // Without an allocating form of their own: that is `IndexQueries`.
        let mut weights = bench.out([tokens, heads], |_, _| unreachable!());
        if self.fp4 {
            let mut values = bench.out([tokens, heads, 64], |_, _| unreachable!());
            let mut scales = bench.out::<e8m0, 3>([tokens, heads, 4], |_, _| unreachable!());
            let (v, s) = (values.out(), scales.out());
            launch(IndexQuery::Mxfp4 { values: v, scales: s, weights: weights.out() });
            Self::outcome(values.bytes(), scales.bytes(), &weights.bytes())
        } else {
            let mut values = bench.out([tokens, heads, 128], |_, _| unreachable!());
            launch(IndexQuery::Fp8 { values: values.out(), weights: weights.out() });
            Self::outcome(values.bytes(), Vec::new(), &weights.bytes())
        }
    }
}

/// Rows whose first halves, which rotation leaves alone, hold every bf16 that a finite MXFP4 block can,
/// for every scale, of both signs; the last halves are random. For 64 heads.
fn every_value_under_every_scale(seed: u64) -> Vec<bf16> {
    let mut random = Random(seed);
    let mut blocks = Vec::new();
    for byte in 1..=253_u16 {
        // 6 times the scale, or the largest finite value.
        let most = ((byte + 2) << 7 | 0x40).min(0x7f7f);
        let all: Vec<u16> = (0..=most).flat_map(|x| [x, x | 0x8000]).collect();
        for others in all.chunks(31) {
            let mut block = [most; 32];
            block[..others.len()].copy_from_slice(others);
            blocks.push(block.map(bf16::from_bits));
        }
    }
    // Whole tokens of 64 heads, two blocks a head.
    blocks.resize(blocks.len().next_multiple_of(128), [bf16::ZERO; 32]);
    let halves = blocks.chunks(2).map(<[_]>::as_flattened);
    halves.flat_map(|half| [half, &random.bf16s(64, 2.0)].concat()).collect()
}

impl IndexerQCase {
    /// Every bf16 under every scale of MXFP4, that a finite block can have.
    pub fn every_value(seed: u64) -> Self {
        let (heads, queries) = (64, Queries::EveryValue);
        let tokens = every_value_under_every_scale(seed).len() / (heads * 128);
        let (narrow_rope, narrow_weights) = (false, false);
        Self { tokens, heads, fp4: true, narrow_rope, narrow_weights, queries, seed }
    }

    fn outcome(values: Vec<u8>, scales: Vec<u8>, weights: &[u8]) -> Outcome {
        Outcome(vec![("values", values), ("scales", scales), ("weights", canonical(weights))])
    }

    fn allocated<D: Device, K: Kernels<D>>(
        &self,
        bench: &Bench<'_, D, K>,
        launch: impl FnOnce(IndexQuery<'_, D>),
    ) -> Outcome {
        let (device, Self { tokens, heads, .. }) = (&bench.rig.device, *self);
        let mut queries = if self.fp4 {
            alloc::IndexQueries::mxfp4(device, bench.stream, tokens, heads).unwrap()
        } else {
            alloc::IndexQueries::fp8(device, bench.stream, tokens, heads).unwrap()
        };
        launch(queries.out());
        let (values, weights) = queries.view();
        match values {
            IndexQueryIn::Fp8 { values } => {
                Self::outcome(bench.read(values), Vec::new(), &bench.read(weights))
            }
            IndexQueryIn::Mxfp4 { values, scales } => {
                Self::outcome(bench.read(values), bench.read(scales), &bench.read(weights))
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct MapCase {
    pub tokens: usize,
    pub topk: usize,
    pub block_size: usize,
    pub packed: bool,
    pub seed: u64,
}

impl Case for MapCase {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn shapes(&self) -> Shapes {
        Shapes { i32s: self.topk, ..Shapes::default() }
    }

    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome {
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
        let slots = |device: &D, stream| alloc::Slots::new(device, stream, tokens, topk).unwrap();
        let mut indices =
            bench.out([tokens, topk], |device, stream| Ok(slots(device, stream).indices));
        let mut lens = bench.out([tokens], |device, stream| Ok(slots(device, stream).lens));
        let (local, of) = (bench.load([tokens, topk], &local), bench.load([tokens], &of));
        let (table, valid) = (bench.load([requests, stride], &table), bench.load([tokens], &valid));
        let args = TopkMap {
            topk: local.view(),
            token_to_req: of.view(),
            block_table: table.view(),
            columns,
            valid: valid.view(),
            block_size,
            placement: if self.packed { Placement::PackedLeft } else { Placement::InPlace },
            indices: indices.out(),
            lens: lens.out(),
        };
        bench.launch(|kernels, stream| kernels.topk_map(stream, args));
        Outcome(vec![("indices", indices.bytes()), ("lens", lens.bytes())])
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

impl Case for CombineCase {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn shapes(&self) -> Shapes {
        Shapes { i32s: combined_width(self.most, self.window), ..Shapes::default() }
    }

    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome {
        let mut random = Random(self.seed);
        let Self { tokens, most, ratio, window, .. } = *self;
        let (requests, rows, compressed) = (4, 900, 500);
        let any = |random: &mut Random, most: usize| i32::try_from(random.below(most)).unwrap();
        let local: Vec<i32> = (0..tokens * most).map(|_| any(&mut random, 520) - 10).collect();
        let of: Vec<i32> = (0..tokens).map(|_| any(&mut random, requests + 2) - 1).collect();
        let positions: Vec<i64> =
            (0..tokens).map(|_| i64::try_from(random.below(2000)).unwrap() - 20).collect();
        let mut positions = positions;
        far(&mut positions);
        let seq: Vec<i32> = (0..requests).map(|_| 1000 + any(&mut random, 1000)).collect();
        let gathered: Vec<i32> = (0..requests).map(|_| any(&mut random, 400)).collect();
        let width = combined_width(most, window);
        let slots = |device: &D, stream| alloc::Slots::new(device, stream, tokens, width).unwrap();
        let mut indices =
            bench.out([tokens, width], |device, stream| Ok(slots(device, stream).indices));
        let mut lens = bench.out([tokens], |device, stream| Ok(slots(device, stream).lens));
        let (local, of) = (bench.load([tokens, most], &local), bench.load([tokens], &of));
        let (positions, seq) = (bench.load([tokens], &positions), bench.load([requests], &seq));
        let gathered = bench.load([requests], &gathered);
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
            indices: indices.out(),
            lens: lens.out(),
        };
        bench.launch(|kernels, stream| kernels.combine_indices(stream, args));
        Outcome(vec![("indices", indices.bytes()), ("lens", lens.bytes())])
    }
}

#[derive(Clone, Copy, Debug)]
pub struct CompressCase {
    pub tokens: usize,
    pub compression: Compression,
    pub format: EntryFormat,
    pub block_size: usize,
    pub stride_extra: usize,
    /// Requests of one token each, at and near boundaries; else a few long runs of positions.
    pub decode: bool,
    pub magnitude: f32,
    /// Very small, very large and no numbers among projections, states and weights.
    pub wild: bool,
    /// What the host says of boundaries.
    pub boundaries: Boundaries,
    pub seed: u64,
}

impl CompressCase {
    fn state_columns(&self) -> usize {
        2 * self.compression.halves() * self.format.width()
    }

    /// Requests and positions of the tokens, pages of the requests and how many there are, and
    /// the tokens' slots.
    fn batch(&self, random: &mut Random) -> Batch {
        let Self { tokens, compression, .. } = *self;
        let ratio = compression.ratio();
        let page_tokens = if compression == Compression::C4 { 4 } else { 8 };
        if self.decode {
            let table_columns = 2 * ratio / page_tokens + 1;
            let pages = tokens.div_ceil(page_tokens) + 9;
            // Half of the tokens at boundaries, of many fewer; the first always.
            let beyond = if tokens < 1024 { 2 } else { 9 };
            let positions = (0..tokens)
                .map(|token| {
                    (1 + random.below(2)) * ratio - 1 + random.below(beyond.min(token + 1))
                })
                .map(|at| i64::try_from(at).unwrap())
                .collect();
            let page = |random: &mut Random| match random.below(40) {
                0 => -1,
                1 => i32::try_from(pages).unwrap(),
                _ => i32::try_from(random.below(pages)).unwrap(),
            };
            return Batch {
                of: (0..tokens).map(|token| i32::try_from(token).unwrap()).collect(),
                positions,
                table: (0..tokens * table_columns).map(|_| page(random)).collect(),
                table_columns,
                pages,
                page_tokens,
                slots: random.slots(tokens, pages * page_tokens, true),
            };
        }
        let requests = 3;
        let table_columns = (tokens + 20).div_ceil(page_tokens);
        let pages = requests * table_columns;
        let run = tokens.div_ceil(requests).max(1);
        let mut batch = Batch { table_columns, pages, page_tokens, ..Batch::default() };
        // A shuffled table, with a missing page here and there.
        for page in random.slots(pages, pages, false) {
            let missing = random.below(40) == 0;
            batch.table.push(if missing { -1 } else { i32::try_from(page).unwrap() });
        }
        for token in 0..tokens {
            let request = (token / run).min(requests - 1);
            let at = token - request * run + 5 * request;
            let page = batch.table[request * table_columns + at / page_tokens];
            let within = i64::try_from(at % page_tokens).unwrap();
            batch.of.push(i32::try_from(request).unwrap());
            batch.positions.push(i64::try_from(at).unwrap());
            let slot = i64::from(page) * i64::try_from(page_tokens).unwrap() + within;
            batch.slots.push(if page < 0 { -1 } else { slot });
        }
        batch
    }
}

#[derive(Default)]
struct Batch {
    of: Vec<i32>,
    positions: Vec<i64>,
    table: Vec<i32>,
    table_columns: usize,
    pages: usize,
    page_tokens: usize,
    slots: Vec<i64>,
}

impl Case for CompressCase {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn shapes(&self) -> Shapes {
        Shapes { f32s: 512, ..Shapes::default() }
    }

    /// Saves states, then compresses: the state cache, the scratch and the entry cache.
    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome {
        let mut random = Random(self.seed);
        let Self { tokens, compression, format, block_size, magnitude, .. } = *self;
        let (ratio, width, columns) = (compression.ratio(), format.width(), self.state_columns());
        let mut batch = self.batch(&mut random);
        if self.wild {
            far(&mut batch.positions);
        }
        let rows = batch.pages * batch.page_tokens;
        let (state, kv_score, weight) = if self.wild {
            // Halves of kv and of score that differ in magnitude.
            let both = |random: &mut Random, rows| random.wild_floats(2 * rows, columns / 2);
            let (state, kv_score) = (both(&mut random, rows), both(&mut random, tokens));
            let mut weight = random.floats(width, 2.0);
            for (at, special) in [0.0, -0.0, 1e-40, 1e-30, 448.0, 1e30].into_iter().enumerate() {
                weight[at * 21] = special;
            }
            (state, kv_score, weight)
        } else {
            (
                random.floats(rows * columns, magnitude),
                random.floats(tokens * columns, magnitude),
                random.floats(width, 2.0),
            )
        };
        let ape = random.floats(ratio * columns / 2, 1.0);
        let blocks = tokens / block_size + 2;
        let kv_slots = random.slots(tokens, blocks * block_size, true);
        let stride = PagedLayout::block_bytes(format, block_size) + self.stride_extra;

        let mut state = bench.kept([batch.pages, batch.page_tokens, columns], &state);
        let mut cache = bench.kept::<u8, 2>([blocks, stride], &[]);
        let mut scratch = bench
            .out([tokens, 512], |device, stream| alloc::compress_scratch(device, stream, tokens));
        let kv_score = bench.load([tokens, columns], &kv_score);
        let ape = bench.load([ratio, columns / 2], &ape);
        let positions = bench.load([tokens], &batch.positions);
        let of = bench.load([tokens], &batch.of);
        let requests = batch.table.len() / batch.table_columns;
        let table = bench.load([requests, batch.table_columns], &batch.table);
        let (slots, kv_slots) =
            (bench.load([tokens], &batch.slots), bench.load([tokens], &kv_slots));
        let weight = bench.load([width], &weight);
        let rope = bench.load([MAX_POS, 64], rope());

        let save = SaveState {
            kv_score: kv_score.view(),
            ape: ape.view(),
            positions: positions.view(),
            slots: slots.view(),
            state: state.out(),
        };
        bench.launch(|kernels, stream| kernels.save_state(stream, save));
        let states = States {
            state: state.view(),
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
            cache: cache.out(),
            block_size,
            format,
        };
        let boundaries = self.boundaries;
        match compression {
            Compression::C4 => {
                bench.launch(|kernels, stream| {
                    kernels.compress(stream, Compress { states, store, boundaries })
                });
            }
            Compression::C128 => {
                let pool = CompressPool { states, scratch: scratch.out(), boundaries };
                bench.launch(|kernels, stream| kernels.compress_pool(stream, pool));
                let store = CompressStore {
                    scratch: scratch.view(),
                    positions: positions.view(),
                    state_slots: slots.view(),
                    store,
                    boundaries,
                };
                bench.launch(|kernels, stream| kernels.compress_store(stream, store));
            }
        }
        // kv was copied, so also which NaN it is; a sum is some NaN.
        let mut states = state.bytes();
        for row in states.chunks_mut(4 * columns) {
            let (_, sums) = row.split_at_mut(2 * columns);
            sums.copy_from_slice(&canonical(sums));
        }
        let scratch = canonical(&scratch.bytes());
        Outcome(vec![("state", states), ("scratch", scratch), ("cache", cache.bytes())])
    }
}

#[derive(Clone, Copy, Debug)]
pub struct LogitsCase {
    pub tokens: usize,
    pub heads: usize,
    pub columns: usize,
    pub topk: usize,
    pub fp4: bool,
    /// Very small, very large and no numbers among weights, scales and codes.
    pub wild: bool,
    pub inputs: Inputs,
    pub seed: u64,
}

/// Which form of a case's inputs a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// As they are.
    Given,
    /// All positive: then a logit is the sum of its terms' magnitudes.
    Magnitudes,
    /// 1 for what is infinite, and 0 for all other weights of such a token: what infinities multiply.
    BesideInfinities,
    /// The same, all positive.
    MagnitudesBesideInfinities,
}

impl LogitsCase {
    fn is_positive(&self) -> bool {
        matches!(self.inputs, Inputs::Magnitudes | Inputs::MagnitudesBesideInfinities)
    }

    fn is_beside_infinities(&self) -> bool {
        matches!(self.inputs, Inputs::BesideInfinities | Inputs::MagnitudesBesideInfinities)
    }

    /// A run of the reference with inputs of this form.
    fn logits_of(&self, inputs: Inputs, cpu: &Rig<Host, HostKernels>) -> Vec<f32> {
        floats_of(Self { inputs, ..*self }.run(cpu).get("logits"))
    }

    /// Codes of rows: any byte but E4M3's NaN, which a wild row has now and then.
    fn codes(&self, random: &mut Random, rows: usize, row: usize) -> Vec<u8> {
        let mut codes: Vec<u8> = (0..rows * row)
            .map(|_| {
                let code = u8::try_from(random.next() & 0xff).unwrap();
                if !self.fp4 && code & 0x7f == 0x7f { 0 } else { code }
            })
            .collect();
        if self.wild && !self.fp4 {
            for row in codes.chunks_mut(row) {
                match random.below(40) {
                    0 => row[random.below(row.len())] = 0xff,
                    1..6 => row.fill(0x80),
                    _ => {}
                }
            }
        }
        if self.is_positive() {
            let mask = if self.fp4 { 0x77 } else { 0x7f };
            for code in &mut codes {
                *code &= mask;
            }
        }
        codes
    }

    /// Whether a wild case has elements so small that they may count as 0. It has no infinite weights
    /// then: their product with 0 is NaN.
    fn tiny(&self) -> bool {
        self.fp4 && self.seed.is_multiple_of(2)
    }

    /// An E8M0 byte: near 1, or wild.
    fn scale(&self, random: &mut Random) -> u8 {
        if !self.wild {
            return u8::try_from(123 + random.below(7)).unwrap();
        }
        let small: [u8; 3] = if self.tiny() { [0, 1, 27] } else { [67, 80, 90] };
        let [a, b, c] = small;
        let scale =
            if random.below(200) == 0 { 255 } else { random.pick(&[a, b, c, 100, 127, 150]) };
        // What may count as 0 is 2^-18 of an element of this scale, or less.
        if self.is_positive() { scale.max(20) } else { scale }
    }

    /// A weight, or a key's f32 scale.
    fn weight(&self, random: &mut Random, plain: f32) -> f32 {
        const WILD: [f32; 8] = [0.0, -0.0, 1e-40, 1e-30, -1e-30, 1.0, 448.0, -1e10];
        const SPECIAL: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let weight = match (self.wild, random.below(200)) {
            (false, _) => plain,
            (true, 0) if self.tiny() => f32::NAN,
            (true, 0) => random.pick(&SPECIAL),
            (true, _) => random.pick(&WILD) * (1.5 + random.unit()),
        };
        if self.is_positive() { weight.abs() } else { weight }
    }
}

impl Case for LogitsCase {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn shapes(&self) -> Shapes {
        Shapes { f32s: self.columns, i32s: self.topk, ..Shapes::default() }
    }

    /// Logits, and the columns chosen from them.
    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome {
        let mut random = Random(self.seed);
        let Self { tokens, heads, columns, topk, fp4, .. } = *self;
        let format = if fp4 { EntryFormat::IndexMxfp4 } else { EntryFormat::IndexFp8 };
        let (block_size, requests) = (64, 3);
        let table_columns = columns.div_ceil(block_size) + 1;
        let blocks = requests * table_columns;
        let stride = PagedLayout::block_bytes(format, block_size) + 20;
        let row = if fp4 { 64 } else { 128 };
        let values = self.codes(&mut random, tokens * heads, row);
        let scales: Vec<e8m0> =
            (0..tokens * heads * 4).map(|_| e8m0::from_bits(self.scale(&mut random))).collect();
        let mut cache = Vec::new();
        for _ in 0..blocks {
            let from = cache.len();
            cache.extend(self.codes(&mut random, block_size, row));
            for _ in 0..block_size {
                if fp4 {
                    cache.extend([0; 4].map(|_: u8| self.scale(&mut random)));
                } else {
                    let plain = random.unit() + 1.5;
                    let scale = self.weight(&mut random, plain);
                    let one = self.is_beside_infinities() && scale.is_infinite();
                    cache.extend(if one { scale.signum() } else { scale }.to_le_bytes());
                }
            }
            cache.resize(from + stride, 0x7f);
        }
        let mut weights: Vec<f32> = (0..tokens * heads)
            .map(|_| {
                let plain = random.unit();
                self.weight(&mut random, plain)
            })
            .collect();
        if self.is_beside_infinities() {
            for of_token in weights.chunks_mut(heads) {
                if of_token.iter().any(|weight| weight.is_infinite()) {
                    let one = |w: f32| if w.is_infinite() { w.signum() } else { 0.0 };
                    for weight in of_token {
                        *weight = one(*weight);
                    }
                }
            }
        }
        let table: Vec<i32> = random
            .slots(blocks, blocks, false)
            .iter()
            .map(|block| match random.below(60) {
                0 => -1,
                1 => i32::try_from(blocks).unwrap(),
                _ => i32::try_from(*block).unwrap(),
            })
            .collect();
        let of: Vec<i32> =
            (0..tokens).map(|_| i32::try_from(random.below(requests + 2)).unwrap() - 1).collect();
        let mut positions: Vec<i64> = (0..tokens)
            .map(|_| i64::try_from(random.below(4 * columns + 60)).unwrap() - 1)
            .collect();
        if self.wild {
            far(&mut positions);
        }
        let fp8: Vec<f8e4m3> = values.iter().map(|code| f8e4m3::from_bits(*code)).collect();
        let fp8 = (!fp4).then(|| bench.load([tokens, heads, 128], &fp8));
        let packed = fp4.then(|| bench.load([tokens, heads, 64], &values));
        let scales = bench.load([tokens, heads, 4], &scales);
        let weights = bench.load([tokens, heads], &weights);
        let cache = bench.load([blocks, stride], &cache);
        let table = bench.load([requests, table_columns], &table);
        let (of, positions) = (bench.load([tokens], &of), bench.load([tokens], &positions));
        let mut logits = bench.out([tokens, columns], |device, stream| {
            alloc::logits(device, stream, tokens, columns)
        });
        let mut indices =
            bench.out([tokens, topk], |device, stream| alloc::choice(device, stream, tokens, topk));
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
            logits: logits.out(),
        };
        bench.launch(|kernels, stream| kernels.indexer_logits(stream, args));
        let args = IndexerTopk { logits: logits.view(), indices: indices.out() };
        bench.launch(|kernels, stream| kernels.indexer_topk(stream, args));
        Outcome(vec![("logits", canonical(&logits.bytes())), ("indices", indices.bytes())])
    }

    /// Logits within the tolerance, relative to the magnitudes of their terms, and what is chosen from
    /// them exactly. Gives the largest error, of what is allowed.
    fn compare(&self, reference: &Outcome, found: &Outcome) -> f64 {
        let cpu = Rig::new(Host::in_order(), HostKernels);
        let all = self.logits_of(Inputs::Magnitudes, &cpu);
        let (reference, logits) =
            (floats_of(reference.get("logits")), floats_of(found.get("logits")));
        // What infinities multiply may be 0, or of another sign, where that is within the tolerance.
        let mut beside = None;
        let mut vanishes = |at: usize| {
            let [factors, all] = beside.get_or_insert_with(|| {
                [Inputs::BesideInfinities, Inputs::MagnitudesBesideInfinities]
                    .map(|inputs| self.logits_of(inputs, &cpu))
            });
            f64::from(factors[at].abs()) <= f64::from(all[at]) * 2_f64.powi(-18)
        };
        let mut worst = 0.0_f64;
        for (at, ((a, b), all)) in reference.iter().zip(&logits).zip(&all).enumerate() {
            let named = || format!("{self:?} {at}: {a:e} {b:e}, of magnitudes {all:e}");
            if !a.is_finite() || !all.is_finite() {
                let same = a == b || a.is_nan() && b.is_nan();
                assert!(same || !b.is_finite() && vanishes(at), "{}", named());
                continue;
            }
            let off = (f64::from(*a) - f64::from(*b)).abs() - 1e-37;
            let error = off.max(0.0) / f64::from(*all).max(f64::MIN_POSITIVE);
            // NaN never passes.
            assert!(error <= 2_f64.powi(-18), "{}", named());
            worst = worst.max(error * 2_f64.powi(18));
        }
        let Self { tokens, columns, topk, .. } = *self;
        let mut chosen = vec![-7; tokens * topk];
        indexer_topk(&TopkPlan { tokens, columns, topk }, &logits, &mut chosen);
        assert_eq!(ints_of(found.get("indices")), chosen, "{self:?}");
        worst
    }
}

/// The choice alone, of logits among which many are equal, and some no numbers.
#[derive(Clone, Copy, Debug)]
pub struct ChoiceCase {
    pub tokens: usize,
    pub columns: usize,
    pub topk: usize,
    pub seed: u64,
}

impl Case for ChoiceCase {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn shapes(&self) -> Shapes {
        Shapes { i32s: self.topk, ..Shapes::default() }
    }

    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome {
        const SPECIAL: [f32; 8] =
            [0.0, -0.0, 1e-40, -1e-40, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX];
        let mut random = Random(self.seed);
        let Self { tokens, columns, topk, .. } = *self;
        let mut logits = Vec::new();
        for _ in 0..tokens {
            let (special, levels) = (random.below(9), random.pick(&[1, 3, 100, 1 << 20]));
            logits.extend((0..columns).map(|_| {
                if random.below(8) < special {
                    random.pick(&SPECIAL)
                } else {
                    (random.below(levels) as f32 - 20.0) / 7.0
                }
            }));
        }
        let logits = bench.load([tokens, columns], &logits);
        let mut indices =
            bench.out([tokens, topk], |device, stream| alloc::choice(device, stream, tokens, topk));
        let args = IndexerTopk { logits: logits.view(), indices: indices.out() };
        bench.launch(|kernels, stream| kernels.indexer_topk(stream, args));
        Outcome(vec![("indices", indices.bytes())])
    }
}

#[derive(Clone, Copy, Debug)]
pub struct AttentionCase {
    pub tokens: usize,
    pub heads: usize,
    pub window: usize,
    pub compressed: usize,
    pub whole_rows: bool,
    /// Magnitudes of queries and entries.
    pub magnitudes: (f32, f32),
    /// No numbers and infinities among queries, entries and sinks.
    pub wild: bool,
    pub seed: u64,
}

impl AttentionCase {
    /// Some rows with one element that is no finite number.
    fn spoil(&self, random: &mut Random, rows: &mut [bf16], one_in: usize) {
        const SPECIAL: [f32; 3] = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        for row in rows.chunks_mut(512).filter(|_| self.wild) {
            if random.below(one_in) == 0 {
                row[random.below(512)] = bf16::from_f32(random.pick(&SPECIAL));
            }
        }
    }

    /// Columns of a source for all tokens, some of which are no entry, and how many count.
    fn choose(&self, width: usize, entries: usize, seed: u64) -> (Vec<i32>, Vec<i32>) {
        let mut random = Random(seed);
        let indices = (0..self.tokens * width)
            .map(|_| match random.below(15) {
                0 => -1,
                1 => i32::try_from(entries).unwrap(),
                2 => random.pick(&[i32::MIN, i32::MAX]),
                _ => i32::try_from(random.below(entries)).unwrap(),
            })
            .collect();
        let lens = (0..self.tokens)
            .map(|token| match token % 4 {
                0 => i32::try_from(width).unwrap(),
                1 => random.pick(&[0, -5]),
                2 => i32::try_from(random.below(width + 1)).unwrap(),
                _ => i32::try_from(width + 9).unwrap(),
            })
            .collect();
        (indices, lens)
    }
}

impl Case for AttentionCase {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn shapes(&self) -> Shapes {
        Shapes { heads: self.heads, bf16s: 512, ..Shapes::default() }
    }

    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome {
        let mut random = Random(self.seed);
        let Self { tokens, heads, window, compressed, magnitudes: (of_q, of_k), .. } = *self;
        let (block_size, blocks, stride) = (64, 2, 37_440);
        // Entries as the format makes them, through the reference.
        let mut cache = vec![0_u8; blocks * stride];
        let layout = PagedLayout { format: EntryFormat::Main, block_size, stride, blocks };
        for slot in 0..i64::try_from(blocks * block_size).unwrap() {
            let (data, scales) = layout.entry(slot).unwrap();
            let mut row = random.bf16s(512, of_k);
            self.spoil(&mut random, &mut row, 60);
            let row: Vec<f32> = row.iter().map(|x| x.to_f32()).collect();
            let (mut d, mut s) = ([0; 576], [0; 8]);
            encode_main(&row[..448], &row[448..], &mut d, &mut s);
            cache[data].copy_from_slice(&d);
            cache[scales].copy_from_slice(&s);
        }
        let count = if self.whole_rows { 150 } else { 0 };
        let mut rows = random.bf16s(count * 512, of_k);
        self.spoil(&mut random, &mut rows, 60);
        let mut q = random.bf16s(tokens * heads * 512, of_q);
        self.spoil(&mut random, &mut q, 20);
        let entries = if self.whole_rows { count } else { blocks * block_size };
        let (first, first_lens) = self.choose(window, entries, self.seed ^ 1);
        let (second, second_lens) = self.choose(compressed, blocks * block_size, self.seed ^ 2);
        let mut sinks = random.floats(heads, 3.0);
        sinks[0] = f32::NEG_INFINITY;
        if self.wild {
            let all = [f32::NEG_INFINITY, 1e4, -1e4, f32::INFINITY, f32::NAN, 0.0];
            sinks = (0..heads).map(|_| random.pick(&all)).collect();
        }
        let cache = bench.load([blocks, stride], &cache);
        let rows = bench.load([count, 512], &rows);
        let q = bench.load([tokens, heads, 512], &q);
        let (first, first_lens) =
            (bench.load([tokens, window], &first), bench.load([tokens], &first_lens));
        let (second, second_lens) =
            (bench.load([tokens, compressed], &second), bench.load([tokens], &second_lens));
        let sinks = bench.load([heads], &sinks);
        let mut out = bench.out([tokens, heads, 512], |device, stream| {
            alloc::attended(device, stream, tokens, heads)
        });
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
            out: out.out(),
        };
        bench.launch(|kernels, stream| kernels.attention(stream, args));
        Outcome(vec![("out", out.bytes())])
    }

    /// Each head within the tolerance, as a norm over what is finite, and the rest alike. Gives the
    /// largest error, of what is allowed.
    fn compare(&self, reference: &Outcome, found: &Outcome) -> f64 {
        let (of_q, of_k) = self.magnitudes;
        // Magnitudes are at most these; of elements a sixth on average.
        let scores = f64::from(of_q) * f64::from(of_k) * 512_f64.sqrt();
        let allowed = 6e-3 + 2_f64.powi(-19) * scores;
        heads_are_within(self, allowed, reference.get("out"), found.get("out"))
    }
}

/// Each head of 512 bf16 within a tolerance, as a norm over what is finite, and the rest alike. Gives the
/// largest error, of what is allowed.
pub fn heads_are_within(
    case: &dyn std::fmt::Debug,
    allowed: f64,
    reference: &[u8],
    found: &[u8],
) -> f64 {
    let (reference, found) = (bf16s_of(reference), bf16s_of(found));
    assert_eq!(reference.len(), found.len(), "{case:?}");
    let mut worst = 0.0_f64;
    for (head, (a, b)) in reference.chunks(512).zip(found.chunks(512)).enumerate() {
        let (mut error, mut norm) = (0.0, 0.0);
        for (a, b) in a.iter().zip(b) {
            let named = || format!("{case:?} head {head}: {a} {b}");
            assert_eq!(a.is_nan(), b.is_nan(), "{}", named());
            if a.is_finite() {
                error += (a.to_f64() - b.to_f64()).powi(2);
                norm += a.to_f64().powi(2);
            } else {
                assert!(a.is_nan() || a == b, "{}", named());
            }
        }
        let error = (error.sqrt() - 512_f64.sqrt() * 2_f64.powi(-126)).max(0.0);
        let error = if error == 0.0 { 0.0 } else { error / norm.sqrt() };
        // NaN never passes.
        assert!(error <= allowed, "{case:?} head {head}: {error:e}, allowed {allowed:e}");
        worst = worst.max(error / allowed);
    }
    worst
}

/// The two gathers of a prefill into one workspace: compressed entries, and the window's.
#[derive(Clone, Copy, Debug)]
pub struct GatherCase {
    /// Rows in all.
    pub tokens: usize,
    pub requests: usize,
    /// Of the two caches.
    pub block_sizes: [usize; 2],
    pub stride_extra: usize,
    pub whole_rows: bool,
    /// Lengths of any size, more entries than rows, and entries that do not exist.
    pub wild: bool,
    pub seed: u64,
}

impl GatherCase {
    /// How many rows of each request are for compressed entries and for the window's, and where both parts
    /// of the workspace begin and end.
    fn parts(&self) -> ([Vec<usize>; 2], [usize; 3]) {
        let mut random = Random(self.seed);
        let mut lens = [vec![0; self.requests], vec![0; self.requests]];
        for _ in 0..self.tokens {
            lens[random.below(2)][random.below(self.requests)] += 1;
        }
        let most = |lens: &[usize]| {
            let most = lens.iter().copied().max().unwrap_or(0);
            if self.wild { most.saturating_sub(2) } else { most + 1 }
        };
        let (first, second) = (most(&lens[0]), most(&lens[1]));
        (lens, [0, first, first + second])
    }

    /// Rows of a request: one more than the parts have.
    fn rows(&self) -> usize {
        let (_, [.., end]) = self.parts();
        end + 1
    }

    /// One of the two gathers.
    fn part<D: Device, K: Kernels<D>>(
        &self,
        bench: &Bench<'_, D, K>,
        part: usize,
        out: ViewMut<'_, bf16, D, 3>,
    ) {
        let mut random = Random(self.seed ^ (part as u64 + 1));
        let (lens, bounds) = self.parts();
        let (ratio, block_size, requests) = ([4, 1][part], self.block_sizes[part], self.requests);
        let int = |count: usize| i32::try_from(count).unwrap();
        // The window's entries are the last of many.
        let ends: Vec<usize> =
            lens[part].iter().map(|len| len + part * random.below(100)).collect();
        let mut seq: Vec<i32> =
            ends.iter().map(|end| int(end * ratio + random.below(ratio))).collect();
        let mut gathered: Vec<i32> = lens[part].iter().map(|len| int(*len)).collect();
        let mut columns = ends.iter().max().unwrap().div_ceil(block_size) + 1;
        let blocks = requests * columns + 2;
        if self.wild {
            columns = (columns - 1).max(1);
        }
        let mut table: Vec<i32> = random
            .slots(requests * columns, blocks, false)
            .iter()
            .map(|block| i32::try_from(*block).unwrap())
            .collect();
        if self.wild {
            for block in &mut table {
                if random.below(9) == 0 {
                    *block = random.pick(&[-1, int(blocks), i32::MIN, i32::MAX]);
                }
            }
            for (seq, gathered) in seq.iter_mut().zip(&mut gathered) {
                match random.below(10) {
                    0 => *seq = random.pick(&[i32::MAX, i32::MIN, -1]),
                    1 => *gathered = random.pick(&[i32::MAX, i32::MIN, -1]),
                    2 => *gathered = seq.saturating_add(3),
                    3 => (*seq, *gathered) = (i32::MAX, i32::MAX),
                    _ => {}
                }
            }
        }
        // Any byte: every code meets every scale, and bf16 is any, also a NaN.
        let stride = PagedLayout::block_bytes(EntryFormat::Main, block_size) + self.stride_extra;
        let bytes = blocks * if self.whole_rows { block_size * 1024 } else { stride };
        let bytes: Vec<u8> =
            (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(bytes).collect();
        let paged = (!self.whole_rows).then(|| bench.load([blocks, stride], &bytes));
        let rows =
            self.whole_rows.then(|| bench.load([blocks, block_size, 512], &bf16s_of(&bytes)));
        let table = bench.load([requests, columns], &table);
        let (seq, gathered) = (bench.load([requests], &seq), bench.load([requests], &gathered));
        let args = Gather {
            cache: match (&paged, &rows) {
                (Some(bytes), _) => KvCacheIn::Paged { bytes: bytes.view(), block_size },
                (_, rows) => KvCacheIn::Rows(rows.as_ref().unwrap().view()),
            },
            block_table: table.view(),
            seq_lens: seq.view(),
            gather_lens: (part == 1).then(|| gathered.view()),
            ratio,
            rows: bounds[part]..bounds[part + 1],
            out,
        };
        bench.launch(|kernels, stream| kernels.gather(stream, args));
    }
}

impl Case for GatherCase {
    /// The workspace has one request more than are gathered for.
    fn tokens(&self) -> usize {
        self.requests + 1
    }

    fn shapes(&self) -> Shapes {
        Shapes { heads: self.rows(), bf16s: 512, ..Shapes::default() }
    }

    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome {
        let (requests, rows) = (self.requests + 1, self.rows());
        let mut workspace = bench.out([requests, rows, 512], |device, stream| {
            alloc::workspace(device, stream, requests, rows)
        });
        for part in [0, 1] {
            self.part(bench, part, workspace.out());
        }
        Outcome(vec![("workspace", workspace.bytes())])
    }
}

/// Any case.
#[derive(Clone, Copy)]
pub enum AnyCase {
    Q(QCase),
    IndexerQ(IndexerQCase),
    Map(MapCase),
    Combine(CombineCase),
    Compress(CompressCase),
    Logits(LogitsCase),
    Choice(ChoiceCase),
    Attention(AttentionCase),
    Gather(GatherCase),
}

macro_rules! each {
    ($self:expr, $case:ident => $body:expr) => {
        match $self {
            AnyCase::Q($case) => $body,
            AnyCase::IndexerQ($case) => $body,
            AnyCase::Map($case) => $body,
            AnyCase::Combine($case) => $body,
            AnyCase::Compress($case) => $body,
            AnyCase::Logits($case) => $body,
            AnyCase::Choice($case) => $body,
            AnyCase::Attention($case) => $body,
            AnyCase::Gather($case) => $body,
        }
    };
}

impl std::fmt::Debug for AnyCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        each!(self, case => case.fmt(f))
    }
}

impl Case for AnyCase {
    fn tokens(&self) -> usize {
        each!(self, case => case.tokens())
    }

    fn shapes(&self) -> Shapes {
        each!(self, case => case.shapes())
    }

    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome {
        each!(self, case => case.body(bench))
    }

    fn compare(&self, reference: &Outcome, found: &Outcome) -> f64 {
        each!(self, case => case.compare(reference, found))
    }
}

/// The four compressors, with a block size and padding of a block each.
pub const COMPRESSORS: [(Compression, EntryFormat, usize, usize); 4] = [
    (Compression::C4, EntryFormat::Main, 64, 64),
    (Compression::C4, EntryFormat::IndexFp8, 16, 0),
    (Compression::C4, EntryFormat::IndexMxfp4, 32, 4),
    (Compression::C128, EntryFormat::Main, 2, 560),
];

/// Magnitudes of queries and entries for attention.
pub const MAGNITUDES: [(f32, f32); 9] = [
    (2.0, 4.0),
    (0.0, 4.0),
    (2.0, 0.0),
    (1e-40, 448.0),
    (1e-30, 1e4),
    (448.0, 1e-5),
    (448.0, 1e-40),
    (1e4, 1e-30),
    (448.0, 448.0),
];

/// Every kernel in every form, at a number of tokens.
pub fn every_form(tokens: usize, seed: u64) -> Vec<AnyCase> {
    let mut all = Vec::new();
    for (at, q) in [QForm::Out, QForm::InPlace, QForm::Fp8].into_iter().enumerate() {
        for cache in [CacheForm::Paged, CacheForm::Rows, CacheForm::Fp8] {
            all.push(AnyCase::Q(QCase {
                tokens,
                heads: 3,
                padded: if q == QForm::InPlace { 3 } else { 5 },
                block_size: 4,
                stride_extra: 8,
                inserted: tokens - tokens / 5,
                q,
                cache,
                norm: (at + tokens).is_multiple_of(2),
                kv_norm: cache == CacheForm::Paged || q == QForm::Out,
                wild: true,
                seed,
            }));
        }
    }
    for flag in [false, true] {
        let (heads, fp4) = (7, flag);
        for narrow in [false, true] {
            let (narrow_rope, narrow_weights) = (narrow, narrow != fp4);
            for heads in [7, 8] {
                all.push(AnyCase::IndexerQ(IndexerQCase {
                    tokens,
                    heads,
                    fp4,
                    narrow_rope,
                    narrow_weights,
                    queries: Queries::Wild,
                    seed,
                }));
            }
        }
        let (topk, columns) = (16, 70);
        for wild in [false, true] {
            let inputs = Inputs::Given;
            let case = LogitsCase { tokens, heads, columns, topk, fp4, wild, inputs, seed };
            all.push(AnyCase::Logits(case));
        }
        for (topk, block_size) in [(64, 64), (33, 48)] {
            let case = MapCase { tokens, topk, block_size, packed: flag, seed };
            all.push(AnyCase::Map(case));
        }
        let case = CombineCase { tokens, most: 30, listed: flag, ratio: 4, window: 16, seed };
        all.push(AnyCase::Combine(case));
        let case =
            ChoiceCase { tokens, columns: 600 + tokens, topk: if flag { 700 } else { 60 }, seed };
        all.push(AnyCase::Choice(case));
        for (compression, format, _, _) in COMPRESSORS {
            for (wild, boundaries) in [
                (false, Boundaries::Possible),
                (true, Boundaries::Possible),
                (false, Boundaries::None),
            ] {
                all.push(AnyCase::Compress(CompressCase {
                    tokens,
                    compression,
                    format,
                    block_size: 2,
                    stride_extra: 8,
                    decode: flag,
                    magnitude: 1.0,
                    wild,
                    boundaries,
                    seed,
                }));
            }
        }
        for (compressed, wild) in [(0, false), (20, false), (9, true)] {
            all.push(AnyCase::Attention(AttentionCase {
                tokens,
                heads: 3,
                window: 12,
                compressed,
                whole_rows: flag,
                magnitudes: MAGNITUDES[0],
                wild,
                seed,
            }));
        }
        for (requests, block_sizes, wild) in [(4, [64, 256], false), (2, [2, 3], true)] {
            all.push(AnyCase::Gather(GatherCase {
                tokens,
                requests,
                block_sizes,
                stride_extra: 8,
                whole_rows: flag,
                wild,
                seed,
            }));
        }
    }
    all
}

/// What chooses another kernel, or another grid, by the size of a launch on a device of some 130 multiprocessors.
pub fn large_forms(seed: u64) -> Vec<AnyCase> {
    let mut all = Vec::new();
    for (tokens, heads) in [(40, 64), (150, 64)] {
        for (q, cache) in [(QForm::Out, CacheForm::Paged), (QForm::Fp8, CacheForm::Rows)] {
            all.push(AnyCase::Q(QCase {
                tokens,
                heads,
                padded: heads,
                block_size: 64,
                stride_extra: 64,
                inserted: tokens,
                q,
                cache,
                norm: true,
                kv_norm: q == QForm::Out,
                wild: true,
                seed,
            }));
        }
    }
    for (tokens, heads) in [(300, 64), (1100, 64)] {
        for fp4 in [false, true] {
            let (narrow_rope, narrow_weights) = (fp4, !fp4);
            all.push(AnyCase::IndexerQ(IndexerQCase {
                tokens,
                heads,
                fp4,
                narrow_rope,
                narrow_weights,
                queries: Queries::Wild,
                seed,
            }));
        }
    }
    all.push(AnyCase::Map(MapCase { tokens: 2200, topk: 16, block_size: 64, packed: false, seed }));
    for (compression, format, block_size, stride_extra) in COMPRESSORS {
        all.push(AnyCase::Compress(CompressCase {
            tokens: 1030,
            compression,
            format,
            block_size,
            stride_extra,
            decode: true,
            magnitude: 1.0,
            wild: false,
            boundaries: Boundaries::Possible,
            seed,
        }));
    }
    for (columns, topk) in [(2048, 512), (2052, 100), (6000, 1024)] {
        all.push(AnyCase::Choice(ChoiceCase { tokens: 3, columns, topk, seed }));
    }
    let (tokens, heads, columns, topk, wild) = (2, 64, 2100, 512, false);
    let inputs = Inputs::Given;
    for fp4 in [false, true] {
        let case = LogitsCase { tokens, heads, columns, topk, fp4, wild, inputs, seed };
        all.push(AnyCase::Logits(case));
    }
    all.push(AnyCase::Attention(AttentionCase {
        tokens: 2,
        heads: 80,
        window: 128,
        compressed: 300,
        whole_rows: true,
        magnitudes: MAGNITUDES[0],
        wild: false,
        seed,
    }));
    // More rows than are in flight at a time.
    for whole_rows in [false, true] {
        all.push(AnyCase::Gather(GatherCase {
            tokens: 40_000,
            requests: 4,
            block_sizes: [64, 64],
            stride_extra: 64,
            whole_rows,
            wild: false,
            seed,
        }));
    }
    all
}
