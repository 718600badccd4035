//! Packing: an offset in the arena for every item, so that conflicting items do not overlap, every
//! offset keeps its alignment, and the arena ends as low as possible.
//!
//! The invariant, on which layouts, reports and generated code rely: the offsets of a [`Packing`]
//! are valid; `lower_bound` is a clique of the conflicts, so no arena is smaller; `optimal` is set
//! only where a bound equal to `total` was proven. A packing depends on nothing but the [`Problem`]
//! and the [`Limits`]: no clock, no hash order, no randomness. Two processes that pack the same
//! problem may exchange pointers by offset.
//!
//! ```text
//!  items ──> decompose: parts side by side, parts on top of one another, what is left (prime)
//!    prime ──> clique (lower bound) ──> greedy packings (upper bound) ──> search between the two
//! ```
//!
//! Where every size is a multiple of every alignment, alignment asks nothing, and the conflict graph
//! falls apart. Write `H` for the least height.
//!
//! - Parts without conflicts between them overlay one another: `H` is the largest of theirs.
//! - Parts that conflict in every pair are stacked: `H` is the sum of theirs. (The bytes that one
//!   part occupies belong to it alone; squeeze out the others, and what is left packs that part.)
//! - Items that do not conflict and have the same neighbours act as one of the larger size: the
//!   smaller can always lie inside the larger. (Items with the same neighbours that *do* conflict
//!   must not be taken for one of both sizes: a third item may have to lie between them.)
//!
//! Nested *all of these* / *one of these* choices reduce to a single item this way, and so are
//! packed without any search. With mixed alignments only the first rule holds.

mod bound;
mod clique;
mod conflicts;
mod greedy;
mod search;

use std::fmt;

pub use conflicts::Conflicts;
use search::{Question, Verdict};

/// Up to this many items, a part is always searched to the end, whatever the [`Limits`] say.
pub const ALWAYS_PROVEN: usize = 12;

/// A part of more items than this is packed greedily alone, beside a clique found greedily:
/// decomposition and the searches are recursive, and more than quadratic.
const SEARCHABLE: usize = 1024;

/// The fewest nodes that a question is worth.
const MIN_SLICE: u64 = 200;

/// The most nodes of the first attempt at the lower bound: with a larger budget it is better to
/// start again, having learnt, than to persist.
const MAX_SLICE: u64 = 3_200;

/// Up to this many items, the search hopes for a proof, not for a good packing alone.
const FEW: usize = 40;

/// Attempts at one height before another is tried.
const ATTEMPTS: usize = 5;

/// The largest sum of sizes and alignments: what fits 63 bits.
const LARGEST: u64 = u64::MAX >> 1;

/// One thing that needs bytes in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Item {
    /// Its size, above zero, already rounded up to the alignment of the pool.
    pub bytes: u64,
    /// A power of two that divides its offset.
    pub align: u64,
}

/// What to pack. The packing depends on the order of the items (only the offsets do, never whether
/// the total is optimal), so a caller that wants reproducible offsets passes them in a fixed order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The items.
    pub items: Vec<Item>,
    /// Which of them must not overlap.
    pub conflicts: Conflicts,
}

/// How much work to spend before settling for what was found. Counted, never timed, so that the
/// answer is the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Nodes of the search for offsets, over all parts of more than [`ALWAYS_PROVEN`] items.
    pub nodes: u64,
    /// Nodes of the search for the heaviest clique, for each part; a node counts once more for
    /// every 64 items in it. Zero leaves a clique found greedily.
    pub clique_nodes: u64,
}

impl Default for Limits {
    /// Enough for a proof with up to some 20 items of whatever conflicts, and for hundreds that live
    /// along one timeline. Spending all of it took 1 second with 40 items and 3 with 150, without
    /// compiler optimisation.
    fn default() -> Self {
        Self { nodes: 50_000, clique_nodes: 50_000 }
    }
}

