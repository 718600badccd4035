//! Logits are f32; these are halves.

use scratchpool::{Host, Tensor, f16};
use scratchpool_kernels::ops::indexer_topk::IndexerTopk;

fn choose<'v>(
    logits: &'v Tensor<'v, f16, Host, 2>,
    indices: &'v mut Tensor<'v, i32, Host, 2>,
) -> IndexerTopk<'v, Host> {
    IndexerTopk { logits: logits.view(), indices: indices.view_mut() }
}

fn main() {}
