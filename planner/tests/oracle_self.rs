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

use oracle::execute::{Machine, Part, parts};
use oracle::expr::Value::{Int, List, Text};
use oracle::expr::{Fault, Names, parse};
use oracle::generate::Words;
use oracle::model::{After, Buffer, Column, Dim, Group, Launch, Layers, Spec, Step};
use oracle::order::Order;
use oracle::pack::{Item, by_branch_and_bound, by_permutations, heaviest_clique};
use oracle::rng::Rng;
use oracle::shrink::shrink;
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
        uses: vec![],
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
        parts: None,
    };
    Group {
        name: name.to_owned(),
        when: when.map(parse),
        keep: None,
        persistent: false,
        external: false,
        per_layer: false,
        buffers: buffers.iter().map(buffer).collect(),
    }
}

fn pool(layers: usize, steps: Vec<Step>, groups: Vec<Group>) -> Spec {
    Spec {
        name: "Pool".to_owned(),
        align: None,
        exclusive: vec![],
        rows: vec![],
        config: None,
        modes: vec![],
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
        rows: vec![],
        config: None,
        modes: vec![],
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
    let names = Names::from([("a".to_owned(), Int(7)), ("b".to_owned(), Int(3))]);
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
fn strings_and_lists_are_compared_and_looked_into() {
    let names = Names::from([
        ("layer".to_owned(), Int(2)),
        ("kind".to_owned(), Text("full".to_owned())),
        ("text_config.picks".to_owned(), List(vec![Int(0), Int(2)])),
        ("kinds".to_owned(), List(vec![Text("full".to_owned())])),
    ]);
    let value = |text: &str| parse(text).value(&names);
    assert_eq!(value("kind == \"full\" && layer in text_config.picks"), Ok(1));
    assert_eq!(value("kind != \"full\" || kind in kinds"), Ok(1));
    assert_eq!(value("!(layer in kinds)"), Ok(1));
    assert_eq!(value("\"a\" == \"b\""), Ok(0));
    for wrong in ["kind", "kind == 1", "kind < \"g\"", "kinds", "kind + 1", "layer in kind"] {
        assert_eq!(value(wrong), Err(Fault::Type), "{wrong}");
    }
    assert_eq!(value("picks"), Err(Fault::UnknownName("picks".to_owned())));
}

#[test]
fn a_name_of_a_config_is_its_path() {
    let config = r#"{"n": 5, "yes": true, "no": false, "null": null, "half": 0.5, "odd": [1, null],
        "in": {"text": "a", "deep": {"list": [1, true]}}, "hidden": 9}"#;
    let spec = read::read(
        "config = \"c.json\"\n[pool]\nname = \"P\"\n[dims]\nhidden = \"n + 1\"\n",
        Some(config),
    );
    let expected = [
        ("n", Int(5)),
        ("yes", Int(1)),
        ("no", Int(0)),
        ("in.text", Text("a".to_owned())),
        ("in.deep.list", List(vec![Int(1), Int(1)])),
        ("hidden", Int(6)),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(spec.names(), Ok(Names::from(expected)));
}

#[test]
fn a_printed_spec_reads_back_as_itself() {
    for seed in 0..150 {
        let spec = generate::spec(seed, Words::All);
        let text = spec.toml();
        let back = read::read(&text, spec.config.as_ref().map(Value::to_string).as_deref());
        // TOML tables have no order, and an attribute's entry none either.
        assert_eq!((&back.steps, &back.groups), (&spec.steps, &spec.groups), "seed {seed}\n{text}");
        assert_eq!(back.layer_names(), spec.layer_names(), "seed {seed}\n{text}");
        assert_eq!((&back.rows, &back.config), (&spec.rows, &spec.config), "seed {seed}\n{text}");
        let sorted = |spec: &Spec| {
            let all = spec.every_mode().into_iter().map(|mode| spec.names_in(mode).unwrap());
            all.collect::<BTreeSet<_>>()
        };
        assert_eq!(sorted(&back), sorted(&spec), "seed {seed}\n{text}");
    }
}

#[test]
fn more_passes_change_nothing() {
    for seed in 0..60 {
        let spec = generate::spec(seed, Words::All);
        let (few, many) = (judge(&spec, PASSES).unwrap(), judge(&spec, 7).unwrap());
        assert_eq!(few.findings(), many.findings(), "seed {seed}\n{}", spec.toml());
        assert_eq!(few.interference, many.interference, "seed {seed}\n{}", spec.toml());
        let three = judge(&spec, 3).unwrap();
        assert_eq!(three.interference, many.interference, "seed {seed}\n{}", spec.toml());
    }
}

#[test]
fn a_good_share_of_random_specs_is_sound() {
    for words in [Words::Few, Words::All] {
        let sound = (0..400).filter(|seed| findings(&generate::spec(*seed, words)).is_empty());
        let sound = sound.count();
        println!("{sound} of 400 random specs are sound ({words:?})");
        assert!((120..=280).contains(&sound), "{sound} of 400 ({words:?})");
    }
}

/// What a case expects of a schedule, if it is about one, against what the oracle says.
fn compare(path: &Path) -> Option<Result<(), String>> {
    let expected = std::fs::read_to_string(path.with_extension("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let codes = expected["errors"].as_array().cloned().unwrap_or_default();
    let about_schedules = ["read_before_write", "race", "reuse", "not_exclusive", "access"];
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
    let files = |folder: &Path| std::fs::read_dir(folder).unwrap();
    let paths = files(&folder).chain(files(&folder.join("new_words")));
    let paths = paths.map(|entry| entry.unwrap().path());
    let cases = paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let results = cases.filter_map(|path| compare(&path)).collect::<Vec<_>>();
    let differ = results.iter().filter_map(|result| result.clone().err()).collect::<Vec<_>>();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(results.len() >= 30, "only {} cases of schedules", results.len());
}

// ---- the rules, by running schedules that are small enough in every order ----

/// Two buffers of any kind of memory, up to two parts each, and up to three steps on up to two streams.
fn tiny(seed: u64) -> Spec {
    let mut rng = Rng::new(seed);
    let rng = &mut rng;
    let layers = rng.range(1, 2);
    let only_full = rng.chance(50);
    let count = rng.range(2, if layers == 1 || only_full { 4 } else { 3 });
    let waits = rng.range(0, 60);
    let other = if rng.chance(30) { "main" } else { "side" };
    let mut steps = Vec::new();
    for i in 0..count {
        let mut one = step(&format!("s{i}")).on(if rng.chance(50) { "main" } else { other });
        if layers > 1 && rng.chance(30) {
            one = one.when(&format!("layer == {}", rng.below(2)));
        }
        for j in 0..count {
            if j < i && rng.chance(waits) {
                one.after.push(After { prev: false, step: format!("s{j}") });
            }
            if rng.chance(waits) && rng.chance(60) {
                one.after.push(After { prev: true, step: format!("s{j}") });
            }
        }
        if !only_full {
            one.launch = *rng.pick(&[Launch::Full, Launch::Dependent, Launch::Early]);
        }
        steps.push(one);
    }
    let mut groups = two();
    for group in &mut groups {
        let parts = if rng.chance(35) { 2 } else { 1 };
        if parts > 1 || rng.chance(10) {
            group.buffers[0].parts = Some(parts);
        }
        if layers > 1 && rng.chance(20) {
            group.when = Some(parse("layer == 1"));
        }
        match rng.below(6) {
            0 => group.persistent = true,
            1 => group.external = true,
            _ => {}
        }
        group.per_layer = (group.persistent || group.external) && rng.chance(50);
        let used = !group.persistent && !group.external && rng.chance(20);
        let name = format!("{}.{}", group.name, group.buffers[0].name);
        for step in &mut steps {
            for part in 0..parts {
                let whole = rng.chance(30);
                let name = if whole || parts == 1 && rng.chance(50) {
                    group.name.clone()
                } else if parts == 1 {
                    name.clone()
                } else {
                    format!("{name}[{part}]")
                };
                let kind = rng.below(7);
                if used && kind < 3 {
                    step.uses.push(name);
                } else if !used {
                    if kind == 0 || kind == 1 {
                        step.reads.push(name.clone());
                    }
                    if (1..4).contains(&kind) {
                        step.writes.push(name);
                    }
                }
            }
        }
    }
    pool(layers, steps, groups)
}

/// What running in every order shows, against what the rules say.
fn differs(spec: &Spec, seen: &mut [usize; 6]) -> Result<(), String> {
    let verdict = judge(spec, PASSES).unwrap();
    // Nothing sound is carried over the end of a pass but memory that is kept, and one pass more shows nothing new.
    let nodes = Order::new(spec, 2).unwrap().nodes;
    let machine = Machine::new(spec, &nodes);
    let all = parts(spec, &nodes);
    let of = |name: &str| all.iter().filter(|part| part.buffer == name).collect::<Vec<_>>();
    let findings = verdict.findings();
    let mut sound = Vec::new();
    for buffer in &verdict.buffers {
        let name = &buffer.name;
        let own = of(name);
        let unwritten = own.iter().any(|part| part.looks_at_nothing());
        if unwritten != findings.contains(&Finding::ReadBeforeWrite(name.clone())) {
            return Err(format!("{name} looks at nothing: {unwritten}"));
        }
        if unwritten {
            continue;
        }
        let broken = own.iter().any(|part| machine.breaks(&[part]));
        let wrong = [Finding::Race(name.clone()), Finding::Reuse(name.clone())];
        if broken != wrong.iter().any(|finding| findings.contains(finding)) {
            return Err(format!("{name} breaks alone: {broken}"));
        }
        seen[usize::from(broken)] += 1;
        if !broken {
            sound.push(name);
        }
    }
    let (x, y) = ("a.x".to_owned(), "b.y".to_owned());
    if sound.contains(&&x) && sound.contains(&&y) {
        let (xs, ys) = (of(&x), of(&y));
        let inside = |part: &&Part| !part.external;
        let breaks = xs
            .iter()
            .copied()
            .filter(inside)
            .any(|x| ys.iter().copied().filter(inside).any(|y| machine.breaks(&[x, y])));
        if breaks == verdict.interference.is_empty() {
            return Err(format!("sharing breaks: {breaks}"));
        }
        seen[2 + usize::from(breaks)] += 1;
        let updated =
            spec.steps.iter().any(|step| !step.reads.is_empty() && !step.writes.is_empty());
        seen[4] += usize::from(updated);
        seen[5] += usize::from(spec.steps.iter().any(|step| !step.uses.is_empty()));
    }
    Ok(())
}

#[test]
fn whatever_is_refused_breaks_in_some_order_and_nothing_else_does() {
    // Sound and broken alone, sharing holds and breaks, with updates, with uses.
    let mut seen = [0; 6];
    for seed in 0..4000 {
        let spec = tiny(seed);
        if let Err(words) = differs(&spec, &mut seen) {
            let small = shrink(&spec, &|spec| differs(spec, &mut [0; 6]).is_err());
            panic!(
                "seed {seed}: {words}\n{}\nsmaller: {:?}\n{}",
                spec.toml(),
                differs(&small, &mut [0; 6]),
                small.toml()
            );
        }
    }
    println!("{seen:?}");
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}

#[test]
fn on_one_stream_every_way_to_carry_a_value_is_judged_as_it_runs() {
    // Three steps, each in one layer or in both, do anything to `a.x`; one of them writes `b.y` in one layer.
    let mut seen = [0; 6];
    for number in 0..27 * 64 * 6 {
        let digit = |of: usize, base: usize| number / of % base;
        let mut groups = two();
        groups[1].when = Some(parse(&format!("layer == {}", digit(27 * 64, 2))));
        let steps = (0..3).map(|i| {
            let mut one = step(&format!("s{i}"));
            if let layer @ 0..2 = digit([1, 3, 9][i], 3) {
                one = one.when(&format!("layer == {layer}"));
            }
            let kind = digit(27 * [1, 4, 16][i], 4);
            if kind & 1 != 0 {
                one = one.reads(&["a"]);
            }
            let mut writes = if kind & 2 != 0 { vec!["a"] } else { vec![] };
            if digit(27 * 64 * 2, 3) == i {
                writes.push("b");
            }
            one.writes(&writes)
        });
        let spec = pool(2, steps.collect(), groups);
        if let Err(words) = differs(&spec, &mut seen) {
            panic!("{words}\n{}", spec.toml());
        }
    }
    assert!(seen[2] > 300 && seen[3] > 300, "{seen:?}");
}
