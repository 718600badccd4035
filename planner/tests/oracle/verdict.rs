//! Live ranges, the errors in a schedule, interference, and sizes.

use std::collections::BTreeSet;

use super::expr::Fault;
use super::model::{Spec, element_bytes};
use super::order::{Node, Order};
use super::pack::{self, Item};

/// An error in the schedule and what it is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finding {
    ReadBeforeWrite(String),
    Race(String),
    Reuse(String),
    /// Two groups, in the order of their names.
    NotExclusive(String, String),
}

impl Finding {
    /// The code in the JSON.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::ReadBeforeWrite(_) => "read_before_write",
            Self::Race(_) => "race",
            Self::Reuse(_) => "reuse",
            Self::NotExclusive(..) => "not_exclusive",
        }
    }

    /// The buffer or the groups.
    pub(crate) fn subjects(&self) -> Vec<&str> {
        match self {
            Self::ReadBeforeWrite(buffer) | Self::Race(buffer) | Self::Reuse(buffer) => {
                vec![buffer]
            }
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
    pub(crate) shape: Vec<i64>,
    /// Rounded up to the pool's alignment; 0 without an access.
    pub(crate) bytes: i64,
    /// The pool's or its own.
    pub(crate) align: i64,
    pub(crate) accessed: bool,
}

/// All that the oracle says of a spec.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) witnesses: Vec<Witness>,
    pub(crate) buffers: Vec<Sized>,
    /// Pairs of indices in `buffers`, the lower first.
    pub(crate) interference: BTreeSet<(usize, usize)>,
}

/// One access: a node, and whether it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access {
    node: usize,
    write: bool,
}

/// The accesses of one live range, in the order of issue.
type Range = Vec<Access>;

/// Judges a spec by unrolling `passes` passes.
pub(crate) fn judge(spec: &Spec, passes: usize) -> Result<Verdict, Fault> {
    let order = Order::new(spec, passes)?;
    let names = spec.names()?;
    let layers = spec.layer_names()?;
    let mut witnesses = Vec::new();
    let mut buffers = Vec::new();
    let mut ranges: Vec<Vec<Range>> = Vec::new();

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
        for buffer in &group.buffers {
            let name = format!("{}.{}", group.name, buffer.name);
            let touches =
                |list: &[String]| list.iter().any(|item| *item == name || *item == group.name);
            let mut accesses = Vec::new();
            for (n, node) in order.nodes.iter().enumerate() {
                let step = &spec.steps[node.step];
                let write = touches(&step.writes);
                if exists[node.layer] && (write || touches(&step.reads)) {
                    accesses.push(Access { node: n, write });
                }
            }
            ranges.push(live_ranges(&name, &accesses, &order, &mut witnesses));

            let mut shape = Vec::new();
            let mut bytes = element_bytes(&buffer.dtype);
            for dim in &buffer.shape {
                let dim = dim.value(&names)?;
                assert!(dim >= 1, "a dimension of {name} is {dim}");
                bytes = bytes.checked_mul(dim).ok_or(Fault::Overflow)?;
                shape.push(dim);
            }
            let idle = accesses.is_empty();
            buffers.push(Sized {
                name,
                group: group.name.clone(),
                dtype: buffer.dtype.clone(),
                shape,
                bytes: if idle { 0 } else { round_up(bytes, spec.pool_align()) },
                align: buffer.align.unwrap_or(spec.pool_align()),
                accessed: !idle,
            });
        }
    }

    for (buffer, ranges) in buffers.iter().zip(&ranges) {
        for range in ranges {
            for (i, later) in range.iter().enumerate() {
                for earlier in &range[..i] {
                    if (earlier.write || later.write)
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
        for pair in ranges.windows(2) {
            if let Some((x, y)) = unordered(&pair[0], &pair[1], &order) {
                witnesses.push(witness(Finding::Reuse(buffer.name.clone()), &order, x, y));
            }
        }
    }

    let mut interference = BTreeSet::new();
    for a in 0..buffers.len() {
        for b in a + 1..buffers.len() {
            let found = ranges[a].iter().find_map(|x| {
                ranges[b].iter().find_map(|y| {
                    let x_first = unordered(x, y, &order)?;
                    unordered(y, x, &order)?;
                    Some(x_first)
                })
            });
            let Some((x, y)) = found else { continue };
            interference.insert((a, b));
            let (one, two) = (&buffers[a].group, &buffers[b].group);
            if one != two && spec.exclusive.contains(one) && spec.exclusive.contains(two) {
                let finding = Finding::NotExclusive(one.min(two).clone(), one.max(two).clone());
                let (x, y) = if x.node < y.node { (x, y) } else { (y, x) };
                witnesses.push(witness(finding, &order, x, y));
            }
        }
    }
    Ok(Verdict { witnesses, buffers, interference })
}

/// Cuts the accesses of one buffer into live ranges; reads of nothing become witnesses.
fn live_ranges(
    name: &str,
    accesses: &[Access],
    order: &Order,
    witnesses: &mut Vec<Witness>,
) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut written_in = None;
    for access in accesses {
        let node = order.nodes[access.node];
        let here = (node.pass, node.layer);
        if access.write && written_in != Some(here) {
            ranges.push(Vec::new());
            written_in = Some(here);
        }
        match ranges.last_mut() {
            Some(range) => range.push(*access),
            None if node.pass == 0 => {
                let finding = Finding::ReadBeforeWrite(name.to_owned());
                witnesses.push(Witness { finding, earlier: None, later: node });
            }
            None => {}
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
        self.witnesses.iter().map(|witness| witness.finding.clone()).collect()
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

    /// The sum of the rounded sizes.
    pub(crate) fn sum_bytes(&self) -> i64 {
        self.buffers.iter().map(|buffer| buffer.bytes).sum()
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
        let accessed =
            (0..self.buffers.len()).filter(|i| self.buffers[*i].accessed).collect::<Vec<_>>();
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
