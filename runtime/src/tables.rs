//! The constant schedule and layout of a pool, as the macro emits them.

pub use scratchpool_tables::{
    BufferRow, DType, Launch, LayerKind, LayoutTable, ScheduleTable, StepInLayer, StepRow, WaitRow,
};
