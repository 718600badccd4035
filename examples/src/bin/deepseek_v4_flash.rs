//! Plans DeepSeek-V4's scratch from the model's configuration, prints the memory map, and runs
//! forward passes over all layers on the host: as issued, in many random orders that streams and
//! events allow, and without a pool. Every read is checked against what its own live range wrote.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use scratchpool::{Backing, Host};
use scratchpool_examples::check::Findings;
use scratchpool_examples::deepseek::{
    Batch, FlashScratch, Model, ProScratch, flash_scratch, pro_scratch,
};
use scratchpool_planner::error::Error;
use scratchpool_planner::plan::{Plan, plan};
use scratchpool_planner::spec::DimValue;
use scratchpool_planner::{report, toml_spec};

/// Plans DeepSeek-V4's scratch and runs forward passes on the host, every read checked.
#[derive(Parser)]
struct Arguments {
    /// The model whose scratch is planned and run.
    #[arg(long, value_enum, default_value = "flash")]
    model: Which,
    /// Most tokens of a batch: the pool's size.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    tokens: u32,
    /// Seed of the batches and of the random orders.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Random orders to run, beside the order of issue.
    #[arg(long, default_value_t = 24)]
    orders: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Flash,
    Pro,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let tokens = usize::try_from(arguments.tokens).map_err(|error| error.to_string())?;
    let name = if arguments.model == Which::Flash { "flash" } else { "pro" };
    let plan = plan_at(name, arguments.tokens)?;
    print!("{}", report::map(&plan));
    println!();
    families(&plan);

    // The struct and the TOML file are two spellings of one spec: same bytes.
    let offsets = match arguments.model {
        Which::Flash => {
            let dims = flash_scratch::Dims { max_num_tokens: tokens };
            by_name(&flash_scratch::Plan::new(dims).map_err(|error| error.to_string())?.offsets())
        }
        Which::Pro => {
            let dims = pro_scratch::Dims { max_num_tokens: tokens };
            by_name(&pro_scratch::Plan::new(dims).map_err(|error| error.to_string())?.offsets())
        }
    };
    let planned: Vec<u64> = plan.layout.buffers.iter().map(|buffer| buffer.offset).collect();
    if offsets != planned {
        return Err(format!("the struct lays its buffers at {offsets:?}, the file at {planned:?}"));
    }
    println!("the annotated struct and the TOML file give the same offsets\n");
    match arguments.model {
        Which::Flash => passes::<FlashScratch<Host>>(arguments, tokens),
        Which::Pro => passes::<ProScratch<Host>>(arguments, tokens),
    }
}

fn by_name(offsets: &[usize]) -> Vec<u64> {
    offsets.iter().map(|offset| *offset as u64).collect()
}

/// The plan of the TOML spelling, for a number of tokens.
fn plan_at(model: &str, tokens: u32) -> Result<Plan, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs");
    let path = folder.join(format!("deepseek-v4-{model}.toml"));
    let shown = path.display();
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{shown}: {error}"))?;
    let said = |errors: Vec<Error>| {
        let lines: Vec<String> = errors.iter().map(Error::message).collect();
        format!("{shown}: {}", lines.join("; "))
    };
    let mut spec = toml_spec::read(&text, &folder).whole().map_err(said)?;
    for dim in &mut spec.dims {
        if let DimValue::Runtime { nominal, .. } = &mut dim.value {
            *nominal = i64::from(tokens);
        }
    }
    plan(&spec).map_err(said)
}

/// What the three overlaid families take, alone and together.
fn families(plan: &Plan) {
    let mut overlaid = 0;
    for group in ["indexer", "topk", "compressor"] {
        let buffers = plan
            .layout
            .buffers
            .iter()
            .filter(|buffer| buffer.name.split('.').next() == Some(group));
        let bytes: u64 = buffers.clone().map(|buffer| buffer.bytes).sum();
        overlaid = buffers.map(|buffer| buffer.offset + buffer.bytes).fold(overlaid, u64::max);
        println!("{group:<12} {bytes:>12} bytes");
    }
    println!("{:<12} {overlaid:>12} bytes", "overlaid");
}

/// Batches of mixed prefill and decode rows, empty and tiny ones among them, and one that repeats.
fn batches(seed: u64, tokens: usize) -> Vec<Batch> {
    let mut state = seed;
    let mut below = |limit: usize| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let limit = limit as u64 + 1;
        usize::try_from((bits ^ bits >> 31) % limit).unwrap_or(0)
    };
    let mut batches = vec![
        Batch { prefill: 0, decode: tokens.min(16) },
        Batch { prefill: 0, decode: 0 },
        Batch { prefill: tokens.min(1), decode: 0 },
    ];
    for _ in 0..3 {
        let prefill = below(tokens.min(24));
        batches.push(Batch { prefill, decode: below((tokens - prefill).min(8)) });
    }
    batches
}

fn passes<M: Model>(arguments: &Arguments, tokens: usize) -> Result<(), String> {
    let batches = batches(arguments.seed, tokens);
    let rows: Vec<String> =
        batches.iter().map(|batch| format!("{}+{}", batch.prefill, batch.decode)).collect();
    println!("batches (prefill + decode rows): {}", rows.join(", "));

    let issued = one::<M>(&Host::in_order(), tokens, Backing::Arena, &batches, "as issued")?;
    let mut total = (issued.reads(), issued.elements());
    let apart = one::<M>(&Host::in_order(), tokens, Backing::PerCall, &batches, "without a pool")?;
    if apart.digest() != issued.digest() {
        return Err("the same passes read other values without a pool".into());
    }
    for order in 0..arguments.orders {
        let seed = arguments.seed.wrapping_add(order);
        let host = Host::random(seed);
        let findings = one::<M>(
            &host,
            tokens,
            Backing::Arena,
            &batches,
            &format!("in the order of seed {seed}"),
        )?;
        if findings.digest() != issued.digest() {
            return Err(format!(
                "the order of seed {seed} read other values than the order of issue"
            ));
        }
        total = (total.0 + findings.reads(), total.1 + findings.elements());
        if (order + 1) % 8 == 0 || order + 1 == arguments.orders {
            println!("{:>4} of {} random orders, no wrong read", order + 1, arguments.orders);
            std::io::stdout().flush().map_err(|error| error.to_string())?;
        }
    }
    println!(
        "\nverified on the host device: {} layers x {} passes, as issued and in {} random legal orders",
        M::LAYERS,
        batches.len(),
        arguments.orders
    );
    println!(
        "{} reads, {} elements compared, 0 wrong; the same values without a pool",
        total.0, total.1
    );
    Ok(())
}

/// Runs all batches one after the other, without waiting between them, and checks all reads.
fn one<M: Model>(
    host: &Host,
    tokens: usize,
    backing: Backing,
    batches: &[Batch],
    name: &str,
) -> Result<Findings, String> {
    let findings = Findings::default();
    let fail = |error: scratchpool::Error| format!("{name}: {error}");
    let mut pool = M::allocate(host, tokens, backing).map_err(fail)?;
    for (batch, pass) in batches.iter().zip(0..) {
        pool.forward(*batch, pass, &findings).map_err(fail)?;
    }
    scratchpool::Device::synchronize(host).map_err(fail)?;
    match findings.first_wrong() {
        None => Ok(findings),
        Some(wrong) => Err(format!(
            "{name}: {} of {} elements are wrong, the first at {wrong:?}",
            findings.wrong(),
            findings.elements()
        )),
    }
}
