//! DeepSeek-V4's eager region with its real kernels, on a GPU. Where there is no driver, the test says that
//! it is skipped.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::pedantic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

/// How the runtime's tests take the device in turns, and say what they found.
#[path = "../../runtime/tests/gpu/lab.rs"]
#[allow(dead_code, reason = "its kernels are for the runtime's tests")]
mod lab;

use lab::{gpu, say};
use scratchpool::{Backing, Device as _, Host};
use scratchpool_examples::layers::{Case, eager, replayed};
use scratchpool_kernels::HostKernels;
use scratchpool_kernels::cuda::CudaKernels;

#[test]
fn one_model_code_gives_the_hosts_bytes_on_the_gpu_eager_and_in_a_graph() {
    let Some(turn) = gpu("one model code gives the host's bytes") else { return };
    let cuda = &turn.gpu.cuda;
    let kernels = CudaKernels::new(cuda).unwrap();
    let case = Case::new(9, 0..8);
    let wanted = eager(&Host::in_order(), &HostKernels, &case, Backing::Arena).unwrap();
    wanted.verify(&case).unwrap();
    for backing in [Backing::Arena, Backing::PerCall, Backing::Sanitized] {
        let found = eager(cuda, &kernels, &case, backing).unwrap();
        let off = wanted.compare(&found).unwrap_or_else(|what| panic!("{backing:?}: {what}"));
        let dense = found.verify(&case).unwrap_or_else(|what| panic!("{backing:?}: {what}"));
        say(&format!(
            "RESULT eager region, {backing:?}: choices and caches the host's; attention {off:.1e} \
             from the host, {dense:.1e} from float64"
        ));
    }
    let found = replayed(cuda, &kernels, &case).unwrap();
    let off = wanted.compare(&found).unwrap_or_else(|what| panic!("in a graph: {what}"));
    say(&format!(
        "RESULT eager region, in a graph of padded rows: attention {off:.1e} from the host"
    ));
    // Nothing is left running, and the device is as usable as before.
    cuda.synchronize().unwrap();
}
