//! What streams are known to be ordered after, so that a record or a wait that would change nothing
//! is not issued.
//!
//! A pass in which steps launch nothing has nothing to order: an event that would stand for what it
//! stands for already is not recorded again, and a stream that comes after all that an event stands
//! for does not wait for it. What is known are numbers: each stream counts what it was given, and
//! keeps, for each other stream, up to which count it comes after it.
//!
//! ```text
//!               main  aux0                                       main  aux0
//!  main           7     4     aux0 was waited for at 4     fork    7     4    stands for main's 7
//!  aux0           6     5     aux0 comes after main's 6
//!
//!  aux0 waits for fork   6 < 7: issued, and aux0's row becomes 7 5
//!  fork recorded again   main's row is what fork stands for: nothing to do
//! ```
//!
//! Invariants, for streams `s` and `t` and an event `e`:
//!
//! - whatever `s` is given from now on comes after what `t` was given up to `after[s][t]`; where `t` is
//!   `s` itself that holds of full steps only;
//! - `after[s][s]` grows with whatever `s` is given but the waits of this table;
//! - `e` stands for just what `stands[e]` says.
//!
//! Where a device cannot tell what a stream was given ([`Device::issued`]), it counts as given something
//! whenever the table looks: then each record on it and each wait for it is issued.
//!
//! [`Device::issued`]: crate::Device::issued

use crate::tables::ScheduleTable;

/// The table of one copy of a pool.
#[derive(Debug)]
pub(crate) struct Known {
    streams: usize,
    /// What the device said last of each stream.
    seen: Box<[Option<u64>]>,
    /// By stream, a row of what it comes after.
    after: Box<[u64]>,
    /// By event, a row of what it stands for.
    stands: Box<[u64]>,
}

impl Known {
    /// Nothing was given, nothing recorded. A step has two events.
    pub(crate) fn new(schedule: &ScheduleTable) -> Self {
        let streams = schedule.streams.len();
        let events = 2 * schedule.steps.len();
        Self {
            streams,
            seen: (0..streams).map(|_| None).collect(),
            after: (0..streams * streams).map(|_| 0).collect(),
            stands: (0..events * streams).map(|_| 0).collect(),
        }
    }

    /// Whether recording `event` on `stream` would change what it stands for. `issued` is what the device
    /// says of the stream.
    #[inline]
    pub(crate) fn changes(&mut self, stream: usize, event: usize, issued: Option<u64>) -> bool {
        self.look(stream, issued);
        let stands = row(&mut self.stands, self.streams, event);
        let after = row(&mut self.after, self.streams, stream);
        stands.is_none() || stands != after
    }

    /// `event` was recorded on `stream`.
    #[inline]
    pub(crate) fn recorded(&mut self, stream: usize, event: usize) {
        let stands = row(&mut self.stands, self.streams, event);
        let after = row(&mut self.after, self.streams, stream);
        if let (Some(stands), Some(after)) = (stands, after) {
            stands.copy_from_slice(after);
        }
    }

    /// Whether `stream` comes after all that `event` stands for.
    #[inline]
    pub(crate) fn covers(&mut self, stream: usize, event: usize) -> bool {
        let stands = row(&mut self.stands, self.streams, event);
        let after = row(&mut self.after, self.streams, stream);
        let (Some(stands), Some(after)) = (stands, after) else { return false };
        stands.iter().zip(after).all(|(stands, after)| *stands <= *after)
    }

    /// Takes note of what `stream` was given; `issued` is what the device says. To be called before
    /// each wait, which is not to be counted.
    #[inline]
    pub(crate) fn look(&mut self, stream: usize, issued: Option<u64>) {
        let Some(seen) = self.seen.get_mut(stream) else { return };
        if issued.is_some() && *seen == issued {
            return;
        }
        *seen = issued;
        if let Some(own) = self.after.get_mut(stream * (self.streams + 1)) {
            *own += 1;
        }
    }

    /// `stream` has waited for `event`. `issued` is what the device says afterwards.
    #[inline]
    pub(crate) fn waited(&mut self, stream: usize, event: usize, issued: Option<u64>) {
        let stands = row(&mut self.stands, self.streams, event);
        let after = row(&mut self.after, self.streams, stream);
        if let (Some(stands), Some(after)) = (stands, after) {
            for (after, stands) in after.iter_mut().zip(stands) {
                *after = (*after).max(*stands);
            }
        }
        if let Some(seen) = self.seen.get_mut(stream) {
            *seen = issued;
        }
    }
}

#[inline]
fn row(table: &mut [u64], streams: usize, at: usize) -> Option<&mut [u64]> {
    table.get_mut(at * streams..(at + 1) * streams)
}
