//! A prefill from end to end: attention over the gathered workspace, and over the caches themselves.

use scratchpool::{Device, Tensor, bf16, bool8};
use scratchpool_kernels::ops::attention::{Attention, Entries, Selected};
use scratchpool_kernels::ops::gather::{Gather, KvCacheIn, gather_len};
use scratchpool_kernels::ops::topk_map::{CombineIndices, Placement, TopkMap, combined_width};
use scratchpool_kernels::reference::cache::{EntryFormat, PagedLayout, encode_main};
use scratchpool_kernels::{Kernels, alloc};

use super::{Random, Rig, bytes_of};

#[derive(Clone, Copy, Debug)]
pub struct Prefill {
    /// Tokens of each request: computed before, and queries now.
    pub requests: &'static [(usize, usize)],
    /// Whether compressed entries are chosen; else all finished ones are.
    pub listed: bool,
    /// Caches of whole bf16 rows.
    pub whole_rows: bool,
    pub seed: u64,
}

const RATIO: usize = 4;
const WINDOW: usize = 16;
const MOST: usize = 12;
const HEADS: usize = 3;
/// Blocks of the compressed entries, and of the window's.
const BLOCK_SIZES: [usize; 2] = [2, 8];

/// What both attentions wrote, and the workspace.
#[derive(Debug)]
pub struct Attended {
    pub gathered: Vec<u8>,
    pub direct: Vec<u8>,
    pub workspace: Vec<u8>,
}

/// A cache with the entries of all requests, and its blocks.
struct Cache<'r, D: Device> {
    paged: Option<Tensor<'r, u8, D, 2>>,
    rows: Option<Tensor<'r, bf16, D, 3>>,
    table: Tensor<'r, i32, D, 2>,
    columns: usize,
    block_size: usize,
}

impl<'r, D: Device> Cache<'r, D> {
    fn new<K: Kernels<D>>(
        rig: &'r Rig<D, K>,
        random: &mut Random,
        of: &Prefill,
        most: usize,
        block_size: usize,
    ) -> Self {
        let (requests, columns) = (of.requests.len(), most.div_ceil(block_size));
        let blocks = requests * columns + 3;
        let table: Vec<i32> = random
            .slots(requests * columns, blocks, false)
            .iter()
            .map(|block| i32::try_from(*block).unwrap())
            .collect();
        let stride = PagedLayout::block_bytes(EntryFormat::Main, block_size) + 40;
        let layout = PagedLayout { format: EntryFormat::Main, block_size, stride, blocks };
        let whole = random.bf16s(blocks * block_size * 512, 4.0);
        let mut bytes = vec![0_u8; blocks * stride];
        for (slot, row) in whole.chunks(512).enumerate() {
            let row: Vec<f32> = row.iter().map(|x| x.to_f32()).collect();
            let (mut d, mut s) = ([0; 576], [0; 8]);
            encode_main(&row[..448], &row[448..], &mut d, &mut s);
            let (data, scales) = layout.entry(i64::try_from(slot).unwrap()).unwrap();
            bytes[data].copy_from_slice(&d);
            bytes[scales].copy_from_slice(&s);
        }
        Self {
            paged: (!of.whole_rows).then(|| rig.load([blocks, stride], &bytes)),
            rows: of.whole_rows.then(|| rig.load([blocks, block_size, 512], &whole)),
            table: rig.load([requests, columns], &table),
            columns,
            block_size,
        }
    }

    fn to_gather(&self) -> KvCacheIn<'_, D> {
        match (&self.paged, &self.rows) {
            (Some(bytes), _) => {
                KvCacheIn::Paged { bytes: bytes.view(), block_size: self.block_size }
            }
            (_, rows) => KvCacheIn::Rows(rows.as_ref().unwrap().view()),
        }
    }

    fn to_attend(&self) -> Entries<'_, D> {
        match (&self.paged, &self.rows) {
            (Some(cache), _) => Entries::Paged { cache: cache.view(), block_size: self.block_size },
            (_, rows) => Entries::Rows(rows.as_ref().unwrap().view().flatten_rows()),
        }
    }

    /// Slots of local indices.
    fn map<K: Kernels<D>>(
        &self,
        rig: &'r Rig<D, K>,
        local: &Tensor<'r, i32, D, 2>,
        of: &Tensor<'r, i32, D, 1>,
    ) -> alloc::Slots<'r, D> {
        let [tokens, width] = local.view().shape();
        let valid = rig.load([tokens], &vec![bool8::from(true); tokens]);
        let mut slots = alloc::Slots::new(&rig.device, &rig.stream, tokens, width).unwrap();
        let (indices, lens) = slots.out();
        let args = TopkMap {
            topk: local.view(),
            token_to_req: of.view(),
            block_table: self.table.view(),
            columns: self.columns,
            valid: valid.view(),
            block_size: self.block_size,
            placement: Placement::InPlace,
            indices,
            lens,
        };
        rig.kernels.topk_map(&rig.stream, args).unwrap();
        slots
    }
}

