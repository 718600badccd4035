//! The device's kernels against the references. Each test skips, loudly, where there is no driver.
//!
//! `SCRATCHPOOL_SEED=n` gives the random inputs of the run that printed it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helper may fail the test")]

#[path = "../common/mod.rs"]
mod common;

use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use common::arguments::{Change, Form};
use common::cases::{
    AnyCase, AttentionCase, COMPRESSORS, CacheForm, ChoiceCase, CombineCase, CompressCase,
    GatherCase, IndexerQCase, Inputs, LogitsCase, MAGNITUDES, MapCase, QCase, QForm, Queries,
    every_form, heads_are_within, large_forms,
};
use common::prefill::prefills;
use common::{Case, Outcome, Place, Rig, assert_same, same};
use scratchpool::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use scratchpool::cuda::{Cuda, Stream};
use scratchpool::{Device, Host};
use scratchpool_kernels::cuda::CudaKernels;
use scratchpool_kernels::ops::compressor::Boundaries;
use scratchpool_kernels::reference::cache::EntryFormat;
use scratchpool_kernels::{Error, HostKernels};

type Gpu = Rig<Cuda, CudaKernels>;
type Cpu = Rig<Host, HostKernels>;

/// A capture does not survive what others do to the context, so the test that captures runs alone.
static CAPTURES: RwLock<()> = RwLock::new(());

type Shared = RwLockReadGuard<'static, ()>;

fn rigs() -> Option<(Cpu, Gpu, Shared)> {
    let shared = CAPTURES.read().unwrap_or_else(PoisonError::into_inner);
    let (cpu, gpu) = own_rigs()?;
    Some((cpu, gpu, shared))
}

fn own_rigs() -> Option<(Cpu, Gpu)> {
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
fn token_counts() -> impl Iterator<Item = usize> {
    (0..=65).chain([127, 128, 129, 1024, 8192])
}

/// Compares, counts, and says at the end what was found.
struct Tally {
    name: &'static str,
    cases: usize,
    bytes: usize,
    worst: f64,
    start: Instant,
    seed: u64,
}

impl Tally {
    fn new(name: &'static str) -> Self {
        let seed = seed();
        println!("{name}: SCRATCHPOOL_SEED={seed}");
        Self { name, cases: 0, bytes: 0, worst: 0.0, start: Instant::now(), seed }
    }

    fn compare(&mut self, case: &AnyCase, reference: &Outcome, found: &Outcome) {
        self.worst = self.worst.max(case.compare(reference, found));
        self.cases += 1;
        self.bytes += reference.len();
    }

    fn check(&mut self, cpu: &Cpu, gpu: &Gpu, case: &AnyCase) {
        self.compare(case, &case.run(cpu), &case.run(gpu));
    }

    fn next_seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let Self { name, cases, bytes, worst, start, .. } = self;
            let took = start.elapsed().as_secs_f32();
            println!("RESULT {name}: {cases} cases, {bytes} bytes, worst {worst:.1e}, {took:.1} s");
        }
    }
}

/// Runs cases at every number of tokens, on both devices.
fn at_every_count(name: &'static str, cases: impl Fn(usize, u64) -> Vec<AnyCase>) {
    let Some((cpu, gpu, _shared)) = rigs() else { return };
    let mut tally = Tally::new(name);
    for tokens in token_counts() {
        let seed = tally.next_seed();
        for case in cases(tokens, seed) {
            tally.check(&cpu, &gpu, &case);
        }
    }
}

fn q_case(tokens: usize, seed: u64) -> QCase {
    QCase {
        tokens,
        heads: 64,
        padded: 64,
        block_size: 64,
        stride_extra: 64,
        inserted: tokens - tokens / 7,
        q: QForm::Out,
        cache: CacheForm::Paged,
        norm: true,
        kv_norm: tokens % 3 == 1,
        wild: tokens % 2 == 1,
        seed,
    }
}

