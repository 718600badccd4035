//! Queries have a head's axis; these are flat.

use scratchpool::{Host, bf16};
use scratchpool_kernels::Tensor;
use scratchpool_kernels::ops::q_insert::Query;

fn queries<'v>(
    from: &'v Tensor<'v, bf16, Host, 2>,
    to: &'v mut Tensor<'v, bf16, Host, 3>,
) -> Query<'v, Host> {
    Query::Out { from: from.view(), to: to.view_mut() }
}

fn main() {}