/// Offsets for a [`Problem`], and what is known about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    /// The offset of each item, in the order of the problem.
    pub offsets: Vec<u64>,
    /// The highest end of an item: the bytes of the arena. Zero without items.
    pub total: u64,
    /// The heaviest set of pairwise conflicting items, as the plain sum of their bytes.
    pub lower_bound: u64,
    /// Whether no heavier set exists. Otherwise `lower_bound` is the heaviest one found, and still
    /// a lower bound.
    pub lower_bound_proven: bool,
    /// No arena smaller than this exists. At least `lower_bound`: alignment, or the shape of the
    /// conflicts, may need more than any one clique.
    pub least: u64,
    /// Whether no smaller arena exists: `total == least`.
    pub optimal: bool,
    /// Nodes expanded by the search for offsets; zero where the bounds met without it.
    pub nodes: u64,
}

/// Why a problem cannot be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PackError {
    /// An item of no bytes.
    NoBytes {
        /// The item.
        item: usize,
    },
    /// An alignment that is not a power of two.
    Align {
        /// The item.
        item: usize,
        /// Its alignment.
        align: u64,
    },
    /// The conflicts are about another number of items.
    Mismatch {
        /// The number of items.
        items: usize,
        /// The number of items that the conflicts are about.
        conflicts: usize,
    },
    /// All items one after the other, each with the padding that its alignment may need, do not fit
    /// 63 bits.
    TooLarge {
        /// The bytes that they need.
        bytes: u128,
    },
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBytes { item } => write!(f, "item {item} has no bytes"),
            Self::Align { item, align } => {
                write!(f, "item {item} has alignment {align}, not a power of two")
            }
            Self::Mismatch { items, conflicts } => {
                write!(f, "{items} items, but conflicts about {conflicts}")
            }
            Self::TooLarge { bytes } => {
                write!(f, "the items need {bytes} bytes in all, more than 63 bits")
            }
        }
    }
}

impl std::error::Error for PackError {}

/// Packs `problem` with the default [`Limits`].
///
/// ```
/// use scratchpool_planner::packing::{Conflicts, Item, Problem, pack};
///
/// // The first is live together with the second, the second with the third.
/// let mut conflicts = Conflicts::new(3);
/// conflicts.set(0, 1);
/// conflicts.set(1, 2);
/// let items = [512, 256, 768].map(|bytes| Item { bytes, align: 256 }).to_vec();
/// let packing = pack(&Problem { items, conflicts })?;
/// assert_eq!(packing.total, 1024); // not 1536: the first and the third share
/// assert!(packing.optimal);
/// # Ok::<(), scratchpool_planner::packing::PackError>(())
/// ```
///
/// # Errors
///
/// A [`PackError`] for an item without bytes, an alignment that is not a power of two, conflicts
/// about another number of items, or sizes beyond 63 bits.
pub fn pack(problem: &Problem) -> Result<Packing, PackError> {
    pack_with(problem, Limits::default())
}

/// Packs `problem` within `limits`.
///
/// # Errors
///
/// As [`pack`].
pub fn pack_with(problem: &Problem, limits: Limits) -> Result<Packing, PackError> {
    check(problem)?;
    let sizes: Vec<u64> = problem.items.iter().map(|item| item.bytes).collect();
    let aligns: Vec<u64> = problem.items.iter().map(|item| item.align).collect();
    let leaves = (0..sizes.len()).map(|item| Shape::leaf(item, &sizes)).collect();
    let mut packer = Packer { nodes_left: limits.nodes, nodes: 0, limits };
    if problem.items.is_empty() {
        return Ok(Packing {
            offsets: Vec::new(),
            total: 0,
            lower_bound: 0,
            lower_bound_proven: true,
            least: 0,
            optimal: true,
            nodes: 0,
        });
    }
    let shape = if sizes.len() > SEARCHABLE {
        packer.prime(leaves, problem.conflicts.clone())
    } else {
        packer.decompose(leaves, problem.conflicts.clone())
    };
    let laid = if aligned_by_size(&sizes, &aligns) {
        packer.lay(&shape, 0)
    } else {
        packer.lay_parts(&sizes, &aligns, &problem.conflicts)
    };
    let mut offsets = vec![0; sizes.len()];
    for &(item, offset) in &laid.offsets {
        if let Some(slot) = offsets.get_mut(item) {
            *slot = offset;
        }
    }
    let least = laid.least.max(shape.clique);
    Ok(Packing {
        offsets,
        total: laid.height,
        lower_bound: shape.clique,
        lower_bound_proven: shape.clique_proven,
        least,
        optimal: laid.height == least,
        nodes: packer.nodes,
    })
}

