// What `#[scratch_pool]` emits, written by hand, for DeepSeek-V4-Flash's eager scratch at 8192 tokens.
// This file is the template of the macro's output: generated code is this, with other names and
// numbers. Kept free of inner comments, so that it can be included anywhere.
//
// #[scratch_pool(
//     align = 256,
//     config = "config.json",
//     dims(max_num_tokens = 8192, padded_q_heads = 64),
//     layers(compress_ratio = compress_ratios, count = num_hidden_layers),
//     exclusive(indexer, topk, compressor),
// )]
// #[step(fork)]
// #[step(index_q,     on = aux0, when = compress_ratio == 4,   after(fork), writes(indexer))]
// #[step(index_topk,  on = aux0, when = compress_ratio == 4,   reads(indexer))]
// #[step(compress,    on = aux1, when = compress_ratio == 128, after(fork), writes(compressor))]
// #[step(q_proj,      writes(q))]
// #[step(join,        after(index_topk, compress))]
// #[step(global_topk, when = compress_ratio == 4, writes(topk))]
// #[step(attention,   reads(q, topk))]
// pub struct EagerScratch {
//     #[group(q)]          #[shape(max_num_tokens, padded_q_heads, head_dim)]            pub q: bf16,
//     #[group(indexer, when = compress_ratio == 4)]
//                          #[shape(max_num_tokens, index_n_heads, index_head_dim / 2)]   pub index_values: u8,
//     …
// }

/// DeepSeek-V4-Flash's eager scratch.
///
/// | buffer | offset | bytes | shape |
/// | --- | --- | --- | --- |
/// | `q.q` | 37748736 | 536870912 | `bf16 [8192, 64, 512]` |
/// | `indexer.values` | 0 | 33554432 | `u8 [8192, 64, 64]` |
/// | `indexer.scales` | 33554432 | 2097152 | `u8 [8192, 64, 4]` |
/// | `indexer.weights` | 35651584 | 2097152 | `f32 [8192, 64]` |
/// | `topk.indices` | 0 | 16777216 | `i32 [8192, 512]` |
/// | `topk.lens` | 16777216 | 32768 | `i32 [8192]` |
/// | `compressor.kv` | 0 | 16777216 | `f32 [8192, 512]` |
#[derive(Debug)]
pub struct EagerScratch<D: ::scratchpool::Device = ::scratchpool::Host> {
    core: ::scratchpool::generated::PoolCore<D, eager_scratch::Plan, 1>,
}

// On the default device only, so that `EagerScratch::LAYOUT` needs no type argument.
impl EagerScratch {
    /// The layout.
    pub const LAYOUT: &'static ::scratchpool::tables::LayoutTable = &eager_scratch::LAYOUT;

    /// The proved schedule.
    pub const SCHEDULE: &'static ::scratchpool::tables::ScheduleTable = &eager_scratch::SCHEDULE;

    /// What a pool reserves, before it is allocated.
    pub const MEMORY: ::scratchpool::MemoryReport =
        ::scratchpool::MemoryReport::of(&eager_scratch::LAYOUT, 1);
}

impl<D: ::scratchpool::Device> EagerScratch<D> {
    /// Allocates the arena: once, when the model is built.
    pub fn allocate(device: &D) -> Result<Self, ::scratchpool::Error> {
        Self::allocate_with(device, ::scratchpool::Backing::Arena)
    }

    /// Allocates with a choice of backing.
    pub fn allocate_with(
        device: &D,
        backing: ::scratchpool::Backing,
    ) -> Result<Self, ::scratchpool::Error> {
        let core = ::scratchpool::generated::PoolCore::new(device, eager_scratch::Plan, backing)?;
        Ok(Self { core })
    }

    /// Allocates on the caller's streams, in the order of the schedule: `main`, `aux0`, `aux1`.
    pub fn allocate_on(
        device: &D,
        backing: ::scratchpool::Backing,
        streams: [D::Stream; 3],
    ) -> Result<Self, ::scratchpool::Error> {
        let streams = [Vec::from(streams)];
        let core = ::scratchpool::generated::PoolCore::with_streams(
            device,
            eager_scratch::Plan,
            backing,
            streams,
        )?;
        Ok(Self { core })
    }

    /// Begins a pass of `max_num_tokens` rows or fewer.
    #[inline]
    pub fn begin(&mut self, num_tokens: usize) -> Result<eager_scratch::Pass<'_, D>, ::scratchpool::Error> {
        Ok(eager_scratch::Pass { core: self.core.begin(num_tokens)? })
    }

    /// Bytes allocated now.
    pub fn held_bytes(&self) -> u64 {
        self.core.held_bytes()
    }
}

