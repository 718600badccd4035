//! The gather of prefill, as [`ops::gather`](crate::ops::gather) defines it.

use crate::formats::{bf16, to_bf16};
use crate::ops::gather::GatherPlan;
use crate::reference::attention::Rows;
use crate::reference::cache::{HEAD_DIM, NOPE_DIM, decode_main};

/// Gathers the entries of all requests. Slices are as the plan's checked shapes say.
pub fn gather(
    plan: &GatherPlan,
    cache: Rows<'_>,
    block_table: &[i32],
    seq_lens: &[i32],
    gather_lens: Option<&[i32]>,
    out: &mut [bf16],
) {
    let ratio = i64::try_from(plan.ratio).unwrap_or(i64::MAX);
    for (request, seq_len) in seq_lens.iter().enumerate() {
        let blocks = block_table.get(request * plan.columns..(request + 1) * plan.columns);
        let end = i64::from(*seq_len).max(0) / ratio;
        let asked = gather_lens.map_or(end, |lens| lens.get(request).map_or(0, |&len| len.into()));
        let first = (request * plan.workspace_rows + plan.first_row) * HEAD_DIM;
        let rows = out.get_mut(first..first + plan.most_rows * HEAD_DIM).unwrap_or_default();
        for (entry, row) in (end - asked..end).zip(rows.chunks_mut(HEAD_DIM)) {
            let slot = slot(plan, blocks.unwrap_or_default(), entry);
            if slot.and_then(|slot| read(plan, cache, slot, row)).is_none() {
                row.fill(bf16::ZERO);
            }
        }
    }
}

/// The slot of a request's entry, where there is one.
fn slot(plan: &GatherPlan, blocks: &[i32], entry: i64) -> Option<usize> {
    let entry = usize::try_from(entry).ok()?;
    let block = *blocks.get(entry.checked_div(plan.layout.block_size)?)?;
    let block = usize::try_from(block).ok().filter(|block| *block < plan.layout.blocks)?;
    Some(block * plan.layout.block_size + entry % plan.layout.block_size)
}