fn check(problem: &Problem) -> Result<(), PackError> {
    if problem.items.len() != problem.conflicts.len() {
        return Err(PackError::Mismatch {
            items: problem.items.len(),
            conflicts: problem.conflicts.len(),
        });
    }
    let mut needed = 0_u128;
    for (item, &Item { bytes, align }) in problem.items.iter().enumerate() {
        if bytes == 0 {
            return Err(PackError::NoBytes { item });
        }
        if !align.is_power_of_two() {
            return Err(PackError::Align { item, align });
        }
        // Any packing that is pushed down ends at or below the sum of these. All arithmetic on
        // sizes and offsets in this folder stays below it, and so cannot overflow.
        needed += u128::from(bytes) + u128::from(align - 1);
    }
    if needed > u128::from(LARGEST) {
        return Err(PackError::TooLarge { bytes: needed });
    }
    Ok(())
}

/// Whether every size is a multiple of every alignment, so that items pushed down are aligned by
/// themselves.
fn aligned_by_size(sizes: &[u64], aligns: &[u64]) -> bool {
    let align = aligns.iter().copied().max().unwrap_or(1);
    sizes.iter().all(|&size| size % align == 0)
}

/// The items of a problem, taken apart.
struct Shape {
    kind: Kind,
    /// The heaviest clique found in it.
    clique: u64,
    clique_proven: bool,
}

enum Kind {
    Leaf {
        item: usize,
        bytes: u64,
    },
    /// Side by side: no conflict between the parts.
    Overlay(Vec<Shape>),
    /// One on top of the other: every pair of parts conflicts.
    Stack(Vec<Shape>),
    /// Neither; the conflicts are between the parts.
    Prime(Vec<Shape>, Conflicts),
}

impl Shape {
    fn leaf(item: usize, sizes: &[u64]) -> Self {
        let bytes = sizes.get(item).copied().unwrap_or(0);
        Self { kind: Kind::Leaf { item, bytes }, clique: bytes, clique_proven: true }
    }

    fn overlay(parts: Vec<Self>) -> Self {
        Self {
            clique: parts.iter().map(|part| part.clique).max().unwrap_or(0),
            clique_proven: parts.iter().all(|part| part.clique_proven),
            kind: Kind::Overlay(parts),
        }
    }

    fn stack(parts: Vec<Self>) -> Self {
        Self {
            clique: parts.iter().map(|part| part.clique).sum(),
            clique_proven: parts.iter().all(|part| part.clique_proven),
            kind: Kind::Stack(parts),
        }
    }
}

/// A packing of some of the items, from offset zero.
struct Laid {
    offsets: Vec<(usize, u64)>,
    height: u64,
    /// No lower packing of them exists than this.
    least: u64,
}

/// Offsets in the order of the items given, and their highest end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layout {
    offsets: Vec<u64>,
    height: u64,
}

struct Packer {
    limits: Limits,
    nodes_left: u64,
    nodes: u64,
}

