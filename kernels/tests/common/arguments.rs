//! Every launcher with arguments that fit, and with one of them changed.
//!
//! A form asks for each of its arguments by the name that errors give it. So the same few lines say what
//! fits, list all arguments, and let any of them be of another shape, at another address, on another
//! stream, or another number.

use std::cell::RefCell;

use scratchpool::{Device, Element, Tensor, View, ViewMut};
use scratchpool_kernels::ops::attention::{Attention, Entries, Selected};
use scratchpool_kernels::ops::compressor::{
    Boundaries, Compress, CompressPool, CompressStore, SaveState, States, Store,
};
use scratchpool_kernels::ops::gather::{Gather, KvCacheIn};
use scratchpool_kernels::ops::indexer_q::{IndexQuery, IndexerQ, Wide};
use scratchpool_kernels::ops::indexer_topk::{IndexQueryIn, IndexerLogits, IndexerTopk};
use scratchpool_kernels::ops::q_insert::{KvCache, QInsert, Query};
use scratchpool_kernels::ops::topk_map::{CombineIndices, Placement, TopkMap};
use scratchpool_kernels::reference::cache::EntryFormat;
use scratchpool_kernels::{Error, Kernels};

use super::Rig;

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Nothing: everything fits.
    None,
    /// An extent of an argument, by so much.
    Extent(&'static str, usize, isize),
    /// The address of an argument, by one element.
    Shift(&'static str),
    /// The stream of an argument.
    Stream(&'static str),
    /// A number.
    Count(&'static str, usize),
    /// A number that need not be whole.
    Number(&'static str, f32),
}

/// Arguments with their shapes, and numbers, as a launch asked for them.
#[derive(Debug, Default)]
pub struct Seen {
    pub arguments: Vec<(&'static str, Vec<usize>)>,
    pub counts: Vec<&'static str>,
    pub numbers: Vec<&'static str>,
}

/// Gives a launch its arguments.
struct With<'w, D: Device> {
    device: &'w D,
    stream: &'w D::Stream,
    side: &'w D::Stream,
    change: Change,
    seen: RefCell<Seen>,
}

/// An argument's memory, all zero.
struct Held<'w, T: Element, D: Device, const R: usize> {
    memory: Tensor<'w, u8, D, 1>,
    at: usize,
    shape: [usize; R],
    stream: &'w D::Stream,
    element: core::marker::PhantomData<T>,
}

impl<T: Element, D: Device, const R: usize> Held<'_, T, D, R> {
    fn view(&self) -> View<'_, T, D, R> {
        let start = self.memory.view().as_ptr().wrapping_add(self.at).cast::<T>();
        // SAFETY: live memory of this many elements, in order on its stream: nothing is running yet.
        unsafe { View::from_raw_parts(start, self.shape, self.stream) }
    }

    fn out(&mut self) -> ViewMut<'_, T, D, R> {
        let start = self.memory.view_mut().as_mut_ptr().wrapping_add(self.at).cast::<T>();
        // SAFETY: as above, and exclusive while borrowed.
        unsafe { ViewMut::from_raw_parts(start, self.shape, self.stream) }
    }
}

impl<'w, D: Device> With<'w, D> {
    fn held<T: Element, const R: usize>(
        &self,
        name: &'static str,
        mut shape: [usize; R],
    ) -> Held<'w, T, D, R> {
        self.seen.borrow_mut().arguments.push((name, shape.to_vec()));
        if let Change::Extent(of, axis, by) = self.change
            && of == name
        {
            shape[axis] = shape[axis].checked_add_signed(by).unwrap();
        }
        let at = if self.change == Change::Shift(name) { size_of::<T>() } else { 0 };
        let stream = if self.change == Change::Stream(name) { self.side } else { self.stream };
        let bytes = shape.iter().product::<usize>() * size_of::<T>() + at;
        let memory = Tensor::from_values(self.device, self.stream, [bytes], &vec![0; bytes]);
        let (memory, element) = (memory.unwrap(), core::marker::PhantomData);
        Held { memory, at, shape, stream, element }
    }

    fn count(&self, name: &'static str, count: usize) -> usize {
        self.seen.borrow_mut().counts.push(name);
        match self.change {
            Change::Count(of, other) if of == name => other,
            _ => count,
        }
    }

    fn number(&self, name: &'static str, number: f32) -> f32 {
        self.seen.borrow_mut().numbers.push(name);
        match self.change {
            Change::Number(of, other) if of == name => other,
            _ => number,
        }
    }
}

