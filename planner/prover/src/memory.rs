//! Bytes that remember who wrote them, and the first access that finds the wrong ones.

use std::fmt::Write as _;
use std::ops::Range;

use super::declared::Declared;
use super::machine::{Reach, lead_up};
use super::program::{Access, Program};

/// Where each buffer lies, in bytes; empty for one without bytes.
pub type Layout = Vec<Range<u64>>;

/// A way in which an execution goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// What goes wrong.
    pub what: What,
    /// An order of execution that shows it: whole steps, up to the one that finds it.
    pub order: Vec<usize>,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Two accesses of the same bytes, one of them a write, can happen at once. Each is a node and a buffer.
    AtOnce((usize, usize), (usize, usize)),
    /// An access finds what its live range did not write.
    Lost {
        /// The node.
        node: usize,
        /// The buffer.
        buffer: usize,
        /// The node that wrote what it finds.
        found: Option<usize>,
    },
}

/// What the bytes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    buffer: usize,
    range: usize,
    writes: usize,
    writer: usize,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The arena, cut where a buffer starts or ends.
struct Arena {
    /// For each buffer, its cells.
    cells: Vec<Range<usize>>,
    tags: Vec<Option<Tag>>,
}

impl Arena {
    fn new(layout: &Layout) -> Self {
        let mut cuts: Vec<u64> = layout.iter().flat_map(|range| [range.start, range.end]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let at = |place: u64| cuts.partition_point(|cut| *cut < place);
        let cells = layout.iter().map(|range| at(range.start)..at(range.end)).collect();
        Self { cells, tags: vec![None; cuts.len()] }
    }

    /// Executes one node; the first access that finds the wrong bytes, and who wrote them.
    fn execute(&mut self, program: &Program, node: usize) -> Result<(), What> {
        for access in &program.nodes[node].accesses {
            let cells = &self.tags[self.cells[access.buffer].clone()];
            if access.starts() {
                continue;
            }
            let expected = |tag: &Tag| {
                (tag.buffer, Some(tag.range), tag.writes)
                    == (access.buffer, access.range, access.writes_before)
            };
            let wrong = cells.iter().find(|cell| !cell.as_ref().is_some_and(expected));
            let wrong = wrong.copied().or_else(|| access.range.is_none().then_some(None));
            if let Some(found) = wrong {
                let found = found.map(|tag| tag.writer);
                return Err(What::Lost { node, buffer: access.buffer, found });
            }
        }
        for access in program.nodes[node].accesses.iter().filter(|access| access.write) {
            let (buffer, writes) = (access.buffer, access.writes_before + 1);
            let tag = access.range.map(|range| Tag { buffer, range, writes, writer: node });
            self.tags[self.cells[access.buffer].clone()].fill(tag);
        }
        Ok(())
    }
}

/// Executes one order on the bytes of a layout, until an access finds the wrong ones.
pub fn run(program: &Program, layout: &Layout, order: &[usize]) -> Option<Corruption> {
    let mut arena = Arena::new(layout);
    for (position, &node) in order.iter().enumerate() {
        if let Err(what) = arena.execute(program, node) {
            return Some(Corruption { what, order: order[..=position].to_vec() });
        }
    }
    None
}

/// The buffers of two accesses that conflict on the bytes of a layout.
fn conflict(program: &Program, layout: &Layout, a: usize, b: usize) -> Option<(usize, usize)> {
    for x in &program.nodes[a].accesses {
        for y in &program.nodes[b].accesses {
            let apart = a == b && x.buffer >= y.buffer;
            if !apart && (x.write || y.write) && overlap(&layout[x.buffer], &layout[y.buffer]) {
                return Some((x.buffer, y.buffer));
            }
        }
    }
    None
}

/// The first corruption that some order of execution shows on a layout.
pub fn corruption(program: &Program, reach: &Reach, layout: &Layout) -> Option<Corruption> {
    let all: Vec<usize> = (0..program.nodes.len()).collect();
    for (b, node) in program.nodes.iter().enumerate() {
        if node.accesses.is_empty() {
            continue;
        }
        for a in 0..=b {
            if (a == b || reach.together(a, b))
                && let Some((x, y)) = conflict(program, layout, a, b)
            {
                return Some(at_once(program, layout, (a, x), (b, y)));
            }
        }
    }
    run(program, layout, &all)
}

/// The order that shows a pair which can happen at once: one in which something reads the wrong bytes, if there is.
fn at_once(
    program: &Program,
    layout: &Layout,
    first: (usize, usize),
    second: (usize, usize),
) -> Corruption {
    let lead = lead_up(program, first.0, second.0).unwrap_or_default();
    let with = |pair: [usize; 2]| lead.iter().copied().chain(pair).collect::<Vec<usize>>();
    let mut order = with([second.0, first.0]);
    if first.0 == second.0 {
        order.pop();
        return Corruption { what: What::AtOnce(first, second), order };
    }
    let swapped = run(program, layout, &order);
    let found = swapped.or_else(|| run(program, layout, &with([first.0, second.0])));
    found.unwrap_or(Corruption { what: What::AtOnce(first, second), order })
}

/// All that is wrong with a schedule, found by executing it: with each buffer alone, and with each pair if it shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Buffers that are read, in the first pass, before anything wrote them.
    pub unwritten: Vec<usize>,
    /// Buffers with two accesses of one live range, one a write, that can happen at once.
    pub races: Vec<usize>,
    /// The same of two live ranges.
    pub reuses: Vec<usize>,
    /// Pairs that would be corrupt in some order if they shared bytes, each alone being sound.
    pub collisions: Vec<(usize, usize)>,
}