impl Packer {
    /// Takes `parts`, with their conflicts, apart as far as it goes.
    fn decompose(&self, mut parts: Vec<Shape>, mut conflicts: Conflicts) -> Shape {
        while parts.len() > 1 {
            let twins = twins(&conflicts);
            if twins.len() == parts.len() {
                break;
            }
            let kept: Vec<usize> =
                twins.iter().filter_map(|class| class.first().copied()).collect();
            let mut slots: Vec<Option<Shape>> = parts.into_iter().map(Some).collect();
            parts =
                twins.iter().map(|class| Shape::overlay_of_one(take(&mut slots, class))).collect();
            conflicts = conflicts.induced(&kept);
        }
        if parts.len() == 1 {
            return Shape::overlay_of_one(parts);
        }
        for joined in [true, false] {
            let groups = components(&conflicts, joined);
            if groups.len() > 1 {
                let mut slots: Vec<Option<Shape>> = parts.into_iter().map(Some).collect();
                let shapes = groups
                    .iter()
                    .map(|group| self.decompose(take(&mut slots, group), conflicts.induced(group)))
                    .collect();
                return if joined { Shape::overlay(shapes) } else { Shape::stack(shapes) };
            }
        }
        self.prime(parts, conflicts)
    }

    fn prime(&self, parts: Vec<Shape>, conflicts: Conflicts) -> Shape {
        let weights: Vec<u64> = parts.iter().map(|part| part.clique).collect();
        let clique = self.heaviest(&weights, &conflicts);
        Shape {
            clique: clique.weight,
            clique_proven: clique.proven && parts.iter().all(|part| part.clique_proven),
            kind: Kind::Prime(parts, conflicts),
        }
    }

    fn heaviest(&self, weights: &[u64], conflicts: &Conflicts) -> clique::Heaviest {
        let searchable = weights.len() <= SEARCHABLE;
        let nodes = if searchable { self.limits.clique_nodes } else { 0 };
        clique::heaviest(weights, conflicts, nodes)
    }

    /// Packs a shape whose alignments ask nothing. A height of `enough` is low enough.
    fn lay(&mut self, shape: &Shape, enough: u64) -> Laid {
        match &shape.kind {
            &Kind::Leaf { item, bytes } => {
                Laid { offsets: vec![(item, 0)], height: bytes, least: bytes }
            }
            Kind::Overlay(parts) => {
                let mut all = Laid::nothing();
                let mut order: Vec<&Shape> = parts.iter().collect();
                order.sort_by_key(|part| std::cmp::Reverse(part.clique));
                for part in order {
                    let laid = self.lay(part, enough.max(all.height));
                    all.overlay(laid);
                }
                all
            }
            Kind::Stack(parts) => {
                let mut all = Laid::nothing();
                for part in parts {
                    let laid = self.lay(part, 0);
                    let below = all.height;
                    all.height += laid.height;
                    all.least += laid.least;
                    all.offsets
                        .extend(laid.offsets.iter().map(|&(item, offset)| (item, offset + below)));
                }
                all
            }
            Kind::Prime(parts, conflicts) => {
                let laid: Vec<Laid> = parts.iter().map(|part| self.lay(part, 0)).collect();
                let sizes: Vec<u64> = laid.iter().map(|part| part.height).collect();
                let mut solved =
                    self.solve(&sizes, &vec![1; sizes.len()], conflicts, shape.clique, enough);
                if laid.iter().any(|part| part.least < part.height) {
                    // The parts may be lower than we know: what was refuted, was refuted for these.
                    solved.least = shape.clique;
                }
                solved.offsets = solved
                    .offsets
                    .iter()
                    .zip(&laid)
                    .flat_map(|(&(_, base), part)| {
                        part.offsets.iter().map(move |&(item, offset)| (item, base + offset))
                    })
                    .collect();
                solved
            }
        }
    }