/// The parts of [`EagerScratch`].
pub mod eager_scratch {
    use ::scratchpool::generated::{LayerCore, PassCore, Place, Plan as PoolPlan, StepCore};
    use ::scratchpool::tables::{
        BufferRow, DType, Launch, LayerKind, LayoutTable, ScheduleTable, StepInLayer, StepRow, WaitRow,
    };
    use ::scratchpool::{Device, Error, MemoryReport, View, ViewMut};

    /// The layout.
    pub const LAYOUT: LayoutTable = LayoutTable {
        pool: "EagerScratch",
        align: 256,
        base_align: 256,
        total_bytes: 574_619_648,
        sum_bytes: 608_206_848,
        lower_bound_bytes: 574_619_648,
        optimal: true,
        fingerprint: "written by hand",
        buffers: &[
            BufferRow { name: "q.q", offset: 37_748_736, bytes: 536_870_912, tensor_bytes: 536_870_912, dtype: DType::BF16, shape: &[8192, 64, 512], align: 256 },
            BufferRow { name: "indexer.values", offset: 0, bytes: 33_554_432, tensor_bytes: 33_554_432, dtype: DType::U8, shape: &[8192, 64, 64], align: 256 },
            BufferRow { name: "indexer.scales", offset: 33_554_432, bytes: 2_097_152, tensor_bytes: 2_097_152, dtype: DType::U8, shape: &[8192, 64, 4], align: 256 },
            BufferRow { name: "indexer.weights", offset: 35_651_584, bytes: 2_097_152, tensor_bytes: 2_097_152, dtype: DType::F32, shape: &[8192, 64], align: 256 },
            BufferRow { name: "topk.indices", offset: 0, bytes: 16_777_216, tensor_bytes: 16_777_216, dtype: DType::I32, shape: &[8192, 512], align: 256 },
            BufferRow { name: "topk.lens", offset: 16_777_216, bytes: 32_768, tensor_bytes: 32_768, dtype: DType::I32, shape: &[8192], align: 256 },
            BufferRow { name: "compressor.kv", offset: 0, bytes: 16_777_216, tensor_bytes: 16_777_216, dtype: DType::F32, shape: &[8192, 512], align: 256 },
        ],
    };

    /// The proved schedule.
    pub const SCHEDULE: ScheduleTable = ScheduleTable {
        streams: &["main", "aux0", "aux1"],
        steps: &[
            StepRow { name: "fork", stream: 0, launch: Launch::Full, events: 1, writes: &[], reads: &[] },
            StepRow { name: "index_q", stream: 1, launch: Launch::Full, events: 0, writes: &[1, 2, 3], reads: &[] },
            StepRow { name: "index_topk", stream: 1, launch: Launch::Full, events: 1, writes: &[], reads: &[1, 2, 3] },
            StepRow { name: "compress", stream: 2, launch: Launch::Full, events: 1, writes: &[6], reads: &[] },
            StepRow { name: "q_proj", stream: 0, launch: Launch::Full, events: 0, writes: &[0], reads: &[] },
            StepRow { name: "join", stream: 0, launch: Launch::Full, events: 0, writes: &[], reads: &[] },
            StepRow { name: "global_topk", stream: 0, launch: Launch::Full, events: 0, writes: &[4, 5], reads: &[] },
            StepRow { name: "attention", stream: 0, launch: Launch::Full, events: 0, writes: &[], reads: &[0, 4, 5] },
        ],
        layers: &[0, 0, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1],
        kinds: &[
            // window only
            LayerKind {
                steps: &[
                    StepInLayer { runs: true, records: false, waits: &[] },
                    StepInLayer { runs: false, records: false, waits: &[] },
                    StepInLayer { runs: false, records: false, waits: &[] },
                    StepInLayer { runs: false, records: false, waits: &[] },
                    StepInLayer { runs: true, records: false, waits: &[] },
                    StepInLayer { runs: true, records: false, waits: &[] },
                    StepInLayer { runs: false, records: false, waits: &[] },
                    StepInLayer { runs: true, records: false, waits: &[] },
                ],
                buffers: &[true, false, false, false, false, false, false],
            },
            // C4
            LayerKind {
                steps: &[
                    StepInLayer { runs: true, records: true, waits: &[] },
                    StepInLayer { runs: true, records: false, waits: &[WaitRow { step: 0, back: 0 }] },
                    StepInLayer { runs: true, records: true, waits: &[] },
                    StepInLayer { runs: false, records: false, waits: &[] },
                    StepInLayer { runs: true, records: false, waits: &[] },
                    StepInLayer { runs: true, records: false, waits: &[WaitRow { step: 2, back: 0 }] },
                    StepInLayer { runs: true, records: false, waits: &[] },
                    StepInLayer { runs: true, records: false, waits: &[] },
                ],
                buffers: &[true, true, true, true, true, true, false],
            },
            // C128
            LayerKind {
                steps: &[
                    StepInLayer { runs: true, records: true, waits: &[] },
                    StepInLayer { runs: false, records: false, waits: &[] },
                    StepInLayer { runs: false, records: false, waits: &[] },
                    StepInLayer { runs: true, records: true, waits: &[WaitRow { step: 0, back: 0 }] },
                    StepInLayer { runs: true, records: false, waits: &[] },
                    StepInLayer { runs: true, records: false, waits: &[WaitRow { step: 3, back: 0 }] },
                    StepInLayer { runs: false, records: false, waits: &[] },
                    StepInLayer { runs: true, records: false, waits: &[] },
                ],
                buffers: &[true, false, false, false, false, false, true],
            },
        ],
    };

