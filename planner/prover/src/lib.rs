//! The prover, proved: every order of execution of small schedules, against the planner's word.
//!
//! The planner says that no order which streams and events allow corrupts a pool that it accepts, and
//! that whatever it refuses would. This crate finds out by trying. It shares no code with the planner:
//! [`machine`] is a small GPU of streams, events and launch kinds, and knows no happens-before; [`program`]
//! unrolls a declared schedule for it, word by word from the spec format's "Nodes", "Edges" and "Live
//! ranges"; [`memory`] executes tagged writes and reads on the bytes of a layout; [`judge`] holds the
//! planner's answer beside what was found.
//!
//! ```text
//!  declared ──> program ──> machine ──> every reachable state ──┐
//!     │            ^                                            ├──> memory: the first corruption, with its order
//!     │            └── issue: the runtime's own log             │
//!     └──> planner: accepted with a layout, or refused ─────────┴──> judge: agree, or a disagreement
//! ```
//!
//! # How steps execute
//!
//! A step may start once its **gate** is open, may run for as long as it likes, and ends. The gate of a
//! `full` launch is open when every node issued earlier on its stream has ended; of a `dependent` one,
//! when the node issued just before it has ended; of an `early` one, when the gate of the node just
//! before it is open. Each wait adds: the event's node and all nodes issued before it on its stream have
//! ended. Nothing else is asked, so *after all which that node comes after* is not computed, but
//! happens: a node that has ended found its own gate open before.
//!
//! **Intervals, or points?** A reader that runs long overlaps with a writer, so accesses are intervals.
//! Two intervals can overlap exactly if both nodes can be running at once, that is, if in some reachable
//! state (a set of ended nodes) both gates are open. The machine therefore looks at every reachable
//! state and at all nodes that could be running there, and needs no separate starts. In that state
//! either of the two may also end first, so a pair that can overlap can also run in both orders, and a
//! reader that overlaps with a writer gives an order of whole steps in which it reads the wrong value.
//! Hence an order of execution is written down as an order of whole steps, and only a pair of writes
//! needs the overlap itself, because it counts as corruption though nobody may read what they left.
//! (A test enumerates starts and ends separately on small programs and finds the same pairs.)
//!
//! **What is corruption?** Bytes carry the tag of who wrote them: buffer, live range, and how many of
//! the range's writes had been made. A read, and a write that joins a live range, must find on each of
//! its bytes the tag that was left by the latest write of its live range issued before it. (A joining
//! write counts as a reader because it may add to what the range holds: the spec calls it an access of
//! the same value.) Two writes to the same bytes that can run at once are corruption, read or not, and so
//! is one node that touches two overlapping buffers and writes one of them.
//!
//! # Reduction
//!
//! States are sets of ended nodes; two orders that ended the same nodes are in the same state, so what
//! can run next is examined once a set. Memory needs no place in the state: as long as no two
//! conflicting accesses could run at once, all orders that ended the same nodes executed the conflicting
//! accesses in the same sequence, so the bytes are the same too; and when two could, that is the
//! corruption looked for. So a layout is corrupt in some order if and only if in some reachable state two
//! running nodes conflict on its bytes, or the order of issue itself reads a wrong tag. The states depend
//! on the schedule alone and serve all layouts. ([`machine::every_order`] does without any of this; a test
//! compares the two.) The number of orders is counted along the way: the orders that lead to a set are
//! those that lead to the sets one node smaller.
//!
//! # How many passes and layers
//!
//! All layers are executed, and [`PASSES`] passes. Whatever is found is real, for the orders of a prefix
//! extend to orders of the whole. That nothing is missed: a live range ends at the latest in the pass
//! after the one it starts in, because its buffer is written again there, so ranges that start in the
//! first two passes are complete in three. Moving a pair of nodes by one pass changes nothing but what
//! the very first pass lacks, and a gate only asks for more as one goes along a stream: what must have
//! ended before a step runs must have ended before the same step runs a pass later. So if two steps can
//! run at once `k` passes apart, they can one pass apart, and if an intruder's write can fall into a live
//! range, that of the next pass can. A test compares three passes with five.

#![expect(
    clippy::indexing_slicing,
    reason = "numbers of nodes, buffers and steps are made here and index the tables they count; an instrument of tests \
              may fail by panicking"
)]

pub mod declared;
pub mod family;
pub mod issue;
pub mod judge;
pub mod machine;
pub mod memory;
pub mod program;
pub mod random;
pub mod rng;
pub mod waits;

/// Passes that are executed; see above.
pub const PASSES: usize = 3;