/// A launcher, in one of the forms of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    QToPaged,
    QInPlaceToRows,
    QFp8ToFp8,
    IndexerQFp8,
    IndexerQMxfp4,
    Map,
    Combine,
    CombineAll,
    Save,
    CompressMain,
    CompressFp8,
    CompressMxfp4,
    Pool,
    Store,
    LogitsFp8,
    LogitsMxfp4,
    Choice,
    AttentionOfTwo,
    AttentionOfRows,
    GatherPaged,
    GatherAllOfRows,
}

impl Form {
    pub const ALL: [Self; 21] = [
        Self::QToPaged,
        Self::QInPlaceToRows,
        Self::QFp8ToFp8,
        Self::IndexerQFp8,
        Self::IndexerQMxfp4,
        Self::Map,
        Self::Combine,
        Self::CombineAll,
        Self::Save,
        Self::CompressMain,
        Self::CompressFp8,
        Self::CompressMxfp4,
        Self::Pool,
        Self::Store,
        Self::LogitsFp8,
        Self::LogitsMxfp4,
        Self::Choice,
        Self::AttentionOfTwo,
        Self::AttentionOfRows,
        Self::GatherPaged,
        Self::GatherAllOfRows,
    ];

    /// Launches with a change; says what was asked for.
    pub fn launch<D: Device, K: Kernels<D>>(
        self,
        rig: &Rig<D, K>,
        change: Change,
    ) -> (Result<(), Error>, Seen) {
        let side = rig.device.create_stream("side").unwrap();
        let (device, stream, seen) = (&rig.device, &rig.stream, RefCell::default());
        let with = With { device, stream, side: &side, change, seen };
        let (kernels, with) = (&rig.kernels, &with);
        let result = match self {
            Self::QToPaged | Self::QInPlaceToRows | Self::QFp8ToFp8 => self.q(kernels, with),
            Self::IndexerQFp8 | Self::IndexerQMxfp4 => self.indexer_q(kernels, with),
            Self::Map => map(kernels, with),
            Self::Combine | Self::CombineAll => self.combine(kernels, with),
            Self::Save => save(kernels, with),
            Self::CompressMain => compress(kernels, with, EntryFormat::Main),
            Self::CompressFp8 => compress(kernels, with, EntryFormat::IndexFp8),
            Self::CompressMxfp4 => compress(kernels, with, EntryFormat::IndexMxfp4),
            Self::Pool => pool(kernels, with),
            Self::Store => store(kernels, with),
            Self::LogitsFp8 | Self::LogitsMxfp4 => self.logits(kernels, with),
            Self::Choice => choice(kernels, with),
            Self::AttentionOfTwo | Self::AttentionOfRows => self.attention(kernels, with),
            Self::GatherPaged | Self::GatherAllOfRows => self.gather(kernels, with),
        };
        (result, with.seen.take())
    }

    fn q<D: Device, K: Kernels<D>>(self, kernels: &K, with: &With<'_, D>) -> Result<(), Error> {
        let (mut in_place, mut from, mut to, mut fp8) = (None, None, None, None);
        match self {
            Self::QInPlaceToRows => in_place = Some(with.held("q", [3, 2, 512])),
            _ => from = Some(with.held("q.from", [3, 2, 512])),
        }
        match self {
            Self::QToPaged => to = Some(with.held("q.to", [3, 4, 512])),
            Self::QFp8ToFp8 => fp8 = Some(with.held("q.to", [3, 4, 512])),
            _ => {}
        }
        let (mut paged, mut rows, mut quantised) = (None, None, None);
        match self {
            Self::QToPaged => paged = Some(with.held("cache", [2, 1168])),
            Self::QInPlaceToRows => rows = Some(with.held("cache", [2, 2, 512])),
            _ => quantised = Some(with.held("cache", [2, 2, 512])),
        }
        let kv = with.held("kv", [3, 512]);
        let kv_norm = (self == Self::QToPaged).then(|| with.held("kv_norm", [512]));
        let positions = with.held("positions", [3]);
        let (slots, rope) = (with.held("slots", [3]), with.held("rope", [8, 64]));
        let args = QInsert {
            q: match (&mut in_place, &from, &mut to, &mut fp8) {
                (Some(q), ..) => Query::InPlace(q.out()),
                (_, Some(from), Some(to), _) => Query::Out { from: from.view(), to: to.out() },
                (_, Some(from), _, Some(to)) => Query::Fp8 {
                    from: from.view(),
                    to: to.out(),
                    scale: with.number("q.scale", 0.5),
                },
                _ => panic!(),
            },
            kv: kv.view(),
            kv_norm: kv_norm.as_ref().map(|weight| weight.view()),
            positions: positions.view(),
            slots: slots.view(),
            rope: rope.view(),
            cache: match (&mut paged, &mut rows, &mut quantised) {
                (Some(bytes), ..) => {
                    let block_size = with.count("block_size", 2);
                    KvCache::Paged { bytes: bytes.out(), block_size }
                }
                (_, Some(rows), _) => KvCache::Rows(rows.out()),
                (.., Some(rows)) => {
                    KvCache::Fp8 { rows: rows.out(), scale: with.number("cache.scale", 0.5) }
                }
                _ => panic!(),
            },
            eps: with.number("eps", 1e-6),
            norm: true,
        };
        kernels.q_insert(with.stream, args)
    }

