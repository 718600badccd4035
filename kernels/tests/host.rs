//! The host's kernels through their launchers: the bodies that the GPU tests run, in the order of
//! issue and deferred.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helper may fail the test")]

mod common;

use common::cases::{
    AttentionCase, CacheForm, CombineCase, CompressCase, IndexerQCase, LogitsCase, MapCase, QCase,
    QForm,
};
use common::{POISON, Random, Rig, rope_table};
use scratchpool::{Device, Host, bf16, f8e4m3};
use scratchpool_kernels::formats::to_bf16;
use scratchpool_kernels::ops::compressor::Compression;
use scratchpool_kernels::ops::q_insert::{KvCache, QInsert, Query};
use scratchpool_kernels::reference::cache::EntryFormat;
use scratchpool_kernels::{Error, HostKernels, Kernels, Tensor};

type Cpu = Rig<Host, HostKernels>;

fn rig(host: Host) -> Cpu {
    Rig::new(host, HostKernels)
}

const Q: QCase = QCase {
    tokens: 9,
    heads: 3,
    padded: 8,
    block_size: 4,
    stride_extra: 8,
    inserted: 7,
    q: QForm::Out,
    cache: CacheForm::Paged,
    norm: true,
    wild: true,
    seed: 11,
};

#[test]
fn deferred_launches_give_the_bytes_of_launches_in_order() {
    let (a, b) = (rig(Host::in_order()), rig(Host::random(3)));
    for (q, cache) in [
        (QForm::Out, CacheForm::Paged),
        (QForm::InPlace, CacheForm::Rows),
        (QForm::Fp8, CacheForm::Fp8),
    ] {
        let case = QCase { q, cache, ..Q };
        assert_eq!(case.run(&a), case.run(&b));
    }
    for fp4 in [false, true] {
        let case = IndexerQCase {
            tokens: 5,
            heads: 4,
            fp4,
            narrow_rope: fp4,
            narrow_weights: !fp4,
            seed: 5,
        };
        assert_eq!(case.run(&a), case.run(&b));
        let case = LogitsCase { tokens: 3, heads: 8, columns: 40, topk: 16, fp4, seed: 6 };
        assert_eq!(case.run(&a), case.run(&b));
    }
    let case = MapCase { tokens: 6, topk: 30, block_size: 64, packed: true, seed: 7 };
    assert_eq!(case.run(&a), case.run(&b));
    let case = CombineCase { tokens: 6, most: 30, listed: true, ratio: 4, window: 16, seed: 8 };
    assert_eq!(case.run(&a), case.run(&b));
    for (compression, format) in [
        (Compression::C4, EntryFormat::Main),
        (Compression::C4, EntryFormat::IndexFp8),
        (Compression::C4, EntryFormat::IndexMxfp4),
        (Compression::C128, EntryFormat::Main),
    ] {
        for decode in [false, true] {
            let case = CompressCase {
                tokens: 40,
                compression,
                format,
                block_size: 16,
                stride_extra: 0,
                decode,
                magnitude: 1.0,
                seed: 9,
            };
            assert_eq!(case.run(&a), case.run(&b));
        }
    }
    for whole_rows in [false, true] {
        let case =
            AttentionCase { tokens: 5, heads: 2, window: 12, compressed: 20, whole_rows, seed: 10 };
        assert_eq!(case.run(&a), case.run(&b));
    }
}

#[test]
fn pool_views_and_fresh_tensors_get_the_same_bytes() {
    for rows in [0, 1, 5, 17] {
        let (a, b) = (rig(Host::in_order()), rig(Host::random(rows as u64)));
        let (a, b) = (
            common::pooled::through_a_pool(&a, rows, 3),
            common::pooled::through_a_pool(&b, rows, 3),
        );
        assert_eq!(common::bytes_of(&a.0), common::bytes_of(&b.0));
        assert_eq!((a.1, a.2), (b.1, b.2));
    }
}

