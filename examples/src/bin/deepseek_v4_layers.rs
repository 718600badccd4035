//! Runs DeepSeek-V4-Flash's eager region with its real kernels: on the host, as issued, in random orders
//! that streams and events allow, and without a pool; and on a GPU, eager and in a captured graph.
//! One model code does it all. Results are compared with one another, and computed anew in float64.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use scratchpool::cuda::{Cuda, CudaError};
use scratchpool::{Backing, Error, Host};
use scratchpool_examples::layers::{Case, Outcome, eager, padded, replayed};
use scratchpool_kernels::HostKernels;
use scratchpool_kernels::cuda::CudaKernels;

/// Runs DeepSeek-V4-Flash's eager region with its real kernels, on the host and on a GPU.
#[derive(Parser)]
struct Arguments {
    /// How many of the model's layers are run, from the first.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=43))]
    layers: u32,
    /// Seed of weights, inputs and orders.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Random orders to run on the host, beside the order of issue.
    #[arg(long, default_value_t = 3)]
    orders: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let case = Case::new(arguments.seed, 0..usize::try_from(arguments.layers)?);
    for (layer, ratio) in case.layers() {
        let kind = match ratio {
            0 => "the window only".to_owned(),
            4 => "an entry for each 4 tokens, of which the indexer chooses 512".to_owned(),
            ratio => format!("an entry for each {ratio} tokens"),
        };
        println!("layer {layer:>2}: {kind}");
    }
    let rows: Vec<_> = case.rows().map(|rows| rows.to_string()).collect();
    println!("passes of {} rows\n", rows.join(", "));

    let start = Instant::now();
    let wanted = eager(&Host::in_order(), &HostKernels, &case, Backing::Arena)?;
    println!("host, as issued: {:.1} s", start.elapsed().as_secs_f64());
    let off = wanted.verify(&case)?;
    println!("host, the last pass against float64: attention within {off:.1e} of its norm");
    same(
        "without a pool",
        &wanted,
        &eager(&Host::in_order(), &HostKernels, &case, Backing::PerCall)?,
    )?;
    same(
        "padded to the rows of a graph",
        &wanted,
        &padded(&Host::in_order(), &HostKernels, &case)?,
    )?;
    for seed in (0..arguments.orders).map(|order| arguments.seed.wrapping_add(order)) {
        let found = eager(&Host::random(seed), &HostKernels, &case, Backing::Arena)?;
        same(&format!("in the order of seed {seed}"), &wanted, &found)?;
    }

    let cuda = match Cuda::open(0) {
        Ok(cuda) => cuda,
        Err(Error::Cuda(error @ (CudaError::NoDriver | CudaError::NoDevice { .. }))) => {
            println!("\nNOT RUN on a GPU: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let kernels = CudaKernels::new(&cuda)?;
    println!("\n{cuda:?}: choices and caches byte for byte the host's, attention within");
    let report = |how: &str, found: &Outcome| -> Result<(), String> {
        let off = wanted.compare(found).map_err(|what| format!("{cuda:?}, {how}: {what}"))?;
        println!("{off:>10.1e} of its norm, {how}");
        Ok(())
    };
    report("eager", &eager(&cuda, &kernels, &case, Backing::Arena)?)?;
    report("eager, without a pool", &eager(&cuda, &kernels, &case, Backing::PerCall)?)?;
    report("in a graph of padded rows", &replayed(&cuda, &kernels, &case)?)?;
    Ok(())
}

fn same(how: &str, wanted: &Outcome, found: &Outcome) -> Result<(), String> {
    if wanted != found {
        let what = wanted.compare(found).err().unwrap_or_else(|| "attention differs".into());
        return Err(format!("host, {how}: {what}"));
    }
    println!("host, {how}: the same bytes");
    Ok(())
}
