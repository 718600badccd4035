//! The device's kernels against the references. Each test skips, loudly, where there is no driver.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helper may fail the test")]

#[path = "../common/mod.rs"]
mod common;

use std::time::Instant;

use common::cases::{
    AttentionCase, CacheForm, CombineCase, CompressCase, IndexerQCase, LogitsCase, MapCase, QCase,
    QForm, every_value_under_every_scale,
};
use common::pooled::through_a_pool;
use common::{Rig, assert_same, bytes_of};
use scratchpool::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use scratchpool::cuda::{Cuda, Stream};
use scratchpool::{Host, bf16};
use scratchpool_kernels::HostKernels;
use scratchpool_kernels::cuda::CudaKernels;
use scratchpool_kernels::ops::compressor::Compression;
use scratchpool_kernels::reference::cache::EntryFormat;

type Gpu = Rig<Cuda, CudaKernels>;
type Cpu = Rig<Host, HostKernels>;

fn rigs() -> Option<(Cpu, Gpu)> {
    let cuda = match Cuda::open(0) {
        Ok(cuda) => cuda,
        Err(error) => {
            println!("SKIPPED 1 test: {error}");
            return None;
        }
    };
    let kernels = CudaKernels::new(&cuda).unwrap_or_else(|error| panic!("{error}"));
    Some((Rig::new(Host::in_order(), HostKernels), Rig::new(cuda, kernels)))
}

/// Captures a launch into a graph, and replays it once.
fn in_a_graph(stream: &Stream, launch: &mut dyn FnMut()) {
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    launch();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    // A launch of no rows leaves nothing to replay.
    if let Some(graph) = stream.end_capture(flags).unwrap() {
        graph.launch().unwrap();
        stream.synchronize().unwrap();
    }
}

fn seed() -> u64 {
    let fresh = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    std::env::var("SCRATCHPOOL_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| u64::try_from(fresh.as_nanos() & 0xffff_ffff).unwrap())
}

/// Every number of tokens that is asked for.
fn token_counts(large: bool) -> Vec<usize> {
    let mut all: Vec<usize> = (0..=65).collect();
    all.extend([127, 128, 129, 1024]);
    if large {
        all.push(8192);
    }
    all
}

struct Tally {
    name: &'static str,
    cases: usize,
    bytes: usize,
    start: Instant,
    seed: u64,
}

impl Tally {
    fn new(name: &'static str) -> Self {
        let seed = seed();
        println!("{name}: SCRATCHPOOL_SEED={seed}");
        Self { name, cases: 0, bytes: 0, start: Instant::now(), seed }
    }

    fn same(&mut self, case: &impl std::fmt::Debug, host: &[u8], device: &[u8]) {
        assert_same(&format!("{case:?}"), host, device);
        self.cases += 1;
        self.bytes += host.len();
    }

    fn next_seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let Self { name, cases, bytes, start, .. } = self;
            let took = start.elapsed().as_secs_f32();
            println!("RESULT {name}: {cases} cases, {bytes} bytes equal, {took:.1} s");
        }
    }
}

fn small_q(seed: u64) -> QCase {
    QCase {
        tokens: 17,
        heads: 8,
        padded: 16,
        block_size: 16,
        stride_extra: 0,
        inserted: 17,
        q: QForm::Out,
        cache: CacheForm::Paged,
        norm: true,
        wild: true,
        seed,
    }
}

#[test]
fn q_insert_gives_the_references_bytes_for_every_number_of_tokens() {
    let Some((cpu, gpu)) = rigs() else { return };
    let mut tally = Tally::new("q_insert tokens");
    for tokens in token_counts(true) {
        for (heads, padded) in [(64, 64), (16, 64)] {
            if tokens == 8192 && heads == 16 {
                continue;
            }
            let case = QCase {
                tokens,
                heads,
                padded,
                block_size: 64,
                stride_extra: 64,
                inserted: tokens - tokens / 7,
                wild: tokens % 2 == 1,
                ..small_q(tally.next_seed())
            };
            tally.same(&case, &case.run(&cpu), &case.run(&gpu));
        }
    }
}

