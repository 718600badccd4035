//! The constant schedule and layout of a pool, as the macro emits them.

pub use scratchpool_planner::spec::{DType, Launch};
pub use scratchpool_planner::tables::{
    BufferRow, LayerKind, LayoutTable, ScheduleTable, StepInLayer, StepRow, WaitRow,
};
