//! The global top-k map and the combined indices, as [`TopkMap`](crate::ops::topk_map::TopkMap) and
//! [`CombineIndices`](crate::ops::topk_map::CombineIndices) define them.

use scratchpool::bool8;

use crate::ops::topk_map::{CombinePlan, Placement, TopkMapPlan};

/// The slot of a local index, or -1.
fn slot(plan: &TopkMapPlan, blocks: Option<&[i32]>, local: i32) -> i32 {
    let find = || {
        let local = usize::try_from(local).ok()?;
        let (column, within) = (local.checked_div(plan.block_size)?, local % plan.block_size);
        let block = blocks?.get(..plan.columns)?.get(column)?;
        let block = usize::try_from(*block).ok()?;
        i32::try_from(block.checked_mul(plan.block_size)?.checked_add(within)?).ok()
    };
    find().unwrap_or(-1)
}

/// Maps all tokens. Slices are as the plan's checked shapes say.
pub fn topk_map(
    plan: &TopkMapPlan,
    topk: &[i32],
    token_to_req: &[i32],
    block_table: &[i32],
    valid: &[bool8],
    indices: &mut [i32],
    lens: &mut [i32],
) {
    let width = plan.topk;
    for (token, (len, valid)) in lens.iter_mut().zip(valid).enumerate() {
        let blocks = token_to_req.get(token).and_then(|request| {
            let request = usize::try_from(*request).ok().filter(|it| *it < plan.requests)?;
            block_table.get(request * plan.table_stride..(request + 1) * plan.table_stride)
        });
        let locals = topk.get(token * width..(token + 1) * width).unwrap_or_default();
        let row = indices.get_mut(token * width..(token + 1) * width).unwrap_or_default();
        for (to, local) in row.iter_mut().zip(locals) {
            *to = slot(plan, blocks, *local);
        }
        if plan.placement == Placement::PackedLeft {
            // A stable sort by "is invalid" keeps the order of both.
            row.sort_by_key(|slot| *slot < 0);
        }
        let count = row.iter().filter(|slot| **slot >= 0).count();
        *len = if valid.get() { i32::try_from(count).unwrap_or(i32::MAX) } else { 0 };
    }
}

/// Combines all rows. Slices are as the plan's checked shapes say.
#[expect(clippy::too_many_arguments, reason = "one for each argument of the launch")]
pub fn combine_indices(
    plan: &CombinePlan,
    topk: Option<&[i32]>,
    token_to_req: &[i32],
    positions: &[i64],
    seq_lens: &[i32],
    gather_lens: &[i32],
    indices: &mut [i32],
    lens: &mut [i32],
) {
    let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let (rows, compressed) = (signed(plan.workspace_rows), signed(plan.compressed_rows));
    for (token, (position, request)) in positions.iter().zip(token_to_req).enumerate() {
        let row = indices.get_mut(token * plan.width..(token + 1) * plan.width);
        let row = row.unwrap_or_default();
        row.fill(-1);
        let Some(len) = lens.get_mut(token) else { continue };
        *len = 0;
        let request_row = usize::try_from(*request).ok().filter(|_| *position >= 0);
        let Some((seq, gathered)) = request_row.and_then(|row| {
            Some((i64::from(*seq_lens.get(row)?), i64::from(*gather_lens.get(row)?)))
        }) else {
            continue;
        };
        let base = rows * i64::from(*request);
        let seen = position.saturating_add(1);
        let n1 = (seen / signed(plan.ratio)).min(signed(plan.most));
        let n2 = seen.min(signed(plan.window));
        let locals = (0..n1).map(|j| match topk {
            None => j,
            Some(topk) => {
                let at = usize::try_from(j).ok().and_then(|j| topk.get(token * plan.most + j));
                at.map_or(-1, |local| i64::from(*local))
            }
        });
        let entries = locals.map(|local| (0..compressed).contains(&local).then_some(base + local));
        let window = (position - n2 + 1..=*position).map(|at| {
            let within = at.saturating_sub(seq - gathered).saturating_add(compressed);
            (compressed..rows).contains(&within).then(|| base + within)
        });
        for (to, entry) in row.iter_mut().zip(entries.chain(window)) {
            *to = entry.and_then(|entry| i32::try_from(entry).ok()).unwrap_or(-1);
        }
        *len = i32::try_from(n1 + n2).unwrap_or(i32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_a_block_of_the_request_and_a_place_in_it() {
        let plan = TopkMapPlan {
            tokens: 2,
            topk: 6,
            requests: 1,
            table_stride: 4,
            columns: 3,
            block_size: 4,
            placement: Placement::InPlace,
        };
        let local = [0, 5, 9, -1, 12, 2].repeat(2);
        let valid = [true, false].map(bool8::from);
        let run = |placement| {
            let (mut indices, mut lens) = ([7; 12], [7; 2]);
            let plan = TopkMapPlan { placement, ..plan };
            topk_map(&plan, &local, &[0, 0], &[7, -1, 5, 3], &valid, &mut indices, &mut lens);
            (indices, lens)
        };
        // Block 1 is none, column 3 means nothing.
        let mapped = [28, -1, 21, -1, -1, 30];
        let packed = [28, 21, 30, -1, -1, -1];
        let twice = |row: [i32; 6]| -> [i32; 12] { core::array::from_fn(|at| row[at % 6]) };
        assert_eq!(run(Placement::InPlace), (twice(mapped), [3, 0]));
        assert_eq!(run(Placement::PackedLeft), (twice(packed), [3, 0]));
    }

    #[test]
    fn a_combined_row_is_compressed_rows_then_the_window() {
        let plan = CombinePlan {
            tokens: 1,
            requests: 2,
            most: 2,
            width: 8,
            ratio: 4,
            window: 3,
            workspace_rows: 20,
            compressed_rows: 10,
        };
        let run = |position, topk: Option<&[i32]>| {
            let (mut indices, mut lens) = ([7; 8], [7]);
            combine_indices(
                &plan,
                topk,
                &[1],
                &[position],
                &[50, 12],
                &[50, 6],
                &mut indices,
                &mut lens,
            );
            (indices, lens)
        };
        // Gathered from position 6 on.
        assert_eq!(run(9, Some(&[1, 0])), ([21, 20, 31, 32, 33, -1, -1, -1], [5]));
        assert_eq!(run(9, None), ([20, 21, 31, 32, 33, -1, -1, -1], [5]));
        assert_eq!(run(0, None), ([-1; 8], [1]));
        assert_eq!(run(-1, None), ([-1; 8], [0]));
        assert_eq!(run(i64::MAX, None), ([20, 21, -1, -1, -1, -1, -1, -1], [5]));
    }
}
