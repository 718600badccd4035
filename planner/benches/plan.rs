//! How long a plan takes, which is what the macro and the command spend their time on, beside what
//! reading the same spec from TOML takes.
//!
//! ```sh
//! cargo bench -p scratchpool-planner --bench plan
//! cargo bench -p scratchpool-planner --bench plan --profile dev   # as a proc macro is built
//! ```
//!
//! `plan` checks, proves, packs and verifies; `order` reduces the events to those that are issued.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use scratchpool_planner::error::Error;
use scratchpool_planner::plan::{Plan, plan};
use scratchpool_planner::toml_spec;

fn main() -> ExitCode {
    // The folder of the examples, whose configurations the specs name.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    println!(
        "{:<34} {:>7} {:>6} {:>10} {:>10} {:>10} {:>15}",
        "spec", "nodes", "pairs", "read", "plan", "order", "total of plan"
    );
    let cases = [
        ("DeepSeek-V4-Flash, 43 layers", deepseek("flash")),
        ("DeepSeek-V4-Pro, 61 layers", deepseek("pro")),
        ("61 layers, 12 steps, 10 buffers", large()),
    ];
    for (name, text) in cases {
        if let Err(errors) = measure(name, &text, &folder) {
            for error in errors {
                eprintln!("{name}: {} [{}]", error.message(), error.code());
            }
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn measure(name: &str, text: &str, folder: &Path) -> Result<(), Vec<Error>> {
    let spec = toml_spec::read(text, folder).whole()?;
    let planned = plan(&spec)?;
    let read = median(|| toml_spec::read(text, folder));
    let whole = median(|| plan(&spec));
    let order = median(|| planned.explain().issue_plan());
    println!(
        "{name:<34} {:>7} {:>6} {read:>10.1?} {whole:>10.1?} {order:>10.1?} {:>15}",
        nodes(&planned),
        planned.interference.len(),
        planned.layout.total_bytes,
    );
    Ok(())
}

fn nodes(plan: &Plan) -> usize {
    plan.structure.steps.iter().flat_map(|step| &step.runs).filter(|runs| **runs).count()
}

/// The median of at least seven runs, and of half a second of them.
fn median<T>(mut run: impl FnMut() -> T) -> Duration {
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < 7 || begin.elapsed() < Duration::from_millis(500) {
        let start = Instant::now();
        std::hint::black_box(run());
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The scratch pool of one eager layer.
fn deepseek(model: &str) -> String {
    format!(
        r#"
config = "configs/deepseek-v4-{model}.json"
pool = {{ name = "EagerScratch", exclusive = ["indexer", "topk", "compressor"] }}
dims = {{ n = 8192, heads = 64 }}
layers = {{ count = "num_hidden_layers", ratio = "compress_ratios" }}
step = [
    {{ name = "fork" }},
    {{ name = "index_q", stream = "aux0", when = "ratio == 4", after = ["fork"], writes = ["indexer"] }},
    {{ name = "index_topk", stream = "aux0", when = "ratio == 4", reads = ["indexer"] }},
    {{ name = "compress", stream = "aux1", when = "ratio == 128", after = ["fork"], writes = ["compressor"] }},
    {{ name = "q_proj", writes = ["q"] }},
    {{ name = "join", after = ["index_topk", "compress"] }},
    {{ name = "global_topk", when = "ratio == 4", writes = ["topk"] }},
    {{ name = "attention", reads = ["q", "topk"] }},
]
[[group]]
name = "q"
buffer = [{{ name = "q", dtype = "bf16", shape = ["n", "heads", "head_dim"] }}]
[[group]]
name = "indexer"
when = "ratio == 4"
buffer = [
    {{ name = "values", dtype = "u8", shape = ["n", "index_n_heads", "index_head_dim / 2"] }},
    {{ name = "scales", dtype = "e8m0", shape = ["n", "index_n_heads", "index_head_dim / 32"] }},
    {{ name = "weights", dtype = "f32", shape = ["n", "index_n_heads"] }},
]
[[group]]
name = "topk"
when = "ratio == 4"
buffer = [
    {{ name = "indices", dtype = "i32", shape = ["n", "index_topk"] }},
    {{ name = "lens", dtype = "i32", shape = ["n"] }},
]
[[group]]
name = "compressor"
when = "ratio == 128"
buffer = [{{ name = "kv", dtype = "f32", shape = ["n", "head_dim"] }}]
"#
    )
}

/// Three streams that fork and join in every layer, with a buffer from nearly every step to the
/// next.
fn large() -> String {
    let mut text = String::from(
        r#"
pool.name = "Large"
layers.count = 61
step = [
    { name = "s0", writes = ["g0"] },
    { name = "s1", stream = "aux0", after = ["s0"], reads = ["g0"], writes = ["g1"] },
    { name = "s2", stream = "aux0", reads = ["g1"], writes = ["g2"] },
    { name = "s3", stream = "aux0", reads = ["g2"], writes = ["g3"] },
    { name = "s4", stream = "aux1", after = ["s0"], writes = ["g4"] },
    { name = "s5", stream = "aux1", when = "layer % 3 != 0", reads = ["g4"], writes = ["g5"] },
    { name = "s6", stream = "aux1", reads = ["g4", "g5"], writes = ["g6"] },
    { name = "s7", writes = ["g7"] },
    { name = "s8", reads = ["g7"], writes = ["g8"] },
    { name = "s9", when = "layer % 2 == 1", reads = ["g8"] },
    { name = "s10", after = ["s3", "s6"], reads = ["g3", "g6"], writes = ["g9"] },
    { name = "s11", reads = ["g9"] },
]
"#,
    );
    for group in 0..10 {
        let when = if group == 5 { "when = 'layer % 3 != 0'\n" } else { "" };
        let _ = write!(
            text,
            "[[group]]\nname = 'g{group}'\n{when}buffer = [{{ name = 'b', dtype = 'bf16', shape = [{}, 128] }}]\n",
            1000 + 700 * (group * 7 % 10)
        );
    }
    text
}