    fn indexer_q<D: Device, K: Kernels<D>>(
        self,
        kernels: &K,
        with: &With<'_, D>,
    ) -> Result<(), Error> {
        let fp8 = self == Self::IndexerQFp8;
        let (q, positions) = (with.held("q", [3, 8, 128]), with.held("positions", [3]));
        let (mut wide, mut narrow) = (None, None);
        let (mut weights_wide, mut weights_narrow) = (None, None);
        let (mut values, mut packed, mut scales) = (None, None, None);
        if fp8 {
            wide = Some(with.held("rope", [8, 64]));
            weights_narrow = Some(with.held("weights", [3, 8]));
            values = Some(with.held("out.values", [3, 8, 128]));
        } else {
            narrow = Some(with.held("rope", [8, 64]));
            weights_wide = Some(with.held("weights", [3, 8]));
            packed = Some(with.held("out.values", [3, 8, 64]));
            scales = Some(with.held("out.scales", [3, 8, 4]));
        }
        let mut weights = with.held("out.weights", [3, 8]);
        let args = IndexerQ {
            q: q.view(),
            positions: positions.view(),
            rope: match (&wide, &narrow) {
                (Some(rope), _) => Wide::F32(rope.view()),
                (_, rope) => Wide::Bf16(rope.as_ref().unwrap().view()),
            },
            weights: match (&weights_wide, &weights_narrow) {
                (Some(weights), _) => Wide::F32(weights.view()),
                (_, weights) => Wide::Bf16(weights.as_ref().unwrap().view()),
            },
            softmax_scale: with.number("softmax_scale", 0.5),
            head_scale: with.number("head_scale", 0.5),
            out: match (&mut values, &mut packed, &mut scales) {
                (Some(values), ..) => {
                    IndexQuery::Fp8 { values: values.out(), weights: weights.out() }
                }
                (_, Some(values), Some(scales)) => IndexQuery::Mxfp4 {
                    values: values.out(),
                    scales: scales.out(),
                    weights: weights.out(),
                },
                _ => panic!(),
            },
        };
        kernels.indexer_q(with.stream, args)
    }

    fn combine<D: Device, K: Kernels<D>>(
        self,
        kernels: &K,
        with: &With<'_, D>,
    ) -> Result<(), Error> {
        let topk = (self == Self::Combine).then(|| with.held("topk", [3, 8]));
        let (of, positions) = (with.held("token_to_req", [3]), with.held("positions", [3]));
        let (seq, gathered) = (with.held("seq_lens", [2]), with.held("gather_lens", [2]));
        let (mut indices, mut lens) = (with.held("indices", [3, 12]), with.held("lens", [3]));
        let args = CombineIndices {
            topk: topk.as_ref().map(|topk| topk.view()),
            most: with.count("most", 8),
            token_to_req: of.view(),
            positions: positions.view(),
            seq_lens: seq.view(),
            gather_lens: gathered.view(),
            ratio: with.count("ratio", 4),
            window: with.count("window", 4),
            workspace_rows: with.count("workspace_rows", 20),
            compressed_rows: with.count("compressed_rows", 10),
            indices: indices.out(),
            lens: lens.out(),
        };
        kernels.combine_indices(with.stream, args)
    }

