//! The hazard table of DeepSeek-V4's shared scratch, row by row, on the schedules of Flash and Pro.
//!
//! Each row changes the published schedule as somebody did or could have done, says whether the planner accepts or
//! refuses it and why, and has every order of execution agree. The planner sees all layers of the model. Executions see
//! all of them where the schedule is sound, since its streams meet in every layer, and else the seven layers of
//! [`Model::few_layers`]: of those every three that follow one another, across the end of a pass too, follow one another
//! in the model and the other way round (a test checks it). A finding involves a layer that starts a value, the next
//! that starts one of its family, and what lies between; in these models that is at most one layer of another kind, so
//! three in a row are enough. The planner's verdict on the few layers is also compared with that on all.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::path::Path;

use scratchpool_planner::config;
use scratchpool_planner::error::{Error, Fault};
use scratchpool_planner::plan::{analyze, plan};
use scratchpool_planner::spec::Value;
use scratchpool_planner::toml_spec;
use scratchpool_prover::PASSES;
use scratchpool_prover::declared::Declared;
use scratchpool_prover::judge::{Outcome, compare, judge};
use scratchpool_prover::machine::explore;
use scratchpool_prover::memory::{What, collision};
use scratchpool_prover::program::Program;
use scratchpool_prover::waits;

/// The crate of examples, for the models' configurations and its specs.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

const TOKENS: u64 = 8192;

/// The published schedule: the indexer and the two stages of the compressor on a side stream that waits for the layer's
/// start and is joined before the map and the attention.
const PUBLISHED: &str = "
    start       main
    index_q     aux0 == 4   > start + indexer
    index_topk  aux0 == 4           - indexer
    compress    aux0 == 128 > start + compressor
    store       aux0 == 128         - compressor
    q_proj      main                + q
    join        main        > index_topk > store
    map         main == 4           + topk
    attention   main                - q - topk
";

const FAMILIES: &[&str] = &["indexer", "topk", "compressor"];

struct Model {
    layers: Vec<i64>,
    groups: Vec<(&'static str, Option<i64>, u64)>,
    total: u64,
}

impl Model {
    fn new(file: &str, heads: u64, total: u64) -> Self {
        let path = Path::new(EXAMPLES).join("configs").join(file);
        let config = config::load(&path).unwrap().names;
        let value = |name: &str| &config.iter().find(|(each, _)| each == name).unwrap().1;
        let integer = |name: &str| match value(name) {
            Value::Int(value) => u64::try_from(*value).unwrap(),
            _ => panic!("{name} is no integer"),
        };
        let Value::List(ratios) = value("compress_ratios") else { panic!("no list") };
        let layers = usize::try_from(integer("num_hidden_layers")).unwrap();
        let (index, dim) = (TOKENS * integer("index_n_heads"), integer("index_head_dim"));
        Self {
            layers: ratios[..layers].to_vec(),
            groups: vec![
                ("q", None, TOKENS * heads * integer("head_dim") * 2),
                ("indexer.values", Some(4), index * dim / 2),
                ("indexer.scales", Some(4), index * dim / 32),
                ("indexer.weights", Some(4), index * 4),
                ("topk.indices", Some(4), TOKENS * integer("index_topk") * 4),
                ("topk.lens", Some(4), TOKENS * 4),
                ("compressor", Some(128), TOKENS * integer("head_dim") * 4),
            ],
            total,
        }
    }

    fn flash() -> Self {
        Self::new("deepseek-v4-flash.json", 64, 574_619_648)
    }

    fn pro() -> Self {
        Self::new("deepseek-v4-pro.json", 128, 1_111_490_560)
    }

    /// The first six layers and one more, so that the pass ends as the model's does.
    fn few_layers(&self) -> Vec<i64> {
        let mut few = self.layers[..6].to_vec();
        few.push(*self.layers.last().unwrap());
        few
    }

