//! Live ranges and the three errors that a schedule can have by itself.
//!
//! A write in a layer where the buffer was not yet written starts a live range; the accesses up to
//! the next such write belong to it, also those in later layers and passes (a carried value). Per
//! buffer, ranges are therefore consecutive runs of its accesses in the order issued.

use crate::bits;
use crate::schedule::{Order, PASSES, Schedule};

/// One access of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveAccess {
    /// The node.
    pub node: usize,
    /// Whether it writes.
    pub write: bool,
}

/// The life of one value of a buffer. Never empty; the first access is a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRange {
    /// The accesses in the order issued.
    pub accesses: Vec<LiveAccess>,
    /// The pass of the first.
    pub pass: usize,
}

impl LiveRange {
    /// The first access.
    pub fn start(&self) -> usize {
        self.accesses.first().map_or(0, |access| access.node)
    }

    /// Whether every access of `self` happens before every access of `other`.
    pub fn all_before(&self, other: &Self, order: &Order) -> bool {
        other
            .accesses
            .iter()
            .all(|late| self.accesses.iter().all(|early| order.before(early.node, late.node)))
    }
}

/// The live ranges of all buffers.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// For each buffer, its ranges that start in the first two passes, in the order issued. Those
    /// are complete; see [`crate::schedule`].
    pub ranges: Vec<Vec<LiveRange>>,
    /// Reads of the first pass that nothing precedes: buffer and node.
    pub unwritten: Vec<(usize, usize)>,
}

impl Liveness {
    /// Finds the live ranges of a schedule.
    pub fn new(schedule: &Schedule<'_>) -> Self {
        let structure = schedule.structure;
        let buffers = structure.buffers.len();
        let mut ranges: Vec<Vec<LiveRange>> = vec![Vec::new(); buffers];
        let mut unwritten = Vec::new();
        // The pass and layer in which the latest range of each buffer started or was written again.
        let mut written_in: Vec<Option<(usize, usize)>> = vec![None; buffers];
        for (number, node) in schedule.nodes.iter().enumerate() {
            let Some(step) = structure.steps.get(node.step) else { continue };
            for access in &step.accesses {
                if !structure.active(step, access.buffer, node.layer) {
                    continue;
                }
                let (Some(own), Some(written)) =
                    (ranges.get_mut(access.buffer), written_in.get_mut(access.buffer))
                else {
                    continue;
                };
                let here = Some((node.pass, node.layer));
                let live = LiveAccess { node: number, write: access.write };
                if access.write && *written != here {
                    *written = here;
                    own.push(LiveRange { accesses: vec![live], pass: node.pass });
                } else if let Some(range) = own.last_mut() {
                    range.accesses.push(live);
                } else if node.pass == 0 {
                    unwritten.push((access.buffer, number));
                }
            }
        }
        for own in &mut ranges {
            own.retain(|range| range.pass + 1 < PASSES);
        }
        Self { ranges, unwritten }
    }

    /// Accesses of one range, one of them a write, that no order forbids to swap: buffer, the one
    /// issued first, the other.
    pub fn races(&self, order: &Order) -> Vec<(usize, usize, usize)> {
        let mut races = Vec::new();
        for (buffer, ranges) in self.ranges.iter().enumerate() {
            // Ranges of the second pass are those of the first, moved.
            for range in ranges.iter().filter(|range| range.pass == 0) {
                for (position, late) in range.accesses.iter().enumerate() {
                    for early in range.accesses.iter().take(position) {
                        if (early.write || late.write) && !order.before(early.node, late.node) {
                            races.push((buffer, early.node, late.node));
                        }
                    }
                }
            }
        }
        races
    }

    /// Accesses of two consecutive ranges that no order forbids to swap: buffer, the one of the
    /// former range, the one of the latter.
    pub fn reuses(&self, order: &Order) -> Vec<(usize, usize, usize)> {
        let mut reuses = Vec::new();
        for (buffer, ranges) in self.ranges.iter().enumerate() {
            for pair in ranges.windows(2) {
                let [former, latter] = pair else { continue };
                if former.pass > 0 {
                    continue;
                }
                for late in &latter.accesses {
                    for early in &former.accesses {
                        if !order.before(early.node, late.node) {
                            reuses.push((buffer, early.node, late.node));
                        }
                    }
                }
            }
        }
        reuses
    }

    /// Whether two buffers may be live at the same time, in any layers and passes.
    pub fn interfere(&self, order: &Order, a: usize, b: usize) -> bool {
        self.overlap(order, a, b) || self.overlap(order, b, a)
    }

    /// Whether some range of `late` starts after one of `early` started without coming after all
    /// of it. Order follows the order of issue, so of two ranges only the one that starts first can
    /// come before the other.
    fn overlap(&self, order: &Order, early: usize, late: usize) -> bool {
        let (Some(early), Some(late)) = (self.ranges.get(early), self.ranges.get(late)) else {
            return false;
        };
        let (mut started, mut common) = (Vec::new(), Vec::new());
        let mut next = early.iter().peekable();
        for range in late {
            common.clear();
            for access in &range.accesses {
                let history = order.history(access.node);
                if common.is_empty() {
                    common.extend_from_slice(history);
                } else {
                    bits::intersect(&mut common, history);
                }
            }
            started.resize(common.len(), 0);
            while let Some(each) = next.next_if(|each| each.start() <= range.start()) {
                for access in &each.accesses {
                    bits::set(&mut started, access.node);
                }
            }
            if !bits::subset(&started, &common) {
                return true;
            }
        }
        false
    }
}
