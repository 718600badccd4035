//! The built command: exit codes, streams, JSON, and the texts that people read.
//!
//! Expected texts lie beside the specs in `tests/command`; `UPDATE_EXPECTED=1` writes them anew.

#![expect(clippy::unwrap_used, reason = "a test ends where what it stands on is missing")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scratchpool"));
    command.current_dir(folder()).args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn run_with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // A command that has read enough closes its end, so not all need be taken.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The only line of a message that is not a frame of it.
fn first_line(bytes: &[u8]) -> &str {
    text(bytes).lines().next().unwrap_or_default()
}

fn expect(name: &str, found: &[u8]) {
    let path = folder().join(name);
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text(found), expected, "{name}; UPDATE_EXPECTED=1 writes it anew");
}

fn scratch(name: &str, content: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_plan_is_drawn() {
    let output = run(&["plan", "small.toml"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    expect("small.plan.txt", &output.stdout);
    assert!(text(&output.stdout).lines().all(|line| line.chars().count() <= 110));
}

#[test]
fn a_plan_as_json_has_all_that_the_format_promises() {
    let output = run(&["plan", "small.toml", "--format", "json"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let plan = json(&output);
    assert_eq!(plan["pool"], "Small");
    assert_eq!(plan["align"], 256);
    // `left` lies in the bytes of `right.values`.
    assert_eq!(plan["total_bytes"], 65_536 + 256);
    assert_eq!(plan["lower_bound_bytes"], 65_536 + 256);
    assert_eq!(plan["sum_bytes"], 32_768 + 65_536 + 256);
    assert_eq!(plan["optimal"], true);
    assert!(plan["fingerprint"].as_str().is_some_and(|hash| !hash.is_empty()));
    let names: Vec<_> = plan["buffers"].as_array().unwrap().iter().map(|b| &b["name"]).collect();
    assert_eq!(names, ["left.values", "right.values", "right.scale"]);
    let left = &plan["buffers"][0];
    assert_eq!((&left["bytes"], &left["dtype"]), (&32_768.into(), &"bf16".into()));
    assert_eq!(left["shape"], serde_json::json!([64, 256]));
    assert!(left["offset"].is_u64());
    assert_eq!(plan["interference"], serde_json::json!([["right.scale", "right.values"]]));
    let proof = &plan["proofs"][1];
    assert_eq!((&proof["a"], &proof["b"]), (&"left.values".into(), &"right.values".into()));
    assert_eq!(proof["by"], "happens_before");
    assert_eq!(proof["edges"], serde_json::json!(["use -> join (event)", "join -> mix (main)"]));
}

#[test]
fn the_same_spec_gives_the_same_bytes() {
    let plan = || run(&["plan", "small.toml", "--format", "json"]).stdout;
    assert_eq!(plan(), plan());
}

#[test]
fn a_spec_from_standard_input_is_relative_to_the_current_folder() {
    let spec = fs::read(folder().join("small.toml")).unwrap();
    let output = run_with_input(&["plan", "-", "--format", "json"], &spec);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, run(&["plan", "small.toml", "--format", "json"]).stdout);
}

#[test]
fn dims_of_the_command_line_replace_those_of_the_spec_and_its_configuration() {
    let total = |dims: &[&str]| {
        let mut arguments = vec!["plan", "small.toml", "--format", "json"];
        arguments.extend(dims.iter().flat_map(|dim| ["--dim", dim]));
        json(&run(&arguments))["total_bytes"].as_u64()
    };
    assert_eq!(total(&["tokens=128"]), Some(2 * 65_536 + 512));
    assert_eq!(total(&["hidden_size=1024", "tokens=64"]), Some(2 * 65_536 + 256));

    let output = run(&["plan", "small.toml", "--format", "json", "--dim", "token=1"]);
    assert_eq!(output.status.code(), Some(1));
    let error = &json(&output)["errors"][0];
    assert_eq!(error["code"], "unknown_name");
    assert_eq!(error["help"], "did you mean `tokens`?");
    assert_eq!(error["notes"], serde_json::json!(["given as argument `--dim token=1`"]));
    assert_eq!(error["line"], Value::Null, "the command line has no place in the spec");
}

#[test]
fn a_dim_of_the_command_line_below_1_is_one_error() {
    let output = run(&["plan", "small.toml", "--dim", "tokens=0"]);
    assert_eq!(output.status.code(), Some(1));
    expect("dim_below_1.txt", &output.stderr);
    // `width` is computed from it.
    let output = run(&["plan", "small.toml", "--format", "json", "--dim", "hidden_size=-2"]);
    let errors = &json(&output)["errors"];
    assert_eq!(errors.as_array().map(Vec::len), Some(1));
    assert_eq!(errors[0]["code"], "shape");
    assert_eq!(errors[0]["message"], "dim `hidden_size` is -2; a size must be at least 1");
}

#[test]
fn errors_are_drawn_on_standard_error() {
    for (spec, expected) in [
        ("refused.toml", "refused.txt"),
        ("race.toml", "race.txt"),
        ("mistakes.toml", "mistakes.txt"),
        ("names.toml", "names.txt"),
        ("no_config.toml", "no_config.txt"),
        ("quotes.toml", "quotes.txt"),
        ("nested.toml", "nested.txt"),
    ] {
        let output = run(&["plan", spec]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{spec}");
        expect(expected, &output.stderr);
    }
}

#[test]
fn a_step_that_runs_in_no_layer_is_warned_of_beside_the_error_that_it_causes() {
    let spec = br#"
        pool.name = "Never"
        layers.ratio = [0, 4]
        step = [
            { name = "topk_map", when = "ratio == 5", writes = ["topk"] },
            { name = "attend", reads = ["topk"] },
        ]
        group = [{ name = "topk", when = "ratio == 4", buffer = [{ name = "x", dtype = "u8", shape = [16] }] }]
    "#;
    let output = run_with_input(&["plan", "-"], spec);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    let warning = first_line(&output.stderr);
    assert!(warning.starts_with("warning: ") && warning.contains(":5:"), "{warning}");
    assert!(warning.ends_with(": step `topk_map` runs in no layer"), "{warning}");
    assert!(text(&output.stderr).contains("error[read_before_write]"));
    let output = run_with_input(&["plan", "-", "--format", "json"], spec);
    assert_eq!(text(&output.stderr), "");
    let errors = &json(&output)["errors"];
    assert_eq!(errors.as_array().map(Vec::len), Some(1));
    assert_eq!(
        errors[0]["help"],
        "`topk_map`, which writes it, runs in no layer: its `when = \"ratio == 5\"` holds in none"
    );
}

#[test]
fn what_none_reads_or_uses_is_warned_of_unless_a_step_may_need_it_alone() {
    let spec = |reads: &str, writes: &str| {
        format!(
            r#"
            pool.name = "Quiet"
            dims = {{ n = 16, unused = "n" }}
            step = [
                {{ name = "make", writes = ["g", "workspace"], reads = [{writes}] }},
                {{ name = "take", reads = [{reads}] }},
            ]
            [[group]]
            name = "g"
            buffer = [{{ name = "a", dtype = "u8", shape = ["n"] }}, {{ name = "b", dtype = "u8", shape = ["n"] }}]
            [[group]]
            name = "workspace"
            buffer = [{{ name = "w", dtype = "u8", shape = ["n"] }}]
            "#
        )
    };
    let warnings = |spec: &str| {
        let output = run_with_input(&["plan", "-"], spec.as_bytes());
        assert_eq!(output.status.code(), Some(0));
        let lines = text(&output.stderr).lines().filter_map(|line| line.splitn(5, ':').nth(4));
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let dim = "nothing uses dim `unused`";
    let buffer = "no step reads `g.b`, though `take` reads others of its group; if its writer does, list it in the `reads` there, too";
    assert_eq!(warnings(&spec("\"g.a\"", "")), [dim, buffer]);
    assert_eq!(warnings(&spec("\"g.a\"", "\"g.b\"")), [dim]);
    assert_eq!(warnings(&spec("\"g\"", "")), [dim]);
}

#[test]
fn errors_as_json_go_to_standard_output() {
    let output = run(&["plan", "refused.toml", "--format", "json"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), ""));
    let errors = &json(&output)["errors"];
    assert_eq!(errors.as_array().map(Vec::len), Some(1));
    let error = &errors[0];
    assert_eq!(error["code"], "not_exclusive");
    assert!(error["message"].is_string());
    assert!(error["trace"].as_array().is_some_and(|trace| trace.len() >= 3));
    assert_eq!((&error["line"], &error["column"]), (&6.into(), &15.into()));
    assert_eq!(error["groups"], serde_json::json!(["left", "right"]));
}

#[test]
fn no_error_is_reported_that_only_a_gap_may_have_caused() {
    let output = run(&["plan", "mistakes.toml", "--format", "json"]);
    let errors = json(&output);
    let found: Vec<_> = errors["errors"].as_array().unwrap().iter().collect();
    let place = |error: &Value| format!("{} {}", error["line"], error["code"].as_str().unwrap());
    let found: Vec<_> = found.into_iter().map(place).collect();
    assert_eq!(
        found,
        [
            "1 config",
            "5 unknown_key",
            "8 expression",
            "13 unknown_name",
            "17 duplicate",
            "18 order",
            "18 unknown_name",
            "19 unknown_name",
            "29 unknown_name",
            "30 shape",
            "31 align",
        ]
    );
}

#[test]
fn a_pair_is_explained() {
    for (spec, a, b, expected) in [
        ("small.toml", "left", "right.values", "explain_may.txt"),
        ("small.toml", "right", "right", "explain_forced.txt"),
        ("refused.toml", "left", "right.scale", "explain_must_not.txt"),
        ("refused.toml", "left", "right", "explain_groups.txt"),
        ("small.toml", "right", "left", "explain_groups_all.txt"),
    ] {
        let output = run(&["explain", spec, a, b]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{expected}");
        expect(expected, &output.stdout);
    }
    let output = run(&["explain", "refused.toml", "left", "right", "--format", "json"]);
    let pairs = &json(&output)["pairs"];
    assert_eq!(pairs.as_array().map(Vec::len), Some(2));
    assert_eq!(pairs[0]["may_share"], false);
    assert_eq!(pairs[0]["mend"], serde_json::json!({"step": "mix", "after": "use"}));
}

#[test]
fn pairs_that_must_not_share_are_explained_first() {
    let spec = br#"
        pool.name = "Chain"
        step = [
            { name = "make", writes = ["g.a"] },
            { name = "turn", reads = ["g.a"], writes = ["g.b"] },
            { name = "fold", reads = ["g.b"], writes = ["g.c"] },
            { name = "end", reads = ["g.c"] },
        ]
        [[group]]
        name = "g"
        buffer = [
            { name = "a", dtype = "f32", shape = [1] },
            { name = "c", dtype = "f32", shape = [1] },
            { name = "b", dtype = "f32", shape = [1] },
        ]
    "#;
    let output = run_with_input(&["explain", "-", "g", "g"], spec);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let starts: Vec<_> =
        text(&output.stdout).lines().filter(|line| !line.starts_with([' '])).collect();
    assert_eq!(
        starts,
        [
            "3 pairs: 1 may share, 2 must not",
            "",
            "g.a and g.b must not share bytes",
            "",
            "g.c and g.b must not share bytes",
            "",
            "g.a and g.c may share bytes",
        ]
    );
}

#[test]
fn names_to_explain_must_exist_and_differ() {
    let output = run(&["explain", "small.toml", "lefd", "right.value"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    let message = text(&output.stderr);
    assert!(message.contains("no group is called `lefd`"), "{message}");
    assert!(message.contains("did you mean `left`?"), "{message}");
    assert!(message.contains("did you mean `right.values`?"), "{message}");
    assert!(message.contains("given as argument `A`"), "{message}");
    assert!(message.contains("given as argument `B`"), "{message}");
    assert!(!message.contains("`small.toml` has"), "the spec is right: {message}");

    let output = run(&["explain", "small.toml", "scale", "zebra"]);
    expect("explain_no_such.txt", &output.stderr);

    let output = run(&["explain", "small.toml", "left", "left.values"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "left.values is one buffer; there is no pair to explain\n");
}

#[test]
fn specs_are_checked_a_line_each() {
    let output = run(&["check", "small.toml", "refused.toml", "no_such.toml"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), ""));
    let lines: Vec<_> = text(&output.stdout).lines().collect();
    assert_eq!(
        lines,
        [
            "small.toml: ok, `Small` takes 65792 bytes (64.2 KiB)",
            "refused.toml: 6:15: error[not_exclusive]: groups `left` and `right` are not exclusive: \
             they can be live at the same time",
            "no_such.toml: error[syntax]: cannot read `no_such.toml`: there is no such file",
        ]
    );
    let output = run(&["check", "race.toml"]);
    assert!(text(&output.stdout).ends_with(" (and 3 more errors; `scratchpool plan` shows all)\n"));
    assert_eq!(run(&["check", "small.toml"]).status.code(), Some(0));
    let output = run(&["check", "small.toml", "race.toml", "--format", "json"]);
    let files = &json(&output)["files"];
    assert_eq!((&files[0]["ok"], &files[1]["ok"]), (&true.into(), &false.into()));
    assert!(!files[1]["errors"].as_array().unwrap().is_empty());
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    for arguments in [
        &[][..],
        &["plan"],
        &["pack", "small.toml"],
        &["plan", "small.toml", "--format", "xml"],
        &["plan", "small.toml", "--dim", "tokens"],
        &["plan", "small.toml", "--dim", "tokens=many"],
        &["plan", "small.toml", "--dim", "a b=1"],
        &["explain", "small.toml", "left"],
        &["check"],
    ] {
        let output = run(arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["--version"], &["plan", "--help"]] {
        let output = run(arguments);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_one_clear_error() {
    let garbage: Vec<u8> = (0_u32..10 << 20)
        .map(|at| b' ' + u8::try_from(at.wrapping_mul(2_654_435_761) >> 26).unwrap())
        .collect();
    let garbage = scratch("garbage.toml", &garbage);
    let binary = scratch("binary.toml", b"[pool]\nname = \"\xff\"\n");
    let folder = env!("CARGO_TARGET_TMPDIR");
    for (path, reason) in [
        ("no_such.toml", "there is no such file"),
        (folder, "it is a directory"),
        (binary.as_str(), "not UTF-8 text: wrong from byte 15 on"),
        (garbage.as_str(), "longer than 4 MiB"),
    ] {
        let line = format!("cannot read `{path}`: {reason}");
        let output = run(&["plan", path]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{path}");
        assert_eq!(first_line(&output.stderr), format!("error[syntax]: {line}"));
        assert!(!text(&output.stderr).contains("has an error"), "{path}");
        let output = run(&["plan", path, "--format", "json"]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), ""), "{path}");
        let errors = &json(&output)["errors"];
        assert_eq!(errors.as_array().map(Vec::len), Some(1));
        assert_eq!((&errors[0]["code"], &errors[0]["message"]), (&"syntax".into(), &line.into()));
    }
}

#[test]
fn ten_megabytes_on_standard_input_end_in_an_error() {
    let output = run_with_input(&["plan", "-"], &vec![b'['; 10 << 20]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        first_line(&output.stderr),
        "error[syntax]: cannot read `standard input`: longer than 4 MiB"
    );
    let output = run_with_input(&["plan", "-"], &vec![b'['; 3 << 20]);
    assert_eq!(output.status.code(), Some(1));
    assert!(first_line(&output.stderr).starts_with("error[syntax]: "));
    assert!(output.stderr.len() < 1000);
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let mut command = command(&["plan", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    // Only now can the command go on, with nobody left to write to.
    let spec = fs::read(folder().join("small.toml")).unwrap();
    child.stdin.take().unwrap().write_all(&spec).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let mut command = command(&["plan", "small.toml"]);
    command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(first_line(&output.stderr).starts_with("error: cannot write the output: "));
}

#[test]
fn colours_are_for_terminals_only() {
    let output = run(&["plan", "mistakes.toml"]);
    assert!(!output.stderr.contains(&0x1b));
}

#[test]
fn sizes_of_the_running_server_and_copies_are_told() {
    let spec = br#"
        pool = { name = "Chain", ubatches = 2 }
        dims = { tokens = { runtime = 100 } }
        step = [
            { name = "make", writes = ["g.a"] },
            { name = "turn", reads = ["g.a"], writes = ["g.b"] },
            { name = "fold", reads = ["g.b"], writes = ["g.c"] },
            { name = "end", reads = ["g.c"] },
        ]
        [[group]]
        name = "g"
        buffer = [
            { name = "a", dtype = "f32", shape = ["tokens"] },
            { name = "b", dtype = "f32", shape = ["tokens"] },
            { name = "c", dtype = "f32", shape = ["tokens"] },
            { name = "idle", dtype = "f32", shape = ["tokens"] },
        ]
    "#;
    let output = run_with_input(&["plan", "-"], spec);
    let idle = "warning: standard input:16:23: no step touches `g.idle` in any layer, so it gets no bytes\n";
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), idle));
    expect("chain.plan.txt", &output.stdout);
}