    /// Packs items of any alignments: only parts without conflicts between them are independent.
    fn lay_parts(&mut self, sizes: &[u64], aligns: &[u64], conflicts: &Conflicts) -> Laid {
        let pick = |values: &[u64], group: &[usize]| -> Vec<u64> {
            group.iter().filter_map(|&i| values.get(i).copied()).collect()
        };
        let mut parts: Vec<(u64, Vec<usize>, Conflicts)> = components(conflicts, true)
            .into_iter()
            .map(|group| {
                let inside = conflicts.induced(&group);
                let weights = pick(sizes, &group);
                let clique = self.heaviest(&weights, &inside);
                (clique.weight, group, inside)
            })
            .collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.0));
        let mut all = Laid::nothing();
        for (clique, group, inside) in parts {
            let mut laid = self.solve(
                &pick(sizes, &group),
                &pick(aligns, &group),
                &inside,
                clique,
                all.height,
            );
            for (slot, &item) in laid.offsets.iter_mut().zip(&group) {
                slot.0 = item;
            }
            all.overlay(laid);
        }
        all
    }

    /// Packs items that do not fall apart. `clique` is the weight of one; a height of `enough` is
    /// low enough.
    fn solve(
        &mut self,
        sizes: &[u64],
        aligns: &[u64],
        conflicts: &Conflicts,
        clique: u64,
        enough: u64,
    ) -> Laid {
        let n = sizes.len();
        let rounds = if n <= ALWAYS_PROVEN {
            8
        } else if n <= SEARCHABLE {
            64
        } else {
            0
        };
        let first = greedy::pack(sizes, aligns, conflicts, enough.max(clique), rounds);
        let mut range =
            Range { least: clique, best: first, enough, granule: granule(sizes, aligns) };
        if !range.is_closed() && n <= SEARCHABLE {
            let cliques = clique::maximal(sizes, conflicts, 2 * n + 32);
            if !aligned_by_size(sizes, aligns) {
                let stacks =
                    cliques.iter().filter_map(|clique| bound::stack_height(sizes, aligns, clique));
                range.raise(stacks.max().unwrap_or(0));
            }
            let question = Question { sizes, aligns, conflicts, cliques: &cliques, height: 0 };
            if n <= ALWAYS_PROVEN {
                self.prove(question, &mut range);
            } else {
                self.improve(question, &mut range);
            }
        }
        Laid {
            offsets: range.best.offsets.iter().copied().enumerate().collect(),
            height: range.best.height,
            least: range.least,
        }
    }

    /// Searches to the end.
    fn prove(&mut self, question: Question<'_>, range: &mut Range) {
        let order = search_orders(&question).swap_remove(0);
        let mut height = range.target();
        while !range.is_closed() {
            let mut nodes_left = u64::MAX;
            let verdict =
                search::ask(Question { height, ..question }, &order, &mut nodes_left, &mut []);
            self.nodes += u64::MAX - nodes_left;
            range.learn(height, verdict);
            height = range.below_best();
        }
    }

    /// Searches within the limits: with half of them near the lower bound, then for heights between
    /// what seems out of reach and the best packing known.
    fn improve(&mut self, question: Question<'_>, range: &mut Range) {
        let mut lessons = Lessons {
            orders: search_orders(&question),
            blame: vec![0; question.sizes.len()],
            attempts: 0,
        };
        // Few items: a complete search is within reach, and worth saving the nodes for.
        let few = question.sizes.len() <= FEW;
        let saved = self.nodes_left / 8 * if few { 7 } else { 4 };
        let attempts = if few { 1 } else { ATTEMPTS };
        let mut slice = (self.nodes_left / 64).clamp(MIN_SLICE, MAX_SLICE);
        let mut step = 0;
        let mut out_of_reach = range.target();
        while !range.is_closed() && self.nodes_left > saved {
            let height = range.above(range.target(), step);
            let question = Question { height, ..question };
            match self.attempt(question, slice, &mut lessons, range) {
                Known::Refuted => step = (2 * step).max(1),
                Known::Fits => step /= 2,
                Known::Nothing => {
                    step = 0;
                    slice += slice / 8;
                }
            }
            out_of_reach = height;
        }
        lessons.attempts = 0;
        while !range.is_closed() && self.nodes_left > 0 {
            out_of_reach = out_of_reach.max(range.target()).min(range.below_best());
            let height = range.between(out_of_reach);
            let question = Question { height, ..question };
            let slice = (self.nodes_left / 16).max(MIN_SLICE);
            let mut known = Known::Nothing;
            for _ in 0..attempts {
                known = self.attempt(question, slice, &mut lessons, range);
                if known != Known::Nothing {
                    break;
                }
            }
            if known == Known::Nothing {
                if height == range.below_best() {
                    // The last question, then: all that is left may prove that it is answered.
                    self.attempt(question, self.nodes_left, &mut lessons, range);
                }
                out_of_reach = height;
            }
        }
    }

    /// Puts the question once, with the order whose turn it is, and takes the lessons.
    fn attempt(
        &mut self,
        question: Question<'_>,
        nodes: u64,
        lessons: &mut Lessons,
        range: &mut Range,
    ) -> Known {
        let order = lessons.order();
        lessons.fade();
        let granted = nodes.min(self.nodes_left);
        let mut left = granted;
        let verdict = search::ask(question, &order, &mut left, &mut lessons.blame);
        self.nodes_left -= granted - left;
        self.nodes += granted - left;
        let known = range.learn(question.height, verdict);
        if known == Known::Nothing {
            lessons.attempts += 1;
        }
        known
    }
}

