//! Live ranges, the errors in a schedule, interference, and sizes.

use std::collections::BTreeSet;

use super::expr::{Fault, Names};
use super::model::{Buffer, Group, Spec, Step, element_bytes};
use super::order::{Node, Order};
use super::pack::{self, Item};

/// An error in the schedule and what it is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finding {
    ReadBeforeWrite(String),
    Race(String),
    Reuse(String),
    /// Two claimed groups or buffers, in the order of their names.
    NotExclusive(String, String),
    /// A buffer both used and accessed otherwise, or a group of memory that there is not.
    Access(String),
}

impl Finding {
    /// The code in the JSON.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::ReadBeforeWrite(_) => "read_before_write",
            Self::Race(_) => "race",
            Self::Reuse(_) => "reuse",
            Self::NotExclusive(..) => "not_exclusive",
            Self::Access(_) => "access",
        }
    }

    /// The buffer, the group, or the two that are claimed.
    pub(crate) fn subjects(&self) -> Vec<&str> {
        match self {
            Self::ReadBeforeWrite(name)
            | Self::Race(name)
            | Self::Reuse(name)
            | Self::Access(name) => vec![name],
            Self::NotExclusive(a, b) => vec![a, b],
        }
    }
}

/// A finding and the two nodes that show it: the earlier, if there is one, and the later.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    pub(crate) finding: Finding,
    pub(crate) earlier: Option<Node>,
    pub(crate) later: Node,
}

/// A buffer with its sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sized {
    /// `group.buffer`.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) dtype: String,
    /// In the mode in which it is largest; more than one where modes tie.
    pub(crate) shapes: Vec<Vec<i64>>,
    /// Rounded up, with all its copies; 0 without an access.
    pub(crate) bytes: i64,
    /// The pool's or its own.
    pub(crate) align: i64,
    pub(crate) accessed: bool,
    /// It is not the pool's: no offset, no bytes, no interference.
    pub(crate) external: bool,
    /// What it is accessed by contradicts itself, so nothing else is said of it.
    pub(crate) open: bool,
}

/// All that the oracle says of a spec.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) witnesses: Vec<Witness>,
    /// Errors that no order of execution is needed for.
    pub(crate) access: BTreeSet<Finding>,
    /// All but those of groups that are not there.
    pub(crate) buffers: Vec<Sized>,
    /// Pairs of indices in `buffers`, the lower first.
    pub(crate) interference: BTreeSet<(usize, usize)>,
}

/// What a step does to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Update,
    Use,
}

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access {
    node: usize,
    kind: Kind,
}

impl Access {
    fn writes(self) -> bool {
        self.kind != Kind::Read
    }
}

/// The accesses of one live range, in the order of issue.
type Range = Vec<Access>;

/// Whether a list names a part, by itself, by its buffer or by its group.
fn names_part(list: &[String], group: &str, buffer: &str, part: i64) -> bool {
    list.iter().any(|item| {
        *item == group
            || *item == format!("{group}.{buffer}")
            || *item == format!("{group}.{buffer}[{part}]")
    })
}

/// What a step does to a part, if anything. Uses are looked at apart.
fn kind_of(step: &Step, group: &str, buffer: &str, part: i64) -> Option<Kind> {
    let listed = |list: &[String]| names_part(list, group, buffer, part);
    match (listed(&step.reads), listed(&step.writes), listed(&step.uses)) {
        (true, true, _) => Some(Kind::Update),
        (true, false, _) => Some(Kind::Read),
        (false, true, _) => Some(Kind::Write),
        (false, false, true) => Some(Kind::Use),
        (false, false, false) => None,
    }
}

