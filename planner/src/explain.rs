//! Why two buffers may share bytes, and why not: paths and counterexamples, in words.
//!
//! Nothing here decides anything; [`crate::live`] does. This room finds the shortest argument for a
//! decision made there. A proof is a path of edges from the last accesses of one live range to the
//! first accesses of the other. A counterexample is an order of execution, three accesses long,
//! that the schedule allows and that destroys a value, with what the intruding step does come after.

use crate::error::{AccessAt, Cause, Conflict, Unwritten};
use crate::live::{LiveRange, Liveness};
use crate::schedule::{Edge, EdgeKind, Order, Schedule, path};
use crate::spec::Spec;
use crate::structure::{Step, Structure};

/// Everything known about a schedule.
pub(crate) struct Facts<'f> {
    pub(crate) structure: &'f Structure,
    pub(crate) schedule: &'f Schedule<'f>,
    pub(crate) order: &'f Order,
    pub(crate) live: &'f Liveness,
}

/// Why two buffers may share bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// One of the two is never accessed.
    NeverAccessed {
        /// That one.
        buffer: String,
    },
    /// Every live range of the one and every live range of the other are ordered.
    HappensBefore {
        /// One path for each distinct way in which one range follows the other.
        paths: Vec<ProofPath>,
    },
}

/// A path from the last access of one live range to the first of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofPath {
    /// The buffer whose range ends.
    pub before: String,
    /// The buffer whose range starts.
    pub after: String,
    /// The last access.
    pub from: AccessAt,
    /// The first access.
    pub to: AccessAt,
    /// The edges, as `step -> step (why)`.
    pub edges: Vec<String>,
    /// The layer of each node on the path, the first and the last included.
    pub through: Vec<usize>,
    /// All pairs of layers in which the same path, moved, holds.
    pub layers: Vec<(usize, usize)>,
}

/// The three accesses of a counterexample.
#[derive(Clone, Copy)]
struct Violation {
    /// Whether the range issued first is the one that loses its value.
    first_is_victim: bool,
    /// The victim's first access.
    start: usize,
    /// The intruder's write.
    intruder: usize,
    /// The victim's access that comes too late; `None` where both ranges are single writes.
    late: Option<usize>,
}

