//! What the sanitizer finds, in numbers and in words.

use core::fmt;

/// A use of a pool's memory that the declared schedule does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What was done.
    pub kind: ViolationKind,
    /// The buffer, as `group.buffer`.
    pub buffer: String,
    /// The step that did it, or, where that is not known, the last one that might have touched the
    /// buffer before.
    pub step: &'static str,
    /// The layer of that step.
    pub layer: usize,
    /// The stream of that step.
    pub stream: &'static str,
    /// The order that is missing, where one would have helped.
    pub missing: Option<MissingEdge>,
}

/// A kind of violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViolationKind {
    /// Bytes changed while no live range held them: a write through a pointer kept after its step.
    UseAfterStep,
    /// Bytes beyond the rows of the pass changed.
    RowOverrun {
        /// The first of them, from the buffer's start.
        byte: usize,
    },
    /// A buffer that the step only reads changed: a write through a read view's pointer.
    WriteThroughReadView,
    /// A view's memory was handed to another stream than its step's.
    WrongStream,
    /// Two accesses, one of them a write, that nothing orders.
    LostEdge,
}

/// Two accesses without an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingEdge {
    /// The step that should come first.
    pub from: &'static str,
    /// Its layer.
    pub from_layer: usize,
    /// Its stream.
    pub from_stream: &'static str,
    /// The step, or the stream, that should come after it.
    pub to: &'static str,
    /// Its layer.
    pub to_layer: usize,
    /// Its stream.
    pub to_stream: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, buffer, step, layer, stream, missing } = self;
        let at = format_args!("step `{step}` of layer {layer} on stream `{stream}`");
        match kind {
            ViolationKind::UseAfterStep => write!(
                f,
                "`{buffer}` was written after its live range had ended with {at}; a pointer was \
                 kept beyond its step"
            ),
            ViolationKind::RowOverrun { byte } => write!(
                f,
                "`{buffer}` was written at byte {byte}, beyond the rows of the pass, in {at}"
            ),
            ViolationKind::WriteThroughReadView => {
                write!(f, "`{buffer}` was written in {at}, which only reads it; declare the write")
            }
            ViolationKind::WrongStream => write!(
                f,
                "`{buffer}` of {at} was handed to another stream; use the step's, or declare a \
                 step on that one"
            ),
            ViolationKind::LostEdge => write!(f, "`{buffer}` is in use when {at} touches it"),
        }?;
        if let Some(edge) = missing {
            let MissingEdge { from, from_layer, from_stream, to, to_layer, to_stream } = edge;
            write!(
                f,
                "; no edge leads from `{from}` (layer {from_layer}, stream `{from_stream}`) to \
                 `{to}` (layer {to_layer}, stream `{to_stream}`)"
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}
