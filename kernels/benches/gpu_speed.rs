//! Speed of the kernels on a GPU: medians of graph replays, in one table, beside a device copy and
//! the peer's figures.
//!
//! A graph holds many launches that rotate over sets of inputs and outputs, which together are larger
//! than the L2 cache; its replays are timed with events. Bytes are counted once each: every input
//! read, every output written. The peer's microseconds were measured on another machine with the
//! same GPU, so a ratio to them carries that machine's spread.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "a benchmark may fail, and its figures are for people"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Random, Rig, rope_table};
use scratchpool::cuda::Cuda;
use scratchpool::cuda::cudarc::driver::CudaGraph;
use scratchpool::cuda::cudarc::driver::sys::{
    CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode,
};
use scratchpool::{Element, Tensor, bf16, bool8, e8m0, f8e4m3};
use scratchpool_kernels::Kernels;
use scratchpool_kernels::cuda::CudaKernels;
use scratchpool_kernels::ops::attention::{Attention, Entries, Selected};
use scratchpool_kernels::ops::compressor::{
    Boundaries, Compress, CompressPool, CompressStore, SaveState, States, Store,
};
use scratchpool_kernels::ops::gather::{Gather, KvCacheIn};
use scratchpool_kernels::ops::indexer_q::{IndexQuery, IndexerQ, Wide};
use scratchpool_kernels::ops::indexer_topk::{IndexQueryIn, IndexerLogits, IndexerTopk};
use scratchpool_kernels::ops::q_insert::{KvCache, QInsert, Query};
use scratchpool_kernels::ops::topk_map::{Placement, TopkMap};
use scratchpool_kernels::reference::cache::EntryFormat;

type Gpu = Rig<Cuda, CudaKernels>;
type T<'s, E, const R: usize> = Tensor<'s, E, Cuda, R>;

/// Bytes that all sets of a case hold together, at least.
const ROTATED: usize = 256 << 20;
const MOST_SETS: usize = 24;
const REPLAYS: usize = 40;

fn sets_of(bytes: usize) -> usize {
    ROTATED.div_ceil(bytes.max(1)).clamp(1, MOST_SETS)
}

/// The median and the spread (10th to 90th percentile) of one launch, in microseconds.
fn time(gpu: &Gpu, sets: usize, mut launch: impl FnMut(usize)) -> (f64, f64, f64) {
    for set in 0..sets {
        launch(set);
    }
    scratchpool::Device::synchronize(&gpu.device).unwrap();
    let launches = if sets == 1 { 4 } else { sets.next_multiple_of(20.min(sets)).max(20) };
    gpu.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    for at in 0..launches {
        launch(at % sets);
    }
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph: CudaGraph = gpu.stream.end_capture(flags).unwrap().unwrap();
    let context = gpu.device.context();
    let event = || context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).unwrap();
    let (start, end) = (event(), event());
    for _ in 0..3 {
        graph.launch().unwrap();
    }
    let mut times: Vec<f64> = (0..REPLAYS)
        .map(|_| {
            start.record(&gpu.stream).unwrap();
            graph.launch().unwrap();
            end.record(&gpu.stream).unwrap();
            end.synchronize().unwrap();
            f64::from(start.elapsed_ms(&end).unwrap()) * 1e3 / launches as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[REPLAYS / 2], times[REPLAYS / 10], times[REPLAYS * 9 / 10])
}

struct Table {
    copy: f64,
}

impl Table {
    fn row(
        &self,
        name: &str,
        tokens: usize,
        bytes: usize,
        timed: (f64, f64, f64),
        peer: Option<f64>,
    ) {
        let (median, low, high) = timed;
        let rate = bytes as f64 / median / 1e3;
        let peer = peer.map_or_else(
            || "      -      -".to_owned(),
            |peer| format!("{peer:7.1} {:6.2}", peer / median),
        );
        println!(
            "ROW {name:<28} {tokens:>6} {median:>9.2} {low:>9.2} {high:>9.2} {rate:>7.0} {:>6.2} {peer}",
            rate / self.copy
        );
    }
}

fn load<'s, E: Element, const R: usize>(
    gpu: &'s Gpu,
    shape: [usize; R],
    values: &[E],
) -> T<'s, E, R> {
    gpu.load(shape, values)
}

fn empty<E: Element, const R: usize>(gpu: &Gpu, shape: [usize; R]) -> T<'_, E, R> {
    Tensor::new(&gpu.device, &gpu.stream, shape).unwrap()
}

