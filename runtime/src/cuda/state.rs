//! What all handles, streams and blocks of one device share: its captures, and the blocks that they
//! keep.
//!
//! Ownership goes round in a circle here, which is why the two types are in one file: a block keeps
//! the device's state, which frees it; and the state keeps, while a graph is captured, the blocks whose
//! pointers the graph will hold. The end of the capture opens the circle.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{CUdeviceptr, CUresult};
use cudarc::driver::{CudaContext, CudaModule};
use cudarc::nvrtc::Ptx;

use super::error::CudaError;
use super::raw;
use super::watch::Watch;

/// The era of work that is executed as it is issued.
pub(super) const EAGER: u64 = 1;

/// What all handles, streams and blocks of one device share.
pub(super) struct Shared {
    pub(super) context: Arc<CudaContext>,
    /// Compute capability, major and minor.
    pub(super) capability: (i32, i32),
    /// The captures that are going on.
    captures: RefCell<Vec<Rc<Taking>>>,
    /// Blocks to be freed once no graph is being captured.
    put_aside: RefCell<Vec<CUdeviceptr>>,
    /// The sanitizer's kernels, loaded at first use.
    watch: OnceCell<Watch>,
}

/// A capture: which streams take part, and whether it is still going on. Streams hold it while it does,
/// and events that were recorded in it until they are recorded again.
pub(super) struct Taking {
    pub(super) era: u64,
    lanes: Box<[u64]>,
    open: Cell<bool>,
    /// Blocks that its streams began to use while it went on.
    kept: RefCell<Vec<Rc<Block>>>,
}

impl Taking {
    /// Whether both streams took part, in a capture that is over if `over`.
    pub(super) fn has(&self, lanes: [u64; 2], over: bool) -> bool {
        self.open.get() != over && lanes.iter().all(|lane| self.lanes.contains(lane))
    }

    /// Keeps a block for the graph.
    pub(super) fn keep(&self, block: &Rc<Block>) {
        if self.open.get() {
            self.kept.borrow_mut().push(Rc::clone(block));
        }
    }
}

/// A number that nothing else of the process has: of a stream, or of a capture.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(EAGER + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(context: Arc<CudaContext>, capability: (i32, i32)) -> Self {
        Self {
            context,
            capability,
            captures: RefCell::default(),
            put_aside: RefCell::default(),
            watch: OnceCell::new(),
        }
    }

    pub(super) fn load(&self, module: Ptx) -> Result<Arc<CudaModule>, CudaError> {
        raw::bind(&self.context)?;
        self.context.load_module(module).map_err(|code| {
            let (major, minor) = self.capability;
            let foreign = matches!(
                code.0,
                CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
                    | CUresult::CUDA_ERROR_INVALID_PTX
                    | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                    | CUresult::CUDA_ERROR_INVALID_IMAGE
            );
            if foreign {
                CudaError::Architecture { major, minor, code }
            } else {
                CudaError::Driver { call: "cuModuleLoadData", code }
            }
        })
    }

    /// The sanitizer's kernels.
    pub(super) fn watch(&self) -> Result<&Watch, CudaError> {
        if let Some(watch) = self.watch.get() {
            return Ok(watch);
        }
        let result = raw::allocate(&self.context, size_of::<u64>())?;
        let loaded = Watch::load(|module| self.load(module), result);
        let watch = loaded.inspect_err(|_| self.free(result))?;
        Ok(self.watch.get_or_init(|| watch))
    }

    /// Notes a capture of streams, by their numbers.
    pub(super) fn open_capture(&self, lanes: Box<[u64]>) -> Rc<Taking> {
        let (open, kept) = (Cell::new(true), RefCell::default());
        let taking = Rc::new(Taking { era: next_number(), lanes, open, kept });
        self.captures.borrow_mut().push(Rc::clone(&taking));
        taking
    }

    /// Notes the end of a capture; gives the blocks that its streams began to use meanwhile.
    pub(super) fn close_capture(&self, taking: &Rc<Taking>) -> Vec<Rc<Block>> {
        taking.open.set(false);
        self.captures.borrow_mut().retain(|it| !Rc::ptr_eq(it, taking));
        self.free_put_aside();
        taking.kept.take()
    }

    pub(super) fn is_capturing(&self) -> bool {
        !self.captures.borrow().is_empty()
    }

    pub(super) fn check_no_capture(&self, what: &'static str) -> Result<(), CudaError> {
        if self.is_capturing() {
            return Err(CudaError::Capturing { what, stream: "any" });
        }
        Ok(())
    }

    /// Frees a block when nothing is in flight, or puts it aside while that cannot be waited for.
    /// A block that cannot be freed is leaked: an error that comes here stays with the context, and
    /// the next call reports it.
    fn free(&self, block: CUdeviceptr) {
        if self.is_capturing() {
            self.put_aside.borrow_mut().push(block);
            return;
        }
        // SAFETY: whoever calls this owned the block and is being dropped.
        let _ = unsafe { raw::free_when_idle(&self.context, block) };
    }

    pub(super) fn free_put_aside(&self) {
        if self.is_capturing() {
            return;
        }
        let blocks = self.put_aside.take();
        for block in blocks {
            self.free(block);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            self.free(watch.result);
        }
        // Captures hold this value, so none is going on.
        self.free_put_aside();
    }
}

/// An allocation, freed when dropped.
pub(super) struct Block {
    pub(super) shared: Rc<Shared>,
    /// Where it starts; 0 once it is another's to free.
    raw: CUdeviceptr,
    /// The numbers of the streams that were told that they use it.
    pub(super) users: RefCell<Vec<u64>>,
}

impl Block {
    pub(super) fn new(shared: &Rc<Shared>, raw: CUdeviceptr) -> Rc<Self> {
        Rc::new(Self { shared: Rc::clone(shared), raw, users: RefCell::default() })
    }

    /// The address, which is now the caller's to free.
    pub(super) fn into_raw(mut self) -> CUdeviceptr {
        std::mem::take(&mut self.raw)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({:#x})", self.raw)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.raw != 0 {
            self.shared.free(self.raw);
        }
    }
}
