//! What is written must be exclusive; a shared view of a pool is not, nor is an input.

use scratchpool::{Host, Tensor, View};
use scratchpool_kernels::ops::indexer_topk::IndexerTopk;

fn of_a_pool<'v>(
    logits: View<'v, f32, Host, 2>,
    indices: View<'v, i32, Host, 2>,
) -> IndexerTopk<'v, Host> {
    IndexerTopk { logits: logits, indices: indices }
}

fn of_a_tensor<'v>(
    logits: &'v Tensor<'v, f32, Host, 2>,
    indices: &'v Tensor<'v, i32, Host, 2>,
) -> IndexerTopk<'v, Host> {
    IndexerTopk { logits: logits.view(), indices: indices.view() }
}

fn main() {}