#[test]
fn q_insert_gives_the_references_bytes() {
    at_every_count("q_insert", |tokens, seed| {
        let case = q_case(tokens, seed);
        if tokens == 8192 {
            return vec![AnyCase::Q(case)];
        }
        vec![AnyCase::Q(case), AnyCase::Q(QCase { heads: 16, ..case })]
    });
}

#[test]
fn q_insert_gives_the_references_bytes_in_every_form() {
    let Some((cpu, gpu, _shared)) = rigs() else { return };
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
                        let case = QCase {
                            heads,
                            padded,
                            block_size: 16,
                            stride_extra: 0,
                            inserted: tokens,
                            q,
                            cache,
                            norm,
                            kv_norm: padded % 8 == 0,
                            wild: true,
                            ..q_case(tokens, tally.next_seed())
                        };
                        tally.check(&cpu, &gpu, &AnyCase::Q(case));
                    }
                }
            }
        }
    }
    for (block_size, stride_extra) in [(1, 0), (2, 560), (3, 8), (16, 0), (64, 64), (100, 24)] {
        let case = q_case(17, tally.next_seed());
        let case = QCase { heads: 8, padded: 16, block_size, stride_extra, wild: true, ..case };
        tally.check(&cpu, &gpu, &AnyCase::Q(case));
    }
}

#[test]
fn indexer_q_gives_the_references_bytes() {
    at_every_count("indexer_q", |tokens, seed| {
        let case = |fp4| IndexerQCase {
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
            queries: Queries::Wild,
            seed,
        };
        vec![AnyCase::IndexerQ(case(false)), AnyCase::IndexerQ(case(true))]
    });
}

#[test]
fn mxfp4_rounds_every_value_under_every_scale_as_the_reference_does() {
    let Some((cpu, gpu, _shared)) = rigs() else { return };
    let mut tally = Tally::new("every value under every scale");
    let case = IndexerQCase::every_value(tally.next_seed());
    tally.check(&cpu, &gpu, &AnyCase::IndexerQ(case));
}

#[test]
fn maps_are_the_references() {
    at_every_count("topk_map, combine_indices", |tokens, seed| {
        let maps =
            [(512, 64, false), (1024, 2, false), (512, 64, true), (500, 48, false), (37, 1, true)];
        let maps = maps.map(|(topk, block_size, packed)| {
            AnyCase::Map(MapCase { tokens, topk, block_size, packed, seed })
        });
        let combined =
            [(512, true, 4, 128), (64, false, 128, 128), (0, false, 1, 128), (100, true, 4, 1)];
        let combined = combined.map(|(most, listed, ratio, window)| {
            AnyCase::Combine(CombineCase { tokens, most, listed, ratio, window, seed })
        });
        maps.into_iter().chain(combined).collect()
    });
}

fn compressors(name: &'static str, of: impl Fn(EntryFormat) -> bool) {
    at_every_count(name, |tokens, seed| {
        let mut all = Vec::new();
        for (compression, format, block_size, stride_extra) in COMPRESSORS {
            for decode in [false, true].into_iter().filter(|_| of(format)) {
                all.push(AnyCase::Compress(CompressCase {
                    tokens,
                    compression,
                    format,
                    block_size,
                    stride_extra,
                    decode,
                    magnitude: if tokens % 4 == 0 { 0.001 } else { 100.0 },
                    wild: tokens % 2 == 1 || tokens == 8192,
                    boundaries: Boundaries::Possible,
                    seed,
                }));
            }
        }
        all
    });
}

#[test]
fn compressors_of_main_entries_give_the_references_bytes() {
    compressors("compressors, main", |format| format == EntryFormat::Main);
}

#[test]
fn compressors_of_index_entries_give_the_references_bytes() {
    compressors("compressors, index", |format| format != EntryFormat::Main);
}