    const Q: Place = Place::new(0, 37_748_736);
    const INDEX_VALUES: Place = Place::new(1, 0);
    const INDEX_SCALES: Place = Place::new(2, 33_554_432);
    const INDEX_WEIGHTS: Place = Place::new(3, 35_651_584);
    const TOPK_INDICES: Place = Place::new(4, 0);
    const TOPK_LENS: Place = Place::new(5, 16_777_216);
    const COMPRESSED: Place = Place::new(6, 0);

    /// The plan: all sizes are constants.
    #[derive(Clone, Copy, Debug)]
    pub struct Plan;

    // SAFETY: emitted together with the schedule, the layout and the views below, from one proved
    // plan.
    unsafe impl PoolPlan for Plan {
        const SCHEDULE: &'static ScheduleTable = &SCHEDULE;
        const BUFFERS: usize = 7;

        #[inline]
        fn max_rows(&self) -> usize {
            8192
        }

        fn memory(&self) -> MemoryReport {
            MemoryReport::of(&LAYOUT, 1)
        }

        fn tensor_bytes(&self, buffer: usize, rows: usize) -> u64 {
            let rows = rows as u64;
            match buffer {
                0 => rows * 64 * 512 * 2,
                1 => rows * 64 * 64,
                2 => rows * 64 * 4,
                3 => rows * 64 * 4,
                4 => rows * 512 * 4,
                5 => rows * 4,
                6 => rows * 512 * 4,
                _ => 0,
            }
        }
    }