/// What earlier attempts teach the next one: items that were left over in cliques that could not
/// fit are preferred.
struct Lessons {
    /// The orders to begin with.
    orders: Vec<Vec<usize>>,
    blame: Vec<u64>,
    /// How many attempts came to nothing.
    attempts: usize,
}

impl Lessons {
    fn order(&self) -> Vec<usize> {
        let Some(order) = self.orders.get(self.attempts) else {
            let mut order = self.orders.first().cloned().unwrap_or_default();
            order.sort_by_key(|&i| std::cmp::Reverse(self.blame.get(i).copied().unwrap_or(0)));
            return order;
        };
        order.clone()
    }

    /// Older blame counts for less, so that the search does not settle on one order.
    fn fade(&mut self) {
        for blame in &mut self.blame {
            *blame = *blame / 10 * 9 + *blame % 10 * 9 / 10;
        }
    }
}

impl Shape {
    /// The only one of `parts`.
    fn overlay_of_one(mut parts: Vec<Self>) -> Self {
        match parts.pop() {
            Some(part) if parts.is_empty() => part,
            Some(part) => {
                parts.push(part);
                Self::overlay(parts)
            }
            None => Self::overlay(parts),
        }
    }
}

impl Laid {
    fn nothing() -> Self {
        Self { offsets: Vec::new(), height: 0, least: 0 }
    }

    fn overlay(&mut self, other: Self) {
        self.height = self.height.max(other.height);
        self.least = self.least.max(other.least);
        self.offsets.extend(other.offsets);
    }
}

/// What is known about the least height: at least `least`, at most that of `best`.
struct Range {
    least: u64,
    best: Layout,
    enough: u64,
    /// Every height worth trying is a multiple of this.
    granule: u64,
}

/// What a search told us about a height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Fits,
    Refuted,
    Nothing,
}

impl Range {
    fn is_closed(&self) -> bool {
        self.best.height <= self.target()
    }

    fn target(&self) -> u64 {
        self.least.max(self.enough)
    }

    /// The highest height that would be better than the best.
    fn below_best(&self) -> u64 {
        self.best.height.saturating_sub(self.granule)
    }

    /// `granules` above `height`, but below the best.
    fn above(&self, height: u64, granules: u64) -> u64 {
        let step = granules.saturating_mul(self.granule);
        height.saturating_add(step).min(self.below_best())
    }

    /// Halfway between a height that seems out of reach and the best.
    fn between(&self, out_of_reach: u64) -> u64 {
        let granules = self.best.height.saturating_sub(out_of_reach) / self.granule;
        self.above(out_of_reach, (granules / 2).max(1))
    }

    fn raise(&mut self, least: u64) {
        self.least = self.least.max(least);
    }

