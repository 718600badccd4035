//! Runs a case: eager, padded, or from a graph.

use scratchpool::cuda::{CaptureMode, Cuda};
use scratchpool::{Backing, Device};
use scratchpool_kernels::cuda::CudaKernels;
use scratchpool_kernels::{Error, Kernels};

use super::case::{Case, MOST_ROWS};
use super::model::{Inputs, Model, Results};
use super::outcome::Outcome;
use crate::deepseek::{FlashScratch, flash_scratch};

/// Runs all passes of a case one after the other, with nothing waited for in between.
///
/// # Errors
///
/// What the device refuses.
pub fn eager<D: Device>(
    device: &D,
    kernels: &impl Kernels<D>,
    case: &Case,
    backing: Backing,
) -> Result<Outcome, Error> {
    run(device, kernels, case, backing, false)
}

/// The same with every pass padded to [`MOST_ROWS`] rows, as in a graph.
///
/// # Errors
///
/// What the device refuses.
pub fn padded<D: Device>(
    device: &D,
    kernels: &impl Kernels<D>,
    case: &Case,
) -> Result<Outcome, Error> {
    run(device, kernels, case, Backing::Arena, true)
}

fn run<D: Device>(
    device: &D,
    kernels: &impl Kernels<D>,
    case: &Case,
    backing: Backing,
    padded: bool,
) -> Result<Outcome, Error> {
    let load = device.create_stream("load")?;
    let dims = flash_scratch::Dims { max_num_tokens: MOST_ROWS };
    let mut pool = FlashScratch::allocate_with(device, dims, backing)?;
    let mut model = Model::new(device, &load, case)?;
    let mut passes = Vec::new();
    for host in case.passes(padded) {
        let results = Results::new(device, case.layers.len(), host.rows)?;
        passes.push((Inputs::new(device, &load, &host)?, results));
    }
    for (inputs, results) in &mut passes {
        let mut pass = pool.begin(inputs.rows)?;
        model.forward(&mut pass, kernels, inputs, results)?;
        pass.finish()?;
    }
    let found = passes.iter().zip(case.rows());
    let passes =
        found.map(|((_, results), rows)| results.read(&load, rows)).collect::<Result<_, _>>();
    Ok(Outcome { passes: passes?, caches: model.caches(&load)? })
}

/// Captures one pass of [`MOST_ROWS`] rows into a graph, and replays it for each pass of a case, padded.
///
/// # Errors
///
/// What the device refuses.
pub fn replayed(cuda: &Cuda, kernels: &CudaKernels, case: &Case) -> Result<Outcome, Error> {
    let load = cuda.create_stream("load")?;
    let dims = flash_scratch::Dims { max_num_tokens: MOST_ROWS };
    let mut pool = FlashScratch::allocate(cuda, dims)?;
    let mut model = Model::new(cuda, &load, case)?;
    let mut results = Results::new(cuda, case.layers.len(), MOST_ROWS)?;
    let passes = case.passes(true);
    // Any pass will do: what is captured are shapes and addresses.
    let mut inputs = Inputs::new(cuda, &load, &case.idle_pass())?;
    let mut pass = pool.begin(MOST_ROWS)?;
    let capture = cuda.capture(pass.streams(), pass.num_tokens(), CaptureMode::ThreadLocal)?;
    model.forward(&mut pass, kernels, &inputs, &mut results)?;
    pass.finish()?;
    let graph = capture.end()?;
    let mut found = Vec::new();
    for (host, rows) in passes.iter().zip(case.rows()) {
        inputs.replace(&load, host)?;
        graph.replay(rows)?;
        found.push(results.read(&load, rows)?);
    }
    Ok(Outcome { passes: found, caches: model.caches(&load)? })
}
