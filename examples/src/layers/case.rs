//! A case: layers with random weights and histories, and the passes that run over them.
//!
//! Three requests: one has more compressed entries than the indexer chooses, one finishes a window of
//! 128 tokens, one is a prompt that has just begun. What came before is random too: caches start
//! full of it.
//!
//! Caches are paged. A page is 256 tokens: 64 entries of ratio 4, 2 of ratio 128. The window and the
//! compressors' states are rings: later tokens take the places of tokens that are out of reach.

use core::ops::Range;

use scratchpool::{Constant, Device, bf16, bool8};
use scratchpool_kernels::Error;
use scratchpool_kernels::formats::to_bf16;
use scratchpool_kernels::reference::cache::{EntryFormat, PagedLayout, encode_main, encode_mxfp4};

use crate::deepseek::flash_scratch;

/// Query heads.
pub(super) const HEADS: usize = 64;
/// Entries that the indexer chooses.
pub(super) const TOPK: usize = 512;
/// Tokens that a query sees besides compressed entries.
pub(super) const WINDOW: usize = 128;
/// Tokens of a page.
pub(super) const PAGE: usize = 256;
/// Entries of a block of the window's cache.
pub(super) const WINDOW_BLOCK: usize = 64;
pub(super) const EPSILON: f32 = 1e-6;
/// `512^-0.5`, of attention.
pub(super) const SCALE: f32 = 0.044_194_174;
/// `128^-0.5`, of the indexer.
pub(super) const INDEX_SCALE: f32 = 0.088_388_35;
/// `64^-0.5`, of the indexer's heads.
pub(super) const HEAD_SCALE: f32 = 0.125;

/// The most rows of a pass.
pub const MOST_ROWS: usize = 16;

/// Pages of each request.
const PAGES: [usize; 3] = [9, 2, 1];
const REQUESTS: usize = PAGES.len();
const ALL_PAGES: usize = 12;
/// Columns of the tables of pages.
pub(super) const COLUMNS: usize = 9;
const MOST_TOKENS: usize = COLUMNS * PAGE;
/// Blocks of the window's ring, for each request.
const WINDOW_RING: usize = 4;

/// The first position and the number of tokens of each request, pass by pass. The last pass
/// finishes entries of both ratios.
const PASSES: [[(usize, usize); REQUESTS]; 3] = [
    [(2101, 1), (253, 1), (0, 10)],
    [(2102, 1), (254, 1), (10, 1)],
    [(2103, 1), (255, 1), (11, 1)],
];

/// How the states of a compressor are paged.
struct Ring {
    page_tokens: usize,
    pages: usize,
}

impl Ring {
    const fn of(ratio: usize) -> Self {
        // Room for a window, and for the tokens of a pass.
        if ratio == 4 {
            Self { page_tokens: 4, pages: 8 }
        } else {
            Self { page_tokens: 8, pages: 20 }
        }
    }

    const fn page(&self, request: usize, column: usize) -> usize {
        request * self.pages + column % self.pages
    }

    const fn slot(&self, request: usize, position: usize) -> usize {
        self.page(request, position / self.page_tokens) * self.page_tokens
            + position % self.page_tokens
    }
}

/// The row of a position in the states of a compressor.
pub(super) const fn state_slot(ratio: usize, request: usize, position: usize) -> usize {
    Ring::of(ratio).slot(request, position)
}

/// The page of a request, none where it has no more.
fn page(request: usize, column: usize) -> Option<usize> {
    let before: usize = PAGES.iter().take(request).sum();
    // In no order: 5 and 12 have no divisor in common.
    (column < *PAGES.get(request)?).then_some((before + column) * 5 % ALL_PAGES)
}

/// The slot of a compressed entry.
pub(super) fn entry_slot(ratio: usize, request: usize, entry: usize) -> Option<usize> {
    let block = PAGE.checked_div(ratio)?;
    Some(page(request, entry / block)? * block + entry % block)
}

/// The slot of a token in the window's cache.
pub(super) const fn window_slot(request: usize, position: usize) -> usize {
    let block = request * WINDOW_RING + position / WINDOW_BLOCK % WINDOW_RING;
    block * WINDOW_BLOCK + position % WINDOW_BLOCK
}

/// A number as an element of an index tensor. All are small.
fn index<T: TryFrom<i64> + Default>(number: Option<usize>) -> T {
    let number = number.and_then(|number| i64::try_from(number).ok()).unwrap_or(-1);
    T::try_from(number).unwrap_or_default()
}

/// Random numbers: `SplitMix64`.
struct Random(u64);

