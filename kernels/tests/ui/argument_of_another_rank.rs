//! Queries have a head's axis; these are flat. Attention reads flat rows; a workspace has an axis of requests.

use scratchpool::{Host, Tensor, bf16};
use scratchpool_kernels::ops::attention::Entries;
use scratchpool_kernels::ops::q_insert::Query;

fn queries<'v>(
    from: &'v Tensor<'v, bf16, Host, 2>,
    to: &'v mut Tensor<'v, bf16, Host, 3>,
) -> Query<'v, Host> {
    Query::Out { from: from.view(), to: to.view_mut() }
}

fn rows<'v>(workspace: &'v Tensor<'v, bf16, Host, 3>) -> Entries<'v, Host> {
    Entries::Rows(workspace.view())
}

fn main() {}