/// Random bf16, one block of which is repeated: making gigabytes of them would take longest.
fn many_bf16(random: &mut Random, n: usize, magnitude: f32) -> Vec<bf16> {
    let block = random.bf16s(n.min(1 << 22), magnitude);
    block.iter().copied().cycle().take(n).collect()
}

fn positions(random: &mut Random, tokens: usize) -> Vec<i64> {
    (0..tokens).map(|_| random.below(4096) as i64).collect()
}

fn q_insert(
    gpu: &Gpu,
    table: &Table,
    heads: usize,
    padded: usize,
    tokens: usize,
    peer: Option<f64>,
) {
    let mut random = Random(1);
    let bytes = tokens * (heads * 1024 + padded * 1024 + 1024 + 584 + 16);
    let sets = sets_of(bytes);
    let blocks = tokens.div_ceil(64) + 1;
    let rope = load(gpu, [4096, 64], &rope_table(4096));
    let mut all: Vec<_> = (0..sets)
        .map(|_| {
            (
                load(gpu, [tokens, heads, 512], &many_bf16(&mut random, tokens * heads * 512, 2.0)),
                empty::<bf16, 3>(gpu, [tokens, padded, 512]),
                load(gpu, [tokens, 512], &random.bf16s(tokens * 512, 2.0)),
                load(gpu, [tokens], &positions(&mut random, tokens)),
                load(gpu, [tokens], &random.slots(tokens, blocks * 64, false)),
                empty::<u8, 2>(gpu, [blocks, 37_440]),
            )
        })
        .collect();
    let timed = time(gpu, sets, |set| {
        let (from, to, kv, positions, slots, cache) = &mut all[set];
        let args = QInsert {
            q: Query::Out { from: from.view(), to: to.view_mut() },
            kv: kv.view(),
            kv_norm: None,
            positions: positions.view(),
            slots: slots.view(),
            rope: rope.view(),
            cache: KvCache::Paged { bytes: cache.view_mut(), block_size: 64 },
            eps: 1e-6,
            norm: true,
        };
        gpu.kernels.q_insert(&gpu.stream, args).unwrap();
    });
    table.row(&format!("q_insert {heads} of {padded} heads"), tokens, bytes, timed, peer);
}

fn indexer_q(gpu: &Gpu, table: &Table, fp4: bool, tokens: usize, peer: Option<f64>) {
    let mut random = Random(2);
    let heads = 64;
    let bytes = tokens * (heads * (256 + if fp4 { 68 } else { 128 } + 8) + 8);
    let sets = sets_of(bytes);
    let rope = load(gpu, [4096, 64], &rope_table(4096));
    let mut all: Vec<_> = (0..sets)
        .map(|_| {
            (
                load(gpu, [tokens, heads, 128], &many_bf16(&mut random, tokens * heads * 128, 2.0)),
                load(gpu, [tokens], &positions(&mut random, tokens)),
                load(gpu, [tokens, heads], &random.floats(tokens * heads, 1.0)),
                empty::<u8, 3>(gpu, [tokens, heads, 64]),
                empty::<f8e4m3, 3>(gpu, [tokens, heads, 128]),
                empty::<e8m0, 3>(gpu, [tokens, heads, 4]),
                empty::<f32, 2>(gpu, [tokens, heads]),
            )
        })
        .collect();
    let timed = time(gpu, sets, |set| {
        let (q, positions, weights, codes, values, scales, weights_out) = &mut all[set];
        let weights_out = weights_out.view_mut();
        let out = if fp4 {
            let (values, scales) = (codes.view_mut(), scales.view_mut());
            IndexQuery::Mxfp4 { values, scales, weights: weights_out }
        } else {
            IndexQuery::Fp8 { values: values.view_mut(), weights: weights_out }
        };
        let args = IndexerQ {
            q: q.view(),
            positions: positions.view(),
            rope: Wide::F32(rope.view()),
            weights: Wide::F32(weights.view()),
            softmax_scale: 0.088_388_35,
            head_scale: 0.125,
            out,
        };
        gpu.kernels.indexer_q(&gpu.stream, args).unwrap();
    });
    table.row(if fp4 { "indexer_q mxfp4" } else { "indexer_q fp8" }, tokens, bytes, timed, peer);
}

