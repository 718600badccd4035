//! The layout of a pool: its arena, and where each buffer lies in it.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use crate::dtype::DType;

/// The layout of an arena whose sizes are constants. Printed, it is a map of the arena.
///
/// ```
/// use scratchpool_tables::{BufferRow, DType, LayoutTable};
///
/// const fn row(name: &'static str, offset: u64, shape: &'static [u64]) -> BufferRow {
///     let bytes = shape[0] * 4;
///     BufferRow { name, offset, bytes, tensor_bytes: bytes, dtype: DType::F32, shape, align: 256 }
/// }
/// const LAYOUT: LayoutTable = LayoutTable {
///     pool: "Small",
///     align: 256,
///     base_align: 256,
///     total_bytes: 1536,
///     sum_bytes: 2048,
///     lower_bound_bytes: 1536,
///     optimal: true,
///     fingerprint: "",
///     buffers: &[row("b.x", 512, &[256]), row("a.x", 0, &[128]), row("c.x", 0, &[128])],
/// };
/// assert_eq!(
///     LAYOUT.to_string(),
///     "\
/// Small: an arena of 1536 bytes, aligned to 256; apart 2048, 512 saved; no smaller arena exists
/// offset  bytes  buffer  tensor    shares bytes with
///      0    512  a.x     f32[128]  c.x
///      0    512  c.x     f32[128]  a.x
///    512   1024  b.x     f32[256]  none
/// "
/// );
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LayoutTable {
    /// The pool's name.
    pub pool: &'static str,
    /// The pool's alignment in bytes.
    pub align: u64,
    /// The alignment that the arena's base needs: the largest of any buffer.
    pub base_align: u64,
    /// The arena's size in bytes.
    pub total_bytes: u64,
    /// What the buffers would take apart, in bytes.
    pub sum_bytes: u64,
    /// The heaviest set of pairwise interfering buffers, in bytes.
    pub lower_bound_bytes: u64,
    /// Whether no smaller arena exists.
    pub optimal: bool,
    /// A stable hash of everything that fixes the bytes.
    pub fingerprint: &'static str,
    /// The buffers in order of declaration.
    pub buffers: &'static [BufferRow],
}

/// One buffer of a layout.
#[derive(Clone, Copy, Debug)]
pub struct BufferRow {
    /// `group.buffer`.
    pub name: &'static str,
    /// Byte offset in the arena.
    pub offset: u64,
    /// Bytes reserved: the tensor's, rounded up to the pool's alignment; 0 if never accessed.
    pub bytes: u64,
    /// Bytes of the tensor itself.
    pub tensor_bytes: u64,
    /// Element type.
    pub dtype: DType,
    /// Extents, row-major.
    pub shape: &'static [u64],
    /// Alignment in bytes.
    pub align: u64,
}

impl fmt::Display for LayoutTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, total_bytes, sum_bytes, lower_bound_bytes, align, .. } = self;
        let saved = sum_bytes.saturating_sub(*total_bytes);
        write!(
            f,
            "{pool}: an arena of {total_bytes} bytes, aligned to {align}; apart {sum_bytes}, {saved} saved; "
        )?;
        if self.optimal {
            writeln!(f, "no smaller arena exists")?;
        } else {
            writeln!(f, "none is smaller than {lower_bound_bytes}")?;
        }
        let mut rows: Vec<&BufferRow> = self.buffers.iter().collect();
        rows.sort_by_key(|row| row.offset);
        let cells = rows.iter().map(|row| {
            let others = rows.iter().filter(|other| other.name != row.name && row.overlaps(other));
            let others: Vec<&str> = others.map(|other| other.name).collect();
            let sharing = match others.as_slice() {
                _ if row.bytes == 0 => "never accessed".to_owned(),
                [] => "none".to_owned(),
                others => others.join(", "),
            };
            let tensor = format!("{}{:?}", row.dtype.as_str(), row.shape);
            [row.offset.to_string(), row.bytes.to_string(), row.name.to_owned(), tensor, sharing]
        });
        let head = ["offset", "bytes", "buffer", "tensor", "shares bytes with"].map(str::to_owned);
        let lines: Vec<[String; 5]> = core::iter::once(head).chain(cells).collect();
        let width = |cell: fn(&[String; 5]) -> &String| {
            lines.iter().map(|line| cell(line).chars().count()).max().unwrap_or(0)
        };
        let [offsets, bytes, names, tensors] = [
            width(|[it, ..]| it),
            width(|[_, it, ..]| it),
            width(|[_, _, it, ..]| it),
            width(|[.., it, _]| it),
        ];
        for [offset, size, name, tensor, sharing] in &lines {
            writeln!(
                f,
                "{offset:>offsets$}  {size:>bytes$}  {name:names$}  {tensor:tensors$}  {sharing}"
            )?;
        }
        Ok(())
    }
}

impl BufferRow {
    /// Whether two buffers have bytes in common.
    const fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes
    }
}
