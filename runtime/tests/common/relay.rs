// What `#[scratch_pool]` emits, written by hand, for a pool with a runtime dim and two micro-batch
// copies. Kept free of inner comments, so that it can be included anywhere.
//
// #[scratch_pool(align = 256, rows = max_rows, dims(max_rows: runtime, width = 4), layers(count = 2),
//                ubatches = 2, exclusive(x, y))]
// #[step(produce, after(prev.report), writes(x))]
// #[step(consume, on = side, after(produce), reads(x))]
// #[step(reduce,  on = side, writes(y))]
// #[step(report,  on = side, reads(y))]
// pub struct Relay {
//     #[shape(max_rows, width)] pub x: u32,
//     #[shape(max_rows)]        pub y: u64,
// }

/// The dims of [`Relay`] that are known at start-up.
#[derive(Clone, Copy, Debug)]
pub struct RelayDims {
    /// `max_rows`.
    pub max_rows: usize,
}

/// A pool of two buffers, in two copies.
#[derive(Debug)]
pub struct Relay<D: ::scratchpool::Device = ::scratchpool::Host> {
    core: ::scratchpool::generated::PoolCore<D, relay::Plan, 2>,
}

impl Relay {
    /// The proved schedule.
    pub const SCHEDULE: &'static ::scratchpool::tables::ScheduleTable = &relay::SCHEDULE;

    /// What a pool of these dims reserves, before it is allocated.
    pub fn memory(dims: RelayDims) -> Result<::scratchpool::MemoryReport, ::scratchpool::Error> {
        use ::scratchpool::generated::Plan as _;
        Ok(relay::Plan::new(dims)?.memory().in_copies(2))
    }
}

impl<D: ::scratchpool::Device> Relay<D> {
    /// Allocates the arena.
    pub fn allocate(device: &D, dims: RelayDims) -> Result<Self, ::scratchpool::Error> {
        Self::allocate_with(device, dims, ::scratchpool::Backing::Arena)
    }

    /// Allocates with a choice of backing.
    pub fn allocate_with(
        device: &D,
        dims: RelayDims,
        backing: ::scratchpool::Backing,
    ) -> Result<Self, ::scratchpool::Error> {
        let plan = relay::Plan::new(dims)?;
        Ok(Self { core: ::scratchpool::generated::PoolCore::new(device, plan, backing)? })
    }

    /// The two copies, one for each micro-batch in flight.
    pub fn split(&mut self) -> [relay::Ubatch<'_, D>; 2] {
        self.core.split().map(|core| relay::Ubatch { core })
    }
}

/// The parts of [`Relay`].
pub mod relay {
    use ::scratchpool::generated::{
        LayerCore, PassCore, Place, Plan as PoolPlan, StepCore, UbatchCore,
    };
    use ::scratchpool::tables::{Launch, LayerKind, ScheduleTable, StepInLayer, StepRow, WaitRow};
    use ::scratchpool::{Device, Error, MemoryReport, View, ViewMut};

    /// The proved schedule.
    pub const SCHEDULE: ScheduleTable = ScheduleTable {
        streams: &["main", "side"],
        steps: &[
            StepRow { name: "produce", stream: 0, launch: Launch::Full, events: 1, writes: &[0], reads: &[] },
            StepRow { name: "consume", stream: 1, launch: Launch::Full, events: 0, writes: &[], reads: &[0] },
            StepRow { name: "reduce", stream: 1, launch: Launch::Full, events: 0, writes: &[1], reads: &[] },
            StepRow { name: "report", stream: 1, launch: Launch::Full, events: 1, writes: &[], reads: &[1] },
        ],
        layers: &[0, 0],
        kinds: &[LayerKind {
            steps: &[
                StepInLayer { runs: true, records: true, waits: &[WaitRow { step: 3, back: 0 }] },
                StepInLayer { runs: true, records: false, waits: &[WaitRow { step: 0, back: 0 }] },
                StepInLayer { runs: true, records: false, waits: &[] },
                StepInLayer { runs: true, records: true, waits: &[] },
            ],
            buffers: &[true, true],
        }],
    };

    /// The layout as a function of the dims, evaluated once.
    #[derive(Clone, Copy, Debug)]
    pub struct Plan {
        max_rows: usize,
        /// Offsets of the buffers.
        offsets: [usize; 2],
        memory: MemoryReport,
    }

    impl Plan {
        /// Evaluates the layout.
        pub(super) fn new(dims: super::RelayDims) -> Result<Self, Error> {
            let max_rows = dims.max_rows;
            if max_rows == 0 {
                return Err(::scratchpool::SizeError::Extent { buffer: "x.x" }.into());
            }
            let too_large = Error::TooLarge { bytes: u64::MAX, align: 256 };
            let sizes = (|| {
                let x = max_rows.checked_mul(4)?.checked_mul(4)?.checked_next_multiple_of(256)?;
                let y = max_rows.checked_mul(8)?.checked_next_multiple_of(256)?;
                Some((x as u64, y as u64))
            })();
            let (x, y) = sizes.ok_or(too_large)?;
            let memory = MemoryReport {
                pool: "Relay",
                copies: 1,
                bytes_per_copy: x.max(y),
                base_align: 256,
                sum_bytes: x.saturating_add(y),
            };
            Ok(Self { max_rows, offsets: [0, 0], memory })
        }
    }

    // SAFETY: emitted together with the schedule, the offsets and the views below, from one proved
    // plan.
    unsafe impl PoolPlan for Plan {
        const SCHEDULE: &'static ScheduleTable = &SCHEDULE;
        const BUFFERS: usize = 2;