    /// One pass over the layers.
    #[derive(Debug)]
    pub struct Pass<'p, D: Device> {
        pub(super) core: PassCore<'p, D, Plan>,
    }

    impl<D: Device> Pass<'_, D> {
        /// Rows of the pass.
        pub fn num_tokens(&self) -> usize {
            self.core.rows()
        }

        /// Opens a layer.
        #[inline]
        pub fn layer(&mut self, layer: usize) -> Result<Layer<'_, D>, Error> {
            Ok(Layer { core: self.core.layer(layer)? })
        }
    }

    /// One layer of a pass.
    #[derive(Debug)]
    pub struct Layer<'l, D: Device> {
        core: LayerCore<'l, D, Plan>,
    }

    impl<D: Device> Layer<'_, D> {
        /// Step `fork`.
        #[inline]
        pub fn fork(&mut self) -> Result<Fork<'_, D>, Error> {
            Ok(Fork { core: self.core.step_in_every_layer(0)? })
        }

        /// Step `index_q`; `None` in a layer where it does not run.
        #[inline]
        pub fn index_q(&mut self) -> Result<Option<IndexQ<'_, D>>, Error> {
            Ok(self.core.step(1)?.map(|core| IndexQ { core }))
        }

        /// Step `index_topk`; `None` in a layer where it does not run.
        #[inline]
        pub fn index_topk(&mut self) -> Result<Option<IndexTopk<'_, D>>, Error> {
            Ok(self.core.step(2)?.map(|core| IndexTopk { core }))
        }

        /// Step `compress`; `None` in a layer where it does not run.
        #[inline]
        pub fn compress(&mut self) -> Result<Option<Compress<'_, D>>, Error> {
            Ok(self.core.step(3)?.map(|core| Compress { core }))
        }

        /// Step `q_proj`.
        #[inline]
        pub fn q_proj(&mut self) -> Result<QProj<'_, D>, Error> {
            Ok(QProj { core: self.core.step_in_every_layer(4)? })
        }

        /// Step `join`.
        #[inline]
        pub fn join(&mut self) -> Result<Join<'_, D>, Error> {
            Ok(Join { core: self.core.step_in_every_layer(5)? })
        }

        /// Step `global_topk`; `None` in a layer where it does not run.
        #[inline]
        pub fn global_topk(&mut self) -> Result<Option<GlobalTopk<'_, D>>, Error> {
            Ok(self.core.step(6)?.map(|core| GlobalTopk { core }))
        }

        /// Step `attention`.
        #[inline]
        pub fn attention(&mut self) -> Result<Attention<'_, D>, Error> {
            Ok(Attention { core: self.core.step_in_every_layer(7)? })
        }
    }

    /// Step `fork`, entered.
    #[derive(Debug)]
    pub struct Fork<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    impl<'l, D: Device> Fork<'l, D> {
        /// The step's stream: `main`.
        #[inline]
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }
    }

    /// Step `index_q`, entered.
    #[derive(Debug)]
    pub struct IndexQ<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    impl<'l, D: Device> IndexQ<'l, D> {
        /// The step's stream: `aux0`.
        #[inline]
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }

        /// The step's views.
        #[inline]
        #[allow(unsafe_code)]
        pub fn buffers(&mut self) -> IndexQBuffers<'_, D> {
            let rows = self.core.rows();
            // SAFETY: the buffers and their shapes are the plan's; the step declares them; the guard is
            // borrowed exclusively while the views live, and each buffer is handed out once.
            unsafe {
                IndexQBuffers {
                    index_values: self.core.view_mut(INDEX_VALUES, [rows, 64, 64]),
                    index_scales: self.core.view_mut(INDEX_SCALES, [rows, 64, 4]),
                    index_weights: self.core.view_mut(INDEX_WEIGHTS, [rows, 64]),
                }
            }
        }
    }

    /// What `index_q` writes.
    #[derive(Debug)]
    pub struct IndexQBuffers<'s, D: Device> {
        /// `indexer.values`, bytes 0..33_554_432 of the arena.
        pub index_values: ViewMut<'s, u8, D, 3>,
        /// `indexer.scales`, bytes 33_554_432..35_651_584 of the arena.
        pub index_scales: ViewMut<'s, u8, D, 3>,
        /// `indexer.weights`, bytes 35_651_584..37_748_736 of the arena.
        pub index_weights: ViewMut<'s, f32, D, 2>,
    }

    /// Step `index_topk`, entered.
    #[derive(Debug)]
    pub struct IndexTopk<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    impl<'l, D: Device> IndexTopk<'l, D> {
        /// The step's stream: `aux0`.
        #[inline]
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }

        /// The step's views.
        #[inline]
        #[allow(unsafe_code)]
        pub fn buffers(&mut self) -> IndexTopkBuffers<'_, D> {
            let rows = self.core.rows();
            // SAFETY: the buffers and their shapes are the plan's; the step declares them; the guard is
            // borrowed exclusively while the views live, and each buffer is handed out once.
            unsafe {
                IndexTopkBuffers {
                    index_values: self.core.view(INDEX_VALUES, [rows, 64, 64]),
                    index_scales: self.core.view(INDEX_SCALES, [rows, 64, 4]),
                    index_weights: self.core.view(INDEX_WEIGHTS, [rows, 64]),
                }
            }
        }
    }

    /// What `index_topk` reads.
    #[derive(Debug)]
    pub struct IndexTopkBuffers<'s, D: Device> {
        /// `indexer.values`, bytes 0..33_554_432 of the arena.
        pub index_values: View<'s, u8, D, 3>,
        /// `indexer.scales`, bytes 33_554_432..35_651_584 of the arena.
        pub index_scales: View<'s, u8, D, 3>,
        /// `indexer.weights`, bytes 35_651_584..37_748_736 of the arena.
        pub index_weights: View<'s, f32, D, 2>,
    }

    /// Step `compress`, entered.
    #[derive(Debug)]
    pub struct Compress<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    impl<'l, D: Device> Compress<'l, D> {
        /// The step's stream: `aux1`.
        #[inline]
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }

        /// The step's views.
        #[inline]
        #[allow(unsafe_code)]
        pub fn buffers(&mut self) -> CompressBuffers<'_, D> {
            let rows = self.core.rows();
            // SAFETY: the buffers and their shapes are the plan's; the step declares them; the guard is
            // borrowed exclusively while the views live, and each buffer is handed out once.
            unsafe {
                CompressBuffers {
                    compressed: self.core.view_mut(COMPRESSED, [rows, 512]),
                }
            }
        }
    }

    /// What `compress` writes.
    #[derive(Debug)]
    pub struct CompressBuffers<'s, D: Device> {
        /// `compressor.kv`, bytes 0..16_777_216 of the arena.
        pub compressed: ViewMut<'s, f32, D, 2>,
    }

    /// Step `q_proj`, entered.
    #[derive(Debug)]
    pub struct QProj<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    impl<'l, D: Device> QProj<'l, D> {
        /// The step's stream: `main`.
        #[inline]
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }

        /// The step's views.
        #[inline]
        #[allow(unsafe_code)]
        pub fn buffers(&mut self) -> QProjBuffers<'_, D> {
            let rows = self.core.rows();
            // SAFETY: the buffers and their shapes are the plan's; the step declares them; the guard is
            // borrowed exclusively while the views live, and each buffer is handed out once.
            unsafe {
                QProjBuffers {
                    q: self.core.view_mut(Q, [rows, 64, 512]),
                }
            }
        }
    }

    /// What `q_proj` writes.
    #[derive(Debug)]
    pub struct QProjBuffers<'s, D: Device> {
        /// `q.q`, bytes 37_748_736..574_619_648 of the arena.
        pub q: ViewMut<'s, ::scratchpool::bf16, D, 3>,
    }

    /// Step `join`, entered.
    #[derive(Debug)]
    pub struct Join<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    impl<'l, D: Device> Join<'l, D> {
        /// The step's stream: `main`.
        #[inline]
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }
    }

    /// Step `global_topk`, entered.
    #[derive(Debug)]
    pub struct GlobalTopk<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    impl<'l, D: Device> GlobalTopk<'l, D> {
        /// The step's stream: `main`.
        #[inline]
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }

        /// The step's views.
        #[inline]
        #[allow(unsafe_code)]
        pub fn buffers(&mut self) -> GlobalTopkBuffers<'_, D> {
            let rows = self.core.rows();
            // SAFETY: the buffers and their shapes are the plan's; the step declares them; the guard is
            // borrowed exclusively while the views live, and each buffer is handed out once.
            unsafe {
                GlobalTopkBuffers {
                    topk_indices: self.core.view_mut(TOPK_INDICES, [rows, 512]),
                    topk_lens: self.core.view_mut(TOPK_LENS, [rows]),
                }
            }
        }
    }

    /// What `global_topk` writes.
    #[derive(Debug)]
    pub struct GlobalTopkBuffers<'s, D: Device> {
        /// `topk.indices`, bytes 0..16_777_216 of the arena.
        pub topk_indices: ViewMut<'s, i32, D, 2>,
        /// `topk.lens`, bytes 16_777_216..16_809_984 of the arena.
        pub topk_lens: ViewMut<'s, i32, D, 1>,
    }

    /// Step `attention`, entered.
    #[derive(Debug)]
    pub struct Attention<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    impl<'l, D: Device> Attention<'l, D> {
        /// The step's stream: `main`.
        #[inline]
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }

        /// The step's views.
        #[inline]
        #[allow(unsafe_code)]
        pub fn buffers(&mut self) -> AttentionBuffers<'_, D> {
            let rows = self.core.rows();
            // SAFETY: the buffers and their shapes are the plan's; the step declares them; the guard is
            // borrowed exclusively while the views live, and each buffer is handed out once.
            unsafe {
                AttentionBuffers {
                    q: self.core.view(Q, [rows, 64, 512]),
                    topk_indices: if self.core.has(TOPK_INDICES) {
                        Some(self.core.view(TOPK_INDICES, [rows, 512]))
                    } else {
                        None
                    },
                    topk_lens: if self.core.has(TOPK_LENS) {
                        Some(self.core.view(TOPK_LENS, [rows]))
                    } else {
                        None
                    },
                }
            }
        }
    }

    /// What `attention` reads.
    #[derive(Debug)]
    pub struct AttentionBuffers<'s, D: Device> {
        /// `q.q`, bytes 37_748_736..574_619_648 of the arena.
        pub q: View<'s, ::scratchpool::bf16, D, 3>,
        /// `topk.indices`, bytes 0..16_777_216 of the arena. `None` in a layer without its group.
        pub topk_indices: Option<View<'s, i32, D, 2>>,
        /// `topk.lens`, bytes 16_777_216..16_809_984 of the arena. `None` in a layer without its group.
        pub topk_lens: Option<View<'s, i32, D, 1>>,
    }
}