    fn declared(&self, layers: &[i64], steps: &str) -> Declared {
        Declared::new(layers, &self.groups, steps)
    }
}

fn models() -> [Model; 2] {
    [Model::flash(), Model::pro()]
}

#[test]
fn few_layers_have_the_neighbours_of_all() {
    for model in models() {
        let windows = |layers: &[i64]| {
            let at = |position: usize| layers[position % layers.len()];
            (0..layers.len())
                .map(|first| [at(first), at(first + 1), at(first + 2)])
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(windows(&model.few_layers()), windows(&model.layers));
    }
}

fn codes(errors: &[Error]) -> Vec<&'static str> {
    let mut codes: Vec<_> = errors.iter().map(|error| error.code().as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// Refused with these codes on all layers and on a few; every order of the few agrees. Returns the errors on all.
fn refused(model: &Model, claim: &[&str], steps: &str, expected: &[&str]) -> Vec<Error> {
    let few = model.declared(&model.few_layers(), steps).exclusive(claim);
    match judge(&few) {
        Ok(judged) => {
            assert_eq!(judged.outcome, Outcome::Refused);
            assert!(judged.complete);
        }
        Err(words) => panic!("{words}"),
    }
    let (_, errors) = analyze(&few.spec());
    assert_eq!(codes(&errors), expected);
    let (_, errors) = analyze(&model.declared(&model.layers, steps).exclusive(claim).spec());
    assert_eq!(codes(&errors), expected);
    for error in &errors {
        assert!(error.trace().len() > 1, "{}", error.message());
        println!("{}\n{}\n", error.message(), error.trace().join("\n"));
    }
    errors
}

/// Accepted on all layers and on a few; every order of both agrees. Returns the arena's bytes.
fn accepted(model: &Model, claim: &[&str], steps: &str) -> u64 {
    for layers in [&model.few_layers(), &model.layers] {
        let declared = model.declared(layers, steps).exclusive(claim);
        let program = Program::new(&declared, PASSES);
        let reach = explore(&program);
        assert!(reach.complete);
        assert_eq!(compare(&declared, &program, &reach), Ok(Outcome::Accepted));
    }
    accepted_on_few(model, claim, steps)
}

/// Accepted on all layers and on a few; every order of the few agrees. Returns the arena's bytes.
fn accepted_on_few(model: &Model, claim: &[&str], steps: &str) -> u64 {
    let few = model.declared(&model.few_layers(), steps).exclusive(claim);
    assert_eq!(
        judge(&few).map(|judged| (judged.outcome, judged.complete)),
        Ok((Outcome::Accepted, true))
    );
    let plan = plan(&model.declared(&model.layers, steps).exclusive(claim).spec());
    plan.unwrap().layout.total_bytes
}

/// The trace of the error that two groups are not exclusive.
fn trace<'e>(errors: &'e [Error], groups: [&str; 2]) -> &'e [String] {
    let is = |error: &&Error| match &error.fault {
        Fault::NotExclusive { a, b, .. } => [a.as_str(), b.as_str()] == groups,
        _ => false,
    };
    errors.iter().find(is).unwrap_or_else(|| panic!("{groups:?}: {errors:?}")).trace()
}

#[test]
fn as_published_the_families_share_and_no_order_corrupts_them() {
    for model in models() {
        assert_eq!(accepted(&model, FAMILIES, PUBLISHED), model.total);
    }
}

/// None is implied by the others, but the pool does not stand on all of them. The join of the compressor is for the
/// user's data: the map of the next layer waits for the indexer, which comes after the compressor on their stream. In
/// Pro, where a compressor runs between any two indexers, the indexer's own wait for the start is free as well.
#[test]
fn as_published_no_issued_wait_is_implied_and_the_pool_stands_on_these() {
    let free: [&[&str]; 2] = [&["join after store"], &["index_q after start", "join after store"]];
    for (model, free) in models().iter().zip(free) {
        let declared = model.declared(&model.few_layers(), PUBLISHED).exclusive(FAMILIES);
        let plan = plan(&declared.spec()).unwrap();
        let waits = waits::check(&declared, &plan).unwrap();
        assert_eq!((waits.needed, waits.not_needed), (4 - free.len(), free.len()));
        let reports = plan.explain().waits().into_iter().filter(|wait| wait.needed_for.is_empty());
        let reports: Vec<_> =
            reports.map(|wait| format!("{} after {}", wait.step, wait.after)).collect();
        assert_eq!(reports, free);
    }
}

/// Refused: the map writes the indexer's bytes while `index_topk` still reads them. Without the claim the families are
/// kept apart and the schedule is accepted, at the price of the bytes.
#[test]
fn indexer_not_joined_is_refused() {
    let steps = PUBLISHED.replace("> index_topk > store", "> store");
    for model in models() {
        let errors = refused(&model, FAMILIES, &steps, &["not_exclusive"]);
        let trace = trace(&errors, ["indexer", "topk"]);
        assert!(trace[0].contains("`index_q`") && trace[1].contains("`map`"), "{trace:#?}");
        assert!(trace[2].contains("`index_topk`") && trace[3].contains("wait for `index_topk`"));
        assert!(accepted_on_few(&model, &[], &steps) > model.total);
    }
}

/// Refused: the side stream runs ahead, and the next layer's indexer or compressor writes the bytes of this layer's map.
#[test]
fn no_start_event_is_refused() {
    let steps = PUBLISHED.replace("> start", "");
    for model in models() {
        let errors = refused(&model, FAMILIES, &steps, &["not_exclusive"]);
        let trace = trace(&errors, ["topk", "compressor"]);
        assert!(trace[0].contains("`map`") && trace[1].contains("`compress`"), "{trace:#?}");
        assert!(trace[2].contains("`attention`"));
        assert!(accepted_on_few(&model, &[], &steps) > model.total);
    }
}

/// Refused, claim or no claim: the next layer rewrites what the decode attention still reads. Apart or overlaid is the
/// same: it is the same buffer.
#[test]
fn prefill_and_decode_attention_on_two_streams_is_refused() {
    let steps = PUBLISHED.to_owned() + "decode aux1 > map > q_proj - q - topk\n";
    for model in models() {
        refused(&model, FAMILIES, &steps, &["not_exclusive", "reuse"]);
        let errors = refused(&model, &[], &steps, &["reuse"]);
        let buffers: BTreeSet<_> = errors
            .iter()
            .flat_map(|error| match &error.fault {
                Fault::Reuse(conflict) => conflict.buffers.clone(),
                _ => Vec::new(),
            })
            .collect();
        assert!(buffers.contains("q.x") && buffers.contains("topk.indices"), "{buffers:?}");
        // Joined before the next layer starts, it is the published schedule with one stream more.
        let joined = steps.replace("start       main", "start main > prev.decode");
        assert_eq!(accepted(&model, FAMILIES, &joined), model.total);
    }
}

/// Refused: the event was recorded before this layer's attention, which still reads the map when the next layer's
/// compressor writes those bytes. No conflict without the overlay.
#[test]
fn next_layers_compressor_prefetched_is_refused() {
    let steps = PUBLISHED.replace("== 128 > start", "== 128 > prev.q_proj");
    for model in models() {
        let errors = refused(&model, FAMILIES, &steps, &["not_exclusive"]);
        let trace = trace(&errors, ["topk", "compressor"]);
        assert!(trace[1].contains("`compress`") && trace[2].contains("`attention`"), "{trace:#?}");
        // Flash's map and compressor together still fit below its indexer; Pro's do not.
        let apart = accepted_on_few(&model, &[], &steps);
        assert_eq!(apart > model.total, model.layers[0] == 128);
    }
}

/// Refused, claim or no claim: the second micro-batch writes what the first reads. The declaration for it is a copy of
/// the arena each (`ubatches = 2`), whose bytes are disjoint; no schedule can say it otherwise.
#[test]
fn two_micro_batches_with_one_pool_are_refused() {
    let steps = "
        start main
        q_proj main + q
        map main == 4 + topk
        attention main - q - topk
        second_q_proj other + q
        second_map other == 4 + topk
        second_attention other - q - topk
    ";
    for model in models() {
        refused(&model, &[], steps, &["race", "reuse"]);
    }
}

/// Accepted, and rightly: a second write in the same layer is by definition more of the same value (it may fill further
/// rows), and all is ordered. That the second lease *replaces* the first is not in the schedule but in what the kernels
/// do; the macro's borrow rules catch it: a group asked for twice in a step is split by rows, and views do not outlive
/// their step.
#[test]
fn the_same_family_leased_twice_in_a_layer_is_one_value_and_the_borrow_rules_affair() {
    let steps = PUBLISHED.to_owned()
        + "map_decode main == 4 + topk\n
           attention_decode main - q - topk\n";
    for model in models() {
        assert_eq!(accepted(&model, FAMILIES, &steps), model.total);
    }
}

/// As one group: accepted, for the same reason. No race, and the first result is destroyed, so declare two results as
/// two groups: then they interfere, are kept apart, and a claim that they may share is refused with the order that
/// destroys the first. No missing wait: streams force that order.
#[test]
fn two_index_maps_before_either_attention_need_two_groups() {
    let before = PUBLISHED.split("    map").next().unwrap();
    let one = before.to_owned()
        + "map main == 4 + topk\n map_decode main == 4 + topk\n attention main - q - topk\n
           attention_decode main - q - topk\n";
    let two = before.to_owned()
        + "map main == 4 + topk\n map_decode main == 4 + second\n attention main - q - topk\n
           attention_decode main - q - second\n";
    for mut model in models() {
        assert_eq!(accepted(&model, FAMILIES, &one), model.total);
        model.groups.push(("second", Some(4), TOKENS * 4));
        accepted(&model, FAMILIES, &two);
        let errors = refused(&model, &["topk", "second"], &two, &["not_exclusive"]);
        let trace = trace(&errors, ["topk", "second"]);
        assert!(trace[3].contains("streams and events force this order"), "{trace:#?}");

        let declared = model.declared(&model.few_layers(), &two);
        let program = Program::new(&declared, PASSES);
        let number =
            |name: &str| declared.buffers().iter().position(|(each, _)| each == name).unwrap();
        let (topk, second) = (number("topk.lens"), number("second.x"));
        let found = collision(&program, &explore(&program), topk, second).unwrap();
        let What::Lost { node, .. } = found.what else { panic!("{found:?}") };
        assert_eq!(declared.steps[program.nodes[node].step].name, "attention");
    }
}

/// Refused: the drafter's steps run beside the model's last layers. On the model's own stream it is one more step.
#[test]
fn a_drafter_model_that_shares_the_pool_is_refused_unless_it_runs_on_the_models_stream() {
    let apart = PUBLISHED.to_owned() + "draft_q draft + q\n draft_attention draft - q\n";
    let behind = PUBLISHED.to_owned() + "draft_q main + q\n draft_attention main - q\n";
    for model in models() {
        refused(&model, FAMILIES, &apart, &["race", "reuse"]);
        assert_eq!(accepted(&model, FAMILIES, &behind), model.total);
    }
}

/// Refused: the graph's launch is a stream of its own to the eager attention, which must wait for it, and the next
/// launch must wait for the attention.
#[test]
fn a_captured_writer_with_an_eager_reader_is_refused_without_both_waits() {
    let lost = PUBLISHED.replace("q_proj      main", "q_proj graph");
    let half = lost.replace("attention   main ", "attention main > q_proj");
    let both = half.replace("q_proj graph", "q_proj graph > prev.attention");
    for model in models() {
        refused(&model, FAMILIES, &lost, &["race", "reuse"]);
        refused(&model, FAMILIES, &half, &["reuse"]);
        assert_eq!(accepted(&model, FAMILIES, &both), model.total);
    }
}

// ---- the gallery of public failures, as far as a schedule can express them ----
//
// Not here, because no schedule says it: 4, launching in another order than planned (the runtime refuses a step out of
// order); 14, growth after an address was captured (an arena never grows); 15, a slice clamped silently (`begin` refuses
// more rows). 8, an event recorded anew between record and wait, is a matter of what is issued: the tests of issued
// waits. 12 and 13, two views of the same bytes and offset 0 twice, are wrong layouts: `an_execution_sees_a_wrong_layout`.

/// Judges a small schedule of buffers `a` and `b`, both claimed exclusive.
fn small(steps: &str, expected: &[&str]) {
    let groups = [("a", None, 256), ("b", None, 256)];
    let declared = Declared::new(&[0, 0], &groups, steps).exclusive(&["a", "b"]);
    let judged = judge(&declared).unwrap();
    let (_, errors) = analyze(&declared.spec());
    assert_eq!(codes(&errors), expected);
    let outcome = if expected.is_empty() { Outcome::Accepted } else { Outcome::Refused };
    assert_eq!((judged.outcome, judged.complete), (outcome, true));
    assert!(errors.iter().all(|error| error.trace().len() > 1));
}

#[test]
fn freed_on_one_stream_and_reused_on_another_without_a_wait_is_refused() {
    small("use main + a\n reuse side + b", &["not_exclusive"]);
    small("use main > prev.reuse + a\n reuse side > use + b", &[]);
}

#[test]
fn a_copy_stream_that_compute_does_not_wait_for_is_refused() {
    small("produce main + a\n copy dma > produce - a", &["reuse"]);
    small("produce main > prev.copy + a\n copy dma > produce - a", &[]);
    small("copy dma + a\n consume main - a", &["race", "reuse"]);
}

#[test]
fn an_update_in_place_on_another_stream_without_a_wait_is_refused() {
    small("produce main + a\n update side + a - a\n consume main > update - a", &["race", "reuse"]);
    small("produce main + a\n update side > produce + a - a\n consume main > update - a", &[]);
}

#[test]
fn a_replayed_graph_beside_a_collective_on_another_stream_is_refused() {
    small("forward main + a\n reduce comm > forward - a\n head main", &["reuse"]);
    small("forward main + a\n reduce comm > forward - a\n head main > reduce", &[]);
}

#[test]
fn a_last_read_in_one_branch_and_a_write_in_the_other_is_refused() {
    let steps = "write main + a\n read side > write - a\n write_b main + b\n join main > read";
    small(steps, &["not_exclusive"]);
    small("write main + a\n read side > write - a\n write_b main > read + b", &[]);
}

#[test]
fn an_event_recorded_before_the_last_use_is_refused() {
    let early =
        "write main + a\n read main - a\n again main - a\n next side > read + b\n join main > next";
    small(early, &["not_exclusive"]);
    small(&early.replace("> read", "> again"), &[]);
}

#[test]
fn the_next_layer_on_another_stream_before_this_layers_reader_ends_is_refused() {
    small("write side + a\n read main > write - a", &["reuse"]);
    small("write side > prev.read + a\n read main > write - a", &[]);
}

#[test]
fn a_graph_relaunched_while_its_previous_launch_runs_is_refused() {
    // In the pass all is ordered; the next pass does not wait for the end of this one.
    let steps = "write main == 1 + a\n read side == 1 > write - a\n rest main == 2";
    let two = |steps: &str| Declared::new(&[1, 2], &[("a", None, 256)], steps);
    let (_, errors) = analyze(&two(steps).spec());
    assert_eq!(codes(&errors), ["reuse"]);
    assert_eq!(judge(&two(steps)).unwrap().outcome, Outcome::Refused);
    let joined = steps.replace("rest main == 2", "rest main == 2 > prev.read");
    assert_eq!(judge(&two(&joined)).unwrap().outcome, Outcome::Accepted);
}

#[test]
fn a_host_callback_or_copy_is_a_reader_like_any_other() {
    small(
        "write main + a\n callback host > write - a\n next main + b",
        &["not_exclusive", "reuse"],
    );
    small("write main + a\n callback host > write - a\n next main > callback + b", &[]);
}

// ---- programmatic dependent launch ----

#[test]
fn a_chain_of_three_programmatic_launches_whose_middle_never_waits_is_refused() {
    let path = Path::new(EXAMPLES).join("specs/early-launch.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, errors) = analyze(&toml_spec::read(&text, ".".as_ref()).whole().unwrap());
    assert_eq!(codes(&errors), ["not_exclusive"]);
    // The trace in the file is the one that comes out.
    let documented = text.lines().filter_map(|line| line.strip_prefix("#   "));
    let documented: String = documented.collect::<Vec<_>>().join(" ");
    for line in errors[0].trace() {
        assert!(documented.contains(line.as_str()), "{line}");
    }
    let chain = |mid: &str, last: &str| {
        let steps = format!(
            "write_a main + a\n read_a main - a\n mid main {mid}\n write_b main {last} + b\n read_b main - b"
        );
        let groups = [("a", None, 4000), ("b", None, 4000)];
        let declared = Declared::new(&[0, 0, 0], &groups, &steps).exclusive(&["a", "b"]);
        judge(&declared).map(|judged| judged.outcome)
    };
    assert_eq!(chain("early", "dependent"), Ok(Outcome::Refused));
    assert_eq!(chain("dependent", "dependent"), Ok(Outcome::Accepted));
    assert_eq!(chain("early", "full"), Ok(Outcome::Accepted));
    assert_eq!(chain("early", "early"), Ok(Outcome::Refused));
}