fn topk_map(gpu: &Gpu, table: &Table, placement: Placement, tokens: usize, peer: Option<f64>) {
    let mut random = Random(3);
    let (topk, requests, columns) = (512, 64, 64);
    let bytes = tokens * (topk * 8 + 4 + 4 + 1);
    let sets = sets_of(bytes);
    let blocks: Vec<i32> = (0..requests * columns).map(|_| random.below(100_000) as i32).collect();
    let blocks = load(gpu, [requests, columns], &blocks);
    let mut all: Vec<_> = (0..sets)
        .map(|_| {
            let local: Vec<i32> =
                (0..tokens * topk).map(|_| random.below(columns * 64) as i32).collect();
            let of: Vec<i32> =
                (0..tokens).map(|token| (token * requests / tokens) as i32).collect();
            (
                load(gpu, [tokens, topk], &local),
                load(gpu, [tokens], &of),
                load(gpu, [tokens], &vec![bool8::from(true); tokens]),
                empty::<i32, 2>(gpu, [tokens, topk]),
                empty::<i32, 1>(gpu, [tokens]),
            )
        })
        .collect();
    let timed = time(gpu, sets, |set| {
        let (local, of, valid, indices, lens) = &mut all[set];
        let args = TopkMap {
            topk: local.view(),
            token_to_req: of.view(),
            block_table: blocks.view(),
            columns,
            valid: valid.view(),
            block_size: 64,
            placement,
            indices: indices.view_mut(),
            lens: lens.view_mut(),
        };
        gpu.kernels.topk_map(&gpu.stream, args).unwrap();
    });
    let name =
        if placement == Placement::InPlace { "topk_map in place" } else { "topk_map packed left" };
    table.row(name, tokens, bytes, timed, peer);
}

/// All entries of four requests, or of one, whose blocks are anywhere; tokens are rows.
fn gather(gpu: &Gpu, table: &Table, whole_rows: bool, requests: usize, rows: usize) {
    let mut random = Random(7);
    let each = rows / requests;
    let (block_size, stride) = (64, 37_440);
    let columns = each.div_ceil(block_size);
    let blocks = requests * columns;
    let entry = if whole_rows { 1024 } else { 584 };
    let bytes = rows * (entry + 1024) + 4 * (blocks + requests);
    let sets = sets_of(bytes);
    // Codes near 1, under any scales.
    let noise: Vec<u8> = (0..1 << 20).map(|_| 0x38 | (random.next() & 0x87) as u8).collect();
    let many = |n: usize| -> Vec<u8> { noise.iter().copied().cycle().take(n).collect() };
    let lens = load(gpu, [requests], &vec![each as i32; requests]);
    let mut all: Vec<_> = (0..sets)
        .map(|_| {
            let of: Vec<i32> =
                random.slots(blocks, blocks, false).iter().map(|block| *block as i32).collect();
            let mut whole = || many_bf16(&mut random, blocks * block_size * 512, 2.0);
            (
                (!whole_rows).then(|| load(gpu, [blocks, stride], &many(blocks * stride))),
                whole_rows.then(|| load(gpu, [blocks, block_size, 512], &whole())),
                load(gpu, [requests, columns], &of),
                empty::<bf16, 3>(gpu, [requests, each, 512]),
            )
        })
        .collect();
    let timed = time(gpu, sets, |set| {
        let (paged, whole, blocks_of, workspace) = &mut all[set];
        let args = Gather {
            cache: match (paged, whole) {
                (Some(bytes), _) => KvCacheIn::Paged { bytes: bytes.view(), block_size },
                (_, rows) => KvCacheIn::Rows(rows.as_ref().unwrap().view()),
            },
            block_table: blocks_of.view(),
            seq_lens: lens.view(),
            gather_lens: None,
            ratio: 1,
            rows: 0..each,
            out: workspace.view_mut(),
        };
        gpu.kernels.gather(&gpu.stream, args).unwrap();
    });
    let form = if whole_rows { "rows" } else { "paged" };
    table.row(&format!("gather {form}, {requests} requests"), rows, bytes, timed, None);
}

