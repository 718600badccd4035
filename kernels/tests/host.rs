//! The host's kernels through their launchers: the bodies that the GPU tests run, in the order of
//! issue and deferred.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helper may fail the test")]

mod common;

use std::fmt::Write;

use common::arguments::{Change, Form, Seen};
use common::cases::{AnyCase, every_form};
use common::prefill::prefills;
use common::{Case as _, POISON, Place, Random, Rig, assert_same, bf16s_of, rope_table, same};
use scratchpool::{Host, bf16, f8e4m3};
use scratchpool_kernels::ops::compressor::{Boundaries, Compression};
use scratchpool_kernels::ops::q_insert::{KvCache, QInsert, Query};
use scratchpool_kernels::{Error, HostKernels, Kernels};

type Cpu = Rig<Host, HostKernels>;

fn rig(host: Host) -> Cpu {
    Rig::new(host, HostKernels)
}

#[test]
fn every_form_gives_the_same_bytes_in_any_order_guarded_allocated_and_pooled() {
    let (a, mut b) = (rig(Host::in_order()), rig(Host::random(3)));
    for tokens in [0, 1, 5, 9] {
        for case in every_form(tokens, 11 + tokens as u64) {
            let first = case.run(&a);
            for place in [Place::Guarded, Place::Allocated, Place::Pool] {
                b.place = place;
                same(&case, &first, &case.run(&b));
            }
        }
    }
}

#[test]
fn scratch_outputs_are_written_whole_and_caches_keep_what_is_not_written() {
    let mut cpu = rig(Host::in_order());
    for case in every_form(6, 5) {
        let first = case.run(&cpu);
        cpu.poison = !POISON;
        let second = case.run(&cpu);
        cpu.poison = POISON;
        for ((name, first), (_, second)) in first.0.iter().zip(&second.0) {
            let partly = ["cache", "state", "scratch", "workspace"].contains(name);
            for (at, (a, b)) in first.iter().zip(second).enumerate() {
                let kept = partly && (*a, *b) == (POISON, !POISON);
                assert!(a == b || kept, "{case:?}: {name} at {at}: {a:#x} {b:#x}");
            }
        }
    }
}

#[test]
fn compressors_store_at_boundaries_alone_and_nothing_where_the_host_knows_of_none() {
    let cpu = rig(Host::in_order());
    for case in every_form(6, 8) {
        let AnyCase::Compress(case) = case else { continue };
        if !case.decode || case.wild {
            continue;
        }
        let outcome = case.run(&cpu);
        let written = |name| outcome.get(name).iter().any(|byte| *byte != POISON);
        let stored = case.boundaries == Boundaries::Possible;
        assert_eq!(written("cache"), stored, "{case:?}");
        assert_eq!(written("scratch"), stored && case.compression == Compression::C128, "{case:?}");
        assert!(written("state"));
    }
}

/// A refusal, cut to the argument that it names, which is one; `fits` where there is none.
fn named(form: Form, (result, seen): (Result<(), Error>, Seen)) -> String {
    let Err(error) = result else { return "fits".to_owned() };
    let text = error.to_string();
    let name = text.split('`').nth(1).unwrap_or_else(|| panic!("{form:?}: {text}"));
    let arguments = seen.arguments.iter().map(|(name, _)| name);
    let mut all = arguments.chain(&seen.counts).chain(&seen.numbers);
    assert!(all.any(|argument| *argument == name), "{form:?}: {text}");
    name.to_owned()
}