#[test]
fn q_insert_gives_the_references_bytes_in_every_form() {
    let Some((cpu, gpu)) = rigs() else { return };
    let mut tally = Tally::new("q_insert forms");
    for q in [QForm::Out, QForm::InPlace, QForm::Fp8] {
        for cache in [CacheForm::Paged, CacheForm::Rows, CacheForm::Fp8] {
            for norm in [true, false] {
                for tokens in [1, 17, 300, 1100] {
                    for (heads, padded) in [(5, 8), (64, 64), (7, 7), (1, 32)] {
                        if tokens == 1100 && heads != 5 {
                            continue;
                        }
                        let padded = if q == QForm::InPlace { heads } else { padded };
                        let seed = tally.next_seed();
                        let case = QCase {
                            tokens,
                            heads,
                            padded,
                            inserted: tokens,
                            q,
                            cache,
                            norm,
                            ..small_q(seed)
                        };
                        tally.same(&case, &case.run(&cpu), &case.run(&gpu));
                    }
                }
            }
        }
    }
    for (block_size, stride_extra) in [(1, 0), (2, 560), (3, 8), (16, 0), (64, 64), (100, 24)] {
        let case = QCase { block_size, stride_extra, ..small_q(tally.next_seed()) };
        tally.same(&case, &case.run(&cpu), &case.run(&gpu));
    }
}

#[test]
fn indexer_q_gives_the_references_bytes_in_both_formats() {
    let Some((cpu, gpu)) = rigs() else { return };
    let mut tally = Tally::new("indexer_q");
    for tokens in token_counts(true).into_iter().chain([7, 32, 257]) {
        for fp4 in [false, true] {
            let seed = tally.next_seed();
            let case = IndexerQCase {
                tokens,
                heads: match tokens % 7 {
                    3 => 32,
                    5 => 12,
                    6 => 7,
                    _ => 64,
                },
                fp4,
                narrow_rope: tokens % 2 == 0,
                narrow_weights: tokens % 3 == 0,
                seed,
            };
            tally.same(&case, &case.run(&cpu), &case.run(&gpu));
        }
    }
}

#[test]
fn mxfp4_rounds_every_value_under_every_scale_as_the_reference_does() {
    let Some((cpu, gpu)) = rigs() else { return };
    let mut tally = Tally::new("every value under every scale");
    let seed = tally.next_seed();
    let q = every_value_under_every_scale(seed);
    let (tokens, heads) = (q.len() / (64 * 128), 64);
    let (narrow_rope, narrow_weights) = (false, false);
    let case = IndexerQCase { tokens, heads, fp4: true, narrow_rope, narrow_weights, seed };
    tally.same(&case, &case.run_on(&cpu, &q), &case.run_on(&gpu, &q));
}

#[test]
fn topk_map_gives_the_references_slots_and_lengths() {
    let Some((cpu, gpu)) = rigs() else { return };
    let mut tally = Tally::new("topk_map");
    for tokens in token_counts(true) {
        for (topk, block_size, packed) in
            [(512, 64, false), (1024, 2, false), (512, 64, true), (500, 48, false), (37, 1, true)]
        {
            let case = MapCase { tokens, topk, block_size, packed, seed: tally.next_seed() };
            tally.same(&case, &case.run(&cpu), &case.run(&gpu));
        }
    }
}

#[test]
fn combined_indices_are_the_references() {
    let Some((cpu, gpu)) = rigs() else { return };
    let mut tally = Tally::new("combine_indices");
    for tokens in token_counts(true) {
        for (most, listed, ratio, window) in
            [(512, true, 4, 128), (64, false, 128, 128), (0, false, 1, 128), (100, true, 4, 1)]
        {
            let seed = tally.next_seed();
            let case = CombineCase { tokens, most, listed, ratio, window, seed };
            tally.same(&case, &case.run(&cpu), &case.run(&gpu));
        }
    }
}

#[test]
fn compressors_give_the_references_bytes() {
    let Some((cpu, gpu)) = rigs() else { return };
    let mut tally = Tally::new("compressors");
    for tokens in token_counts(true) {
        for (compression, format, block_size, stride_extra) in [
            (Compression::C4, EntryFormat::Main, 64, 64),
            (Compression::C4, EntryFormat::IndexFp8, 16, 0),
            (Compression::C4, EntryFormat::IndexMxfp4, 32, 0),
            (Compression::C128, EntryFormat::Main, 2, 560),
        ] {
            for decode in [false, true] {
                if decode && tokens == 8192 {
                    continue;
                }
                let case = CompressCase {
                    tokens,
                    compression,
                    format,
                    block_size,
                    stride_extra,
                    decode,
                    magnitude: [0.001, 1.0, 100.0][tokens % 3],
                    seed: tally.next_seed(),
                };
                tally.same(&case, &case.run(&cpu), &case.run(&gpu));
            }
        }
    }
}