/// Saving and compressing one long request; bytes of windows are those that are read.
fn compressors(gpu: &Gpu, table: &Table, tokens: usize) {
    let mut random = Random(4);
    for (name, ratio, halves, format) in [
        ("C4 main", 4, 2, EntryFormat::Main),
        ("C4 index fp8", 4, 2, EntryFormat::IndexFp8),
        ("C4 index mxfp4", 4, 2, EntryFormat::IndexMxfp4),
        ("C128", 128, 1, EntryFormat::Main),
    ] {
        let width = format.width();
        let columns = 2 * halves * width;
        let page_tokens = if ratio == 4 { 4 } else { 8 };
        let pages = tokens.div_ceil(page_tokens);
        let entries = tokens / ratio;
        let block_size = if ratio == 4 { 64 } else { 2 };
        let blocks = entries.div_ceil(block_size) + 1;
        let stride =
            (block_size * (format.data_bytes() + format.scale_bytes())).next_multiple_of(64);
        let bytes = pages * page_tokens * columns * 4;
        let sets = sets_of(bytes);
        let noise = random.floats(1 << 20, 1.0);
        let state: Vec<f32> =
            noise.iter().copied().cycle().take(pages * page_tokens * columns).collect();
        let index: Vec<i64> = (0..tokens as i64).collect();
        let pages_in_order: Vec<i32> = (0..pages as i32).collect();
        let slots: Vec<i64> = index.iter().map(|at| at / ratio as i64).collect();
        let positions = load(gpu, [tokens], &index);
        let kv_slots = load(gpu, [tokens], &slots);
        let of = load(gpu, [tokens], &vec![0_i32; tokens]);
        let blocks_of = load(gpu, [1, pages], &pages_in_order);
        let weight = load(gpu, [width], &random.floats(width, 1.0));
        let rope = load(gpu, [8192, 64], &rope_table(8192));
        let ape = load(gpu, [ratio, columns / 2], &random.floats(ratio * columns / 2, 1.0));
        let kv_score = load(
            gpu,
            [tokens, columns],
            &state.iter().copied().take(tokens * columns).collect::<Vec<_>>(),
        );
        let mut all: Vec<_> = (0..sets)
            .map(|_| {
                (
                    load(gpu, [pages, page_tokens, columns], &state),
                    empty::<u8, 2>(gpu, [blocks, stride]),
                    empty::<f32, 2>(gpu, [tokens, 512]),
                )
            })
            .collect();
        let timed = time(gpu, sets, |set| {
            let args = SaveState {
                kv_score: kv_score.view(),
                ape: ape.view(),
                positions: positions.view(),
                slots: positions.view(),
                state: all[set].0.view_mut(),
            };
            gpu.kernels.save_state(&gpu.stream, args).unwrap();
        });
        table.row(&format!("save_state {name}"), tokens, tokens * columns * 8, timed, None);
        let boundaries = Boundaries::Possible;
        if ratio == 4 {
            // A window's first half was read as the second half of the window before.
            let bytes = entries * (8 * 2 * width * 4 + format.data_bytes() + format.scale_bytes());
            let timed = time(gpu, sets, |set| {
                let (state, cache, _) = &mut all[set];
                let states = States {
                    state: state.view(),
                    block_table: blocks_of.view(),
                    token_to_req: of.view(),
                    positions: positions.view(),
                    slots: positions.view(),
                };
                let store = Store {
                    slots: kv_slots.view(),
                    norm_weight: weight.view(),
                    eps: 1e-6,
                    rope: rope.view(),
                    cache: cache.view_mut(),
                    block_size,
                    format,
                };
                gpu.kernels.compress(&gpu.stream, Compress { states, store, boundaries }).unwrap();
            });
            table.row(&format!("compress {name}"), tokens, bytes, timed, None);
        } else {
            let bytes = entries * 128 * 2 * width * 4 + entries * 512 * 4;
            let timed = time(gpu, sets, |set| {
                let (state, _, scratch) = &mut all[set];
                let states = States {
                    state: state.view(),
                    block_table: blocks_of.view(),
                    token_to_req: of.view(),
                    positions: positions.view(),
                    slots: positions.view(),
                };
                let args = CompressPool { states, scratch: scratch.view_mut(), boundaries };
                gpu.kernels.compress_pool(&gpu.stream, args).unwrap();
            });
            table.row(&format!("compress_pool {name}"), tokens, bytes, timed, None);
            let bytes = entries * (512 * 4 + 584);
            let timed = time(gpu, sets, |set| {
                let (_, cache, scratch) = &mut all[set];
                let store = Store {
                    slots: kv_slots.view(),
                    norm_weight: weight.view(),
                    eps: 1e-6,
                    rope: rope.view(),
                    cache: cache.view_mut(),
                    block_size,
                    format,
                };
                let args = CompressStore {
                    scratch: scratch.view(),
                    positions: positions.view(),
                    state_slots: positions.view(),
                    store,
                    boundaries,
                };
                gpu.kernels.compress_store(&gpu.stream, args).unwrap();
            });
            table.row(&format!("compress_store {name}"), tokens, bytes, timed, None);
        }
    }
}