#[test]
fn whatever_shape_or_number_does_not_fit_is_named() {
    let cpu = rig(Host::in_order());
    let mut table = String::new();
    for form in Form::ALL {
        let (fits, seen) = form.launch(&cpu, Change::None);
        fits.unwrap_or_else(|error| panic!("{form:?}: {error}"));
        writeln!(table, "{form:?}").unwrap();
        for (name, shape) in &seen.arguments {
            write!(table, "  {name} {shape:?}").unwrap();
            for axis in 0..shape.len() {
                let by = |by| named(form, form.launch(&cpu, Change::Extent(name, axis, by)));
                write!(table, "  {axis}: {}, {}", by(-1), by(1)).unwrap();
            }
            table.push('\n');
        }
        for name in &seen.counts {
            write!(table, "  {name}").unwrap();
            for count in [0, 3, 1 << 20, usize::MAX] {
                let change = Change::Count(name, count);
                let shown = if count == usize::MAX { "most".to_owned() } else { count.to_string() };
                write!(table, "  {shown}: {}", named(form, form.launch(&cpu, change))).unwrap();
            }
            table.push('\n');
        }
        for name in &seen.numbers {
            write!(table, "  {name}").unwrap();
            for number in [0.0, -1.0, f32::INFINITY, f32::NAN] {
                let change = Change::Number(name, number);
                write!(table, "  {number}: {}", named(form, form.launch(&cpu, change))).unwrap();
            }
            table.push('\n');
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn refusals_say_what_was_found_and_what_was_expected() {
    let cpu = rig(Host::in_order());
    let text = |form: Form, change| form.launch(&cpu, change).0.unwrap_err().to_string();
    let mut texts = vec![
        text(Form::QToPaged, Change::Extent("kv", 1, -12)),
        text(Form::QToPaged, Change::Extent("positions", 0, -1)),
        text(Form::QToPaged, Change::Extent("slots", 0, 1)),
        text(Form::QToPaged, Change::Extent("q.to", 1, -3)),
        text(Form::QToPaged, Change::Extent("cache", 1, -8)),
        text(Form::QToPaged, Change::Extent("cache", 1, 4)),
        text(Form::QToPaged, Change::Count("block_size", 0)),
        text(Form::QToPaged, Change::Number("eps", f32::NAN)),
        text(Form::Combine, Change::Count("compressed_rows", 21)),
        text(Form::Save, Change::Extent("ape", 1, 1)),
        text(Form::AttentionOfTwo, Change::Extent("second.cache", 1, -8)),
        text(Form::AttentionOfTwo, Change::Number("scale", 0.0)),
        text(Form::GatherPaged, Change::Extent("out", 0, -1)),
        text(Form::GatherPaged, Change::Count("rows.end", 10)),
        text(Form::GatherPaged, Change::Count("rows.end", 1)),
    ];
    let heads = too_many_heads(&cpu);
    texts.push(heads.unwrap_err().to_string());
    insta::assert_snapshot!(texts.join("\n"));
}

/// Logits of 65 heads.
fn too_many_heads(cpu: &Cpu) -> Result<(), Error> {
    use scratchpool_kernels::ops::indexer_topk::{IndexQueryIn, IndexerLogits};
    let values = cpu.load([1, 65, 128], &[f8e4m3::from_bits(0); 65 * 128]);
    let weights = cpu.load([1, 65], &[1.0; 65]);
    let (cache, table) = (cpu.load([1, 132], &[0; 132]), cpu.load([1, 1], &[0]));
    let (of, positions) = (cpu.load([1], &[0]), cpu.load([1], &[0]));
    let mut logits = cpu.load([1, 1], &[0.0]);
    let args = IndexerLogits {
        q: IndexQueryIn::Fp8 { values: values.view() },
        weights: weights.view(),
        cache: cache.view(),
        block_size: 1,
        block_table: table.view(),
        token_to_req: of.view(),
        positions: positions.view(),
        ratio: 4,
        logits: logits.view_mut(),
    };
    cpu.kernels.indexer_logits(&cpu.stream, args)
}

#[test]
fn an_argument_of_another_stream_is_refused() {
    let cpu = rig(Host::in_order());
    for form in Form::ALL {
        for (name, _) in form.launch(&cpu, Change::None).1.arguments {
            let text = form.launch(&cpu, Change::Stream(name)).0.unwrap_err().to_string();
            assert!(text.contains("`main`") && text.contains("`side`"), "{form:?} {name}: {text}");
        }
    }
}

#[test]
fn attention_over_the_gathered_workspace_is_attention_over_the_caches() {
    for (seed, host) in [(1, Host::in_order()), (2, Host::random(9))] {
        let cpu = rig(host);
        for prefill in prefills(seed) {
            let attended = prefill.run(&cpu);
            // The same entries in the same order, so the same sums.
            assert_same(&format!("{prefill:?}"), &attended.direct, &attended.gathered);
            assert!(bf16s_of(&attended.direct).iter().all(|x| x.is_finite() && x.to_f32() != 0.0));
        }
    }
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