#[test]
fn logits_are_within_tolerance_and_choices_are_the_largest() {
    let Some((cpu, gpu)) = rigs() else { return };
    let mut tally = Tally::new("indexer logits and choice");
    let mut worst = 0.0_f32;
    let sizes = [
        (1, 64, 1000, 512),
        (5, 32, 130, 64),
        (33, 64, 700, 512),
        (3, 7, 5, 16),
        (65, 64, 257, 100),
        (2, 64, 9000, 1024),
    ];
    let every = token_counts(true).into_iter().map(|tokens| (tokens, 9, 40, 16));
    for (tokens, heads, columns, topk) in sizes.into_iter().chain(every) {
        for fp4 in [false, true] {
            let case = LogitsCase { tokens, heads, columns, topk, fp4, seed: tally.next_seed() };
            let (reference, _) = case.run(&cpu);
            let (logits, chosen) = case.run(&gpu);
            for token in 0..tokens {
                let range = token * columns..(token + 1) * columns;
                let (reference, logits) = (&reference[range.clone()], &logits[range]);
                let largest =
                    reference.iter().filter(|x| x.is_finite()).fold(0_f32, |m, x| m.max(x.abs()));
                for (column, (a, b)) in reference.iter().zip(logits).enumerate() {
                    if a.is_finite() {
                        let error = (a - b).abs() / largest.max(1e-30);
                        // Terms of both signs may cancel in a row of few candidates.
                        assert!(error < 1e-4, "{case:?} token {token} column {column}: {a} {b}");
                        worst = worst.max(error);
                    } else {
                        assert_eq!(a.to_bits(), b.to_bits(), "{case:?} {token} {column}");
                    }
                }
                let mut sorted: Vec<f32> =
                    logits.iter().copied().filter(|x| *x > f32::NEG_INFINITY).collect();
                sorted.sort_by(|a, b| b.total_cmp(a));
                sorted.truncate(topk);
                let chosen = &chosen[token * topk..(token + 1) * topk];
                let (used, unused) = chosen.split_at(sorted.len());
                assert!(unused.iter().all(|index| *index == -1), "{case:?} token {token}");
                let mut columns: Vec<usize> =
                    used.iter().map(|index| usize::try_from(*index).unwrap()).collect();
                let mut values: Vec<f32> = columns.iter().map(|column| logits[*column]).collect();
                values.sort_by(|a, b| b.total_cmp(a));
                assert_eq!(values, sorted, "{case:?} token {token}");
                columns.sort_unstable();
                columns.dedup();
                assert_eq!(columns.len(), sorted.len(), "{case:?} token {token}: one twice");
            }
            tally.cases += 1;
        }
    }
    println!("RESULT worst logit error, of the row's largest: {worst:.1e}");
}

fn relative_error(reference: &[bf16], found: &[bf16]) -> f64 {
    let (mut error, mut norm) = (0.0, 0.0);
    for (a, b) in reference.iter().zip(found) {
        error += (a.to_f64() - b.to_f64()).powi(2);
        norm += a.to_f64().powi(2);
    }
    if norm == 0.0 { error } else { (error / norm).sqrt() }
}

