//! A program's machine code, loaded: kernels are found by name.

use std::sync::Arc;

use scratchpool::cuda::Cuda;
use scratchpool::cuda::cudarc::driver::sys::CUdevice_attribute;
use scratchpool::cuda::cudarc::driver::{CudaFunction, CudaModule};
use scratchpool::cuda::cudarc::nvrtc::Ptx;

use super::cache;
use super::program::{Architecture, Program};
use crate::error::Error;

/// The device that programs are loaded on, and what launches ask of it.
pub(super) struct Target<'c> {
    cuda: &'c Cuda,
    architecture: Architecture,
    processors: usize,
    most_shared: u32,
}

/// A loaded program.
pub(super) struct Module<'c> {
    cuda: &'c Cuda,
    loaded: Arc<CudaModule>,
    /// Multiprocessors of the device.
    pub(super) processors: usize,
    /// Shared memory that a block can have.
    pub(super) most_shared: u32,
}

impl<'c> Target<'c> {
    pub(super) fn of(cuda: &'c Cuda) -> Result<Self, Error> {
        let (major, minor) = cuda.capability();
        let attribute = |attribute| {
            let found = cuda.context().attribute(attribute).map_err(scratchpool::Error::device)?;
            Ok::<_, Error>(u32::try_from(found).unwrap_or(0))
        };
        let processors = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let most_shared =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let architecture = Architecture::of(major, minor)?;
        Ok(Self { cuda, architecture, processors: processors as usize, most_shared })
    }

    pub(super) const fn processors(&self) -> usize {
        self.processors
    }

    /// Compiles a program, or reads it from the cache, and loads it.
    pub(super) fn load(&self, program: &Program) -> Result<Module<'c>, Error> {
        let code = cache::machine_code(program, &self.architecture)?;
        let loaded = self.cuda.load(Ptx::from_binary(code))?;
        let Self { cuda, processors, most_shared, .. } = *self;
        Ok(Module { cuda, loaded, processors, most_shared })
    }
}

impl Module<'_> {
    pub(super) fn kernel(&self, name: &str) -> Result<CudaFunction, Error> {
        Ok(self.cuda.kernel(&self.loaded, name)?)
    }

    /// How many entries attention takes at a time, as its source decides.
    pub(super) fn keys(&self) -> u32 {
        if self.cuda.capability().0 >= 9 { 64 } else { 32 }
    }
}
