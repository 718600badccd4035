//! Aligned, zeroed host memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::error::Error;

/// One allocation, given back when dropped.
///
/// Invariant: `raw` was allocated with `layout` and is given back once, here; `start` is inside it,
/// aligned as asked, with the bytes asked behind it.
#[derive(Debug)]
pub(super) struct Block {
    raw: NonNull<u8>,
    layout: Layout,
    start: *mut u8,
}

impl Block {
    /// `bytes` zero bytes aligned to `align`, a power of two.
    pub(super) fn zeroed(bytes: u64, align: u64) -> Result<Self, Error> {
        let too_large = || Error::TooLarge { bytes, align };
        let align_usize = usize::try_from(align).map_err(|_| too_large())?.max(1);
        // Room to align inside, rather than an aligned request: the system zeroes large requests
        // of ordinary alignment page by page on first touch, and aligned ones at once.
        let layout = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| bytes.checked_add(align_usize))
            .and_then(|bytes| Layout::from_size_align(bytes, 1).ok())
            .ok_or_else(too_large)?;
        // SAFETY: the layout's size is at least `align_usize`, that is at least 1.
        let raw = unsafe { alloc_zeroed(layout) };
        let raw = NonNull::new(raw).ok_or(Error::OutOfMemory { bytes, align })?;
        let gap = raw.as_ptr().align_offset(align_usize);
        // For a byte pointer and a power of two the gap is below the alignment; anything else
        // would mean that no aligned address exists.
        if gap >= align_usize {
            // SAFETY: allocated above with this layout, and not used since.
            unsafe { dealloc(raw.as_ptr(), layout) };
            return Err(too_large());
        }
        Ok(Self { raw, layout, start: raw.as_ptr().wrapping_add(gap) })
    }

    /// The aligned start.
    pub(super) const fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the type's invariant. Whoever drops a block has made sure that no kernel that
        // could touch it is still to run (`Executor::retire`).
        unsafe { dealloc(self.raw.as_ptr(), self.layout) }
    }
}
