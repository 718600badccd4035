//! The oracle's own tests: what it says of small schedules was worked out by hand.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

mod oracle;

use std::collections::BTreeSet;
use std::path::Path;

use oracle::expr::{Fault, Names, parse};
use oracle::model::{After, Buffer, Column, Dim, Group, Launch, Layers, Spec, Step};
use oracle::order::Order;
use oracle::pack::{Item, by_branch_and_bound, by_permutations, heaviest_clique};
use oracle::rng::Rng;
use oracle::verdict::{Finding, judge};
use oracle::{PASSES, generate, read};
use serde_json::{Value, json};

fn step(name: &str) -> Step {
    Step {
        name: name.to_owned(),
        stream: "main".to_owned(),
        when: None,
        after: vec![],
        launch: Launch::Full,
        writes: vec![],
        reads: vec![],
    }
}

impl Step {
    fn on(mut self, stream: &str) -> Self {
        stream.clone_into(&mut self.stream);
        self
    }

    fn when(mut self, when: &str) -> Self {
        self.when = Some(parse(when));
        self
    }

    fn after(mut self, steps: &[&str]) -> Self {
        self.after = steps
            .iter()
            .map(|wait| match wait.strip_prefix("prev.") {
                Some(step) => After { prev: true, step: step.to_owned() },
                None => After { prev: false, step: (*wait).to_owned() },
            })
            .collect();
        self
    }

    fn launch(mut self, launch: Launch) -> Self {
        self.launch = launch;
        self
    }

