//! Views, micro-batches, runtime dims and the two backings.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::needless_for_each,
    clippy::too_many_lines,
    clippy::similar_names,
    reason = "a test fails by panicking"
)]

mod common;

use common::eager_scratch::layout;
use common::recorder::Recorder;
use common::toy::{Toys, X, Y};
use common::{EagerScratch, Relay, relay as relay_pool};
use scratchpool::generated::PoolCore;
use scratchpool::{Backing, Device, Error, Host, bf16};

#[test]
fn the_memory_report_is_known_before_allocation_and_holds_after_it() {
    let report = EagerScratch::MEMORY;
    assert_eq!((report.reserved_bytes(), report.saved_bytes()), (574_619_648, 33_587_200));
    let pool = EagerScratch::allocate(&Host::in_order()).unwrap();
    assert_eq!(pool.held_bytes(), report.reserved_bytes());
    let report = relay_pool::Plan::new(relay_pool::Dims { max_rows: 1000 }).unwrap().memory();
    assert_eq!(
        (report.copies, report.bytes_per_copy, report.saved_bytes()),
        (2, 16_128, 2 * 8_192)
    );
}

#[test]
fn layout_and_schedule_are_printed_from_their_tables() {
    let layout = EagerScratch::LAYOUT.to_string();
    let lines: Vec<&str> = layout.lines().collect();
    assert_eq!(
        lines[0],
        "EagerScratch: an arena of 574619648 bytes, aligned to 256; apart 608206848, 33587200 saved; no smaller arena exists"
    );
    assert_eq!(lines.len(), 2 + EagerScratch::LAYOUT.buffers.len());
    let schedule = EagerScratch::SCHEDULE.to_string();
    let (_, compressed) = schedule.split_once("layers 3 to 41 (every other)\n").unwrap();
    assert_eq!(
        compressed,
        "  fork         main\n  compress     aux1  after fork\n  q_proj       main\n  join         main  after compress\n  attention    main\n"
    );
}

#[test]
fn dims_given_at_start_up_are_checked() {
    let host = Host::in_order();
    let mut pool = Relay::allocate(&host, relay_pool::Dims { max_rows: 8 }).unwrap();
    let [mut first, _] = pool.split();
    assert_eq!(
        first.begin(9).err().unwrap().to_string(),
        "a pass of 9 rows was begun on a pool planned for at most 8; split the batch, or allocate with a larger `max_rows`"
    );
    let refused = |max_rows| Relay::allocate(&host, relay_pool::Dims { max_rows }).err().unwrap();
    assert_eq!(
        refused(0).to_string(),
        "dim `max_rows` is 0; as an extent of `x.x` it must be 1 to 2^63 - 1"
    );
    assert!(matches!(
        refused(usize::MAX),
        Error::Size(scratchpool::SizeError::Dim {
            dim: "max_rows",
            value: usize::MAX,
            buffer: "x.x"
        })
    ));
    assert!(matches!(
        Relay::allocate(&host, relay_pool::Dims { max_rows: usize::MAX / 8 }),
        Err(Error::Size(scratchpool::SizeError::Bytes { buffer: "x.x" }))
    ));
}

#[test]
fn views_stand_at_the_planned_offsets_with_the_planned_types_and_shapes() {
    let host = Host::in_order();
    let mut pool = EagerScratch::allocate(&host).unwrap();
    let mut pass = pool.begin(3).unwrap();
    let mut layer = pass.layer(2).unwrap();
    let mut step = layer.index_q().unwrap().unwrap();
    let out = step.buffers();
    // Where the arena starts follows from one view; the others must agree.
    let at = |offset: usize| offset as u64;
    let base = out.index_values.address() - at(layout::INDEX_VALUES_OFFSET);
    assert_eq!(base % 256, 0);
    assert_eq!(out.index_scales.address(), base + at(layout::INDEX_SCALES_OFFSET));
    assert_eq!(out.index_weights.address(), base + at(layout::INDEX_WEIGHTS_OFFSET));
    assert_eq!(out.index_weights.shape(), [3, 64]);
    assert_eq!(out.index_weights.bytes(), 3 * 64 * 4);
    assert_eq!(
        format!("{:?}", out.index_scales),
        format!("ViewMut(u8 [3, 64, 4] at {:#x})", base + at(layout::INDEX_SCALES_OFFSET))
    );
    drop(step);
    let mut step = layer.attention().unwrap();
    let read = step.buffers();
    assert_eq!(read.topk_indices.unwrap().address(), base + at(layout::TOPK_INDICES_OFFSET));
    assert_eq!(read.q.address(), base + at(layout::Q_OFFSET));
    let indexer =
        layout::INDEX_VALUES_OFFSET..layout::INDEX_VALUES_OFFSET + layout::INDEX_VALUES_BYTES;
    let topk_end = layout::TOPK_INDICES_OFFSET + layout::TOPK_INDICES_BYTES;
    assert!(indexer.contains(&(topk_end - 1)), "topk overlays the indexer");
    drop(step);
    drop(layer);
    let mut layer = pass.layer(3).unwrap();
    let mut step = layer.attention().unwrap();
    assert!(step.buffers().topk_lens.is_none(), "no top-k in a C128 layer");
}