/// Queries, padded queries, KV rows and a cache, with what else a launch takes.
fn with_args(
    tokens: usize,
    kv_width: usize,
    act: impl FnOnce(&Cpu, QInsert<'_, Host>) -> Result<(), Error>,
) -> Result<(), Error> {
    let cpu = rig(Host::in_order());
    let from = cpu.load([tokens, 2, 512], &vec![bf16::ONE; tokens * 2 * 512]);
    let mut to = cpu.load([tokens, 4, 512], &vec![bf16::NAN; tokens * 4 * 512]);
    let kv = cpu.load([tokens, kv_width], &vec![bf16::ONE; tokens * kv_width]);
    let positions = cpu.load([tokens], &vec![0_i64; tokens]);
    let slots = cpu.load([tokens], &vec![0_i64; tokens]);
    let rope = cpu.load([8, 64], &rope_table(8));
    let mut cache = cpu.load([2, 1168], &[POISON; 2 * 1168]);
    let args = QInsert {
        q: Query::Out { from: from.view(), to: to.view_mut() },
        kv: kv.view(),
        kv_norm: None,
        positions: positions.view(),
        slots: slots.view(),
        rope: rope.view(),
        cache: KvCache::Paged { bytes: cache.view_mut(), block_size: 2 },
        eps: 1e-6,
        norm: true,
    };
    act(&cpu, args)
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    let launch = |cpu: &Cpu, args: QInsert<'_, Host>| cpu.kernels.q_insert(&cpu.stream, args);
    assert!(with_args(3, 512, launch).is_ok());
    let text = |result: Result<(), Error>| result.unwrap_err().to_string();
    assert_eq!(text(with_args(3, 500, launch)), "q_insert: axis 1 of `kv` is 500; expected 512");
    let short = with_args(3, 512, |cpu, args| {
        let positions = cpu.load([2], &[0_i64; 2]);
        launch(cpu, QInsert { positions: positions.view(), ..args })
    });
    assert_eq!(text(short), "q_insert: axis 0 of `positions` is 2; expected 3");
    let many = with_args(3, 512, |cpu, args| {
        let slots = cpu.load([4], &[0_i64; 4]);
        launch(cpu, QInsert { slots: slots.view(), ..args })
    });
    assert_eq!(text(many), "q_insert: `slots` is 4; at most 3 can be addressed");
    let fewer = with_args(3, 512, |cpu, args| {
        let mut to = cpu.load([3, 1, 512], &[bf16::ONE; 3 * 512]);
        let from = cpu.load([3, 2, 512], &[bf16::ONE; 3 * 1024]);
        let q = Query::Out { from: from.view(), to: to.view_mut() };
        launch(cpu, QInsert { q, ..args })
    });
    assert_eq!(text(fewer), "q_insert: axis 1 of `q.to` is 1; expected at least 2");
    let small = with_args(3, 512, |cpu, args| {
        let mut cache = cpu.load([2, 1160], &[0_u8; 2 * 1160]);
        let cache = KvCache::Paged { bytes: cache.view_mut(), block_size: 2 };
        launch(cpu, QInsert { cache, ..args })
    });
    assert_eq!(text(small), "q_insert: axis 1 of `cache` is 1160; expected at least 1168");
    let none = with_args(3, 512, |cpu, args| {
        let mut cache = cpu.load([2, 1168], &[0_u8; 2 * 1168]);
        let cache = KvCache::Paged { bytes: cache.view_mut(), block_size: 0 };
        launch(cpu, QInsert { cache, ..args })
    });
    assert_eq!(text(none), "q_insert: `block_size` is 0; it must be at least 1");
    let nan = with_args(3, 512, |cpu, args| launch(cpu, QInsert { eps: f32::NAN, ..args }));
    assert_eq!(text(nan), "q_insert: `eps` is NaN; it must be finite and not below 0");
}

#[test]
fn an_argument_of_another_stream_is_refused() {
    let other = with_args(1, 512, |cpu, args| {
        let side = cpu.device.create_stream("side")?;
        cpu.kernels.q_insert(&side, args)
    });
    let text = other.unwrap_err().to_string();
    assert!(text.contains("`main`") && text.contains("`side`"), "{text}");
}

#[test]
fn queries_are_within_a_last_place_of_float64() {
    let cpu = rig(Host::in_order());
    let mut random = Random(77);
    let table = rope_table(16);
    for magnitude in [1e-30_f32, 1e-3, 1.0, 448.0, 1e15] {
        let q = random.bf16s(4 * 512, magnitude);
        let from = cpu.load([1, 4, 512], &q);
        let mut to = cpu.load([1, 4, 512], &[bf16::NAN; 4 * 512]);
        let kv = cpu.load([1, 512], &random.bf16s(512, 1.0));
        let positions = cpu.load([1], &[7_i64]);
        let slots = cpu.load([0], &[] as &[i64]);
        let rope = cpu.load([16, 64], &table);
        let mut cache = cpu.load([1, 1, 512], &[f8e4m3::from_bits(0); 512]);
        let args = QInsert {
            q: Query::Out { from: from.view(), to: to.view_mut() },
            kv: kv.view(),
            kv_norm: None,
            positions: positions.view(),
            slots: slots.view(),
            rope: rope.view(),
            cache: KvCache::Fp8 { rows: cache.view_mut(), scale: 1.0 },
            eps: 1e-6,
            norm: true,
        };
        cpu.kernels.q_insert(&cpu.stream, args).unwrap();
        let found = to.to_vec().unwrap();
        for (q, found) in q.chunks(512).zip(found.chunks(512)) {
            let mean = q.iter().map(|x| x.to_f64() * x.to_f64()).sum::<f64>() / 512.0;
            let mut row: Vec<f64> = q.iter().map(|x| x.to_f64() / (mean + 1e-6).sqrt()).collect();
            let (cosines, sines) = table.get(7 * 64..8 * 64).unwrap().split_at(32);
            for (pair, (c, s)) in
                row.get_mut(448..).unwrap().chunks_mut(2).zip(cosines.iter().zip(sines))
            {
                if let [even, odd] = pair {
                    let (c, s) = (f64::from(*c), f64::from(*s));
                    (*even, *odd) = (*even * c - *odd * s, *even * s + *odd * c);
                }
            }
            for (exact, found) in row.iter().zip(found) {
                // Half a last place of bf16, and what f32 adds before it.
                let allowed = exact.abs().max(1e-38) * (1.0 / 256.0) * 1.01;
                assert!((exact - found.to_f64()).abs() <= allowed, "{exact} {found}");
            }
        }
    }
}

#[test]
fn tensors_refuse_shapes_that_overflow_and_values_that_do_not_fit() {
    let cpu = rig(Host::in_order());
    let huge = Tensor::<f32, _, 2>::new(&cpu.device, &cpu.stream, [usize::MAX, 2]);
    assert!(matches!(huge.unwrap_err(), Error::Overflow { .. }));
    let few = Tensor::from_values(&cpu.device, &cpu.stream, [3], &[to_bf16(1.0)]);
    assert_eq!(few.unwrap_err().to_string(), "1 values were given for a view of 3 elements");
}
