//! A launch does not read what it writes, nor write anything twice.

use scratchpool::{Host, Tensor, View, ViewMut, bf16};
use scratchpool_kernels::ops::gather::{Gather, KvCacheIn};
use scratchpool_kernels::ops::q_insert::Query;

fn over_itself<'v>(q: &'v mut Tensor<'v, bf16, Host, 3>) -> Query<'v, Host> {
    Query::Out { from: q.view(), to: q.view_mut() }
}

fn gathered_from_itself<'v>(
    rows: &'v mut Tensor<'v, bf16, Host, 3>,
    block_table: View<'v, i32, Host, 2>,
    seq_lens: View<'v, i32, Host, 1>,
) -> Gather<'v, Host> {
    Gather {
        cache: KvCacheIn::Rows(rows.view()),
        block_table,
        seq_lens,
        gather_lens: None,
        ratio: 1,
        rows: 0..1,
        out: rows.view_mut(),
    }
}

type Lens<'v> = ViewMut<'v, i32, Host, 1>;

fn twice<'v>(lens: &'v mut Tensor<'v, i32, Host, 1>) -> [Lens<'v>; 2] {
    [lens.view_mut(), lens.view_mut()]
}

fn twice_of_a_pool<'v>(lens: ViewMut<'v, i32, Host, 1>) -> [Lens<'v>; 2] {
    [lens, lens]
}

fn main() {}
