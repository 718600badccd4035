//! The layout: where each buffer lies in the arena, and how good that is.
//!
//! Invariant: offsets come from [`offsets::assign`] alone, applied to the order that the packer found;
//! the independent verifier has accepted them. Buffers are packed in order of name, so the bytes do
//! not depend on the order in which groups were declared.

use scratchpool_tables::{Fingerprint, offsets};

use crate::packing::{Conflicts, Item, PackError, Problem, pack};
use crate::sizes::Sizes;
use crate::spec::DType;
use crate::structure::Structure;
use crate::verify;

/// A packed pool.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The pool's name.
    pub pool: String,
    /// The pool's alignment in bytes.
    pub align: u64,
    /// The alignment that the arena's base needs: the largest of any buffer.
    pub base_align: u64,
    /// The arena's size in bytes.
    pub total_bytes: u64,
    /// What the accessed buffers would take apart, in bytes.
    pub sum_bytes: u64,
    /// The heaviest set of pairwise interfering buffers, in bytes.
    pub lower_bound_bytes: u64,
    /// No arena smaller than this exists; at least the lower bound.
    pub least_bytes: u64,
    /// Whether the solver proved that no smaller arena exists.
    pub optimal: bool,
    /// A stable hash of everything that fixes the bytes.
    pub fingerprint: String,
    /// The buffers, in order of declaration.
    pub buffers: Vec<Placed>,
    /// The buffers so that each comes after all that are below it.
    pub order: Vec<usize>,
}

/// A buffer in the arena.
#[derive(Clone, Debug)]
pub struct Placed {
    /// `group.buffer`.
    pub name: String,
    /// Byte offset.
    pub offset: u64,
    /// Bytes reserved: the tensor's, rounded up to the pool's alignment; 0 if never accessed.
    pub bytes: u64,
    /// Bytes of the tensor itself.
    pub tensor_bytes: u64,
    /// Element type.
    pub dtype: DType,
    /// Extents, row-major.
    pub shape: Vec<u64>,
    /// Alignment in bytes.
    pub align: u64,
    /// Whether any step touches it.
    pub accessed: bool,
    /// The interfering buffers that lie below it.
    pub below: Vec<usize>,
}

/// Why a layout cannot be made.
#[derive(Clone, Debug)]
pub(crate) enum LayoutError {
    /// The sizes do not fit 63 bits.
    TooLarge,
    /// The independent verifier refused the layout: a fault of this crate.
    Refused(Vec<verify::Violation>),
}

impl Layout {
    /// Bytes that sharing saves.
    pub const fn saved_bytes(&self) -> u64 {
        self.sum_bytes.saturating_sub(self.total_bytes)
    }

    /// Packs the buffers of a structure, given which pairs interfere.
    pub(crate) fn new(
        structure: &Structure,
        sizes: &Sizes,
        interference: &[(usize, usize)],
    ) -> Result<Self, LayoutError> {
        let mut buffers: Vec<Placed> = structure
            .buffers
            .iter()
            .zip(&sizes.buffers)
            .enumerate()
            .map(|(position, (buffer, size))| {
                let accessed = structure.accessed(position);
                Placed {
                    name: buffer.name.clone(),
                    offset: 0,
                    bytes: if accessed { size.bytes } else { 0 },
                    tensor_bytes: size.tensor_bytes,
                    dtype: size.dtype,
                    shape: size.shape.clone(),
                    align: size.align,
                    accessed,
                    below: Vec::new(),
                }
            })
            .collect();
        let mut by_name: Vec<usize> = (0..buffers.len()).collect();
        by_name.sort_by(|a, b| {
            let name = |buffer: &usize| buffers.get(*buffer).map(|buffer| buffer.name.as_str());
            name(a).cmp(&name(b))
        });
        let canonical: Vec<usize> = by_name
            .iter()
            .copied()
            .filter(|buffer| buffers.get(*buffer).is_some_and(|buffer| buffer.accessed))
            .collect();
        let packing = pack_in_order(&buffers, &canonical, interference)?;
        // The packer decides who is below whom; the offsets themselves come from `place`.
        for (item, buffer) in canonical.iter().enumerate() {
            if let (Some(slot), Some(offset)) =
                (buffers.get_mut(*buffer), packing.offsets.get(item))
            {
                slot.offset = *offset;
            }
        }
        let mut order = canonical.clone();
        let offset_of =
            |buffers: &[Placed], buffer: usize| buffers.get(buffer).map_or(0, |each| each.offset);
        order.sort_by_key(|buffer| offset_of(&buffers, *buffer));
        for (a, b) in interference {
            let (low, high) =
                if offset_of(&buffers, *a) < offset_of(&buffers, *b) { (*a, *b) } else { (*b, *a) };
            if let Some(high) = buffers.get_mut(high) {
                high.below.push(low);
            }
        }
        for buffer in &mut buffers {
            buffer.below.sort_unstable();
        }
        let total_bytes = assign_offsets(&mut buffers, &order).ok_or(LayoutError::TooLarge)?;
        let sum_bytes = buffers.iter().map(|buffer| buffer.bytes).sum();
        let fingerprint = fingerprint(&buffers, &by_name, sizes.align, total_bytes);
        let layout = Self {
            pool: structure.pool.clone(),
            align: sizes.align,
            base_align: buffers.iter().map(|buffer| buffer.align).fold(sizes.align, u64::max),
            total_bytes,
            sum_bytes,
            lower_bound_bytes: packing.lower_bound,
            least_bytes: packing.least,
            optimal: total_bytes == packing.least,
            fingerprint,
            buffers,
            order,
        };
        let violations = layout.verify(interference);
        if violations.is_empty() { Ok(layout) } else { Err(LayoutError::Refused(violations)) }
    }