#[test]
fn attention_is_within_tolerance_of_float64() {
    let Some((cpu, gpu)) = rigs() else { return };
    let mut tally = Tally::new("attention");
    let mut worst = 0.0_f64;
    let sizes = [
        (1, 64, 128, 512, false),
        (4, 64, 128, 0, false),
        (9, 16, 128, 64, false),
        (4, 128, 128, 1024, false),
        (7, 8, 1, 3, false),
        (5, 64, 640, 0, true),
        (6, 64, 77, 130, true),
    ];
    let every = token_counts(true).into_iter().map(|tokens| (tokens, 3, 9, 7, tokens % 2 == 1));
    for (tokens, heads, window, compressed, whole_rows) in sizes.into_iter().chain(every) {
        let seed = tally.next_seed();
        let case = AttentionCase { tokens, heads, window, compressed, whole_rows, seed };
        let (reference, found) = (case.run(&cpu), case.run(&gpu));
        for (head, (a, b)) in reference.chunks(512).zip(found.chunks(512)).enumerate() {
            let error = relative_error(a, b);
            // NaN never passes.
            assert!(error < 6e-3, "{case:?} token {} head {}: {error}", head / heads, head % heads);
            worst = worst.max(error);
        }
        tally.cases += 1;
    }
    println!("RESULT worst attention error of a head: {worst:.1e}");
}

#[test]
fn inside_a_graph_every_kernel_gives_the_same_bytes() {
    let Some((cpu, mut gpu)) = rigs() else { return };
    gpu.around = in_a_graph;
    let mut tally = Tally::new("inside a graph");
    for _ in 0..8 {
        small_run(&mut tally, &cpu, &gpu);
    }
}

#[test]
fn pool_views_and_the_allocating_form_hold_the_same_bytes_as_the_host() {
    let Some((cpu, gpu)) = rigs() else { return };
    let mut tally = Tally::new("pool views and allocating form");
    for rows in [0, 1, 2, 5, 17, 63, 64] {
        let seed = tally.next_seed();
        let (host, device) = (through_a_pool(&cpu, rows, seed), through_a_pool(&gpu, rows, seed));
        tally.same(&("q", rows), &bytes_of(&host.0), &bytes_of(&device.0));
        tally.same(&("indices", rows), &bytes_of(&host.1), &bytes_of(&device.1));
        tally.same(&("lens", rows), &bytes_of(&host.2), &bytes_of(&device.2));
    }
}

#[test]
fn a_small_run_of_every_kernel() {
    let Some((cpu, gpu)) = rigs() else { return };
    small_run(&mut Tally::new("small run"), &cpu, &gpu);
}

fn small_run(tally: &mut Tally, cpu: &Cpu, gpu: &Gpu) {
    let seed = tally.next_seed();
    for (q, cache) in [
        (QForm::Out, CacheForm::Paged),
        (QForm::InPlace, CacheForm::Rows),
        (QForm::Fp8, CacheForm::Fp8),
    ] {
        let padded = if q == QForm::InPlace { 8 } else { 16 };
        let case = QCase { q, cache, padded, tokens: 9, inserted: 8, ..small_q(seed) };
        tally.same(&case, &case.run(cpu), &case.run(gpu));
    }
    for fp4 in [false, true] {
        for heads in [7, 8] {
            let (narrow_rope, narrow_weights) = (fp4, fp4);
            let case = IndexerQCase { tokens: 3, heads, fp4, narrow_rope, narrow_weights, seed };
            tally.same(&case, &case.run(cpu), &case.run(gpu));
        }
        let case = LogitsCase { tokens: 3, heads: 64, columns: 100, topk: 32, fp4, seed };
        let _ = case.run(gpu);
    }
    for (topk, packed) in [(64, false), (33, false), (33, true)] {
        let case = MapCase { tokens: 5, topk, block_size: 64, packed, seed };
        tally.same(&case, &case.run(cpu), &case.run(gpu));
    }
    let case = CombineCase { tokens: 5, most: 40, listed: true, ratio: 4, window: 16, seed };
    tally.same(&case, &case.run(cpu), &case.run(gpu));
    for (compression, format) in [
        (Compression::C4, EntryFormat::Main),
        (Compression::C4, EntryFormat::IndexFp8),
        (Compression::C4, EntryFormat::IndexMxfp4),
        (Compression::C128, EntryFormat::Main),
    ] {
        let case = CompressCase {
            tokens: 9,
            compression,
            format,
            block_size: 2,
            stride_extra: 8,
            decode: true,
            magnitude: 1.0,
            seed,
        };
        tally.same(&case, &case.run(cpu), &case.run(gpu));
    }
    for whole_rows in [false, true] {
        let case =
            AttentionCase { tokens: 2, heads: 16, window: 20, compressed: 70, whole_rows, seed };
        let _ = case.run(gpu);
    }
}