impl Facts<'_> {
    /// An access for a message, with passes counted from `base`.
    pub(crate) fn access(&self, node: usize, write: bool, base: usize) -> AccessAt {
        let at = self.schedule.nodes.get(node).copied();
        let step = at.and_then(|at| self.structure.steps.get(at.step));
        AccessAt {
            step: step.map(|step| step.name.clone()).unwrap_or_default(),
            span: step.map(|step| step.span).unwrap_or_default(),
            stream: self.stream_name(node),
            layer: at.map_or(0, |at| at.layer),
            pass: at.map_or(0, |at| at.pass.saturating_sub(base)),
            write,
        }
    }

    fn stream_name(&self, node: usize) -> String {
        self.structure.streams.get(self.schedule.stream(node)).cloned().unwrap_or_default()
    }

    fn step_name(&self, node: usize) -> &str {
        let at = self.schedule.nodes.get(node);
        at.and_then(|at| self.structure.steps.get(at.step)).map_or("", |step| &step.name)
    }

    fn layer(&self, node: usize) -> usize {
        self.schedule.nodes.get(node).map_or(0, |node| node.layer)
    }

    fn pass(&self, node: usize) -> usize {
        self.schedule.nodes.get(node).map_or(0, |node| node.pass)
    }

    pub(crate) fn buffer_name(&self, buffer: usize) -> &str {
        self.structure.buffers.get(buffer).map_or("", |buffer| &buffer.name)
    }

    /// What `node` comes after, in words: the latest node of each stream.
    fn frontier(&self, node: usize, base: usize) -> String {
        let mut latest: Vec<Option<usize>> = vec![None; self.structure.streams.len()];
        for each in 0..node {
            if self.order.before(each, node)
                && let Some(slot) = latest.get_mut(self.schedule.stream(each))
            {
                *slot = Some(each);
            }
        }
        let parts: Vec<String> = latest
            .into_iter()
            .flatten()
            .map(|node| self.access(node, false, base).place())
            .collect();
        match parts.as_slice() {
            [] => "it waits for nothing".into(),
            parts => format!("the latest it comes after: {}", parts.join(", ")),
        }
    }

    /// The steps of a counterexample, a line each, and why no order forbids it.
    fn trace(&self, violation: Violation, victim: &str, intruder: &str) -> Vec<String> {
        let Violation { start, intruder: write, late, .. } = violation;
        let base = [Some(start), Some(write), late]
            .into_iter()
            .flatten()
            .map(|node| self.pass(node))
            .min()
            .unwrap_or(0);
        let place = |node| self.access(node, false, base).place();
        let mut lines = Vec::new();
        let mut push = |text: String| lines.push(format!("{}. {text}", lines.len() + 1));
        let over = if victim == intruder { "again" } else { "into the same bytes" };
        push(format!("{} writes `{victim}`", place(start)));
        push(format!("{} writes `{intruder}` {over}", place(write)));
        let Some(late) = late else {
            lines.push(format!(
                "either may come first: nothing orders the two; for {} {}",
                place(write),
                self.frontier(write, base)
            ));
            return lines;
        };
        push(format!("{} accesses `{victim}`, whose value is gone", place(late)));
        // The order that is missing, in the direction of issue: the only one that events can give.
        let (waiter, source) = if write < start { (start, write) } else { (write, late) };
        lines.push(if self.order.before(write, late) && write > start {
            format!(
                "streams and events force this order: `{victim}` is live from {} to {}",
                place(start),
                place(late)
            )
        } else {
            format!(
                "nothing makes {} wait for {}; {}",
                place(waiter),
                place(source),
                self.frontier(waiter, base)
            )
        });
        lines
    }

    /// A way in which one of two ranges destroys the other if they share bytes.
    fn violation(&self, first: &LiveRange, second: &LiveRange) -> Option<Violation> {
        let mut best: Option<Violation> = None;
        let mut keep = |found: Violation| {
            // The nearest is the clearest; an unordered pair is clearer than a forced one.
            let key = |v: &Violation| {
                let late = v.late.unwrap_or(v.start);
                let forced = v.late.is_some_and(|late| self.order.before(v.intruder, late));
                (v.late.is_none(), forced, late.abs_diff(v.intruder))
            };
            if best.as_ref().is_none_or(|best| key(&found) < key(best)) {
                best = Some(found);
            }
        };
        for (victim, other, first_is_victim) in [(first, second, true), (second, first, false)] {
            let start = victim.start();
            for write in other.accesses.iter().filter(|access| access.write) {
                let intruder = write.node;
                if intruder == start || self.order.before(intruder, start) {
                    continue;
                }
                for late in victim.accesses.iter().skip(1) {
                    if late.node != intruder && !self.order.before(late.node, intruder) {
                        keep(Violation { first_is_victim, start, intruder, late: Some(late.node) });
                    }
                }
                if victim.accesses.len() == 1 && !self.order.before(start, intruder) {
                    keep(Violation { first_is_victim, start, intruder, late: None });
                }
            }
        }
        best
    }

    /// Why two interfering buffers must not share bytes. `None` if they may.
    pub(crate) fn counterexample(&self, a: usize, b: usize) -> Option<Conflict> {
        let (ranges_a, ranges_b) = (self.live.ranges.get(a)?, self.live.ranges.get(b)?);
        let mut merged: Vec<(usize, usize, &LiveRange)> = Vec::new();
        merged.extend(ranges_a.iter().map(|range| (range.start(), a, range)));
        merged.extend(ranges_b.iter().map(|range| (range.start(), b, range)));
        merged.sort_by_key(|(start, buffer, _)| (*start, *buffer));
        let mut best: Option<(usize, &LiveRange, &LiveRange, usize, usize)> = None;
        let mut layers: Vec<(usize, usize)> = Vec::new();
        for (position, (_, late_buffer, late)) in merged.iter().enumerate() {
            // For each range, the nearest earlier one of the other buffer that it collides with.
            let collides = merged.iter().take(position).rev().find(|(_, buffer, early)| {
                buffer != late_buffer && !early.all_before(late, self.order)
            });
            let Some((_, early_buffer, early)) = collides else { continue };
            layers.push((self.layer(early.start()), self.layer(late.start())));
            let key = late.start() - early.start();
            if best.is_none_or(|(least, ..)| key < least) {
                best = Some((key, early, late, *early_buffer, *late_buffer));
            }
        }
        let (_, early, late, early_buffer, late_buffer) = best?;
        layers.sort_unstable();
        layers.dedup();
        let (early_name, late_name) =
            (self.buffer_name(early_buffer), self.buffer_name(late_buffer));
        let base = self.pass(early.start());
        let names = [early_name.to_owned(), late_name.to_owned()].to_vec();
        let verb = |write| if write { "writes" } else { "reads" };
        let find = |range: &LiveRange, node| {
            range.accesses.iter().find(|access| access.node == node).copied()
        };
        // One step that touches both holds the two at once, and no event can change that.
        let both = late.accesses.iter().find_map(|b| Some((find(early, b.node)?, *b)));
        if let Some((a, b)) = both {
            let (first, second) =
                (self.access(a.node, a.write, base), self.access(b.node, b.write, base));
            let (place, a, b) = (first.place(), verb(a.write), verb(b.write));
            let trace = vec![
                format!("1. {place} {a} `{early_name}` and {b} `{late_name}`"),
                "what a step touches is live together while it runs".to_owned(),
            ];
            return Some(Conflict { buffers: names, first, second, layers, trace, fix: None });
        }
        let Some(violation) = self.violation(early, late) else {
            // No write can destroy a value that is still wanted, but a read is in no order: it may
            // come before its own value is written, when the bytes are still the other buffer's.
            let loose = late.accesses.iter().find_map(|b| {
                let mut others = early.accesses.iter();
                Some((*others.find(|a| !self.order.before(a.node, b.node))?, *b))
            });
            let (a, b) = loose?;
            let (first, second) =
                (self.access(a.node, a.write, base), self.access(b.node, b.write, base));
            let trace = vec![
                format!("1. {} {} `{late_name}`", second.place(), verb(b.write)),
                format!("2. {} {} `{early_name}`", first.place(), verb(a.write)),
                format!(
                    "nothing makes {} wait for {}; {}",
                    second.place(),
                    first.place(),
                    self.frontier(b.node, base)
                ),
            ];
            return Some(Conflict { buffers: names, first, second, layers, trace, fix: None });
        };
        let (victim, intruder) = if violation.first_is_victim {
            (early_name, late_name)
        } else {
            (late_name, early_name)
        };
        let victim_range = if violation.first_is_victim { early } else { late };
        let last = violation.late.unwrap_or(violation.start);
        let wrote = |node: usize| victim_range.accesses.iter().any(|a| a.node == node && a.write);
        let trace = self.trace(violation, victim, intruder);
        let intrusion = self.access(violation.intruder, true, base);
        let (buffers, first, second) = if violation.intruder < violation.start {
            ([intruder, victim], intrusion, self.access(violation.start, true, base))
        } else {
            ([victim, intruder], self.access(last, wrote(last), base), intrusion)
        };
        let buffers = buffers.map(str::to_owned).to_vec();
        Some(Conflict { buffers, first, second, layers, trace, fix: None })
    }

    /// The conflict of two accesses of one buffer (a race or a reuse), the first issued first.
    pub(crate) fn conflict(&self, buffer: usize, first: usize, second: usize) -> Conflict {
        let name = self.buffer_name(buffer);
        let base = self.pass(first);
        let writes = |node: usize| {
            let ranges = self.live.ranges.get(buffer);
            ranges.is_some_and(|ranges| {
                let mut accesses = ranges.iter().flat_map(|range| &range.accesses);
                accesses.any(|access| access.node == node && access.write)
            })
        };
        let (at_first, at_second) =
            (self.access(first, writes(first), base), self.access(second, writes(second), base));
        let verb = |access: &AccessAt| if access.write { "writes" } else { "reads" };
        let trace = vec![
            format!("1. {} {} `{name}`", at_second.place(), verb(&at_second)),
            format!("2. {} {} `{name}`, too late", at_first.place(), verb(&at_first)),
            format!(
                "{} is issued after {}, but nothing makes it wait for that; {}",
                at_second.place(),
                at_first.place(),
                self.frontier(second, base)
            ),
        ];
        Conflict {
            buffers: vec![name.to_owned()],
            layers: vec![(at_first.layer, at_second.layer)],
            first: at_first,
            second: at_second,
            trace,
            fix: None,
        }
    }

    /// Why nothing has written the buffers of these reads (buffer and node, in the order issued).
    pub(crate) fn unwritten(&self, spec: &Spec, reads: &[(usize, usize)]) -> Vec<Unwritten> {
        let mut causes: Vec<(Cause, Vec<usize>)> = Vec::new();
        let mut buffers: Vec<usize> = reads.iter().map(|(buffer, _)| *buffer).collect();
        buffers.sort_unstable();
        buffers.dedup();
        for buffer in buffers {
            let layers = reads.iter().filter(|(each, _)| *each == buffer);
            let layers: Vec<usize> = layers.map(|(_, node)| self.layer(*node)).collect();
            let cause = self.cause(spec, buffer, &layers);
            match causes.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, buffers)) => buffers.push(buffer),
                None => causes.push((cause, vec![buffer])),
            }
        }
        let named = |buffers: Vec<usize>| {
            buffers.into_iter().map(|buffer| self.buffer_name(buffer).to_owned()).collect()
        };
        causes
            .into_iter()
            .map(|(cause, buffers)| Unwritten { buffers: named(buffers), cause })
            .collect()
    }

    /// Why nothing has written `buffer` when it is read in the first of `layers`, and in the rest.
    fn cause(&self, spec: &Spec, buffer: usize, layers: &[usize]) -> Cause {
        let writers = || {
            self.structure.steps.iter().zip(&spec.steps).filter(|(step, _)| {
                step.accesses.iter().any(|access| access.buffer == buffer && access.write)
            })
        };
        let runs = |step: &Step, layer: usize| step.runs.get(layer) == Some(&true);
        let layer = layers.first().copied().unwrap_or(0);
        // The buffer exists in the layer, so a writer that runs there would have written it.
        if let Some((later, _)) = writers().find(|(step, _)| runs(step, layer)) {
            return Cause::ListedLater { writer: later.name.clone(), layer };
        }
        // One that runs somewhere is nearer to what was meant than one that never does.
        let Some((writer, declared)) =
            writers().find(|(step, _)| step.runs.contains(&true)).or_else(|| writers().next())
        else {
            return Cause::NoWriter;
        };
        let never = !writer.runs.contains(&true);
        let absent = layers.iter().copied().filter(|layer| !never && !runs(writer, *layer));
        Cause::NotRun {
            writer: writer.name.clone(),
            when: declared.when.as_ref().map(ToString::to_string).unwrap_or_default(),
            layers: absent.collect(),
        }
    }

    /// Why two buffers that do not interfere may share bytes.
    pub(crate) fn proof(&self, a: usize, b: usize) -> Proof {
        let empty = Vec::new();
        let ranges = |buffer: usize| self.live.ranges.get(buffer).unwrap_or(&empty);
        for buffer in [a, b] {
            if ranges(buffer).is_empty() {
                return Proof::NeverAccessed { buffer: self.buffer_name(buffer).to_owned() };
            }
        }
        let mut merged: Vec<(usize, &LiveRange)> = Vec::new();
        merged.extend(ranges(a).iter().map(|range| (a, range)));
        merged.extend(ranges(b).iter().map(|range| (b, range)));
        merged.sort_by_key(|(_, range)| range.start());
        let mut paths: Vec<ProofPath> = Vec::new();
        // Each buffer's own ranges are in order, so it is enough that neighbours are.
        for pair in merged.windows(2) {
            let [(before, early), (after, late)] = pair else { continue };
            if before == after || early.pass > 0 {
                continue;
            }
            for path in self.paths(early, late) {
                let found = self.proof_path(*before, *after, &path);
                let same = |each: &&mut ProofPath| {
                    (&each.before, &each.edges) == (&found.before, &found.edges)
                        && each.from.write == found.from.write
                        && each.to.pass == found.to.pass
                };
                match paths.iter_mut().find(same) {
                    Some(known) => known.layers.extend(found.layers),
                    None => paths.push(found),
                }
            }
        }
        Proof::HappensBefore { paths }
    }

    /// Shortest paths from each last access of `early` to each first access of `late`.
    fn paths(&self, early: &LiveRange, late: &LiveRange) -> Vec<Vec<Edge>> {
        let last = early.accesses.iter().filter(|access| {
            !early.accesses.iter().any(|other| self.order.before(access.node, other.node))
        });
        let first: Vec<usize> = late
            .accesses
            .iter()
            .filter(|access| {
                !late.accesses.iter().any(|other| self.order.before(other.node, access.node))
            })
            .map(|access| access.node)
            .collect();
        last.flat_map(|from| first.iter().map(move |to| (from.node, *to)))
            .filter_map(|(from, to)| path(self.schedule, self.order, from, to))
            .collect()
    }

    fn proof_path(&self, before: usize, after: usize, edges: &[Edge]) -> ProofPath {
        let from = edges.first().map_or(0, |edge| edge.from);
        let to = edges.last().map_or(0, |edge| edge.to);
        let base = self.pass(from);
        let writes = |buffer: usize, node: usize| {
            self.live.ranges.get(buffer).is_some_and(|ranges| {
                let mut accesses = ranges.iter().flat_map(|range| &range.accesses);
                accesses.any(|access| access.node == node && access.write)
            })
        };
        let mut through = vec![self.layer(from)];
        through.extend(edges.iter().map(|edge| self.layer(edge.to)));
        ProofPath {
            before: self.buffer_name(before).to_owned(),
            after: self.buffer_name(after).to_owned(),
            from: self.access(from, writes(before, from), base),
            to: self.access(to, writes(after, to), base),
            edges: edges.iter().map(|edge| self.edge_text(edge)).collect(),
            through,
            layers: vec![(self.layer(from), self.layer(to))],
        }
    }

    fn edge_text(&self, edge: &Edge) -> String {
        let (from, to) = (self.step_name(edge.from), self.step_name(edge.to));
        match edge.by {
            EdgeKind::Stream => format!("{from} -> {to} ({})", self.stream_name(edge.to)),
            EdgeKind::Event => format!("{from} -> {to} (event)"),
        }
    }
}