#[test]
fn rows_split_into_disjoint_parts_and_out_of_range_is_an_error() {
    let host = Host::in_order();
    let mut pool = EagerScratch::allocate(&host).unwrap();
    let mut pass = pool.begin(10).unwrap();
    let mut layer = pass.layer(2).unwrap();
    let mut step = layer.global_topk().unwrap().unwrap();
    let stream = step.stream();
    let (mut prefill, mut decode) = step.buffers().topk_lens.split_at_row(6).unwrap();
    assert_eq!((prefill.rows(), decode.rows()), (6, 4));
    assert_eq!(decode.address(), prefill.address() + 6 * 4);
    stream
        .launch((prefill.reborrow(), decode.reborrow()), |(mut prefill, mut decode)| {
            prefill.fill(1);
            decode.fill(2);
        })
        .unwrap();
    stream.fill(prefill.slice_rows(1..=2).unwrap(), 7).unwrap();
    stream.fill(decode.slice_rows(3..).unwrap(), 8).unwrap();
    let lens = step.buffers().topk_lens.as_view().to_vec(&host).unwrap();
    assert_eq!(lens, [1, 7, 7, 1, 1, 1, 2, 2, 2, 8]);

    let lens = step.buffers().topk_lens.into_view();
    for row in [0, 10] {
        let (before, after) = lens.split_at_row(row).unwrap();
        assert_eq!((before.rows(), after.rows()), (row, 10 - row));
    }
    assert!(matches!(lens.split_at_row(11), Err(Error::RowRange { start: 0, end: 11, rows: 10 })));
    #[expect(clippy::reversed_empty_ranges, reason = "what is refused")]
    let reversed = lens.slice_rows(5..4);
    assert!(matches!(reversed, Err(Error::RowRange { start: 5, end: 4, .. })));
    assert!(lens.slice_rows(..=usize::MAX).is_err());
    assert!(lens.slice_rows(10..).unwrap().is_empty());
    assert!(step.buffers().topk_lens.slice_rows(..11).is_err());
}

#[test]
fn values_go_to_the_device_and_back_in_order_of_the_stream() {
    for host in [Host::in_order(), Host::random(5)] {
        let mut pool = EagerScratch::allocate(&host).unwrap();
        let mut pass = pool.begin(2).unwrap();
        let mut layer = pass.layer(2).unwrap();
        let mut step = layer.global_topk().unwrap().unwrap();
        let stream = step.stream();
        let mut lens = step.buffers().topk_lens;
        lens.fill_from(&host, &[3, 4]).unwrap();
        stream
            .launch(lens.reborrow(), |mut lens| lens.iter_mut().for_each(|it| *it *= 10))
            .unwrap();
        assert_eq!(lens.as_view().to_vec(&host).unwrap(), [30, 40]);
        let refused = lens.fill_from(&host, &[1]);
        assert!(matches!(refused, Err(Error::ValueCount { given: 1, expected: 2 })));
    }
}

#[test]
fn host_slices_know_their_shape_and_rows() {
    let host = Host::in_order();
    let mut pool = EagerScratch::allocate(&host).unwrap();
    let mut pass = pool.begin(2).unwrap();
    let mut layer = pass.layer(2).unwrap();
    let mut step = layer.index_q().unwrap().unwrap();
    let stream = step.stream();
    stream
        .launch(step.buffers().index_scales, |mut scales| {
            assert_eq!((scales.shape(), scales.rows(), scales.len()), ([2, 64, 4], 2, 512));
            scales.row_mut(1).fill(9);
            assert_eq!((scales.row(0), scales.row(1)), (&[0; 256][..], &[9; 256][..]));
            assert!(scales.row(2).is_empty() && scales.row_mut(usize::MAX).is_empty());
        })
        .unwrap();
}

#[test]
fn a_pass_of_no_rows_runs_every_step_on_empty_views() {
    for backing in [Backing::Arena, Backing::PerCall] {
        let host = Host::random(1);
        let mut pool = EagerScratch::allocate_with(&host, backing).unwrap();
        let mut pass = pool.begin(0).unwrap();
        for layer in 0..43 {
            let mut layer = pass.layer(layer).unwrap();
            let mut step = layer.q_proj().unwrap();
            let stream = step.stream();
            stream.fill(step.buffers().q, bf16::ONE).unwrap();
            drop(step);
            let mut step = layer.attention().unwrap();
            assert!(step.buffers().q.to_vec(&host).unwrap().is_empty());
        }
    }
}

