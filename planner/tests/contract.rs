//! The command `scratchpool plan SPEC --format json` against its contract: hand-made specs with what must come out of
//! them, and random specs that the oracle judges by itself.
//!
//! `SCRATCHPOOL_SEED=n` replays one random spec, `SCRATCHPOOL_SPECS=n` sets how many are tried.
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

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use oracle::generate::Words;
use oracle::model::{Launch, Spec};
use oracle::shrink::shrink;
use oracle::verdict::{Verdict, judge};
use oracle::{PASSES, generate, read};
use serde_json::{Value, json};

/// What a check found wrong, in words.
type Check = Result<(), String>;

macro_rules! require {
    ($holds:expr, $($words:tt)*) => {
        if !$holds {
            return Err(format!($($words)*));
        }
    };
}

fn command(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scratchpool"))
        .args(arguments)
        .output()
        .expect("the command starts")
}

/// Runs `plan` and reads the JSON; exit codes other than 0 and 1 are not for specs.
fn plan(path: &Path) -> Result<(i32, Value), String> {
    let output = command(&["plan", path.to_str().expect("a path in UTF-8"), "--format", "json"]);
    let code = output.status.code().unwrap_or(-1);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    require!(code == 0 || code == 1, "exit code {code}\n{text}{errors}");
    match serde_json::from_str(&text) {
        Ok(json) => Ok((code, json)),
        Err(error) => Err(format!("not JSON: {error}\n{text}{errors}")),
    }
}

fn codes(json: &Value) -> Result<BTreeSet<String>, String> {
    let mut codes = BTreeSet::new();
    for error in json["errors"].as_array().ok_or(format!("no list of errors in {json}"))? {
        let code = error["code"].as_str().ok_or(format!("an error without a code: {error}"))?;
        let message =
            error["message"].as_str().ok_or(format!("an error without a message: {error}"))?;
        require!(!message.is_empty(), "an empty message: {error}");
        require!(
            error["trace"].is_null() || error["trace"].is_array(),
            "a trace that is no list: {error}"
        );
        codes.insert(code.to_owned());
    }
    Ok(codes)
}

fn integer(json: &Value, key: &str) -> Result<i64, String> {
    json[key].as_i64().ok_or(format!("no integer {key} in {json}"))
}

fn text<'a>(json: &'a Value, key: &str) -> Result<&'a str, String> {
    json[key].as_str().ok_or(format!("no string {key} in {json}"))
}

fn list<'a>(json: &'a Value, key: &str) -> Result<&'a Vec<Value>, String> {
    json[key].as_array().ok_or(format!("no list {key} in {json}"))
}

/// Compares all that the command says of a spec with what the oracle says.
fn agrees(spec: &Spec, verdict: &Verdict, code: i32, json: &Value) -> Check {
    let findings = verdict.findings();
    if findings.is_empty() {
        require!(code == 0, "exit code {code} for a sound spec: {json}");
        return accepted(spec, verdict, json);
    }
    require!(code == 1, "exit code {code}, but the oracle finds {findings:?}");
    let expected =
        findings.iter().map(|finding| finding.code().to_owned()).collect::<BTreeSet<_>>();
    // What else is said of a buffer whose accesses contradict one another is open.
    let open = verdict.buffers.iter().filter(|buffer| buffer.open);
    let open = open.flat_map(|it| [it.name.as_str(), it.group.as_str()]).collect::<Vec<_>>();
    let left_open = |error: &Value| {
        let message = error["message"].as_str().unwrap();
        error["code"] != "access" && open.iter().any(|name| message.contains(name))
    };
    let mut json = json.clone();
    codes(&json)?;
    if let Some(errors) = json["errors"].as_array_mut() {
        errors.retain(|error| !left_open(error));
    }
    let found = codes(&json)?;
    require!(found == expected, "codes {found:?}, but the oracle finds {findings:?}\n{json:#}");
    let errors = list(&json, "errors")?;
    let about = |error: &Value, code: &str, subjects: &[&str]| {
        error["code"] == code
            && subjects.iter().all(|subject| error["message"].as_str().unwrap().contains(subject))
    };
    for finding in &findings {
        let told = errors.iter().any(|error| about(error, finding.code(), &finding.subjects()));
        require!(told, "no error tells of {finding:?}: {json:#}");
    }
    for error in errors {
        let true_of =
            findings.iter().any(|finding| about(error, finding.code(), &finding.subjects()));
        require!(true_of, "the oracle does not find {error:#}, only {findings:?}");
    }
    Ok(())
}