    fn writes(mut self, names: &[&str]) -> Self {
        self.writes = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    fn reads(mut self, names: &[&str]) -> Self {
        self.reads = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }
}

fn group(name: &str, when: Option<&str>, buffers: &[(&str, &str, &[&str])]) -> Group {
    let buffer = |(name, dtype, shape): &(&str, &str, &[&str])| Buffer {
        name: (*name).to_owned(),
        dtype: (*dtype).to_owned(),
        shape: shape.iter().map(|dim| parse(dim)).collect(),
        align: None,
    };
    Group {
        name: name.to_owned(),
        when: when.map(parse),
        keep: None,
        buffers: buffers.iter().map(buffer).collect(),
    }
}

fn pool(layers: usize, steps: Vec<Step>, groups: Vec<Group>) -> Spec {
    Spec {
        name: "Pool".to_owned(),
        align: None,
        exclusive: vec![],
        dims: vec![],
        layers: Some(Layers { count: Some(parse(&layers.to_string())), columns: vec![] }),
        steps,
        groups,
    }
}

/// Two groups of one buffer each, `a.x` and `b.y`.
fn two() -> Vec<Group> {
    vec![group("a", None, &[("x", "f32", &["1000"])]), group("b", None, &[("y", "f32", &["1000"])])]
}

fn findings(spec: &Spec) -> BTreeSet<Finding> {
    judge(spec, PASSES).unwrap().findings()
}

fn interfering(spec: &Spec) -> Vec<(String, String)> {
    judge(spec, PASSES).unwrap().interference_names()
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

/// The scratch of a sparse-attention model: an indexer on one side stream, a compressor on another.
fn sparse_attention(join: &[&str], ratios: Vec<i64>) -> Spec {
    let dims = [
        ("max_num_tokens", 8192),
        ("padded_q_heads", 64),
        ("head_dim", 512),
        ("index_n_heads", 64),
        ("index_head_dim", 128),
        ("index_topk", 512),
    ];
    let mut dims =
        dims.map(|(name, n)| (name.to_owned(), Dim::Value(parse(&n.to_string())))).to_vec();
    dims.push(("ratios".to_owned(), Dim::List(ratios)));
    let sparse = "compress_ratio == 4";
    Spec {
        name: "EagerScratch".to_owned(),
        align: Some(256),
        exclusive: ["indexer", "topk", "compressor"].map(str::to_owned).to_vec(),
        dims,
        layers: Some(Layers {
            count: None,
            columns: vec![("compress_ratio".to_owned(), Column::Named("ratios".to_owned()))],
        }),
        steps: vec![
            step("fork"),
            step("index_q").on("aux0").when(sparse).after(&["fork"]).writes(&["indexer"]),
            step("index_topk").on("aux0").when(sparse).reads(&["indexer"]),
            step("compress")
                .on("aux1")
                .when("compress_ratio == 128")
                .after(&["fork"])
                .writes(&["compressor"]),
            step("q_proj").writes(&["q"]),
            step("join").after(join),
            step("global_topk").when(sparse).writes(&["topk"]),
            step("attention").reads(&["q", "topk"]),
        ],
        groups: vec![
            group("q", None, &[("q", "bf16", &["max_num_tokens", "padded_q_heads", "head_dim"])]),
            group(
                "indexer",
                Some(sparse),
                &[
                    ("values", "u8", &["max_num_tokens", "index_n_heads", "index_head_dim / 2"]),
                    ("scales", "e8m0", &["max_num_tokens", "index_n_heads", "index_head_dim / 32"]),
                    ("weights", "f32", &["max_num_tokens", "index_n_heads"]),
                ],
            ),
            group(
                "topk",
                Some(sparse),
                &[
                    ("indices", "i32", &["max_num_tokens", "index_topk"]),
                    ("lens", "i32", &["max_num_tokens"]),
                ],
            ),
            group(
                "compressor",
                Some("compress_ratio == 128"),
                &[("kv", "f32", &["max_num_tokens", "head_dim"])],
            ),
        ],
    }
}

fn forty_three_layers() -> Vec<i64> {
    (0..43).map(|layer| if layer < 2 { 0 } else { [4, 128][layer % 2] }).collect()
}

#[test]
fn sparse_attention_overlays_its_three_families() {
    let verdict =
        judge(&sparse_attention(&["index_topk", "compress"], forty_three_layers()), PASSES)
            .unwrap();
    assert_eq!(verdict.findings(), BTreeSet::new());
    let mut expected =
        vec![pair("compressor.kv", "q.q"), pair("q.q", "topk.indices"), pair("q.q", "topk.lens")];
    expected.extend(
        ["scales", "values", "weights"].map(|name| pair(&format!("indexer.{name}"), "q.q")),
    );
    expected.extend([
        pair("indexer.scales", "indexer.values"),
        pair("indexer.scales", "indexer.weights"),
    ]);
    expected.extend([pair("indexer.values", "indexer.weights"), pair("topk.indices", "topk.lens")]);
    expected.sort();
    assert_eq!(verdict.interference_names(), expected);
    assert_eq!(verdict.sum_bytes(), 608_206_848);
    assert_eq!(verdict.lower_bound_bytes(), 574_619_648);
    assert_eq!(verdict.optimum_bytes(), 574_619_648);
}

#[test]
fn a_lost_join_lets_the_compressor_run_into_the_next_layer() {
    let spec = sparse_attention(&["index_topk"], vec![0, 0, 4, 128, 4, 128, 4, 0]);
    let lost = |other: &str| Finding::NotExclusive("compressor".to_owned(), other.to_owned());
    assert_eq!(findings(&spec), BTreeSet::from([lost("indexer"), lost("topk")]));
}

#[test]
fn an_early_kernel_in_the_middle_loses_order_two_hops_away() {
    let chain = |middle| {
        vec![
            step("write_a").writes(&["a"]),
            step("read_a").reads(&["a"]),
            step("mid").launch(middle),
            step("write_b").launch(Launch::Dependent).writes(&["b"]),
            step("read_b").reads(&["b"]),
        ]
    };
    assert_eq!(interfering(&pool(3, chain(Launch::Early), two())), [pair("a.x", "b.y")]);
    assert_eq!(interfering(&pool(3, chain(Launch::Dependent), two())), []);
    assert_eq!(interfering(&pool(3, chain(Launch::Full), two())), []);

    let mut claimed = pool(3, chain(Launch::Early), two());
    claimed.exclusive = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(
        findings(&claimed),
        BTreeSet::from([Finding::NotExclusive("a".to_owned(), "b".to_owned())])
    );
}

#[test]
fn a_full_launch_after_an_early_one_comes_after_the_whole_stream() {
    let spec = pool(
        1,
        vec![
            step("p"),
            step("q").launch(Launch::Early),
            step("r").launch(Launch::Dependent),
            step("s"),
        ],
        vec![],
    );
    let order = Order::new(&spec, 1).unwrap();
    let before = |b| (0..4).filter(|a| order.happens_before(*a, b)).collect::<Vec<_>>();
    assert_eq!(
        [before(0), before(1), before(2), before(3)],
        [vec![], vec![], vec![1], vec![0, 1, 2]]
    );
}

#[test]
fn an_event_covers_its_stream_although_the_step_itself_does_not() {
    // `q` is early, so it does not come after `p`; the event after `q` still does.
    let steps = vec![
        step("p").on("side"),
        step("q").on("side").launch(Launch::Early),
        step("r").after(&["q"]),
    ];
    let order = Order::new(&pool(1, steps, vec![]), 1).unwrap();
    assert!(!order.happens_before(0, 1));
    assert!(order.happens_before(0, 2) && order.happens_before(1, 2));
}

#[test]
fn prev_waits_for_the_latest_earlier_layer_that_ran_the_step() {
    let steps = vec![step("p").on("side").when("layer == 0"), step("q").after(&["prev.p"])];
    let order = Order::new(&pool(3, steps, vec![]), 2).unwrap();
    // Nodes: p0 q0 q1 q2 | p0 q0 q1 q2.
    let waits = [1, 2, 3, 5, 6].map(|q| (order.happens_before(0, q), order.happens_before(4, q)));
    assert_eq!(waits, [(false, false), (true, false), (true, false), (true, false), (true, true)]);
}

#[test]
fn one_stream_lets_buffers_share_when_their_uses_do_not_overlap() {
    let apart = vec![
        step("p").writes(&["a"]),
        step("q").reads(&["a"]),
        step("r").writes(&["b"]),
        step("s").reads(&["b"]),
    ];
    assert_eq!(interfering(&pool(2, apart, two())), []);
    let crossed = vec![
        step("p").writes(&["a"]),
        step("q").writes(&["b"]),
        step("r").reads(&["a"]),
        step("s").reads(&["b"]),
    ];
    assert_eq!(interfering(&pool(2, crossed, two())), [pair("a.x", "b.y")]);
}

#[test]
fn a_value_carried_over_the_layers_is_live_in_between() {
    let steps = vec![
        step("p").reads(&["a"]).when("layer > 0"),
        step("q").writes(&["b"]),
        step("r").reads(&["b"]),
        step("s").writes(&["a"]),
    ];
    assert_eq!(interfering(&pool(2, steps.clone(), two())), []);
    // With three layers, and nothing written in the second, the value of the first lives through it.
    let mut steps = steps;
    steps[3].when = Some(parse("layer != 1"));
    assert_eq!(interfering(&pool(3, steps, two())), [pair("a.x", "b.y")]);
}

#[test]
fn a_value_carried_over_the_end_of_a_pass_is_missing_in_the_first() {
    let steps = vec![step("p").reads(&["a"]), step("s").writes(&["a"])];
    assert_eq!(
        findings(&pool(1, steps, two())),
        BTreeSet::from([Finding::ReadBeforeWrite("a.x".to_owned())])
    );
}

#[test]
fn a_read_on_a_stream_that_does_not_wait_is_a_race() {
    let steps = |after: &[&str]| {
        vec![step("p").writes(&["a"]), step("q").on("side").after(after).reads(&["a"])]
    };
    let race = Finding::Race("a.x".to_owned());
    let reuse = Finding::Reuse("a.x".to_owned());
    assert_eq!(findings(&pool(1, steps(&[]), two())), BTreeSet::from([race, reuse.clone()]));
    // The read is in order now, but the next layer overwrites the value under it.
    assert_eq!(findings(&pool(1, steps(&["p"]), two())), BTreeSet::from([reuse]));
    let mut mended = steps(&["p"]);
    mended[0] = mended[0].clone().after(&["prev.q"]);
    assert_eq!(findings(&pool(1, mended, two())), BTreeSet::new());
}

#[test]
fn a_buffer_without_an_access_needs_nothing() {
    let spec = pool(1, vec![step("p").writes(&["a"])], two());
    let verdict = judge(&spec, PASSES).unwrap();
    assert_eq!(
        (verdict.sum_bytes(), verdict.buffers[1].bytes, verdict.buffers[1].accessed),
        (4096, 0, false)
    );
}

#[test]
fn a_ring_of_five_needs_three() {
    let ring = (0..5usize).map(|i| Item {
        bytes: 1,
        align: 1,
        conflicts: (0..5usize).map(|j| [1, 4].contains(&i.abs_diff(j))).collect(),
    });
    let ring = ring.collect::<Vec<_>>();
    assert_eq!(
        (heaviest_clique(&ring), by_permutations(&ring), by_branch_and_bound(&ring)),
        (2, 3, 3)
    );
}

#[test]
fn both_searches_find_the_same_arena() {
    let mut rng = Rng::new(5);
    for _ in 0..150 {
        let n = rng.range(1, 6);
        let density = rng.range(20, 90);
        let mut items = (0..n)
            .map(|_| Item {
                bytes: rng.range(1, 12) as i64,
                align: 1 << rng.below(4),
                conflicts: vec![false; n],
            })
            .collect::<Vec<_>>();
        for i in 0..n {
            for j in 0..i {
                let conflict = rng.chance(density);
                items[i].conflicts[j] = conflict;
                items[j].conflicts[i] = conflict;
            }
        }
        let least = by_permutations(&items);
        assert_eq!(by_branch_and_bound(&items), least, "{items:?}");
        assert!(least >= heaviest_clique(&items));
    }
}

#[test]
fn precedence_is_that_of_rust() {
    let names = Names::from([("a".to_owned(), 7), ("b".to_owned(), 3)]);
    let value = |text: &str| parse(text).value(&names);
    assert_eq!(value("a - b - 1"), Ok(3));
    assert_eq!(value("a + b * 2 == 13 && !(b > a)"), Ok(1));
    assert_eq!(value("0 && 1 / 0 || 1"), Ok(1));
    assert_eq!(value("1 || 1 && 0"), Ok(1));
    assert_eq!(value("!a + 1"), Ok(1));
    assert_eq!(value("(0 - a) % b"), Ok(-1));
    assert_eq!(value("ceil_div(a, b) + align_up(a, 4) + min(a, b) + max(a, b)"), Ok(3 + 8 + 3 + 7));
    assert_eq!(value("a / b"), Err(Fault::Inexact));
    assert_eq!(value("a % (b - 3)"), Err(Fault::ZeroDivisor));
    assert_eq!(value("9223372036854775807 + 1"), Err(Fault::Overflow));
    assert_eq!(value("c"), Err(Fault::UnknownName("c".to_owned())));
}

#[test]
fn a_printed_spec_reads_back_as_itself() {
    for seed in 0..150 {
        let spec = generate::spec(seed);
        let text = spec.toml();
        let back = read::read(&text, None);
        // TOML tables have no order, and an attribute's entry none either.
        assert_eq!((&back.steps, &back.groups), (&spec.steps, &spec.groups), "seed {seed}\n{text}");
        assert_eq!(back.layer_names(), spec.layer_names(), "seed {seed}\n{text}");
    }
}

#[test]
fn more_passes_change_nothing() {
    for seed in 0..60 {
        let spec = generate::spec(seed);
        let (few, many) = (judge(&spec, PASSES).unwrap(), judge(&spec, 7).unwrap());
        assert_eq!(few.findings(), many.findings(), "seed {seed}\n{}", spec.toml());
        assert_eq!(few.interference, many.interference, "seed {seed}\n{}", spec.toml());
        let three = judge(&spec, 3).unwrap();
        assert_eq!(three.interference, many.interference, "seed {seed}\n{}", spec.toml());
    }
}

#[test]
fn a_good_share_of_random_specs_is_sound() {
    let sound = (0..400).filter(|seed| findings(&generate::spec(*seed)).is_empty()).count();
    println!("{sound} of 400 random specs are sound");
    assert!((120..=280).contains(&sound), "{sound} of 400");
}

/// What a case expects of a schedule, if it is about one, against what the oracle says.
fn compare(path: &Path) -> Option<Result<(), String>> {
    let expected = std::fs::read_to_string(path.with_extension("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let codes = expected["errors"].as_array().cloned().unwrap_or_default();
    let about_schedules = ["read_before_write", "race", "reuse", "not_exclusive"];
    if codes.iter().any(|code| !about_schedules.contains(&code.as_str().unwrap())) {
        return None;
    }
    let text = std::fs::read_to_string(path).unwrap();
    let config = text
        .contains("config =")
        .then(|| std::fs::read_to_string(path.with_file_name("model.json")).unwrap());
    let verdict = judge(&read::read(&text, config.as_deref()), PASSES).unwrap();
    let findings = verdict.findings();
    let found = findings.iter().map(Finding::code).collect::<BTreeSet<_>>();
    let claims = findings.iter().filter(|finding| matches!(finding, Finding::NotExclusive(..)));
    let mut differ = Vec::new();
    let mut same = |key: &str, value: Value| {
        if !expected[key].is_null() && expected[key] != value {
            differ.push(format!("{key} {}, but the oracle says {value}", expected[key]));
        }
    };
    same("exit", json!(i32::from(!found.is_empty())));
    same("errors", json!(found));
    same("pairs", json!(claims.map(Finding::subjects).collect::<Vec<_>>()));
    same("interference", json!(verdict.interference_names()));
    same("sum_bytes", json!(verdict.sum_bytes()));
    same("lower_bound_bytes", json!(verdict.lower_bound_bytes()));
    if expected["exit"] == 0 && verdict.items().len() <= 12 {
        same("total_bytes", json!(verdict.optimum_bytes()));
    }
    Some(if differ.is_empty() {
        Ok(())
    } else {
        Err(format!("{}: {}", path.display(), differ.join("; ")))
    })
}

#[test]
fn the_cases_expect_what_the_oracle_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let paths = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let cases = paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let results = cases.filter_map(|path| compare(&path)).collect::<Vec<_>>();
    let differ = results.iter().filter_map(|result| result.clone().err()).collect::<Vec<_>>();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(results.len() >= 30, "only {} cases of schedules", results.len());
}