#[test]
fn a_pass_of_the_most_rows_reaches_the_last_byte() {
    let host = Host::in_order();
    let mut pool = EagerScratch::allocate(&host).unwrap();
    let mut pass = pool.begin(8192).unwrap();
    let mut layer = pass.layer(2).unwrap();
    let mut step = layer.q_proj().unwrap();
    let stream = step.stream();
    let last = step.buffers().q.slice_rows(8191..).unwrap();
    assert_eq!(last.bytes(), 64 * 512 * 2);
    stream.fill(last, bf16::ONE).unwrap();
    let last = step.buffers().q.slice_rows(8191..).unwrap().into_view();
    assert!(last.to_vec(&host).unwrap().iter().all(|it| *it == bf16::ONE));
}

/// Runs one layer of a relay pass in each of two micro-batches, steps interleaved, and returns
/// what each read.
fn relay(host: &Host, backing: Backing, rows: [usize; 2]) -> Result<[Vec<u64>; 2], Error> {
    let mut pool = Relay::allocate_with(host, relay_pool::Dims { max_rows: 64 }, backing)?;
    let [mut first, mut second] = pool.split();
    let mut read = [vec![], vec![]];
    for pass in 0..3 {
        let (mut one, mut two) = (first.begin(rows[0])?, second.begin(rows[1])?);
        for layer in 0..2 {
            let (mut one, mut two) = (one.layer(layer)?, two.layer(layer)?);
            let tag = |ubatch: u32| 100 * ubatch + 10 * pass + layer as u32;
            for (ubatch, layer) in [(1, &mut one), (2, &mut two)] {
                let mut step = layer.produce()?;
                let (stream, tag) = (step.stream(), tag(ubatch));
                stream.fill(step.buffers().x, tag)?;
            }
            for (ubatch, layer) in [(2, &mut two), (1, &mut one)] {
                let mut step = layer.consume()?;
                let tag = tag(ubatch);
                let seen = step.buffers().x.to_vec(host)?;
                assert!(seen.iter().all(|it| *it == tag), "{host:?}");
            }
            for (ubatch, layer) in [(1, &mut one), (2, &mut two)] {
                let mut step = layer.reduce()?;
                let (stream, tag) = (step.stream(), u64::from(tag(ubatch)) << 32);
                stream.fill(step.buffers().y, tag)?;
            }
            for (ubatch, layer) in [(1, &mut one), (2, &mut two)] {
                let mut step = layer.report()?;
                read[ubatch - 1].extend(step.buffers().y.to_vec(host)?);
            }
        }
    }
    Ok(read)
}

#[test]
fn micro_batches_in_flight_keep_apart_and_both_backings_give_the_same_results() {
    let expected = relay(&Host::in_order(), Backing::Arena, [64, 3]).unwrap();
    assert_eq!(expected[0].len(), 3 * 2 * 64);
    assert_eq!(expected[1][0], 200 << 32);
    for seed in 0..100 {
        for backing in [Backing::Arena, Backing::PerCall] {
            let host = Host::random(seed);
            assert_eq!(relay(&host, backing, [64, 3]).unwrap(), expected, "{host:?} {backing:?}");
        }
    }
}

#[test]
fn micro_batches_have_their_own_bytes_streams_and_progress() {
    let recorder = Recorder::default();
    let mut pool = Relay::allocate(&recorder, relay_pool::Dims { max_rows: 64 }).unwrap();
    let made = recorder.take();
    let count = |word| made.iter().filter(|line| line.starts_with(word)).count();
    assert_eq!((count("allocate"), count("stream"), count("event")), (2, 4, 4));
    let [mut first, mut second] = pool.split();
    let (mut one, mut two) = (first.begin(64).unwrap(), second.begin(1).unwrap());
    let (mut one, mut two) = (one.layer(0).unwrap(), two.layer(1).unwrap());
    let (mut one, mut two) = (one.produce().unwrap(), two.produce().unwrap());
    let (one, two) = (one.buffers().x, two.buffers().x);
    let apart = one.address().abs_diff(two.address());
    assert!(apart >= 1024);
}

toy! { Carry: ["main"] [0, 1, 1]
    { read 0 Full 0 [] [1]; write 0 Full 0 [0] [1]; again 0 Full 0 [0, 1] []; }
    { false false []; true false []; true false []; }
    { true false []; true false []; true false []; }
}