impl Random {
    /// Numbers of their own for each purpose.
    fn of(seed: u64, purpose: [usize; 3]) -> Self {
        let mix =
            |state: u64, word: usize| Self(state ^ (word as u64).wrapping_mul(0x9e37_79b9)).next();
        Self(purpose.into_iter().fold(seed, mix))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Four in -1..1.
    fn four(&mut self) -> [f32; 4] {
        let bits = self.next();
        [0, 16, 32, 48].map(|shift| {
            let [low, high, ..] = (bits >> shift).to_le_bytes();
            f32::from(i16::from_le_bytes([low, high])) / 32768.0
        })
    }

    fn floats<const R: usize>(&mut self, shape: [usize; R], magnitude: f32) -> Values<f32, R> {
        let count: usize = shape.iter().product();
        let mut values = Vec::with_capacity(count + 3);
        while values.len() < count {
            values.extend(self.four().map(|x| x * magnitude));
        }
        values.truncate(count);
        Values { shape, values }
    }

    fn bf16s<const R: usize>(&mut self, shape: [usize; R]) -> Values<bf16, R> {
        let Values { shape, values } = self.floats(shape, 1.0);
        Values { shape, values: values.into_iter().map(to_bf16).collect() }
    }

    /// Weights of a norm, around 1.
    fn norm(&mut self, width: usize) -> Values<f32, 1> {
        let Values { shape, values } = self.floats([width], 0.25);
        Values { shape, values: values.into_iter().map(|x| 1.0 + x).collect() }
    }
}

/// Values with a shape.
#[derive(Clone, Debug)]
pub(super) struct Values<T, const R: usize> {
    pub(super) shape: [usize; R],
    pub(super) values: Vec<T>,
}

impl<T, const R: usize> Values<T, R> {
    /// Of a layer that has no such.
    const fn none() -> Self {
        Self { shape: [0; R], values: Vec::new() }
    }
}

/// Values on the host, and the same as constants of a device.
macro_rules! constants {
    ($($(#[$doc:meta])* $host:ident => $name:ident {
        $($(#[$about:meta])* $field:ident: $element:ty, $rank:literal;)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(super) struct $host {
            $($(#[$about])* pub(super) $field: Values<$element, $rank>,)*
        }

        $(#[$doc])*
        pub(super) struct $name<D: Device> {
            $($(#[$about])* pub(super) $field: Constant<$element, D, $rank>,)*
        }

        impl<D: Device> $name<D> {
            pub(super) fn new(device: &D, load: &D::Stream, host: &$host) -> Result<Self, Error> {
                Ok(Self { $($field: Constant::new(device, load, host.$field.shape, &host.$field.values)?,)* })
            }

            #[allow(dead_code, reason = "inputs are replaced, weights are not")]
            pub(super) fn replace(&mut self, load: &D::Stream, host: &$host) -> Result<(), Error> {
                $(self.$field.replace(load, &host.$field.values)?;)*
                Ok(())
            }
        }
    )*};
}

constants! {
    /// What all layers share.
    HostTables => Tables {
        /// Cosines and sines of layers that see the window only.
        rope: f32, 2;
        /// Those of layers with compressed entries, stretched to longer contexts.
        long_rope: f32, 2;
        /// Pages of each request.
        pages: i32, 2;
        /// Pages of its states, for ratio 4.
        state_pages_4: i32, 2;
        /// For ratio 128.
        state_pages_128: i32, 2;
    }
    /// A layer's weights.
    HostWeights => Weights {
        kv_norm: f32, 1;
        sinks: f32, 1;
        /// Of compressed entries.
        norm: f32, 1;
        /// Bias of scores by position in a window.
        ape: f32, 2;
        /// Of the indexer's keys.
        key_norm: f32, 1;
        /// Their bias.
        key_ape: f32, 2;
    }
    /// The tokens of a pass. Padding has position -1, slots -1, and is not valid.
    HostTokens => Tokens {
        positions: i64, 1;
        requests: i32, 1;
        valid: bool8, 1;
        window_slots: i64, 1;
        /// Slots of the tokens that each of them sees.
        window: i32, 2;
        window_lens: i32, 1;
        state_slots_4: i64, 1;
        state_slots_128: i64, 1;
        /// Where the entry goes that a token finishes.
        entry_slots_4: i64, 1;
        entry_slots_128: i64, 1;
        /// Slots of all finished entries of ratio 128.
        finished: i32, 2;
        finished_lens: i32, 1;
    }
    /// What projections leave for a layer.
    HostActivations => Activations {
        q: bf16, 3;
        kv: bf16, 2;
        /// kv and score of the compressor.
        kv_score: f32, 2;
        index_q: bf16, 3;
        index_weights: f32, 2;
        /// kv and score of the indexer's compressor.
        key_kv_score: f32, 2;
    }
}

/// A layer on the host.
#[derive(Clone, Debug)]
pub(super) struct HostLayer {
    pub(super) index: usize,
    pub(super) ratio: usize,
    pub(super) weights: HostWeights,
    pub(super) window: Values<u8, 2>,
    pub(super) state: Values<f32, 3>,
    pub(super) entries: Values<u8, 2>,
    pub(super) key_state: Values<f32, 3>,
    pub(super) keys: Values<u8, 2>,
}

/// A pass on the host.
#[derive(Clone, Debug)]
pub(super) struct HostPass {
    pub(super) rows: usize,
    pub(super) tokens: HostTokens,
    pub(super) layers: Vec<HostActivations>,
}

/// Layers of DeepSeek-V4-Flash with random weights and histories, and the passes to run.
#[derive(Clone, Debug)]
pub struct Case {
    seed: u64,
    pub(super) tables: HostTables,
    pub(super) layers: Vec<HostLayer>,
}

/// The layout of a paged cache.
pub(super) fn layout(format: EntryFormat, block_size: usize, blocks: usize) -> PagedLayout {
    let bytes = PagedLayout::block_bytes(format, block_size);
    let unit = if format == EntryFormat::Main { 576 } else { format.access_bytes() };
    PagedLayout { format, block_size, stride: bytes.next_multiple_of(unit), blocks }
}

/// The window's cache.
pub(super) fn window_layout() -> PagedLayout {
    layout(EntryFormat::Main, WINDOW_BLOCK, REQUESTS * WINDOW_RING)
}

/// The cache of compressed entries.
pub(super) fn entry_layout(ratio: usize) -> PagedLayout {
    layout(EntryFormat::Main, PAGE / ratio.max(1), ALL_PAGES)
}

/// The cache of the indexer's keys.
pub(super) fn key_layout() -> PagedLayout {
    layout(EntryFormat::IndexMxfp4, PAGE / 4, ALL_PAGES)
}

/// A cache full of random entries.
fn filled(random: &mut Random, layout: &PagedLayout) -> Values<u8, 2> {
    let (shape, width) = ([layout.blocks, layout.stride], layout.format.width());
    let mut bytes = vec![0; layout.blocks * layout.stride];
    for slot in 0..layout.blocks * layout.block_size {
        let Some((data, scales)) = layout.entry(index(Some(slot))) else { continue };
        let row: Vec<f32> = random.bf16s([width]).values.into_iter().map(bf16::to_f32).collect();
        // A block's data rows end where its scales begin.
        let (front, back) = bytes.split_at_mut(scales.start);
        let data = front.get_mut(data).unwrap_or_default();
        let scales = back.get_mut(..scales.len()).unwrap_or_default();
        match row.split_at_checked(448) {
            Some((plain, rotated)) => encode_main(plain, rotated, data, scales),
            None => encode_mxfp4(&row, data, scales),
        }
    }
    Values { shape, values: bytes }
}

/// Cosines and sines, and with `stretch` the frequencies of a context 16 times as long (`YaRN`).
fn rope_table(theta: f64, stretch: bool) -> Values<f32, 2> {
    let frequencies: Vec<f64> = (0..32_u8).map(|pair| frequency(theta, stretch, pair)).collect();
    let mut values = Vec::with_capacity(MOST_TOKENS * 64);
    for position in (0..).take(MOST_TOKENS).map(f64::from as fn(u32) -> f64) {
        values.extend(frequencies.iter().map(|turn| narrow((position * turn).cos())));
        values.extend(frequencies.iter().map(|turn| narrow((position * turn).sin())));
    }
    Values { shape: [MOST_TOKENS, 64], values }
}

/// How far a pair of dims turns from one position to the next.
pub(super) fn frequency(theta: f64, stretch: bool, pair: u8) -> f64 {
    const FACTOR: f64 = 16.0;
    const ORIGINAL: f64 = 65_536.0;
    let plain = theta.powf(-f64::from(pair) / 32.0);
    if !stretch {
        return plain;
    }
    // The pair that turns so many times within the original context.
    let pair_of =
        |turns: f64| 32.0 * (ORIGINAL / (turns * core::f64::consts::TAU)).ln() / theta.ln();
    let (low, high) = (pair_of(32.0).floor().max(0.0), pair_of(1.0).ceil().min(31.0));
    let ramp = ((f64::from(pair) - low) / (high - low)).clamp(0.0, 1.0);
    plain * (1.0 - ramp) + plain / FACTOR * ramp
}

/// Base of the frequencies of a layer.
pub(super) const fn theta(ratio: usize) -> f64 {
    if ratio == 0 { 10_000.0 } else { 160_000.0 }
}

#[expect(clippy::cast_possible_truncation, reason = "rounds, and all values are of ordinary size")]
fn narrow(x: f64) -> f32 {
    x as f32
}

impl HostLayer {
    fn new(seed: u64, index: usize, ratio: usize) -> Self {
        let random = |purpose| Random::of(seed, [index, purpose, 0]);
        let ring = Ring::of(ratio);
        // Columns of kv, and of score.
        let width = if ratio == 4 { 1024 } else { 512 };
        let state_of = |ring: &Ring, width| [REQUESTS * ring.pages, ring.page_tokens, 2 * width];
        let (indexed, compressed) = (ratio == 4, ratio != 0);
        Self {
            index,
            ratio,
            weights: HostWeights {
                kv_norm: random(0).norm(512),
                sinks: random(1).floats([HEADS], 2.0),
                norm: random(2).norm(512),
                ape: if compressed {
                    random(3).floats([ratio, width], 1.0)
                } else {
                    Values::none()
                },
                key_norm: random(4).norm(128),
                key_ape: if indexed { random(5).floats([4, 256], 1.0) } else { Values::none() },
            },
            window: filled(&mut random(6), &window_layout()),
            state: if compressed {
                random(7).floats(state_of(&ring, width), 2.0)
            } else {
                Values::none()
            },
            entries: if compressed {
                filled(&mut random(8), &entry_layout(ratio))
            } else {
                Values::none()
            },
            key_state: if indexed {
                random(9).floats(state_of(&ring, 256), 2.0)
            } else {
                Values::none()
            },
            keys: if indexed { filled(&mut random(10), &key_layout()) } else { Values::none() },
        }
    }
}

impl Case {
    /// Some layers of the model.
    pub fn new(seed: u64, layers: Range<usize>) -> Self {
        // What the pool's schedule says of a layer is where its kind is known from.
        let ratio = |layer: usize| {
            let kind = flash_scratch::SCHEDULE.layers.get(layer).copied().map(usize::from)?;
            let steps = flash_scratch::SCHEDULE.kinds.get(kind)?.steps;
            let running = flash_scratch::SCHEDULE.steps.iter().zip(steps);
            let runs = |name| running.clone().any(|(step, it)| step.name == name && it.runs);
            Some(if runs("index_q") {
                4
            } else if runs("compress") {
                128
            } else {
                0
            })
        };
        let table = |columns: usize, page: &dyn Fn(usize, usize) -> Option<usize>| {
            let rows = (0..REQUESTS).flat_map(|request| (0..columns).map(move |it| (request, it)));
            let values = rows.map(|(request, column)| index(page(request, column))).collect();
            Values { shape: [REQUESTS, columns], values }
        };
        let state_pages = |ratio: usize| {
            let ring = Ring::of(ratio);
            let columns = MOST_TOKENS / ring.page_tokens;
            table(columns, &|request, column| Some(ring.page(request, column)))
        };
        let tables = HostTables {
            rope: rope_table(theta(0), false),
            long_rope: rope_table(theta(4), true),
            pages: table(COLUMNS, &page),
            state_pages_4: state_pages(4),
            state_pages_128: state_pages(128),
        };
        let layers =
            layers.filter_map(|index| Some(HostLayer::new(seed, index, ratio(index)?))).collect();
        Self { seed, tables, layers }
    }

    /// The layers, each with the number of tokens that an entry stands for.
    pub fn layers(&self) -> impl Iterator<Item = (usize, usize)> {
        self.layers.iter().map(|layer| (layer.index, layer.ratio))
    }

    /// Rows of each pass.
    pub fn rows(&self) -> impl Iterator<Item = usize> {
        (0..PASSES.len()).map(|pass| tokens_of(pass).count())
    }

    /// All passes, with rows of padding up to [`MOST_ROWS`] if so asked.
    pub(super) fn passes(&self, padded: bool) -> Vec<HostPass> {
        let rows = self.rows().collect::<Vec<_>>();
        let to = |rows| if padded { MOST_ROWS } else { rows };
        (0..).zip(rows).map(|(pass, rows)| self.pass(pass, to(rows))).collect()
    }

    /// A pass of nothing but padding.
    pub(super) fn idle_pass(&self) -> HostPass {
        self.pass(PASSES.len(), MOST_ROWS)
    }

    fn pass(&self, pass: usize, rows: usize) -> HostPass {
        let padding = core::iter::repeat(None);
        let tokens: Vec<_> = tokens_of(pass).map(Some).chain(padding).take(rows).collect();
        let layers = self.layers.iter().map(|layer| {
            // The values of a row are the same whatever rows come after it.
            let random = |purpose| Random::of(self.seed, [layer.index, purpose, 1 + pass]);
            let (indexed, compressed) = (layer.ratio == 4, layer.ratio != 0);
            let both = if indexed { 2048 } else { 1024 };
            HostActivations {
                q: random(20).bf16s([rows, HEADS, 512]),
                kv: random(21).bf16s([rows, 512]),
                kv_score: if compressed {
                    random(22).floats([rows, both], 2.0)
                } else {
                    Values::none()
                },
                index_q: if indexed { random(23).bf16s([rows, 64, 128]) } else { Values::none() },
                index_weights: if indexed {
                    random(24).floats([rows, 64], 1.0)
                } else {
                    Values::none()
                },
                key_kv_score: if indexed {
                    random(25).floats([rows, 512], 2.0)
                } else {
                    Values::none()
                },
            }
        });
        HostPass { rows, tokens: HostTokens::new(&tokens), layers: layers.collect() }
    }
}

/// Request and position of each token of a pass.
pub(super) fn tokens_of(pass: usize) -> impl Iterator<Item = (usize, usize)> {
    PASSES.into_iter().nth(pass).into_iter().flatten().enumerate().flat_map(
        |(request, (first, tokens))| {
            (first..first + tokens).map(move |position| (request, position))
        },
    )
}

/// The last pass.
pub(super) const LAST: usize = PASSES.len() - 1;

impl HostTokens {
    /// Of tokens, and of padding.
    fn new(tokens: &[Option<(usize, usize)>]) -> Self {
        fn each<T>(
            tokens: &[Option<(usize, usize)>],
            value: impl Fn(Option<(usize, usize)>) -> T,
        ) -> Values<T, 1> {
            Values { shape: [tokens.len()], values: tokens.iter().map(|it| value(*it)).collect() }
        }
        /// Lists of slots, of a width, and how many there are in each.
        fn lists(
            tokens: &[Option<(usize, usize)>],
            width: usize,
            list: impl Fn(usize, usize) -> Vec<Option<usize>>,
        ) -> (Values<i32, 2>, Values<i32, 1>) {
            let mut slots = Values { shape: [tokens.len(), width], values: Vec::new() };
            let mut lens = Values { shape: [tokens.len()], values: Vec::new() };
            for token in tokens {
                let list =
                    token.map_or_else(Vec::new, |(request, position)| list(request, position));
                lens.values.push(index(Some(list.len())));
                let row = list.into_iter().chain(core::iter::repeat(None)).take(width);
                slots.values.extend(row.map(index::<i32>));
            }
            (slots, lens)
        }
        let last_of = |ratio: usize| {
            move |token: Option<(usize, usize)>| {
                let (request, position) = token?;
                let last = (position + 1) % ratio == 0;
                last.then(|| entry_slot(ratio, request, position / ratio)).flatten()
            }
        };
        let (window, window_lens) = lists(tokens, WINDOW, |request, position| {
            let first = (position + 1).saturating_sub(WINDOW);
            (first..=position).map(|position| Some(window_slot(request, position))).collect()
        });
        let (finished, finished_lens) = lists(tokens, MOST_TOKENS / 128, |request, position| {
            (0..(position + 1) / 128).map(|entry| entry_slot(128, request, entry)).collect()
        });
        let (last_of_4, last_of_128) = (last_of(4), last_of(128));
        Self {
            positions: each(tokens, |token| index(token.map(|(_, position)| position))),
            requests: each(tokens, |token| index(token.map(|(request, _)| request))),
            valid: each(tokens, |token| bool8::from(token.is_some())),
            window_slots: each(tokens, |it| index(it.map(|(r, p)| window_slot(r, p)))),
            window,
            window_lens,
            state_slots_4: each(tokens, |it| index(it.map(|(r, p)| state_slot(4, r, p)))),
            state_slots_128: each(tokens, |it| index(it.map(|(r, p)| state_slot(128, r, p)))),
            entry_slots_4: each(tokens, |token| index(last_of_4(token))),
            entry_slots_128: each(tokens, |token| index(last_of_128(token))),
            finished,
            finished_lens,
        }
    }
}