fn accepted(spec: &Spec, verdict: &Verdict, json: &Value) -> Check {
    require!(text(json, "pool")? == spec.name, "the pool's name is {}", json["pool"]);
    require!(
        integer(json, "align")? == spec.pool_align(),
        "the pool's alignment is {}",
        json["align"]
    );
    require!(!text(json, "fingerprint")?.is_empty(), "no fingerprint");

    let pairs = verdict.interference_names().iter().map(|(a, b)| json!([a, b])).collect::<Vec<_>>();
    require!(
        json["interference"] == json!(pairs),
        "interference {}, but the oracle finds {}",
        json["interference"],
        json!(pairs)
    );

    let (sum, bound) = (verdict.sum_bytes(), verdict.lower_bound_bytes());
    require!(
        integer(json, "sum_bytes")? == sum,
        "sum {}, but the oracle adds up {sum}",
        json["sum_bytes"]
    );
    require!(
        integer(json, "lower_bound_bytes")? == bound,
        "bound {}, but the oracle's is {bound}",
        json["lower_bound_bytes"]
    );
    let total = integer(json, "total_bytes")?;
    if verdict.items().len() <= 12 {
        let optimum = verdict.optimum_bytes();
        require!(total == optimum, "total {total}, but the oracle needs {optimum}");
        require!(json["optimal"] == true, "optimal is {}", json["optimal"]);
    }
    offsets(verdict, json, total)?;
    proofs(spec, verdict, json)
}

fn offsets(verdict: &Verdict, json: &Value, total: i64) -> Check {
    let mut placed = BTreeMap::new();
    for buffer in list(json, "buffers")? {
        let clash = placed.insert(text(buffer, "name")?, buffer);
        require!(clash.is_none(), "a buffer is listed twice: {buffer}");
    }
    let names = verdict.in_arena().map(|buffer| buffer.name.as_str()).collect::<BTreeSet<_>>();
    let listed = placed.keys().copied().collect::<BTreeSet<_>>();
    require!(listed == names, "buffers {listed:?}, but the spec has {names:?}");

    // External memory has none, and interferes with nothing.
    let mut offsets = vec![0; verdict.buffers.len()];
    let mut end = 0;
    for (i, buffer) in verdict.buffers.iter().enumerate().filter(|(_, it)| !it.external) {
        let entry = placed[buffer.name.as_str()];
        let offset = integer(entry, "offset")?;
        require!(text(entry, "dtype")? == buffer.dtype, "dtype of {entry}");
        require!(
            buffer.shapes.iter().any(|shape| entry["shape"] == json!(shape)),
            "shape of {entry}, the oracle's is {:?}",
            buffer.shapes
        );
        require!(
            integer(entry, "bytes")? == buffer.bytes,
            "bytes of {entry}, the oracle has {}",
            buffer.bytes
        );
        require!(
            offset >= 0 && offset % buffer.align == 0,
            "{entry} is not aligned to {}",
            buffer.align
        );
        require!(buffer.accessed || offset == 0, "{entry} has no access");
        offsets[i] = offset;
        end = end.max(offset + buffer.bytes);
    }
    require!(end == total, "the highest buffer ends at {end}, not at {total}");
    for (a, b) in &verdict.interference {
        let apart = offsets[*a] + verdict.buffers[*a].bytes <= offsets[*b]
            || offsets[*b] + verdict.buffers[*b].bytes <= offsets[*a];
        require!(
            apart,
            "{} and {} overlap",
            placed[verdict.buffers[*a].name.as_str()],
            placed[verdict.buffers[*b].name.as_str()]
        );
    }
    Ok(())
}