fn attention(gpu: &Gpu, tokens: usize, heads: usize, compressed: usize) {
    let mut random = Random(5);
    let (window, block_size, blocks, stride) = (128, 64, 256, 37_440);
    let mut cache = vec![0_u8; blocks * stride];
    for block in cache.chunks_mut(stride) {
        for byte in &mut block[..576 * 64] {
            *byte = (random.next() & 0x37) as u8;
        }
        block[576 * 64..].fill(126);
    }
    let cache = load(gpu, [blocks, stride], &cache);
    let q = load(gpu, [tokens, heads, 512], &many_bf16(&mut random, tokens * heads * 512, 1.0));
    let mut out = empty::<bf16, 3>(gpu, [tokens, heads, 512]);
    let sinks = load(gpu, [heads], &random.floats(heads, 1.0));
    let mut choose = |width: usize| -> Vec<i32> {
        (0..tokens * width).map(|_| random.below(blocks * block_size) as i32).collect()
    };
    let (first, second) = (choose(window), choose(compressed));
    let first = load(gpu, [tokens, window], &first);
    let second = load(gpu, [tokens, compressed], &second);
    let first_lens = load(gpu, [tokens], &vec![window as i32; tokens]);
    let second_lens = load(gpu, [tokens], &vec![compressed as i32; tokens]);
    let (median, low, high) = time(gpu, 1, |_| {
        let paged = || Entries::Paged { cache: cache.view(), block_size };
        let args = Attention {
            q: q.view(),
            first: Selected { entries: paged(), indices: first.view(), lens: first_lens.view() },
            second: Some(Selected {
                entries: paged(),
                indices: second.view(),
                lens: second_lens.view(),
            }),
            sinks: sinks.view(),
            scale: 0.044,
            out: out.view_mut(),
        };
        gpu.kernels.attention(&gpu.stream, args).unwrap();
    });
    let flops = (tokens * heads * (window + compressed) * 512 * 4) as f64;
    println!(
        "MATH attention {heads} heads, {window} + {compressed:<5} {tokens:>6} {median:>9.1} {low:>9.1} {high:>9.1} {:>7.0} TFLOP/s",
        flops / median / 1e6
    );
}

fn indexer(gpu: &Gpu, fp4: bool, tokens: usize, columns: usize) {
    let mut random = Random(6);
    let heads = 64;
    let format = if fp4 { EntryFormat::IndexMxfp4 } else { EntryFormat::IndexFp8 };
    let blocks = columns.div_ceil(64);
    let stride = 64 * (format.data_bytes() + 4);
    let mut codes = |n: usize| -> Vec<u8> {
        (0..n).map(|_| (random.next() & 0x77 | random.next() & 0x80) as u8).collect()
    };
    let values = codes(tokens * heads * format.data_bytes());
    let mut cache = codes(blocks * stride);
    for block in cache.chunks_mut(stride) {
        for scale in block[64 * format.data_bytes()..].chunks_mut(4) {
            scale.copy_from_slice(&if fp4 { [127; 4] } else { 1_f32.to_le_bytes() });
        }
    }
    let fp8: Vec<f8e4m3> = values.iter().map(|code| f8e4m3::from_bits(*code)).collect();
    let fp8 = (!fp4).then(|| load(gpu, [tokens, heads, 128], &fp8));
    let packed = fp4.then(|| load(gpu, [tokens, heads, 64], &values));
    let scales = load(gpu, [tokens, heads, 4], &vec![e8m0::from_bits(127); tokens * heads * 4]);
    let weights = load(gpu, [tokens, heads], &random.floats(tokens * heads, 1.0));
    let cache = load(gpu, [blocks, stride], &cache);
    let table = load(gpu, [1, blocks], &(0..blocks as i32).collect::<Vec<_>>());
    let of = load(gpu, [tokens], &vec![0_i32; tokens]);
    let last = load(gpu, [tokens], &vec![4 * columns as i64; tokens]);
    let mut logits = empty::<f32, 2>(gpu, [tokens, columns]);
    let mut indices = empty::<i32, 2>(gpu, [tokens, 512]);
    let (median, low, high) = time(gpu, 1, |_| {
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
            block_size: 64,
            block_table: table.view(),
            token_to_req: of.view(),
            positions: last.view(),
            ratio: 4,
            logits: logits.view_mut(),
        };
        gpu.kernels.indexer_logits(&gpu.stream, args).unwrap();
    });
    let flops = (tokens * columns * heads * 256) as f64;
    let name = if fp4 { "mxfp4" } else { "fp8" };
    println!(
        "MATH indexer_logits {name:<6} {columns:>6} keys {tokens:>6} {median:>9.1} {low:>9.1} {high:>9.1} {:>7.0} TFLOP/s",
        flops / median / 1e6
    );
    let (median, low, high) = time(gpu, 1, |_| {
        let args = IndexerTopk { logits: logits.view(), indices: indices.view_mut() };
        gpu.kernels.indexer_topk(&gpu.stream, args).unwrap();
    });
    println!(
        "MATH indexer_topk 512 of {columns:>6}      {tokens:>6} {median:>9.1} {low:>9.1} {high:>9.1} {:>7.0} GB/s",
        (tokens * (columns + 512) * 4) as f64 / median / 1e3
    );
}

