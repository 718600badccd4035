//! A second opinion at compile time: from the constants that the runtime will execute, rustc derives
//! the order, the live ranges and what must not share bytes, and checks the layout against it.
//!
//! Written from the definitions of the pool spec, not from the planner, and on the *issued* waits
//! rather than the declared ones: if this accepts, then what the runtime does is enough for where
//! the bytes lie. It runs in constant evaluation, so there is no allocation: `N` is the number of
//! nodes of three passes, `W` the words of a set of them.
//!
//! # What is checked
//!
//! Nodes are walked in the order of issue, over three passes (a live range ends at the latest in the
//! pass after its own; order does not depend on which pass is looked at). For each node a row of bits
//! says what comes before it:
//!
//! - on its stream: all earlier nodes (full), the one before and what that comes after (dependent),
//!   or only what that comes after (early);
//! - for each wait, what the event covers: its node, all nodes of that stream before it, and all that
//!   those come after. The event must have been recorded, and not recorded again since.
//!
//! Then, for every access of a buffer: the whole former live range of the buffer is before it; in its
//! own range every earlier write is before it, and if it writes every earlier access; and where another
//! buffer shares bytes with it, the other's present range started earlier and is before it as a whole.
//! (Ranges before the present one are before that by the first rule.)

use crate::tables::{Launch, LayoutTable, ScheduleTable, StepInLayer};

/// What the constants get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Tables of different lengths, or indices out of range.
    Tables,
    /// A wait for an event that was not recorded, or that was recorded again since.
    Event,
    /// A read of what nothing has written.
    Unwritten,
    /// Two accesses of one live range in no order.
    Race,
    /// A live range that starts before the former one of its buffer has ended.
    Reuse,
    /// Two buffers that are live together and share bytes.
    Shared,
}

impl Wrong {
    /// What is wrong, for a compile error.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Tables => "the pool's tables do not fit together",
            Self::Event => "a step waits for an event that is not recorded for it",
            Self::Unwritten => "a step reads a buffer that nothing has written",
            Self::Race => "two accesses of one live range are in no order",
            Self::Reuse => "a buffer is written again before its former value was last read",
            Self::Shared => "two buffers that can be live together share bytes",
        }
    }
}

/// Which buffers of a constant layout share bytes.
#[expect(clippy::indexing_slicing, reason = "both indices are below B and the length is checked")]
pub const fn sharing<const B: usize>(layout: &LayoutTable) -> [[bool; B]; B] {
    let mut shares = [[false; B]; B];
    if layout.buffers.len() != B {
        return shares;
    }
    let mut a = 0;
    while a < B {
        let mut b = 0;
        while b < B {
            let (first, second) = (&layout.buffers[a], &layout.buffers[b]);
            let apart = first.offset + first.bytes <= second.offset
                || second.offset + second.bytes <= first.offset;
            // Without bytes there is nothing to share.
            shares[a][b] = a != b && first.bytes > 0 && second.bytes > 0 && !apart;
            b += 1;
        }
        a += 1;
    }
    shares
}

/// Which buffers may share bytes at some dims: those of which neither lies below the other.
#[expect(
    clippy::indexing_slicing,
    reason = "both indices are below B and entries are compared first"
)]
pub const fn unplaced<const B: usize>(below: &[&[u16]; B]) -> [[bool; B]; B] {
    let mut shares = [[true; B]; B];
    let mut high = 0;
    while high < B {
        shares[high][high] = false;
        let mut entry = 0;
        while entry < below[high].len() {
            let low = below[high][entry] as usize;
            if low < B {
                shares[high][low] = false;
                shares[low][high] = false;
            }
            entry += 1;
        }
        high += 1;
    }
    shares
}

/// Checks a schedule against which buffers share bytes.
///
/// # Errors
/// The first thing that is wrong.
pub const fn check<const N: usize, const W: usize, const B: usize>(
    schedule: &ScheduleTable,
    shares: &[[bool; B]; B],
) -> Result<(), Wrong> {
    let mut walk = Walk::<N, W, B>::new();
    let mut pass = 0;
    while pass < 3 {
        let mut layer = 0;
        while layer < schedule.layers.len() {
            if let Err(wrong) = walk.layer(schedule, shares, layer) {
                return Err(wrong);
            }
            layer += 1;
        }
        pass += 1;
    }
    if walk.nodes == N { Ok(()) } else { Err(Wrong::Tables) }
}

/// Most steps and streams: what fits one word's worth of small arrays.
const MOST: usize = 256;

const NONE: usize = usize::MAX;

/// The state of a walk. `before[n]` is what node n comes after; `covered[n]` is what an event
/// recorded after it stands for.
struct Walk<const N: usize, const W: usize, const B: usize> {
    nodes: usize,
    before: [[u64; W]; N],
    covered: [[u64; W]; N],
    /// The latest node of each stream.
    on_stream: [usize; MOST],
    /// The latest two runs of each step, and whether their events were recorded.
    runs: [[usize; 2]; MOST],
    recorded: [[bool; 2]; MOST],
    /// Counts layers over all passes.
    layer: usize,
    ranges: [Range<W>; B],
}

/// The present live range of a buffer, and the one before.
#[derive(Clone, Copy)]
struct Range<const W: usize> {
    /// The first node; `NONE` before the first write.
    start: usize,
    /// The layer, counted over all passes, in which the range was started.
    layer: usize,
    accesses: [u64; W],
    writes: [u64; W],
    former: [u64; W],
}