fn proofs(spec: &Spec, verdict: &Verdict, json: &Value) -> Check {
    let index = |name: &str| {
        verdict
            .buffers
            .iter()
            .position(|buffer| buffer.name == name)
            .ok_or(format!("no buffer {name}"))
    };
    let mut proved = BTreeSet::new();
    for proof in list(json, "proofs")? {
        let (a, b) = (index(text(proof, "a")?)?, index(text(proof, "b")?)?);
        require!(!text(proof, "by")?.is_empty(), "a proof by nothing: {proof}");
        let pair = (a.min(b), a.max(b));
        require!(
            a != b && !verdict.interference.contains(&pair),
            "a proof of what is not so: {proof}"
        );
        if verdict.buffers[a].accessed && verdict.buffers[b].accessed {
            chain(spec, verdict, (a, b), proof)?;
        }
        proved.insert(pair);
    }
    for a in 0..verdict.buffers.len() {
        for b in a + 1..verdict.buffers.len() {
            let (one, two) = (&verdict.buffers[a], &verdict.buffers[b]);
            let there = [one, two].iter().all(|it| it.accessed && !it.external);
            if there && !verdict.interference.contains(&(a, b)) {
                require!(
                    proved.contains(&(a, b)),
                    "no proof that {} and {} may share",
                    one.name,
                    two.name
                );
            }
        }
    }
    Ok(())
}

/// A chain leads from a step that uses the one buffer to a step that uses the other, edge by edge.
fn chain(spec: &Spec, verdict: &Verdict, (a, b): (usize, usize), proof: &Value) -> Check {
    let uses = |step: &str, buffer: usize| {
        let (name, group) = (&verdict.buffers[buffer].name, &verdict.buffers[buffer].group);
        let step = spec.steps.iter().find(|it| it.name == step).expect("looked up before");
        let part = format!("{name}[");
        let items = step.writes.iter().chain(&step.reads).chain(&step.uses);
        items.into_iter().any(|item| item == name || item == group || item.starts_with(&part))
    };
    let mut edges = Vec::new();
    for edge in list(proof, "edges")? {
        let edge = edge.as_str().ok_or(format!("an edge that is no string: {proof}"))?;
        let parts = edge.strip_suffix(')').and_then(|edge| edge.split_once(" -> ")).and_then(
            |(from, rest)| {
                let (to, by) = rest.split_once(" (")?;
                Some((from, to, by))
            },
        );
        let (from, to, by) = parts.ok_or(format!("an edge not like `a -> b (main)`: {edge}"))?;
        let find = |name: &str| {
            spec.steps
                .iter()
                .find(|step| step.name == name)
                .ok_or(format!("no step {name}: {edge}"))
        };
        let (source, target) = (find(from)?, find(to)?);
        if by == "event" {
            // The event is recorded after the source, or after a later step of its stream.
            let covers = target
                .after
                .iter()
                .any(|wait| find(&wait.step).is_ok_and(|awaited| awaited.stream == source.stream));
            require!(covers, "{to} waits for no event of {from}'s stream: {edge}");
        } else {
            require!(target.stream == by, "{to} is not on {by}: {edge}");
            // An early launch comes after all that the node just before it comes after.
            let early = target.launch == Launch::Early;
            require!(source.stream == by || early, "{from} is not on {by}: {edge}");
        }
        edges.push((from, to));
    }
    let (Some((first, _)), Some((_, last))) = (edges.first(), edges.last()) else {
        return Err(format!("a proof without an edge: {proof}"));
    };
    require!(
        edges.windows(2).all(|pair| pair[0].1 == pair[1].0),
        "the edges do not connect: {proof}"
    );
    let leads = uses(first, a) && uses(last, b) || uses(first, b) && uses(last, a);
    require!(leads, "the edges do not lead from one buffer to the other: {proof}");
    Ok(())
}

/// Runs the command on a spec of the generator, and compares.
fn check(spec: &Spec, verdict: &Verdict) -> Check {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("contract-{}-{number}.toml", std::process::id()));
    let config = path.with_extension("json");
    let file_name = config.file_name().unwrap().to_str().unwrap();
    std::fs::write(&path, spec.toml().replace("\"CONFIG\"", &format!("{file_name:?}"))).unwrap();
    if let Some(names) = &spec.config {
        std::fs::write(&config, names.to_string()).unwrap();
    }
    let planned = plan(&path);
    std::fs::remove_file(&path).unwrap();
    if spec.config.is_some() {
        std::fs::remove_file(&config).unwrap();
    }
    let (code, json) = planned?;
    agrees(spec, verdict, code, &json)
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