    fn logits<D: Device, K: Kernels<D>>(
        self,
        kernels: &K,
        with: &With<'_, D>,
    ) -> Result<(), Error> {
        let fp8 = self == Self::LogitsFp8;
        let values = fp8.then(|| with.held("q.values", [3, 64, 128]));
        let packed = (!fp8).then(|| with.held("q.values", [3, 64, 64]));
        let scales = (!fp8).then(|| with.held("q.scales", [3, 64, 4]));
        let weights = with.held("weights", [3, 64]);
        let cache = with.held("cache", [2, if fp8 { 264 } else { 136 }]);
        let table = with.held("block_table", [2, 4]);
        let (of, positions) = (with.held("token_to_req", [3]), with.held("positions", [3]));
        let mut logits = with.held("logits", [3, 9]);
        let args = IndexerLogits {
            q: match (&values, &packed, &scales) {
                (Some(values), ..) => IndexQueryIn::Fp8 { values: values.view() },
                (_, Some(values), Some(scales)) => {
                    IndexQueryIn::Mxfp4 { values: values.view(), scales: scales.view() }
                }
                _ => panic!(),
            },
            weights: weights.view(),
            cache: cache.view(),
            block_size: with.count("block_size", 2),
            block_table: table.view(),
            token_to_req: of.view(),
            positions: positions.view(),
            ratio: with.count("ratio", 4),
            logits: logits.out(),
        };
        kernels.indexer_logits(with.stream, args)
    }

    fn attention<D: Device, K: Kernels<D>>(
        self,
        kernels: &K,
        with: &With<'_, D>,
    ) -> Result<(), Error> {
        let two = self == Self::AttentionOfTwo;
        let q = with.held("q", [3, 2, 512]);
        let rows = (!two).then(|| with.held("first.rows", [7, 512]));
        let cache = two.then(|| with.held("first.cache", [2, 1168]));
        let (first, lens) = (with.held("first.indices", [3, 5]), with.held("first.lens", [3]));
        let second = two.then(|| {
            let cache = with.held("second.cache", [2, 1168]);
            (cache, with.held("second.indices", [3, 6]), with.held("second.lens", [3]))
        });
        let (sinks, mut out) = (with.held("sinks", [2]), with.held("out", [3, 2, 512]));
        let args = Attention {
            q: q.view(),
            first: Selected {
                entries: match (&cache, &rows) {
                    (Some(cache), _) => {
                        let block_size = with.count("first.block_size", 2);
                        Entries::Paged { cache: cache.view(), block_size }
                    }
                    (_, rows) => Entries::Rows(rows.as_ref().unwrap().view()),
                },
                indices: first.view(),
                lens: lens.view(),
            },
            second: second.as_ref().map(|(cache, indices, lens)| {
                let block_size = with.count("second.block_size", 2);
                let entries = Entries::Paged { cache: cache.view(), block_size };
                Selected { entries, indices: indices.view(), lens: lens.view() }
            }),
            sinks: sinks.view(),
            scale: with.number("scale", 0.5),
            out: out.out(),
        };
        kernels.attention(with.stream, args)
    }

    fn gather<D: Device, K: Kernels<D>>(
        self,
        kernels: &K,
        with: &With<'_, D>,
    ) -> Result<(), Error> {
        let paged = (self == Self::GatherPaged).then(|| with.held("cache", [2, 1168]));
        let rows = paged.is_none().then(|| with.held("cache", [2, 2, 512]));
        let (table, seq) = (with.held("block_table", [2, 3]), with.held("seq_lens", [2]));
        let lens = paged.is_some().then(|| with.held("gather_lens", [2]));
        let mut out = with.held("out", [2, 9, 512]);
        let args = Gather {
            cache: match (&paged, &rows) {
                (Some(bytes), _) => {
                    let block_size = with.count("block_size", 2);
                    KvCacheIn::Paged { bytes: bytes.view(), block_size }
                }
                (_, rows) => KvCacheIn::Rows(rows.as_ref().unwrap().view()),
            },
            block_table: table.view(),
            seq_lens: seq.view(),
            gather_lens: lens.as_ref().map(|lens| lens.view()),
            ratio: with.count("ratio", 4),
            rows: with.count("rows.start", 2)..with.count("rows.end", 9),
            out: out.out(),
        };
        kernels.gather(with.stream, args)
    }
}