/// Judges a spec by unrolling `passes` passes.
pub(crate) fn judge(spec: &Spec, passes: usize) -> Result<Verdict, Fault> {
    let order = Order::new(spec, passes)?;
    let names = spec.names()?;
    let layers = spec.layer_names()?;
    let mut witnesses = Vec::new();
    let mut access = BTreeSet::new();
    let mut buffers = Vec::new();
    // For each buffer, each part, and each copy, the live ranges.
    let mut ranges: Vec<Vec<Vec<Range>>> = Vec::new();
    // For each buffer, an access.
    let mut firsts: Vec<Option<Access>> = Vec::new();

    for group in &spec.groups {
        if let Some(keep) = &group.keep
            && keep.value(&names)? == 0
        {
            continue;
        }
        let mut exists = Vec::new();
        for here in &layers {
            exists.push(match &group.when {
                Some(when) => when.value(here)? != 0,
                None => true,
            });
        }
        let contradicts =
            group.persistent && group.external || group.per_layer && !kept_for_ever(group);
        if contradicts {
            access.insert(Finding::Access(group.name.clone()));
        }
        for buffer in &group.buffers {
            let name = format!("{}.{}", group.name, buffer.name);
            let parts = buffer.parts.unwrap_or(1);
            let (mut used, mut touched) = (false, false);
            for step in &spec.steps {
                for part in 0..parts {
                    let listed = |list| names_part(list, &group.name, &buffer.name, part);
                    used |= listed(&step.uses);
                    touched |= listed(&step.reads) || listed(&step.writes);
                }
            }
            let misused = used && (touched || kept_for_ever(group));
            if misused {
                access.insert(Finding::Access(name.clone()));
            }

            // A copy is one layer's, or everybody's.
            let copies = if group.per_layer {
                (0..layers.len()).filter(|layer| exists[*layer]).map(|layer| vec![layer]).collect()
            } else {
                vec![(0..layers.len()).filter(|layer| exists[*layer]).collect::<Vec<_>>()]
            };
            let mut own = Vec::new();
            let mut first = None;
            for part in 0..parts {
                for copy in &copies {
                    let mut accesses = Vec::new();
                    for (n, node) in order.nodes.iter().enumerate() {
                        let kind = kind_of(&spec.steps[node.step], &group.name, &buffer.name, part);
                        if let Some(kind) = kind
                            && copy.contains(&node.layer)
                        {
                            accesses.push(Access { node: n, kind });
                        }
                    }
                    first = first.or(accesses.first().copied());
                    own.push(if accesses.is_empty() {
                        vec![]
                    } else if kept_for_ever(group) {
                        vec![accesses]
                    } else if used {
                        accesses.iter().map(|access| vec![*access]).collect()
                    } else {
                        live_ranges(&name, &accesses, &order, &mut witnesses)
                    });
                }
            }
            ranges.push(own);
            firsts.push(first);
            let accessed = first.is_some();

            let align = buffer.align.unwrap_or(spec.pool_align());
            let mut largest = 0;
            let mut shapes = Vec::new();
            for mode in spec.every_mode() {
                let (shape, bytes) = size(buffer, &spec.names_in(mode)?)?;
                if bytes > largest {
                    shapes.clear();
                    largest = bytes;
                }
                if bytes == largest {
                    shapes.push(shape);
                }
            }
            let bytes = if group.per_layer {
                // Each copy is a tensor with its own demand.
                let copies = i64::try_from(copies.len()).unwrap();
                copies * round_up(largest, align.max(spec.pool_align()))
            } else {
                round_up(largest, spec.pool_align())
            };
            buffers.push(Sized {
                name,
                group: group.name.clone(),
                dtype: buffer.dtype.clone(),
                shapes,
                bytes: if accessed { bytes } else { 0 },
                align,
                accessed,
                external: group.external,
                open: misused || contradicts,
            });
        }
    }
    // Of a buffer whose accesses contradict one another nothing more is said.
    witnesses.retain(|witness: &Witness| {
        let about = witness.finding.subjects();
        !buffers.iter().any(|buffer| buffer.open && about.contains(&buffer.name.as_str()))
    });

    for (buffer, ranges) in buffers.iter().zip(&ranges) {
        if buffer.open {
            continue;
        }
        for range in ranges.iter().flatten() {
            for (i, later) in range.iter().enumerate() {
                for earlier in &range[..i] {
                    if (earlier.writes() || later.writes())
                        && !order.happens_before(earlier.node, later.node)
                    {
                        witnesses.push(witness(
                            Finding::Race(buffer.name.clone()),
                            &order,
                            *earlier,
                            *later,
                        ));
                    }
                }
            }
        }
        for ranges in ranges {
            for pair in ranges.windows(2) {
                if let Some((x, y)) = unordered(&pair[0], &pair[1], &order) {
                    witnesses.push(witness(Finding::Reuse(buffer.name.clone()), &order, x, y));
                }
            }
        }
    }

    let persistent = |buffer: &Sized| {
        spec.groups.iter().any(|group| group.name == buffer.group && group.persistent)
    };
    let mut interference = BTreeSet::new();
    for a in 0..buffers.len() {
        for b in a + 1..buffers.len() {
            let (one, two) = (&buffers[a], &buffers[b]);
            if one.external || two.external || one.open || two.open {
                continue;
            }
            let found = ranges[a].iter().flatten().find_map(|x| {
                ranges[b].iter().flatten().find_map(|y| {
                    let x_first = unordered(x, y, &order)?;
                    unordered(y, x, &order)?;
                    Some(x_first)
                })
            });
            let for_ever =
                (persistent(one) || persistent(two)).then(|| firsts[a].zip(firsts[b])).flatten();
            let Some((x, y)) = found.or(for_ever) else { continue };
            interference.insert((a, b));
            let (x, y) = if x.node < y.node { (x, y) } else { (y, x) };
            let is = |item: &String, buffer: &Sized| *item == buffer.group || *item == buffer.name;
            for (i, first) in spec.exclusive.iter().enumerate() {
                for second in &spec.exclusive[i + 1..] {
                    if first != second
                        && (is(first, one) && is(second, two) || is(first, two) && is(second, one))
                    {
                        let (first, second) = (first.min(second), first.max(second));
                        let finding = Finding::NotExclusive(first.clone(), second.clone());
                        witnesses.push(witness(finding, &order, x, y));
                    }
                }
            }
        }
    }
    Ok(Verdict { witnesses, access, buffers, interference })
}

