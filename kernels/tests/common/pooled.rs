//! One body for both devices: kernels that write into a pool's views and into fresh tensors.

use scratchpool::{Device, bf16, bool8, scratch_pool};
use scratchpool_kernels::ops::q_insert::{KvCache, QInsert, Query};
use scratchpool_kernels::ops::topk_map::{Placement, TopkMap};
use scratchpool_kernels::{Kernels, Tensor, alloc};

use super::{Random, Rig, rope_table};

/// A pool whose buffers are at offsets other than 0, with rows of odd sizes before them.
#[scratch_pool(align = 256, rows = max_rows, dims(max_rows: runtime(64)), layers(count = 1))]
#[step(fill, writes(before, scratch))]
#[step(read, reads(before, scratch))]
pub struct KernelScratch {
    /// Something else.
    #[group(before)]
    #[shape(max_rows, 7)]
    pub before: u8,
    /// Queries.
    #[group(scratch.q)]
    #[shape(max_rows, 16, 512)]
    pub q: bf16,
    /// Slots.
    #[group(scratch.indices)]
    #[shape(max_rows, 500)]
    pub indices: i32,
    /// Lengths.
    #[group(scratch.lens)]
    #[shape(max_rows)]
    pub lens: i32,
}

/// Queries, slots and lengths of a pass, written into the pool's views in two parts of its rows, and
/// into tensors of their own.
pub fn through_a_pool<D: Device, K: Kernels<D>>(
    rig: &Rig<D, K>,
    rows: usize,
    seed: u64,
) -> (Vec<bf16>, Vec<i32>, Vec<i32>) {
    let mut random = Random(seed);
    let q = random.wild_rows(rows * 9, 512);
    let kv = random.wild_rows(rows, 512);
    let at: Vec<i64> = (0..rows).map(|_| i64::try_from(random.below(64)).unwrap()).collect();
    let local: Vec<i32> =
        (0..rows * 500).map(|_| i32::try_from(random.below(4000)).unwrap() - 9).collect();
    let of: Vec<i32> = (0..rows).map(|row| i32::try_from(row % 3).unwrap()).collect();
    let table: Vec<i32> = (0..3 * 64).map(|_| i32::try_from(random.below(999)).unwrap()).collect();
    let dims = kernel_scratch::Dims { max_rows: 64 };
    let mut pool = KernelScratch::allocate(&rig.device, dims).unwrap();
    let mut pass = pool.begin(rows).unwrap();
    let mut layer = pass.layer(0).unwrap();
    let mut step = layer.fill().unwrap();
    let stream = step.stream();
    let device = &rig.device;
    let (q, kv) = (
        Tensor::from_values(device, stream, [rows, 9, 512], &q).unwrap(),
        Tensor::from_values(device, stream, [rows, 512], &kv).unwrap(),
    );
    let rope = Tensor::from_values(device, stream, [64, 64], &rope_table(64)).unwrap();
    let table = Tensor::from_values(device, stream, [3, 64], &table).unwrap();
    let at = Tensor::from_values(device, stream, [rows], &at).unwrap();
    let local = Tensor::from_values(device, stream, [rows, 500], &local).unwrap();
    let of = Tensor::from_values(device, stream, [rows], &of).unwrap();
    let valid =
        Tensor::from_values(device, stream, [rows], &vec![bool8::from(true); rows]).unwrap();
    let mut cache = Tensor::<u8, D, 2>::new(device, stream, [4, 9344]).unwrap();
    let mut fresh_q = alloc::queries(device, stream, rows, 16).unwrap();
    let mut fresh = alloc::Slots::new(device, stream, rows, 500).unwrap();
    let cut = rows / 3;
    let mut out = step.buffers();
    for (part, whole) in [(0..cut, false), (cut..rows, false), (0..rows, true)] {
        let (to, indices, lens) = if whole {
            let (indices, lens) = fresh.out();
            (fresh_q.view_mut(), indices, lens)
        } else {
            let range = part.clone();
            (
                out.q.reborrow().slice_rows(range.clone()).unwrap().into(),
                out.indices.reborrow().slice_rows(range.clone()).unwrap().into(),
                out.lens.reborrow().slice_rows(range).unwrap().into(),
            )
        };
        let insert = QInsert {
            q: Query::Out { from: q.view().slice_rows(part.clone()).unwrap(), to },
            kv: kv.view().slice_rows(part.clone()).unwrap(),
            kv_norm: None,
            positions: at.view().slice_rows(part.clone()).unwrap(),
            slots: at.view().slice_rows(0..0).unwrap(),
            rope: rope.view(),
            cache: KvCache::Paged { bytes: cache.view_mut(), block_size: 16 },
            eps: 1e-6,
            norm: true,
        };
        rig.kernels.q_insert(stream, insert).unwrap();
        let map = TopkMap {
            topk: local.view().slice_rows(part.clone()).unwrap(),
            token_to_req: of.view().slice_rows(part.clone()).unwrap(),
            block_table: table.view(),
            columns: 64,
            valid: valid.view().slice_rows(part).unwrap(),
            block_size: 64,
            placement: Placement::InPlace,
            indices,
            lens,
        };
        rig.kernels.topk_map(stream, map).unwrap();
    }
    let found = (
        device.copy_to_host(out.q.as_view()).unwrap(),
        device.copy_to_host(out.indices.as_view()).unwrap(),
        device.copy_to_host(out.lens.as_view()).unwrap(),
    );
    let bits = |values: &[bf16]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&found.0), bits(&fresh_q.to_vec().unwrap()), "allocating form");
    assert_eq!(found.1, fresh.indices.to_vec().unwrap(), "allocating form");
    assert_eq!(found.2, fresh.lens.to_vec().unwrap(), "allocating form");
    found
}
