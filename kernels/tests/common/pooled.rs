//! A pool that holds whatever a kernel writes into scratch, and the cases in its views.

use std::cell::RefCell;

use scratchpool::{Device, Element, ViewMut, scratch_pool};
use scratchpool_kernels::Kernels;

use super::{Bench, Case, Outcome, PoolView, Rig};

/// One buffer of each element type and rank that some kernel writes, behind one of an odd size.
#[scratch_pool(
    align = 256,
    rows = max_rows,
    dims(
        max_rows: runtime(64), heads: runtime(16), bf16s: runtime(512), f8s: runtime(512),
        u8s: runtime(64), e8m0s: runtime(4), f32s: runtime(512), i32s: runtime(500),
    ),
    layers(count = 1),
)]
#[step(write, writes(before, scratch))]
#[step(read, reads(before, scratch))]
pub struct EveryOutput {
    /// Something else.
    #[group(before)]
    #[shape(max_rows, 7)]
    pub before: u8,
    /// Queries, attention's output, prefill's workspace.
    #[group(scratch.a)]
    #[shape(max_rows, heads, bf16s)]
    pub a: bf16,
    /// Quantised queries.
    #[group(scratch.b)]
    #[shape(max_rows, heads, f8s)]
    pub b: f8e4m3,
    /// Codes.
    #[group(scratch.c)]
    #[shape(max_rows, heads, u8s)]
    pub c: u8,
    /// Scales.
    #[group(scratch.d)]
    #[shape(max_rows, heads, e8m0s)]
    pub d: e8m0,
    /// Weights, pooled vectors, logits.
    #[group(scratch.e)]
    #[shape(max_rows, f32s)]
    pub e: f32,
    /// Slots, columns.
    #[group(scratch.f)]
    #[shape(max_rows, i32s)]
    pub f: i32,
    /// Lengths.
    #[group(scratch.g)]
    #[shape(max_rows)]
    pub g: i32,
}

/// Extents of a pool's buffers behind their rows; 1 where nothing is said.
#[derive(Clone, Copy, Debug)]
pub struct Shapes {
    pub heads: usize,
    pub bf16s: usize,
    pub f8s: usize,
    pub u8s: usize,
    pub e8m0s: usize,
    pub f32s: usize,
    pub i32s: usize,
}

impl Default for Shapes {
    fn default() -> Self {
        Self { heads: 1, bf16s: 1, f8s: 1, u8s: 1, e8m0s: 1, f32s: 1, i32s: 1 }
    }
}

/// Rows of every buffer that a case does not get: in front of its own, and behind them.
const SKIPPED: usize = 3;
const BEYOND: usize = 2;

/// Fills all rows of a view's buffer, also those beyond the pass, and keeps the last ones of the pass.
fn poisoned<T: Element, D: Device, K: Kernels<D>, const R: usize>(
    rig: &Rig<D, K>,
    view: ViewMut<'_, T, D, R>,
    max_rows: usize,
) -> PoolView {
    let row = view.shape()[1..].iter().product::<usize>() * size_of::<T>();
    let mut rows = view.slice_rows(SKIPPED..).unwrap();
    let (shape, before, room) = (rows.shape().to_vec(), SKIPPED * row, max_rows * row);
    let start = rows.as_mut_ptr().cast::<u8>().wrapping_sub(before);
    // SAFETY: the buffer has this many rows, and nothing else uses it.
    unsafe { rig.device.fill_bytes(rows.stream(), start, room, rig.poison).unwrap() };
    PoolView { dtype: T::DTYPE.as_str(), shape, start, before, room }
}

/// Runs a case with its outputs in rows of a pool's views, which begin and end inside their buffers. What
/// the case does not write stays as it was.
pub fn in_a_pool<D: Device, K: Kernels<D>, C: Case + ?Sized>(rig: &Rig<D, K>, case: &C) -> Outcome {
    let rows = SKIPPED + case.tokens();
    let max_rows = rows + BEYOND;
    let Shapes { heads, bf16s, f8s, u8s, e8m0s, f32s, i32s } = case.shapes();
    let dims = every_output::Dims { max_rows, heads, bf16s, f8s, u8s, e8m0s, f32s, i32s };
    let mut pool = EveryOutput::allocate(&rig.device, dims).unwrap();
    let mut pass = pool.begin(rows).unwrap();
    let mut layer = pass.layer(0).unwrap();
    let mut step = layer.write().unwrap();
    let stream = step.stream();
    let out = step.buffers();
    let before = poisoned(rig, out.before, max_rows);
    let views = vec![
        poisoned(rig, out.a, max_rows),
        poisoned(rig, out.b, max_rows),
        poisoned(rig, out.c, max_rows),
        poisoned(rig, out.d, max_rows),
        poisoned(rig, out.e, max_rows),
        poisoned(rig, out.f, max_rows),
        poisoned(rig, out.g, max_rows),
    ];
    assert!(views.iter().all(|view| view.start > before.start), "a buffer is at offset 0");
    let bench = Bench { rig, stream, views: RefCell::new(views) };
    let outcome = case.body(&bench);
    for view in bench.views.into_inner().into_iter().chain([before]) {
        let mut bytes = vec![0; view.room];
        // SAFETY: the pool is alive, and its buffer has this many bytes.
        unsafe { rig.device.read_bytes(stream, view.start, &mut bytes).unwrap() };
        assert!(bytes.iter().all(|byte| *byte == rig.poison), "{case:?}: another buffer changed");
    }
    outcome
}