        fn max_rows(&self) -> usize {
            self.max_rows
        }

        fn memory(&self) -> MemoryReport {
            self.memory
        }

        fn tensor_bytes(&self, buffer: usize, rows: usize) -> u64 {
            let rows = rows as u64;
            match buffer {
                0 => rows * 4 * 4,
                1 => rows * 8,
                _ => 0,
            }
        }
    }

    /// One copy of the pool.
    #[derive(Debug)]
    pub struct Ubatch<'p, D: Device> {
        pub(super) core: UbatchCore<'p, D, Plan>,
    }

    impl<D: Device> Ubatch<'_, D> {
        /// Begins a pass on this copy.
        pub fn begin(&mut self, max_rows: usize) -> Result<Pass<'_, D>, Error> {
            Ok(Pass { core: self.core.begin(max_rows)? })
        }
    }

    /// One pass over the layers.
    #[derive(Debug)]
    pub struct Pass<'u, D: Device> {
        core: PassCore<'u, D, Plan>,
    }

    impl<D: Device> Pass<'_, D> {
        /// Opens a layer.
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
        /// Step `produce`.
        pub fn produce(&mut self) -> Result<Produce<'_, D>, Error> {
            Ok(Produce { core: self.core.step_in_every_layer(0)? })
        }

        /// Step `consume`.
        pub fn consume(&mut self) -> Result<Consume<'_, D>, Error> {
            Ok(Consume { core: self.core.step_in_every_layer(1)? })
        }

        /// Step `reduce`.
        pub fn reduce(&mut self) -> Result<Reduce<'_, D>, Error> {
            Ok(Reduce { core: self.core.step_in_every_layer(2)? })
        }

        /// Step `report`.
        pub fn report(&mut self) -> Result<Report<'_, D>, Error> {
            Ok(Report { core: self.core.step_in_every_layer(3)? })
        }
    }

    /// Step `produce`, entered.
    #[derive(Debug)]
    pub struct Produce<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    /// What `produce` writes.
    #[derive(Debug)]
    pub struct ProduceBuffers<'s, D: Device> {
        /// `x`.
        pub x: ViewMut<'s, u32, D, 2>,
    }

    impl<'l, D: Device> Produce<'l, D> {
        /// The step's stream.
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }

        /// The step's views.
        #[allow(unsafe_code)]
        pub fn buffers(&mut self) -> ProduceBuffers<'_, D> {
            let rows = self.core.rows();
            let [x, _] = self.core.plan().offsets;
            // SAFETY: the buffer and its shape are the plan's; the step writes it; the guard is
            // borrowed exclusively while the views live, and each buffer is handed out once.
            unsafe { ProduceBuffers { x: self.core.view_mut(Place::new(0, x), [rows, 4]) } }
        }
    }

    /// Step `consume`, entered.
    #[derive(Debug)]
    pub struct Consume<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    /// What `consume` reads.
    #[derive(Debug)]
    pub struct ConsumeBuffers<'s, D: Device> {
        /// `x`.
        pub x: View<'s, u32, D, 2>,
    }

    impl<'l, D: Device> Consume<'l, D> {
        /// The step's stream.
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }

        /// The step's views.
        #[allow(unsafe_code)]
        pub fn buffers(&mut self) -> ConsumeBuffers<'_, D> {
            let rows = self.core.rows();
            let [x, _] = self.core.plan().offsets;
            // SAFETY: the buffer and its shape are the plan's; the step reads it.
            unsafe { ConsumeBuffers { x: self.core.view(Place::new(0, x), [rows, 4]) } }
        }
    }

    /// Step `reduce`, entered.
    #[derive(Debug)]
    pub struct Reduce<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    /// What `reduce` writes.
    #[derive(Debug)]
    pub struct ReduceBuffers<'s, D: Device> {
        /// `y`.
        pub y: ViewMut<'s, u64, D, 1>,
    }

    impl<'l, D: Device> Reduce<'l, D> {
        /// The step's stream.
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }

        /// The step's views.
        #[allow(unsafe_code)]
        pub fn buffers(&mut self) -> ReduceBuffers<'_, D> {
            let rows = self.core.rows();
            let [_, y] = self.core.plan().offsets;
            // SAFETY: the buffer and its shape are the plan's; the step writes it; the guard is
            // borrowed exclusively while the views live, and each buffer is handed out once.
            unsafe { ReduceBuffers { y: self.core.view_mut(Place::new(1, y), [rows]) } }
        }
    }

    /// Step `report`, entered.
    #[derive(Debug)]
    pub struct Report<'l, D: Device> {
        core: StepCore<'l, D, Plan>,
    }

    /// What `report` reads.
    #[derive(Debug)]
    pub struct ReportBuffers<'s, D: Device> {
        /// `y`.
        pub y: View<'s, u64, D, 1>,
    }

    impl<'l, D: Device> Report<'l, D> {
        /// The step's stream.
        pub fn stream(&self) -> &'l D::Stream {
            self.core.stream()
        }

        /// The step's views.
        #[allow(unsafe_code)]
        pub fn buffers(&mut self) -> ReportBuffers<'_, D> {
            let rows = self.core.rows();
            let [_, y] = self.core.plan().offsets;
            // SAFETY: the buffer and its shape are the plan's; the step reads it.
            unsafe { ReportBuffers { y: self.core.view(Place::new(1, y), [rows]) } }
        }
    }
}
