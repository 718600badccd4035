//! All arguments of a launch are memory of one device.

use scratchpool::cuda::Cuda;
use scratchpool::{Host, HostStream, Tensor};
use scratchpool_kernels::ops::indexer_topk::IndexerTopk;
use scratchpool_kernels::{HostKernels, Kernels};

fn choose<'v>(
    logits: &'v Tensor<'v, f32, Host, 2>,
    indices: &'v mut Tensor<'v, i32, Cuda, 2>,
) -> IndexerTopk<'v, Host> {
    IndexerTopk { logits: logits.view(), indices: indices.view_mut() }
}

fn launch(stream: &HostStream, args: IndexerTopk<'_, Cuda>) {
    let _ = HostKernels.indexer_topk(stream, args);
}

fn main() {}