#[test]
fn logits_are_within_tolerance_and_choices_are_the_references() {
    at_every_count("logits at every count", |tokens, seed| {
        let (columns, topk, inputs) = (40, 16, Inputs::Given);
        let case = |fp4, wild, heads| {
            AnyCase::Logits(LogitsCase { tokens, heads, columns, topk, fp4, wild, inputs, seed })
        };
        let plain = [case(false, false, 9), case(true, false, 9)];
        plain.into_iter().chain([case(false, true, 5), case(true, true, 5)]).collect()
    });
    let Some((cpu, gpu, _shared)) = rigs() else { return };
    let mut tally = Tally::new("logits of many columns");
    for (tokens, heads, columns, topk) in [
        (1, 64, 1000, 512),
        (5, 32, 130, 64),
        (33, 64, 700, 512),
        (3, 7, 5, 16),
        (65, 64, 257, 100),
        (2, 64, 9000, 1024),
        (1, 1, 1, 1),
        (3, 64, 0, 4),
        (3, 64, 4, 0),
    ] {
        for (fp4, wild) in [(false, false), (true, false), (false, true), (true, true)] {
            let (inputs, seed) = (Inputs::Given, tally.next_seed());
            let case = LogitsCase { tokens, heads, columns, topk, fp4, wild, inputs, seed };
            tally.check(&cpu, &gpu, &AnyCase::Logits(case));
        }
    }
}

#[test]
fn choices_are_the_references_whatever_the_logits() {
    at_every_count("choice", |tokens, seed| {
        let sizes: &[_] = if tokens > 129 {
            &[(33, 16)]
        } else {
            &[
                (33, 16),
                (512, 512),
                (514, 100),
                (1000, 1),
                (2048, 64),
                (2049, 512),
                (7, 12),
                (6144, 1024),
            ]
        };
        let case =
            |&(columns, topk): &_| AnyCase::Choice(ChoiceCase { tokens, columns, topk, seed });
        sizes.iter().map(case).collect()
    });
}

#[test]
fn attention_is_within_tolerance_of_float64() {
    at_every_count("attention at every count", |tokens, seed| {
        let case = AttentionCase {
            tokens,
            heads: 3,
            window: 9,
            compressed: 7,
            whole_rows: tokens % 2 == 1,
            magnitudes: (2.0, 4.0),
            wild: false,
            seed,
        };
        let at = tokens % MAGNITUDES.len();
        let magnitudes = MAGNITUDES.into_iter().nth(at).unwrap();
        let whole_rows = !case.whole_rows;
        vec![
            AnyCase::Attention(case),
            AnyCase::Attention(AttentionCase { whole_rows, magnitudes, ..case }),
            AnyCase::Attention(AttentionCase { wild: true, heads: 5, ..case }),
        ]
    });
    let Some((cpu, gpu, _shared)) = rigs() else { return };
    let mut tally = Tally::new("attention over many entries");
    for (tokens, heads, window, compressed, whole_rows) in [
        (1, 64, 128, 512, false),
        (4, 64, 128, 0, false),
        (9, 16, 128, 64, false),
        (4, 128, 128, 1024, false),
        (7, 8, 1, 3, false),
        (5, 64, 640, 0, true),
        (6, 64, 77, 130, true),
        (3, 65, 64, 64, true),
        (3, 1, 0, 1, false),
    ] {
        for magnitudes in MAGNITUDES {
            let (wild, seed) = (false, tally.next_seed());
            let case = AttentionCase {
                tokens,
                heads,
                window,
                compressed,
                whole_rows,
                magnitudes,
                wild,
                seed,
            };
            tally.check(&cpu, &gpu, &AnyCase::Attention(case));
        }
    }
}

