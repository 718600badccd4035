//! A second, slow and literal implementation of the pool spec's meaning.
//!
//! It shares no code with the planner, and is written for being read beside the specification's page: the schedule is
//! unrolled, happens-before is a set of nodes for each node, live ranges are lists of accesses, and every rule is a
//! loop over all of them. It serves to judge what the command says of a spec.
//!
//! # How many passes are enough
//!
//! Passes go on for ever, and the oracle unrolls a few. Three facts bound the error of that.
//!
//! 1. *Happens-before does not depend on where the unrolling starts.* Whether node `m` comes before node `n` is
//!    decided by the nodes issued from `m` to `n`: every rule that puts `m` before `n` names a node issued between
//!    them. So a verdict on two nodes in passes `p` and `q` is the verdict on the same two in passes 0 and `q - p`.
//! 2. *What comes before a node only grows along its stream.* Each way to launch keeps all that the node just before
//!    came after. So if `m` comes before some node, it comes before each node issued later on that node's stream, and
//!    ranges that are ordered at some distance in passes are ordered at each greater one.
//! 3. *A live range that starts in pass `p` ends in pass `p + 1`*, because its first write happens again there: whether
//!    a write starts a live range is decided by what its layer did before it, so the same write starts one in each
//!    pass. A use ends where it starts.
//!
//! Let X start in pass `p` and Y in pass `p + k`. If `k >= 1`, Y's first write is issued after X's, so only "X before
//! Y" can hold, and by fact 2 it fails for `k = 1` when it fails for any greater `k`. So it is enough to look at ranges
//! that start in passes 0 and 1, and by fact 3 these are complete once passes 0, 1 and 2 are unrolled: **three passes
//! are enough**. [`PASSES`] is four. The ranges of the last pass may be cut off, which leaves accesses out of them;
//! fewer accesses make "all before all" easier to satisfy, so a cut range never accuses anybody, and what it hides has
//! been seen one pass earlier. Pass 0 lacks nothing but the values carried from a pass before it, and reading one of
//! those is the error `read_before_write`. A test compares four passes with seven.
//!
//! Two kinds of live range never end, and facts 1 and 2 bound what they need. *Memory that is kept*: whether its
//! accesses race is decided by pairs at most a pass apart, for what is ordered at one distance is ordered at each
//! greater one; and any buffer with an access of its own in pass 1 has accesses of the kept one before and after it,
//! so the two interfere. *A buffer that is updated and never written anew*: its first update is the error
//! `read_before_write`, and what else is found of it is found as for memory that is kept.

#![allow(dead_code, reason = "each test crate uses a part of the oracle")]

pub(crate) mod execute;
pub(crate) mod expr;
pub(crate) mod generate;
pub(crate) mod model;
pub(crate) mod order;
pub(crate) mod pack;
pub(crate) mod read;
pub(crate) mod rng;
pub(crate) mod shrink;
pub(crate) mod verdict;

/// Passes to unroll; see the module's documentation.
pub(crate) const PASSES: usize = 4;