#[test]
fn random_specs_come_out_as_the_oracle_says() {
    random_specs(Words::Few);
}

#[test]
#[ignore = "the command does not know these words yet"]
fn random_specs_of_all_words_come_out_as_the_oracle_says() {
    random_specs(Words::All);
}

fn random_specs(words: Words) {
    let (first, count) = match variable("SCRATCHPOOL_SEED") {
        Some(seed) => (seed, 1),
        None => (0, variable("SCRATCHPOOL_SPECS").unwrap_or(400)),
    };
    let next = AtomicU64::new(first);
    let sound = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return;
            }
            let spec = generate::spec(seed, words);
            let verdict = judge(&spec, PASSES).expect("the expressions were tried");
            if verdict.findings().is_empty() {
                sound.fetch_add(1, Ordering::Relaxed);
            }
            if let Err(words) = check(&spec, &verdict) {
                failures.lock().unwrap().push((seed, spec, words));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });

    let mut failures = failures.into_inner().unwrap();
    failures.sort_by_key(|(_, spec, _)| spec.toml().len());
    if let Some((seed, spec, words)) = failures.first() {
        let fails =
            |spec: &Spec| judge(spec, PASSES).is_ok_and(|verdict| check(spec, &verdict).is_err());
        let small = shrink(spec, &fails);
        let small_words = judge(&small, PASSES).map(|verdict| check(&small, &verdict));
        let line = |words: &str| {
            words.lines().next().unwrap_or_default().chars().take(200).collect::<String>()
        };
        let each = failures
            .iter()
            .take(20)
            .map(|(seed, _, words)| format!("seed {seed}: {}", line(words)));
        let each = each.collect::<Vec<_>>();
        panic!(
            "{} of {count} specs fail\n{}\n\nseed {seed}: {words}\n\n{}\nsmaller: {small_words:?}\n\n{}",
            failures.len(),
            each.join("\n"),
            spec.toml(),
            small.toml(),
        );
    }
    let sound = sound.into_inner();
    println!("{sound} of {count} random specs are sound");
    assert!(
        count < 100 || sound * 100 >= 15 * count,
        "only {sound} of {count} random specs are sound"
    );
}

fn case_files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut paths =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths
}

