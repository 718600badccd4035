//! Small schedules for the untyped cores: two buffers, `x` of u32 and `y` of u32, in 64 bytes each.

use scratchpool::MemoryReport;
use scratchpool::generated::{Described, Place, Plan};
use scratchpool::tables::ScheduleTable;

/// `x` alone.
pub const X: Place = Place::new(0, 0);
/// `y`, on the bytes of `x`.
pub const Y: Place = Place::new(1, 0);

/// A schedule of the toy pool.
pub trait Toy: 'static {
    const TABLE: &'static ScheduleTable;
}

/// The toy pool under a schedule: at most 16 rows.
pub struct Toys<T>(pub std::marker::PhantomData<T>);

impl<T> Default for Toys<T> {
    fn default() -> Self {
        Self(std::marker::PhantomData)
    }
}

// SAFETY: both buffers are 4 bytes a row at offset 0 of 64 bytes. Some schedules are wrong on
// purpose: the tests run them in an arena on devices that run one kernel at a time or none.
unsafe impl<T: Toy> Plan for Toys<T> {
    const SCHEDULE: &'static ScheduleTable = T::TABLE;
    const BUFFERS: usize = 2;

    fn max_rows(&self) -> usize {
        16
    }

    fn memory(&self) -> MemoryReport {
        MemoryReport { pool: "Toy", copies: 1, bytes_per_copy: 64, base_align: 64, sum_bytes: 128 }
    }

    fn tensor_bytes(&self, _: usize, rows: usize) -> u64 {
        4 * rows as u64
    }

    fn describe(&self, buffer: usize) -> Option<Described> {
        Some(Described { name: ["x", "y"].get(buffer)?, offset: 0 })
    }
}

/// Declares schedules of the toy pool:
/// `Name: [streams] [layers] { step stream launch events [writes] [reads] } [{ runs records [waits] }…]…`
#[macro_export]
macro_rules! toy {
    ($name:ident: $streams:tt $layers:tt
     { $($step:ident $stream:literal $launch:ident $events:literal $writes:tt $reads:tt;)* }
     $({ $($runs:literal $records:literal [$($wait:literal / $back:literal)*];)* })*) => {
        struct $name;
        impl $crate::common::toy::Toy for $name {
            const TABLE: &'static scratchpool::tables::ScheduleTable = &{
                use scratchpool::tables::*;
                ScheduleTable {
                    streams: &$streams,
                    layers: &$layers,
                    steps: &[$(StepRow {
                        name: stringify!($step),
                        stream: $stream,
                        launch: Launch::$launch,
                        events: $events,
                        writes: &$writes,
                        reads: &$reads,
                    },)*],
                    kinds: &[$(LayerKind {
                        steps: &[$(StepInLayer {
                            runs: $runs,
                            records: $records,
                            waits: &[$(WaitRow { step: $wait, back: $back },)*],
                        },)*],
                        buffers: &[true, true],
                    },)*],
                }
            };
        }
    };
}