/// Bytes read and written by a large device copy, in GB/s.
fn copy(gpu: &Gpu) -> f64 {
    let n = 1_usize << 30;
    let from = gpu.stream.alloc_zeros::<u8>(n).unwrap();
    let mut to = gpu.stream.alloc_zeros::<u8>(n).unwrap();
    let context = gpu.device.context();
    let event = || context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).unwrap();
    let (start, end) = (event(), event());
    let mut times: Vec<f64> = (0..20)
        .map(|_| {
            start.record(&gpu.stream).unwrap();
            gpu.stream.memcpy_dtod(&from, &mut to).unwrap();
            end.record(&gpu.stream).unwrap();
            end.synchronize().unwrap();
            f64::from(start.elapsed_ms(&end).unwrap())
        })
        .collect();
    times.sort_by(f64::total_cmp);
    2.0 * n as f64 / times[10] / 1e6
}

fn main() {
    let cuda = match Cuda::open(0) {
        Ok(cuda) => cuda,
        Err(error) => {
            println!("SKIPPED the whole benchmark: {error}");
            return;
        }
    };
    let began = std::time::Instant::now();
    let kernels = CudaKernels::new(&cuda).unwrap_or_else(|error| panic!("{error}"));
    println!("kernels ready after {:.1} s", began.elapsed().as_secs_f32());
    let gpu = Rig::new(cuda, kernels);
    let table = Table { copy: copy(&gpu) };
    println!("device copy: {:.0} GB/s", table.copy);
    println!(
        "ROW {:<28} {:>6} {:>9} {:>9} {:>9} {:>7} {:>6} {:>7} {:>6}",
        "kernel", "tokens", "us", "p10", "p90", "GB/s", "/copy", "peer us", "x peer"
    );
    for (tokens, peer) in [(1, 2.2), (16, 3.2), (64, 6.3), (512, 38.0), (2048, 81.0), (8192, 282.0)]
    {
        q_insert(&gpu, &table, 64, 64, tokens, Some(peer));
    }
    for (tokens, peer) in [(64, 4.0), (512, 18.4), (2048, 53.0), (8192, 187.0)] {
        q_insert(&gpu, &table, 16, 64, tokens, Some(peer));
    }
    for (tokens, peer) in [(1, 1.9), (64, 4.4), (1024, 41.0), (8192, 317.0)] {
        indexer_q(&gpu, &table, false, tokens, Some(peer));
    }
    for tokens in [1, 64, 1024, 8192] {
        indexer_q(&gpu, &table, true, tokens, None);
    }
    for (tokens, peer) in [(1, 2.1), (64, 2.3), (1024, 3.4), (8192, 13.9)] {
        topk_map(&gpu, &table, Placement::InPlace, tokens, Some(peer));
    }
    for tokens in [1, 64, 1024, 8192] {
        topk_map(&gpu, &table, Placement::PackedLeft, tokens, None);
    }
    compressors(&gpu, &table, 8192);
    for rows in [64, 512, 2048, 8192, 65_536] {
        gather(&gpu, &table, false, 4, rows);
    }
    gather(&gpu, &table, false, 1, 8192);
    for rows in [8192, 65_536] {
        gather(&gpu, &table, true, 4, rows);
    }
    for (tokens, heads, compressed) in
        [(1, 64, 512), (64, 64, 512), (1024, 64, 512), (4096, 64, 512), (1024, 128, 1024)]
    {
        attention(&gpu, tokens, heads, compressed);
    }
    for (tokens, columns) in [(1, 16_384), (64, 16_384), (1024, 2048), (4096, 2048)] {
        indexer(&gpu, false, tokens, columns);
    }
    indexer(&gpu, true, 1024, 2048);
}