#[test]
fn per_call_allocates_the_rows_asked_once_for_each_live_range_and_retires_the_former() {
    let recorder = Recorder::default();
    let mut pool: PoolCore<_, _> =
        PoolCore::new(&recorder, Toys::<Carry>::default(), Backing::PerCall).unwrap();
    assert_eq!(pool.held_bytes(), 0);
    let memory = |recorder: &Recorder| -> Vec<_> {
        let kept = |line: &String| line.starts_with("allocate") || line.starts_with("retire");
        recorder.take().into_iter().filter(kept).collect()
    };
    let mut pass = pool.begin(2).unwrap();
    let mut layer = pass.layer(0).unwrap();
    let step = layer.step(1).unwrap().unwrap();
    // SAFETY: 2 rows of u32 are the toy's shape.
    let (x, y) = unsafe { (step.view::<u32, 1>(X, [2]), step.view::<u32, 1>(Y, [2])) };
    assert_ne!(x.address(), y.address(), "nothing overlays");
    // x has the rows asked; y is read before it is written in later layers, so all rows.
    assert_eq!(memory(&recorder), ["allocate 8 to 64", "allocate 64 to 64"]);
    let first = x.address();
    drop(step);
    let step = layer.step(2).unwrap().unwrap();
    // SAFETY: as above.
    let again = unsafe { step.view::<u32, 1>(X, [2]) }.address();
    assert_eq!(again, first, "a second write joins the live range");
    assert_eq!(memory(&recorder), ["allocate 64 to 64", "retire 64 on main"], "y begins");
    drop(step);
    drop(layer);
    let mut layer = pass.layer(1).unwrap();
    assert!(layer.step(0).unwrap().is_some());
    assert_eq!(memory(&recorder), [""; 0], "a read gets the latest");
    assert!(layer.step(1).unwrap().is_some());
    assert_eq!(memory(&recorder), ["allocate 8 to 64", "retire 8 on main"]);
    drop(layer);
    drop(pass);
    assert_eq!(pool.held_bytes(), 8 + 64);
}

#[test]
fn per_call_gives_a_reader_whose_writer_was_skipped_enough_bytes() {
    let host = Host::in_order();
    let mut pool = EagerScratch::allocate_with(&host, Backing::PerCall).unwrap();
    for rows in [2, 16, 4] {
        let mut pass = pool.begin(rows).unwrap();
        let mut layer = pass.layer(0).unwrap();
        let mut step = layer.attention().unwrap();
        assert_eq!(step.buffers().q.to_vec(&host).unwrap(), vec![bf16::ZERO; rows * 64 * 512]);
    }
    assert_eq!(pool.held_bytes(), 16 * 64 * 512 * 2);
}

#[test]
fn per_call_that_finds_no_memory_refuses_the_step_and_the_pass_goes_on() {
    let recorder = Recorder::default();
    let mut pool = EagerScratch::allocate_with(&recorder, Backing::PerCall).unwrap();
    let mut pass = pool.begin(1).unwrap();
    let mut layer = pass.layer(2).unwrap();
    recorder.fail_after("allocate", 1);
    assert!(layer.index_q().is_err());
    assert!(layer.index_q().unwrap().is_some(), "asked for again");
    layer.attention().unwrap();
}

#[test]
fn another_number_of_streams_is_refused() {
    let recorder = Recorder::default();
    let made: Result<PoolCore<_, _>, _> =
        PoolCore::with_streams(&recorder, Toys::<Carry>::default(), Backing::Arena, [vec![]]);
    assert!(matches!(made, Err(Error::StreamCount { given: 0, expected: 1 })));
}

#[test]
fn streams_of_another_device_are_refused() {
    let (host, other) = (Host::in_order(), Host::random(1));
    let streams = ["main", "aux0", "aux1"].map(|name| other.create_stream(name).unwrap());
    let made = EagerScratch::with_streams(&host, Backing::Arena, [streams]);
    assert!(matches!(made, Err(Error::ForeignDevice { stream: "main" })));
}

#[test]
fn bytes_are_copied_through_the_device_that_the_view_belongs_to_and_no_other() {
    let (host, other) = (Host::random(1), Host::in_order());
    let mut pool = EagerScratch::allocate(&host).unwrap();
    let mut pass = pool.begin(2).unwrap();
    let mut layer = pass.layer(2).unwrap();
    let mut step = layer.global_topk().unwrap().unwrap();
    step.buffers().topk_lens.fill_from(&host.clone(), &[5, 6]).unwrap();
    let refused = step.buffers().topk_lens.fill_from(&other, &[7, 8]);
    assert!(matches!(refused, Err(Error::ForeignMemory)));
    let lens = step.buffers().topk_lens.into_view();
    assert!(matches!(lens.to_vec(&other), Err(Error::ForeignMemory)));
    assert_eq!(lens.to_vec(&host).unwrap(), [5, 6]);
}