fn kept_for_ever(group: &Group) -> bool {
    group.persistent || group.external
}

/// Shape and bytes of one copy.
fn size(buffer: &Buffer, names: &Names) -> Result<(Vec<i64>, i64), Fault> {
    let mut shape = Vec::new();
    let mut bytes = element_bytes(&buffer.dtype);
    for dim in &buffer.shape {
        let dim = dim.value(names)?;
        assert!(dim >= 1, "a dimension of {} is {dim}", buffer.name);
        bytes = bytes.checked_mul(dim).ok_or(Fault::Overflow)?;
        shape.push(dim);
    }
    if let Some(parts) = buffer.parts {
        assert!(shape[0] % parts == 0, "{} has no {parts} equal parts", buffer.name);
    }
    Ok((shape, bytes))
}

/// Cuts the accesses of one part into live ranges; reads and updates of nothing become witnesses.
///
/// An update of nothing starts a live range all the same, for what follows reads what it left.
fn live_ranges(
    name: &str,
    accesses: &[Access],
    order: &Order,
    witnesses: &mut Vec<Witness>,
) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    // The layer that wrote or updated last.
    let mut touched_in = None;
    for access in accesses {
        let node = order.nodes[access.node];
        let here = (node.pass, node.layer);
        if access.kind == Kind::Write && touched_in != Some(here) {
            ranges.push(Vec::new());
        } else if ranges.is_empty() {
            if node.pass == 0 {
                let finding = Finding::ReadBeforeWrite(name.to_owned());
                witnesses.push(Witness { finding, earlier: None, later: node });
            }
            if access.kind == Kind::Update {
                ranges.push(Vec::new());
            }
        }
        if access.writes() {
            touched_in = Some(here);
        }
        if let Some(range) = ranges.last_mut() {
            range.push(*access);
        }
    }
    ranges
}

/// Accesses x of X and y of Y such that x does not happen before y.
fn unordered(xs: &Range, ys: &Range, order: &Order) -> Option<(Access, Access)> {
    for x in xs {
        for y in ys {
            if !order.happens_before(x.node, y.node) {
                return Some((*x, *y));
            }
        }
    }
    None
}

fn witness(finding: Finding, order: &Order, earlier: Access, later: Access) -> Witness {
    Witness { finding, earlier: Some(order.nodes[earlier.node]), later: order.nodes[later.node] }
}

fn round_up(bytes: i64, align: i64) -> i64 {
    (bytes + align - 1) / align * align
}

impl Verdict {
    /// What is wrong, each once.
    pub(crate) fn findings(&self) -> BTreeSet<Finding> {
        let shown = self.witnesses.iter().map(|witness| &witness.finding);
        shown.chain(&self.access).cloned().collect()
    }

    /// The pairs by name, sorted inside and among one another.
    pub(crate) fn interference_names(&self) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for (a, b) in &self.interference {
            let (a, b) = (&self.buffers[*a].name, &self.buffers[*b].name);
            pairs.push((a.min(b).clone(), a.max(b).clone()));
        }
        pairs.sort();
        pairs
    }

    /// The sum of the rounded sizes of what lies in the arena.
    pub(crate) fn sum_bytes(&self) -> i64 {
        self.in_arena().map(|buffer| buffer.bytes).sum()
    }

    /// The buffers that have an offset.
    pub(crate) fn in_arena(&self) -> impl Iterator<Item = &Sized> {
        self.buffers.iter().filter(|buffer| !buffer.external)
    }

    /// The heaviest set of pairwise interfering buffers.
    pub(crate) fn lower_bound_bytes(&self) -> i64 {
        pack::heaviest_clique(&self.items())
    }

    /// The least end of the highest buffer.
    pub(crate) fn optimum_bytes(&self) -> i64 {
        pack::optimum(&self.items())
    }

    /// The buffers with an access, as the packing sees them.
    pub(crate) fn items(&self) -> Vec<Item> {
        let accessed = (0..self.buffers.len())
            .filter(|i| self.buffers[*i].accessed && !self.buffers[*i].external)
            .collect::<Vec<_>>();
        let mut items = Vec::new();
        for &i in &accessed {
            let conflicts =
                accessed.iter().map(|&j| self.interference.contains(&(i.min(j), i.max(j))));
            let buffer = &self.buffers[i];
            items.push(Item {
                bytes: buffer.bytes,
                align: buffer.align,
                conflicts: conflicts.collect(),
            });
        }
        items
    }
}