    fn learn(&mut self, height: u64, verdict: Verdict) -> Known {
        match verdict {
            Verdict::Fits(layout) => {
                self.best = layout;
                Known::Fits
            }
            Verdict::Refuted => {
                self.raise((height / self.granule + 1) * self.granule);
                Known::Refuted
            }
            Verdict::Undecided => Known::Nothing,
        }
    }
}

/// A number that divides the height of every packing that is pushed down.
fn granule(sizes: &[u64], aligns: &[u64]) -> u64 {
    let mut common = 0;
    for &size in sizes {
        let (mut a, mut b) = (common, size);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        common = a;
    }
    if aligned_by_size(sizes, aligns) {
        return common.max(1);
    }
    // Rounding up to an alignment keeps multiples of a power of two, not of other numbers: its
    // result is the offset itself, or a multiple of a larger power.
    1_u64 << common.trailing_zeros().min(63)
}

/// Orders in which the search prefers items among equally low places: by the weight of the heaviest
/// clique around an item, the number of cliques it is in (how long it lives), and both times its
/// size.
fn search_orders(question: &Question<'_>) -> Vec<Vec<usize>> {
    let n = question.sizes.len();
    let size = |i: usize| question.sizes.get(i).copied().unwrap_or(0);
    let mut weight = vec![0_u64; n];
    let mut count = vec![0_u64; n];
    for clique in question.cliques {
        let sum: u64 = clique.iter().map(|&i| size(i)).sum();
        for &i in clique {
            if let (Some(weight), Some(count)) = (weight.get_mut(i), count.get_mut(i)) {
                *weight = (*weight).max(sum);
                *count += 1;
            }
        }
    }
    let traits: Vec<[u128; 3]> = (0..n)
        .zip(weight.iter().zip(&count))
        .map(|(i, (&weight, &count))| {
            let area = u128::from(count) * u128::from(size(i));
            [u128::from(weight), u128::from(count), area]
        })
        .collect();
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 0, 1]]
        .iter()
        .map(|by: &[usize; 3]| {
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by_cached_key(|&i| {
                let own = traits.get(i).copied().unwrap_or_default();
                std::cmp::Reverse(by.map(|at| own.get(at).copied().unwrap_or(0)))
            });
            order
        })
        .collect()
}

/// The classes of items that do not conflict with one another and that every other item conflicts
/// with alike. Classes and members ascend.
fn twins(conflicts: &Conflicts) -> Vec<Vec<usize>> {
    let mut classes: Vec<Vec<usize>> = Vec::new();
    for item in 0..conflicts.len() {
        let home = classes.iter_mut().find(|class| {
            class.first().is_some_and(|&first| {
                !conflicts.get(first, item) && search::same_neighbours(conflicts, first, item)
            })
        });
        match home {
            Some(class) => class.push(item),
            None => classes.push(vec![item]),
        }
    }
    classes
}

/// The items, grouped so that no pair of items in different groups conflicts, or for `joined` false
/// so that every such pair does. Groups and members ascend.
fn components(conflicts: &Conflicts, joined: bool) -> Vec<Vec<usize>> {
    let mut unseen: Vec<usize> = (0..conflicts.len()).collect();
    let mut groups = Vec::new();
    while let Some(&seed) = unseen.first() {
        unseen.remove(0);
        let mut group = vec![seed];
        let mut at = 0;
        while let Some(&item) = group.get(at) {
            at += 1;
            unseen.retain(|&other| {
                let reached = conflicts.get(item, other) == joined;
                if reached {
                    group.push(other);
                }
                !reached
            });
        }
        group.sort_unstable();
        groups.push(group);
    }
    groups
}

/// Moves the members of `group` out of `slots`.
fn take(slots: &mut [Option<Shape>], group: &[usize]) -> Vec<Shape> {
    group.iter().filter_map(|&i| slots.get_mut(i).and_then(Option::take)).collect()
}