#[expect(
    clippy::indexing_slicing,
    reason = "nodes are below N and words below W by the loops; steps, streams and buffers are \
              compared with their lengths where they are read from the tables"
)]
impl<const N: usize, const W: usize, const B: usize> Walk<N, W, B> {
    const fn new() -> Self {
        let range =
            Range { start: NONE, layer: NONE, accesses: [0; W], writes: [0; W], former: [0; W] };
        Self {
            nodes: 0,
            before: [[0; W]; N],
            covered: [[0; W]; N],
            on_stream: [NONE; MOST],
            runs: [[NONE; 2]; MOST],
            recorded: [[false; 2]; MOST],
            layer: 0,
            ranges: [range; B],
        }
    }

    const fn layer(
        &mut self,
        schedule: &ScheduleTable,
        shares: &[[bool; B]; B],
        layer: usize,
    ) -> Result<(), Wrong> {
        let kind = schedule.layers[layer] as usize;
        if kind >= schedule.kinds.len() {
            return Err(Wrong::Tables);
        }
        let kind = &schedule.kinds[kind];
        let fits = kind.steps.len() == schedule.steps.len()
            && kind.buffers.len() == B
            && schedule.steps.len() <= MOST
            && schedule.streams.len() <= MOST;
        if !fits {
            return Err(Wrong::Tables);
        }
        let mut step = 0;
        while step < kind.steps.len() {
            if kind.steps[step].runs {
                if let Err(wrong) = self.node(schedule, step, &kind.steps[step]) {
                    return Err(wrong);
                }
                let node = self.nodes - 1;
                let row = &schedule.steps[step];
                let mut entry = 0;
                while entry < row.writes.len() + row.reads.len() {
                    let write = entry < row.writes.len();
                    let buffer =
                        if write { row.writes[entry] } else { row.reads[entry - row.writes.len()] }
                            as usize;
                    if buffer >= B {
                        return Err(Wrong::Tables);
                    }
                    if kind.buffers[buffer]
                        && let Err(wrong) = self.access(shares, node, buffer, write)
                    {
                        return Err(wrong);
                    }
                    entry += 1;
                }
            }
            step += 1;
        }
        self.layer += 1;
        Ok(())
    }

    /// Adds a node: what comes before it, and what its event covers.
    const fn node(
        &mut self,
        schedule: &ScheduleTable,
        step: usize,
        here: &StepInLayer,
    ) -> Result<(), Wrong> {
        let node = self.nodes;
        let row = &schedule.steps[step];
        let stream = row.stream as usize;
        if node >= N || stream >= schedule.streams.len() {
            return Err(Wrong::Tables);
        }
        self.nodes += 1;
        let previous = self.on_stream[stream];
        self.on_stream[stream] = node;
        let mut before = [0; W];
        if previous != NONE {
            before = match row.launch {
                Launch::Full => self.covered[previous],
                Launch::Dependent | Launch::Early => self.before[previous],
            };
            if matches!(row.launch, Launch::Dependent) {
                insert(&mut before, previous);
            }
        }
        let mut wait = 0;
        while wait < here.waits.len() {
            let (awaited, back) = (here.waits[wait].step as usize, here.waits[wait].back as usize);
            if awaited >= schedule.steps.len() || back >= schedule.steps[awaited].events as usize {
                return Err(Wrong::Tables);
            }
            let source = self.runs[awaited][back];
            // In the first pass there may be no such run, and then there is no wait.
            if source != NONE {
                if !self.recorded[awaited][back] {
                    return Err(Wrong::Event);
                }
                add(&mut before, &self.covered[source]);
            }
            wait += 1;
        }
        self.before[node] = before;
        insert(&mut before, node);
        if previous != NONE {
            add(&mut before, &self.covered[previous]);
        }
        self.covered[node] = before;
        self.runs[step] = [node, self.runs[step][0]];
        self.recorded[step] = [here.records, self.recorded[step][0]];
        Ok(())
    }

    const fn access(
        &mut self,
        shares: &[[bool; B]; B],
        node: usize,
        buffer: usize,
        write: bool,
    ) -> Result<(), Wrong> {
        let before = &self.before[node];
        let range = &mut self.ranges[buffer];
        if write && range.layer != self.layer {
            range.former = range.accesses;
            range.accesses = [0; W];
            range.writes = [0; W];
            range.start = node;
            range.layer = self.layer;
        }
        if range.start == NONE {
            return Err(Wrong::Unwritten);
        }
        if !within(&range.former, before) {
            return Err(Wrong::Reuse);
        }
        if !within(if write { &range.accesses } else { &range.writes }, before) {
            return Err(Wrong::Race);
        }
        insert(&mut range.accesses, node);
        if write {
            insert(&mut range.writes, node);
        }
        let start = range.start;
        let mut other = 0;
        while other < B {
            if shares[buffer][other] {
                let other = &self.ranges[other];
                if other.start != NONE && (other.start >= start || !within(&other.accesses, before))
                {
                    return Err(Wrong::Shared);
                }
            }
            other += 1;
        }
        Ok(())
    }
}

#[expect(clippy::indexing_slicing, reason = "a node is below N, and W words hold N bits")]
const fn insert<const W: usize>(set: &mut [u64; W], node: usize) {
    set[node / 64] |= 1 << (node % 64);
}

#[expect(clippy::indexing_slicing, reason = "the loop stops at W")]
const fn add<const W: usize>(set: &mut [u64; W], more: &[u64; W]) {
    let mut word = 0;
    while word < W {
        set[word] |= more[word];
        word += 1;
    }
}

#[expect(clippy::indexing_slicing, reason = "the loop stops at W")]
const fn within<const W: usize>(set: &[u64; W], other: &[u64; W]) -> bool {
    let mut word = 0;
    while word < W {
        if set[word] & !other[word] != 0 {
            return false;
        }
        word += 1;
    }
    true
}