    /// What an independent check of the offsets finds wrong; nothing, for a layout of this crate.
    pub fn verify(&self, interference: &[(usize, usize)]) -> Vec<verify::Violation> {
        let accessed = || self.buffers.iter().filter(|buffer| buffer.accessed);
        let column = |value: fn(&Placed) -> u64| accessed().map(value).collect::<Vec<_>>();
        // Buffers without an access have no bytes; the others move up to fill their places.
        let mut item_of = Vec::new();
        let mut items = 0;
        for buffer in &self.buffers {
            item_of.push(items);
            items += usize::from(buffer.accessed);
        }
        let item = |buffer: &usize| item_of.get(*buffer).copied().unwrap_or(usize::MAX);
        let interfering: Vec<_> = interference.iter().map(|(a, b)| (item(a), item(b))).collect();
        verify::violations(&verify::Claim {
            offsets: &column(|buffer| buffer.offset),
            bytes: &column(|buffer| buffer.bytes),
            aligns: &column(|buffer| buffer.align),
            interfering: &interfering,
            total: self.total_bytes,
            lower_bound: self.lower_bound_bytes,
        })
    }
}

/// The arena's size with another set of interfering pairs.
pub(crate) fn total_with(layout: &Layout, interference: &[(usize, usize)]) -> Option<u64> {
    let canonical: Vec<usize> = (0..layout.buffers.len())
        .filter(|buffer| layout.buffers.get(*buffer).is_some_and(|buffer| buffer.accessed))
        .collect();
    pack_in_order(&layout.buffers, &canonical, interference).ok().map(|packing| packing.total)
}

fn pack_in_order(
    buffers: &[Placed],
    canonical: &[usize],
    interference: &[(usize, usize)],
) -> Result<crate::packing::Packing, LayoutError> {
    let mut conflicts = Conflicts::new(canonical.len());
    let mut item_of = vec![None; buffers.len()];
    for (item, buffer) in canonical.iter().enumerate() {
        if let Some(slot) = item_of.get_mut(*buffer) {
            *slot = Some(item);
        }
    }
    let item_of = |buffer: usize| item_of.get(buffer).copied().flatten();
    for (a, b) in interference {
        if let (Some(a), Some(b)) = (item_of(*a), item_of(*b)) {
            conflicts.set(a, b);
        }
    }
    let items = canonical
        .iter()
        .filter_map(|buffer| buffers.get(*buffer))
        .map(|buffer| Item { bytes: buffer.bytes, align: buffer.align })
        .collect();
    pack(&Problem { items, conflicts }).map_err(|error| match error {
        // The other three cannot happen: sizes are at least 1, alignments powers of two, and the
        // conflicts were made for these items.
        PackError::NoBytes { .. }
        | PackError::Align { .. }
        | PackError::Mismatch { .. }
        | PackError::TooLarge { .. } => LayoutError::TooLarge,
    })
}

fn assign_offsets(buffers: &mut [Placed], order: &[usize]) -> Option<u64> {
    let index = |buffer: &usize| u16::try_from(*buffer).ok();
    let order: Vec<u16> = order.iter().map(index).collect::<Option<_>>()?;
    let below: Vec<Vec<u16>> = buffers
        .iter()
        .map(|buffer| buffer.below.iter().map(index).collect())
        .collect::<Option<_>>()?;
    let below: Vec<&[u16]> = below.iter().map(Vec::as_slice).collect();
    let bytes: Vec<u64> = buffers.iter().map(|buffer| buffer.bytes).collect();
    let aligns: Vec<u64> = buffers.iter().map(|buffer| buffer.align).collect();
    let mut offsets = vec![0; buffers.len()];
    let total = offsets::assign(&order, &below, &bytes, &aligns, &mut offsets)?;
    for (buffer, offset) in buffers.iter_mut().zip(offsets) {
        buffer.offset = offset;
    }
    Some(total)
}

fn fingerprint(buffers: &[Placed], by_name: &[usize], align: u64, total: u64) -> String {
    let named = by_name.iter().filter_map(|buffer| buffers.get(*buffer));
    named
        .fold(Fingerprint::new(align, total), |hash, buffer| {
            hash.buffer(&buffer.name, buffer.offset, buffer.bytes, buffer.dtype, &buffer.shape)
        })
        .to_string()
}