#[test]
fn gathered_rows_are_the_references() {
    at_every_count("gather", |tokens, seed| {
        // Strides that keep entries aligned to 16 bytes, and to 8.
        let sizes = [([64, 256], 64), ([2, 64], 560), ([3, 5], 8), ([1, 7], 0)];
        let cases = sizes.into_iter().enumerate().flat_map(|(at, (block_sizes, stride_extra))| {
            [false, true].map(|whole_rows| {
                AnyCase::Gather(GatherCase {
                    tokens,
                    requests: [4, 1, 37, 3][(at + tokens) % 4],
                    block_sizes,
                    stride_extra,
                    whole_rows,
                    wild: (at + tokens / 4) % 2 == 1,
                    seed: seed ^ (at as u64) << 40,
                })
            })
        });
        cases.collect()
    });
}

#[test]
fn attention_over_the_gathered_workspace_is_attention_over_the_caches() {
    let Some((cpu, gpu, _shared)) = rigs() else { return };
    let mut tally = Tally::new("prefill");
    for prefill in prefills(tally.next_seed()) {
        let (reference, found) = (prefill.run(&cpu), prefill.run(&gpu));
        assert_same(&format!("{prefill:?}"), &reference.workspace, &found.workspace);
        // Magnitudes as in the cases of attention.
        let allowed = 6e-3 + 2_f64.powi(-19) * 2.0 * 4.0 * 512_f64.sqrt();
        for found in [&found.gathered, &found.direct] {
            let error = heads_are_within(&prefill, allowed, &reference.direct, found);
            tally.worst = tally.worst.max(error);
            tally.cases += 1;
            tally.bytes += found.len();
        }
    }
}

#[test]
fn every_form_gives_the_same_bytes_guarded_allocated_pooled_and_inside_a_graph() {
    let _alone = CAPTURES.write().unwrap_or_else(PoisonError::into_inner);
    let Some((mut cpu, mut gpu)) = own_rigs() else { return };
    let eager = gpu.around;
    let mut tally = Tally::new("places and graphs");
    for tokens in [0, 1, 2, 5, 17, 63, 131] {
        for case in every_form(tokens, tally.next_seed()) {
            // What is not written shows by the poison that it keeps.
            for poison in [0xA5, 0x5A] {
                (cpu.poison, gpu.poison) = (poison, poison);
                let reference = case.run(&cpu);
                let mut first: Option<Outcome> = None;
                for place in [Place::Guarded, Place::Allocated, Place::Pool] {
                    for around in [eager, in_a_graph] {
                        (gpu.place, gpu.around) = (place, around);
                        let found = case.run(&gpu);
                        tally.compare(&case, &reference, &found);
                        same(&case, first.get_or_insert_with(|| found.clone()), &found);
                    }
                }
            }
        }
    }
}

#[test]
fn arguments_at_any_address_and_of_any_stream_are_taken_or_refused_by_name() {
    let Some((_, gpu, _shared)) = rigs() else { return };
    let mut tally = Tally::new("arguments");
    for form in Form::ALL {
        let (fits, seen) = form.launch(&gpu, Change::None);
        fits.unwrap_or_else(|error| panic!("{form:?}: {error}"));
        for (name, _) in seen.arguments {
            let (moved, _) = form.launch(&gpu, Change::Shift(name));
            match moved {
                Ok(()) => tally.bytes += 1,
                Err(Error::Align { argument, .. }) if argument == name => tally.cases += 1,
                Err(error) => panic!("{form:?}, {name}: {error}"),
            }
            // An access that is not aligned would be an error here.
            gpu.device.synchronize().unwrap_or_else(|error| panic!("{form:?}, {name}: {error}"));
            let (foreign, _) = form.launch(&gpu, Change::Stream(name));
            let text = foreign.unwrap_err().to_string();
            assert!(text.contains("`main`") && text.contains("`side`"), "{form:?} {name}: {text}");
        }
    }
    assert!(tally.cases > 50, "{} refused", tally.cases);
}

#[test]
fn a_small_run_of_every_kernel() {
    let Some((cpu, gpu, _shared)) = rigs() else { return };
    let mut tally = Tally::new("small run");
    let seed = tally.next_seed();
    for case in every_form(9, seed).into_iter().chain(large_forms(seed)) {
        tally.check(&cpu, &gpu, &case);
    }
}