fn map<D: Device, K: Kernels<D>>(kernels: &K, with: &With<'_, D>) -> Result<(), Error> {
    let (topk, of) = (with.held("topk", [3, 8]), with.held("token_to_req", [3]));
    let (table, valid) = (with.held("block_table", [2, 6]), with.held("valid", [3]));
    let (mut indices, mut lens) = (with.held("indices", [3, 8]), with.held("lens", [3]));
    let args = TopkMap {
        topk: topk.view(),
        token_to_req: of.view(),
        block_table: table.view(),
        columns: with.count("columns", 5),
        valid: valid.view(),
        block_size: with.count("block_size", 64),
        placement: Placement::InPlace,
        indices: indices.out(),
        lens: lens.out(),
    };
    kernels.topk_map(with.stream, args)
}

fn save<D: Device, K: Kernels<D>>(kernels: &K, with: &With<'_, D>) -> Result<(), Error> {
    let (kv_score, ape) = (with.held("kv_score", [3, 24]), with.held("ape", [4, 12]));
    let (positions, slots) = (with.held("positions", [3]), with.held("slots", [3]));
    let mut state = with.held("state", [2, 4, 24]);
    let args = SaveState {
        kv_score: kv_score.view(),
        ape: ape.view(),
        positions: positions.view(),
        slots: slots.view(),
        state: state.out(),
    };
    kernels.save_state(with.stream, args)
}

/// Asks for the arguments of states and hands them on.
fn states<D: Device>(
    with: &With<'_, D>,
    columns: usize,
    launch: impl FnOnce(States<'_, D>) -> Result<(), Error>,
) -> Result<(), Error> {
    let state = with.held("states.state", [5, 4, columns]);
    let table = with.held("states.block_table", [2, 3]);
    let of = with.held("states.token_to_req", [3]);
    let (positions, slots) = (with.held("states.positions", [3]), with.held("states.slots", [3]));
    launch(States {
        state: state.view(),
        block_table: table.view(),
        token_to_req: of.view(),
        positions: positions.view(),
        slots: slots.view(),
    })
}

/// The same for a store.
fn stored<D: Device>(
    with: &With<'_, D>,
    format: EntryFormat,
    launch: impl FnOnce(Store<'_, D>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (slots, weight) =
        (with.held("store.slots", [3]), with.held("store.norm_weight", [format.width()]));
    let rope = with.held("store.rope", [8, 64]);
    let entry = format.data_bytes() + format.scale_bytes();
    let mut cache = with.held("store.cache", [2, 2 * entry]);
    launch(Store {
        slots: slots.view(),
        norm_weight: weight.view(),
        eps: with.number("store.eps", 1e-6),
        rope: rope.view(),
        cache: cache.out(),
        block_size: with.count("store.block_size", 2),
        format,
    })
}

const BOUNDARIES: Boundaries = Boundaries::Possible;

fn compress<D: Device, K: Kernels<D>>(
    kernels: &K,
    with: &With<'_, D>,
    format: EntryFormat,
) -> Result<(), Error> {
    states(with, 4 * format.width(), |states| {
        stored(with, format, |store| {
            kernels.compress(with.stream, Compress { states, store, boundaries: BOUNDARIES })
        })
    })
}

fn pool<D: Device, K: Kernels<D>>(kernels: &K, with: &With<'_, D>) -> Result<(), Error> {
    let mut scratch = with.held("scratch", [3, 512]);
    states(with, 1024, |states| {
        let args = CompressPool { states, scratch: scratch.out(), boundaries: BOUNDARIES };
        kernels.compress_pool(with.stream, args)
    })
}

fn store<D: Device, K: Kernels<D>>(kernels: &K, with: &With<'_, D>) -> Result<(), Error> {
    let scratch = with.held("scratch", [3, 512]);
    let (positions, slots) = (with.held("positions", [3]), with.held("state_slots", [3]));
    stored(with, EntryFormat::Main, |store| {
        let args = CompressStore {
            scratch: scratch.view(),
            positions: positions.view(),
            state_slots: slots.view(),
            store,
            boundaries: BOUNDARIES,
        };
        kernels.compress_store(with.stream, args)
    })
}

fn choice<D: Device, K: Kernels<D>>(kernels: &K, with: &With<'_, D>) -> Result<(), Error> {
    let (logits, mut indices) = (with.held("logits", [3, 9]), with.held("indices", [3, 5]));
    let args = IndexerTopk { logits: logits.view(), indices: indices.out() };
    kernels.indexer_topk(with.stream, args)
}