impl Findings {
    /// Finds them.
    pub fn new(program: &Program, reach: &Reach) -> Self {
        let mut findings = Self::default();
        let accesses: Vec<Vec<(usize, Access)>> =
            (0..program.buffers).map(|buffer| program.accesses_of(buffer)).collect();
        for (buffer, own) in accesses.iter().enumerate() {
            let (mut race, mut reuse) = (false, false);
            for (position, (b, y)) in own.iter().enumerate() {
                for (a, x) in &own[..position] {
                    if (x.write || y.write) && reach.together(*a, *b) {
                        *(if x.range == y.range { &mut race } else { &mut reuse }) = true;
                    }
                }
            }
            if own.iter().any(|(_, access)| access.range.is_none()) {
                findings.unwritten.push(buffer);
            }
            if race {
                findings.races.push(buffer);
            }
            if reuse {
                findings.reuses.push(buffer);
            }
        }
        for y in 0..program.buffers {
            for x in 0..y {
                if findings.sound(x)
                    && findings.sound(y)
                    && collide(reach, &accesses, (x, y)).is_some()
                {
                    findings.collisions.push((x, y));
                }
            }
        }
        findings
    }

    /// Whether a buffer that shares with nobody is never corrupt.
    pub fn sound(&self, buffer: usize) -> bool {
        ![&self.unwritten, &self.races, &self.reuses].iter().any(|list| list.contains(&buffer))
    }

    /// Whether every buffer is.
    pub fn all_sound(&self) -> bool {
        self.unwritten.is_empty() && self.races.is_empty() && self.reuses.is_empty()
    }
}

/// The corruption that a pair of buffers shows if the two share their bytes and no others do.
pub fn collision(program: &Program, reach: &Reach, x: usize, y: usize) -> Option<Corruption> {
    let accesses: Vec<_> = (0..program.buffers).map(|buffer| program.accesses_of(buffer)).collect();
    let what = collide(reach, &accesses, (x, y))?;
    let layout = shared(program, x, y);
    Some(match what {
        What::AtOnce(first, second) => at_once(program, &layout, first, second),
        What::Lost { node, .. } => {
            let all: Vec<usize> = (0..=node).collect();
            run(program, &layout, &all).unwrap_or(Corruption { what, order: all })
        }
    })
}

/// A layout in which two buffers share a byte and all others lie apart.
pub fn shared(program: &Program, x: usize, y: usize) -> Layout {
    let mut layout: Layout = (0..program.buffers as u64).map(|buffer| buffer..buffer + 1).collect();
    layout[y] = layout[x].clone();
    layout
}

fn collide(
    reach: &Reach,
    accesses: &[Vec<(usize, Access)>],
    (x, y): (usize, usize),
) -> Option<What> {
    for (a, of_x) in &accesses[x] {
        for (b, of_y) in &accesses[y] {
            if (of_x.write || of_y.write) && (a == b || reach.together(*a, *b)) {
                return Some(What::AtOnce((*a, x), (*b, y)));
            }
        }
    }
    // Conflicting accesses are ordered, so any order shows what all do: the order of issue.
    let mut merged: Vec<&(usize, Access)> = accesses[x].iter().chain(&accesses[y]).collect();
    merged.sort_by_key(|(node, _)| *node);
    let mut tag: Option<Tag> = None;
    for (node, access) in merged {
        let buffer = access.buffer;
        let expected = |tag: Tag| {
            (tag.buffer, Some(tag.range), tag.writes)
                == (buffer, access.range, access.writes_before)
        };
        if !access.starts() && !tag.is_some_and(expected) {
            return Some(What::Lost { node: *node, buffer, found: tag.map(|tag| tag.writer) });
        }
        if let (true, Some(range)) = (access.write, access.range) {
            let writes = access.writes_before + 1;
            tag = Some(Tag { buffer, range, writes, writer: *node });
        }
    }
    None
}

impl Corruption {
    /// The order in words, a line a step, from the first that matters on, and what goes wrong.
    pub fn words(&self, declared: &Declared, program: &Program) -> String {
        let buffers = declared.buffers();
        let place = |node: usize| {
            let at = &program.nodes[node];
            let step = &declared.steps[at.step];
            format!("{} (pass {}, layer {}, {})", step.name, at.pass, at.layer, step.stream)
        };
        let mut text = String::new();
        for &node in &self.order {
            let accesses = program.nodes[node].accesses.iter().map(|access| {
                let verb = if access.write { "writes" } else { "reads" };
                format!("{verb} {}", buffers[access.buffer].0)
            });
            let accesses = accesses.collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "  {}: {accesses}", place(node));
        }
        let _ = match self.what {
            What::AtOnce((a, x), (b, y)) => writeln!(
                text,
                "{} and {} touch the same bytes at once, of {} and {}",
                place(a),
                place(b),
                buffers[x].0,
                buffers[y].0
            ),
            What::Lost { node, buffer, found } => {
                let found = found.map_or("nothing written".to_owned(), place);
                writeln!(text, "{} finds in {}: {found}", place(node), buffers[buffer].0)
            }
        };
        text
    }
}