/// Reads an entry into a row.
fn read(plan: &GatherPlan, cache: Rows<'_>, slot: usize, row: &mut [bf16]) -> Option<()> {
    match cache {
        Rows::Paged(bytes) => {
            let (data, scales) = plan.layout.entry(i64::try_from(slot).ok()?)?;
            let (data, scales) = (bytes.get(data)?, bytes.get(scales)?);
            let mut values = [0.0; HEAD_DIM];
            decode_main(data, scales, &mut values);
            let (nope, rotated) = row.split_at_mut(NOPE_DIM);
            for (to, x) in nope.iter_mut().zip(values) {
                *to = to_bf16(x);
            }
            // Not by way of f32, in which a NaN may change.
            for (to, bytes) in rotated.iter_mut().zip(data.get(NOPE_DIM..)?.chunks_exact(2)) {
                *to = bf16::from_le_bytes(bytes.try_into().ok()?);
            }
        }
        Rows::Whole(rows) => {
            row.copy_from_slice(rows.get(slot * HEAD_DIM..(slot + 1) * HEAD_DIM)?);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{BlockScale, decode_e4m3};
    use crate::reference::cache::{EntryFormat, PagedLayout};

    const SEVEN: bf16 = bf16::from_bits(0x40e0);

    fn plan(layout: PagedLayout, requests: usize) -> GatherPlan {
        GatherPlan {
            requests,
            columns: 3,
            layout,
            is_paged: false,
            ratio: 4,
            workspace_rows: 5,
            first_row: 1,
            most_rows: 3,
        }
    }

    /// Gathers from a cache of two blocks of two whole rows, filled with 0, 1, 2 and 3; gives the
    /// first elements of a request's five rows, which all were 7.
    fn gathered(blocks: [i32; 3], seq_len: i32, gather_len: Option<i32>) -> [f32; 5] {
        let layout =
            PagedLayout { format: EntryFormat::Main, block_size: 2, stride: 2048, blocks: 2 };
        let rows: Vec<bf16> = (0..4_u8).flat_map(|row| [bf16::from(row); HEAD_DIM]).collect();
        let mut out = [SEVEN; 10 * HEAD_DIM];
        // The second of two requests, so that what is written for the first is seen.
        let table: Vec<i32> = [0, 0, 0].into_iter().chain(blocks).collect();
        let lens = gather_len.map(|len| [0, len]);
        let lens = lens.as_ref().map(<[i32; 2]>::as_slice);
        gather(&plan(layout, 2), Rows::Whole(&rows), &table, &[0, seq_len], lens, &mut out);
        let rows: Vec<f32> = out.chunks(HEAD_DIM).map(|row| row[0].to_f32()).collect();
        assert!(out.chunks(HEAD_DIM).all(|row| row.iter().all(|x| *x == row[0])));
        assert_eq!(rows[..5], [7.0; 5]);
        rows[5..].try_into().unwrap()
    }

    #[test]
    fn the_last_entries_of_a_request_go_to_its_rows_and_no_others_are_touched() {
        // 15 tokens are three entries.
        assert_eq!(gathered([1, 0, -1], 15, None), [7.0, 2.0, 3.0, 0.0, 7.0]);
        assert_eq!(gathered([1, 0, -1], 15, Some(2)), [7.0, 3.0, 0.0, 7.0, 7.0]);
        assert_eq!(gathered([1, 0, -1], 15, Some(1)), [7.0, 0.0, 7.0, 7.0, 7.0]);
        for none in [gathered([1, 0, 1], 3, None), gathered([1, 0, 1], 15, Some(0))] {
            assert_eq!(none, [7.0; 5]);
        }
    }

    #[test]
    fn what_has_no_row_is_not_gathered_and_what_is_no_entry_is_zero() {
        // Four entries, of which the part has rows for three.
        assert_eq!(gathered([1, 1, 1], 16, None), [7.0, 2.0, 3.0, 2.0, 7.0]);
        // Blocks that are none, columns behind the table, and entries before the first.
        for none in [-1, 2, i32::MIN, i32::MAX] {
            assert_eq!(gathered([1, none, 1], 16, None), [7.0, 2.0, 3.0, 0.0, 7.0]);
        }
        assert_eq!(gathered([1, 1, 1], 28, Some(2)), [7.0, 3.0, 0.0, 7.0, 7.0]);
        assert_eq!(gathered([1, 1, 1], 4, Some(3)), [7.0, 0.0, 0.0, 2.0, 7.0]);
        // Lengths of all sizes.
        assert_eq!(gathered([1, 1, 1], i32::MAX, Some(i32::MAX)), [7.0, 0.0, 0.0, 0.0, 7.0]);
        assert_eq!(gathered([1, 1, 1], i32::MIN, Some(2)), [7.0, 0.0, 0.0, 7.0, 7.0]);
        assert_eq!(gathered([1, 1, 1], 16, Some(i32::MIN)), [7.0; 5]);
        assert_eq!(gathered([1, 1, 1], -1, None), [7.0; 5]);
    }

    /// All codes under all scales, seven scales an entry, against f64.
    #[test]
    fn a_paged_entry_is_rounded_to_bf16_once_and_its_last_elements_keep_their_bits() {
        let layout =
            PagedLayout { format: EntryFormat::Main, block_size: 1, stride: 584, blocks: 1 };
        let plan = GatherPlan { is_paged: true, ratio: 1, ..plan(layout, 1) };
        for scale in 0..=255_u8 {
            for codes in 0..4_u8 {
                let mut cache = [0_u8; 584];
                cache[576..583].fill(scale);
                for (at, code) in (0..448_u16).zip(&mut cache) {
                    *code = codes * 64 + u8::try_from(at % 64).unwrap();
                }
                for (at, byte) in (0..128_u8).zip(&mut cache[448..576]) {
                    *byte = at.wrapping_mul(89) ^ scale;
                }
                // A signalling NaN.
                cache[448..450].copy_from_slice(&[0x81, 0xff]);
                let mut out = [SEVEN; 5 * HEAD_DIM];
                gather(&plan, Rows::Paged(&cache), &[0, 0, 0], &[1], None, &mut out);
                let row = &out[HEAD_DIM..2 * HEAD_DIM];
                for (found, code) in row.iter().zip(&cache[..448]) {
                    let (value, scale) = (decode_e4m3(*code), BlockScale::from_byte(scale));
                    let exact = f64::from(value) * f64::from(scale.value());
                    if exact.is_nan() || scale.byte() == 255 {
                        assert_eq!(found.to_bits(), 0x7fff);
                    } else {
                        assert_eq!(found.to_bits(), bf16::from_f64(exact).to_bits(), "{exact:e}");
                    }
                }
                for (found, bytes) in row[448..].iter().zip(cache[448..].chunks(2)) {
                    assert_eq!(found.to_le_bytes(), bytes);
                }
            }
        }
    }
}