impl Prefill {
    /// Runs both ways.
    pub fn run<D: Device, K: Kernels<D>>(&self, rig: &Rig<D, K>) -> Attended {
        let mut random = Random(self.seed);
        let int = |count: usize| i32::try_from(count).unwrap();
        let requests = self.requests.len();
        let (mut seq, mut gathered) = (Vec::new(), Vec::new());
        let (mut of, mut positions) = (Vec::new(), Vec::new());
        let (mut compressed, mut window) = (Vec::new(), Vec::new());
        for (request, (prefix, queries)) in self.requests.iter().copied().enumerate() {
            seq.push(int(prefix + queries));
            gathered.push(int(gather_len(queries, prefix, WINDOW)));
            for position in prefix..prefix + queries {
                of.push(int(request));
                positions.push(i64::try_from(position).unwrap());
                let finished = (position + 1) / RATIO;
                let mut chosen = if self.listed {
                    random.slots(finished.min(MOST), finished, false)
                } else {
                    (0..i64::try_from(finished.min(MOST)).unwrap()).collect()
                };
                chosen.resize(MOST, -1);
                compressed.extend(chosen.iter().map(|local| i32::try_from(*local).unwrap()));
                let seen = (position + 1).min(WINDOW);
                let mut row: Vec<i32> = (position + 1 - seen..=position).map(int).collect();
                row.resize(WINDOW, -1);
                window.extend(row);
            }
        }
        let tokens = positions.len();
        let longest = usize::try_from(*seq.iter().max().unwrap()).unwrap();
        let (entries, rows) = (longest / RATIO, longest / RATIO + longest + 1);
        let caches = [(entries, BLOCK_SIZES[0]), (longest, BLOCK_SIZES[1])]
            .map(|(most, block_size)| Cache::new(rig, &mut random, self, most, block_size));
        let (seq, gathered) = (rig.load([requests], &seq), rig.load([requests], &gathered));
        let (of, positions) = (rig.load([tokens], &of), rig.load([tokens], &positions));
        let compressed = rig.load([tokens, MOST], &compressed);
        let window = rig.load([tokens, WINDOW], &window);

        let nothing = vec![bf16::NAN; (requests + 1) * rows * 512];
        let mut workspace = rig.load([requests + 1, rows, 512], &nothing);
        let parts = [(0..entries, RATIO, None), (entries..rows, 1, Some(gathered.view()))];
        for (cache, (rows, ratio, gather_lens)) in caches.iter().zip(parts) {
            let args = Gather {
                cache: cache.to_gather(),
                block_table: cache.table.view(),
                seq_lens: seq.view(),
                gather_lens,
                ratio,
                rows,
                out: workspace.view_mut(),
            };
            rig.kernels.gather(&rig.stream, args).unwrap();
        }
        let width = combined_width(MOST, WINDOW);
        let mut combined = alloc::Slots::new(&rig.device, &rig.stream, tokens, width).unwrap();
        let (indices, lens) = combined.out();
        let args = CombineIndices {
            topk: self.listed.then(|| compressed.view()),
            most: MOST,
            token_to_req: of.view(),
            positions: positions.view(),
            seq_lens: seq.view(),
            gather_lens: gathered.view(),
            ratio: RATIO,
            window: WINDOW,
            workspace_rows: rows,
            compressed_rows: entries,
            indices,
            lens,
        };
        rig.kernels.combine_indices(&rig.stream, args).unwrap();

        let of_rows = Selected {
            entries: Entries::Rows(workspace.view().flatten_rows()),
            indices: combined.indices.view(),
            lens: combined.lens.view(),
        };
        let slots = [caches[0].map(rig, &compressed, &of), caches[1].map(rig, &window, &of)];
        let [first, second] = [0, 1].map(|at| Selected {
            entries: caches[at].to_attend(),
            indices: slots[at].indices.view(),
            lens: slots[at].lens.view(),
        });
        let q = rig.load([tokens, HEADS, 512], &random.bf16s(tokens * HEADS * 512, 2.0));
        let sinks = rig.load([HEADS], &random.floats(HEADS, 3.0));
        let attend = |first, second| {
            let mut out = alloc::attended(&rig.device, &rig.stream, tokens, HEADS).unwrap();
            let (q, sinks, scale) = (q.view(), sinks.view(), 512_f32.powf(-0.5));
            let args = Attention { q, first, second, sinks, scale, out: out.view_mut() };
            rig.kernels.attention(&rig.stream, args).unwrap();
            bytes_of(&out.to_vec().unwrap())
        };
        Attended {
            gathered: attend(of_rows, None),
            direct: attend(first, Some(second)),
            workspace: bytes_of(&workspace.to_vec().unwrap()),
        }
    }
}

/// Prefills of one chunk: requests with and without a prefix, shorter and longer than the window.
pub fn prefills(seed: u64) -> impl Iterator<Item = Prefill> {
    const REQUESTS: &[(usize, usize)] = &[(0, 21), (37, 5), (9, 1), (100, 13)];
    [(true, false), (false, false), (true, true), (false, true)]
        .into_iter()
        .map(move |(listed, whole_rows)| Prefill { requests: REQUESTS, listed, whole_rows, seed })
}