fn expected(path: &Path) -> Value {
    let text = std::fs::read_to_string(path.with_extension("expected.json"))
        .expect("each case has a file of expectations");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The codes of errors that are no fault of the text.
const SCHEDULE: [&str; 5] = ["read_before_write", "race", "reuse", "not_exclusive", "access"];

/// Compares with what stands beside the case.
fn comes_out(path: &Path) -> Check {
    let expected = expected(path);
    let (code, json) = plan(path)?;
    require!(expected["exit"] == code, "exit code {code}: {json:#}");
    for key in [
        "pool",
        "align",
        "total_bytes",
        "lower_bound_bytes",
        "sum_bytes",
        "optimal",
        "interference",
    ] {
        require!(
            expected[key].is_null() || expected[key] == json[key],
            "{key} is {}, not {}",
            json[key],
            expected[key]
        );
    }
    if let Some(wanted) = expected["errors"].as_array() {
        let wanted =
            wanted.iter().map(|code| code.as_str().unwrap().to_owned()).collect::<BTreeSet<_>>();
        let found = codes(&json)?;
        require!(found == wanted, "codes {found:?}, not {wanted:?}: {json:#}");
    }
    let errors = json["errors"].as_array().cloned().unwrap_or_default();
    let says = |words: &[&Value]| {
        let said = |error: &Value| format!("{} {}", error["message"], error["help"]);
        errors
            .iter()
            .any(|error| words.iter().all(|word| said(error).contains(word.as_str().unwrap())))
    };
    for pair in expected["pairs"].as_array().unwrap_or(&vec![]) {
        require!(says(&[&pair[0], &pair[1]]), "no message names the pair {pair}: {json:#}");
    }
    for word in expected["mentions"].as_array().unwrap_or(&vec![]) {
        require!(says(&[word]), "no message mentions {word}: {json:#}");
    }
    for buffer in expected["buffers"].as_array().unwrap_or(&vec![]) {
        let listed = list(&json, "buffers")?.iter().find(|it| it["name"] == buffer["name"]);
        let listed = listed.ok_or(format!("no buffer {}", buffer["name"]))?;
        for (key, value) in buffer.as_object().unwrap() {
            require!(&listed[key] == value, "{key} of {listed}, not {value}");
        }
    }

    let about_the_schedule =
        |codes: &Vec<Value>| codes.iter().all(|code| SCHEDULE.contains(&code.as_str().unwrap()));
    if expected["errors"].as_array().is_none_or(about_the_schedule) {
        let text = std::fs::read_to_string(path).unwrap();
        let config = text
            .contains("config =")
            .then(|| std::fs::read_to_string(path.with_file_name("model.json")).unwrap());
        let spec = read::read(&text, config.as_deref());
        let verdict = judge(&spec, PASSES).expect("a well-formed case");
        agrees(&spec, &verdict, code, &json)?;
    }
    Ok(())
}

#[test]
fn each_case_comes_out_as_written_beside_it() {
    cases_come_out("cases");
}

#[test]
#[ignore = "the command does not know these words yet"]
fn each_case_of_new_words_comes_out_as_written_beside_it() {
    cases_come_out("cases/new_words");
}

fn cases_come_out(folder: &str) {
    let mut failures = Vec::new();
    for path in case_files(folder) {
        if let Err(words) = comes_out(&path) {
            failures.push(format!("{}: {words}", path.file_name().unwrap().display()));
        }
    }
    assert!(failures.is_empty(), "{} cases fail\n\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn the_cases_cover_every_code() {
    let mut seen = BTreeSet::new();
    for path in case_files("cases").iter().chain(&case_files("cases/new_words")) {
        for code in expected(path)["errors"].as_array().unwrap_or(&vec![]) {
            seen.insert(code.as_str().unwrap().to_owned());
        }
    }
    let all = [
        "access",
        "align",
        "config",
        "duplicate",
        "expression",
        "layers",
        "not_exclusive",
        "order",
        "race",
        "read_before_write",
        "reuse",
        "shape",
        "syntax",
        "unknown_key",
        "unknown_name",
    ];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

#[test]
fn a_wrong_use_exits_with_two() {
    let case = case_files("cases").remove(0);
    let case = case.to_str().unwrap();
    let uses: [&[&str]; 5] = [
        &[],
        &["plan"],
        &["frobnicate", case],
        &["plan", case, "--format", "frobnicate"],
        &["plan", case, "--frobnicate"],
    ];
    for arguments in uses {
        assert_eq!(command(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn the_output_is_the_same_in_each_run() {
    for path in case_files("cases") {
        let path = path.to_str().unwrap();
        let (one, two) = (
            command(&["plan", path, "--format", "json"]),
            command(&["plan", path, "--format", "json"]),
        );
        assert_eq!((one.status, one.stdout), (two.status, two.stdout), "{path}");
    }
}

#[test]
fn the_fingerprint_follows_the_bytes() {
    let seed = (0..1000).find(|seed| {
        let spec = generate::spec(*seed, Words::Few);
        judge(&spec, PASSES)
            .is_ok_and(|verdict| verdict.findings().is_empty() && verdict.items().len() > 3)
    });
    let spec = generate::spec(seed.unwrap(), Words::Few);
    let fingerprint = |spec: &Spec, name: &str| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("fingerprint-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, spec.toml()).unwrap();
        let (_, json) = plan(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        json["fingerprint"].as_str().unwrap().to_owned()
    };
    let here = fingerprint(&spec, "here");
    assert_eq!(fingerprint(&spec, "elsewhere"), here);
    let mut larger = spec.clone();
    larger.align = Some(spec.pool_align() * 64);
    for buffer in larger.groups.iter_mut().flat_map(|group| &mut group.buffers) {
        buffer.align = None;
    }
    assert_ne!(fingerprint(&larger, "larger"), here);
}
