//! Kernels of the sanitizer, in PTX, so that it needs no compiler at run time.
//!
//! Each reduces bytes to one number in a word of its own, which the host then reads; calls come one
//! at a time and wait for their result, so one word is enough.

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaFunction, CudaModule, CudaStream, LaunchConfig};
use cudarc::nvrtc::Ptx;

use super::error::CudaError;
use super::raw;

/// The kernels: each thread takes every so-many-th byte.
pub(super) const SOURCE: &str = r"
.version 7.0
.target sm_70
.address_size 64

// The least index of a byte that is not `value`.
.visible .entry find_other(.param .u64 from, .param .u64 bytes, .param .u32 value, .param .u64 result)
{
    .reg .pred %p<3>;
    .reg .b32 %r<8>;
    .reg .b64 %d<9>;
    ld.param.u64 %d1, [from];
    cvta.to.global.u64 %d1, %d1;
    ld.param.u64 %d2, [bytes];
    ld.param.u32 %r1, [value];
    ld.param.u64 %d3, [result];
    cvta.to.global.u64 %d3, %d3;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mov.u32 %r5, %nctaid.x;
    cvt.u64.u32 %d4, %r4;
    mad.wide.u32 %d4, %r2, %r3, %d4;
    mul.wide.u32 %d5, %r5, %r3;
NEXT:
    setp.ge.u64 %p1, %d4, %d2;
    @%p1 bra DONE;
    add.u64 %d6, %d1, %d4;
    ld.global.u8 %r6, [%d6];
    setp.ne.u32 %p2, %r6, %r1;
    @%p2 bra FOUND;
    add.u64 %d4, %d4, %d5;
    bra NEXT;
FOUND:
    atom.global.min.u64 %d7, [%d3], %d4;
DONE:
    ret;
}

// The sum of (m xor (m >> 29)) * (byte + 1), where m is (index + 1) * 0x9e3779b97f4a7c15.
.visible .entry digest(.param .u64 from, .param .u64 bytes, .param .u64 result)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %d<16>;
    ld.param.u64 %d1, [from];
    cvta.to.global.u64 %d1, %d1;
    ld.param.u64 %d2, [bytes];
    ld.param.u64 %d3, [result];
    cvta.to.global.u64 %d3, %d3;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mov.u32 %r5, %nctaid.x;
    cvt.u64.u32 %d4, %r4;
    mad.wide.u32 %d4, %r2, %r3, %d4;
    mul.wide.u32 %d5, %r5, %r3;
    mov.u64 %d8, 0;
NEXT:
    setp.ge.u64 %p1, %d4, %d2;
    @%p1 bra DONE;
    add.u64 %d6, %d1, %d4;
    ld.global.u8 %r6, [%d6];
    add.u32 %r6, %r6, 1;
    cvt.u64.u32 %d9, %r6;
    add.u64 %d10, %d4, 1;
    mul.lo.u64 %d10, %d10, 0x9e3779b97f4a7c15;
    shr.u64 %d11, %d10, 29;
    xor.b64 %d10, %d10, %d11;
    mul.lo.u64 %d10, %d10, %d9;
    add.u64 %d8, %d8, %d10;
    add.u64 %d4, %d4, %d5;
    bra NEXT;
DONE:
    atom.global.add.u64 %d12, [%d3], %d8;
    ret;
}
";

/// The kernels, loaded, and the word of their result.
#[derive(Debug)]
pub(super) struct Watch {
    find_other: CudaFunction,
    digest: CudaFunction,
    /// Eight bytes, freed by whoever owns this.
    pub(super) result: CUdeviceptr,
}

impl Watch {
    pub(super) fn load(
        load: impl FnOnce(Ptx) -> Result<Arc<CudaModule>, CudaError>,
        result: CUdeviceptr,
    ) -> Result<Self, CudaError> {
        let module = load(Ptx::from_src(SOURCE))?;
        let kernel = |name| raw::named("cuModuleGetFunction", module.load_function(name));
        Ok(Self { find_other: kernel("find_other")?, digest: kernel("digest")?, result })
    }

    /// The first byte that is not `value`.
    ///
    /// # Safety
    ///
    /// `from` has `bytes` bytes behind it in a live block.
    pub(super) unsafe fn find_other(
        &self,
        stream: &CudaStream,
        from: CUdeviceptr,
        bytes: usize,
        value: u8,
    ) -> Result<Option<usize>, CudaError> {
        let (count, value) = (bytes as u64, u32::from(value));
        let mut arguments = [
            (&raw const from).cast_mut().cast(),
            (&raw const count).cast_mut().cast(),
            (&raw const value).cast_mut().cast(),
            (&raw const self.result).cast_mut().cast(),
        ];
        // SAFETY: the kernel takes these four, reads the caller's bytes and writes the result.
        let found =
            unsafe { self.reduce(stream, &self.find_other, bytes, u8::MAX, &mut arguments) }?;
        Ok(usize::try_from(found).ok().filter(|at| *at < bytes))
    }

    /// The digest of bytes.
    ///
    /// # Safety
    ///
    /// As [`find_other`](Self::find_other).
    pub(super) unsafe fn digest(
        &self,
        stream: &CudaStream,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<u64, CudaError> {
        let count = bytes as u64;
        let mut arguments = [
            (&raw const from).cast_mut().cast(),
            (&raw const count).cast_mut().cast(),
            (&raw const self.result).cast_mut().cast(),
        ];
        // SAFETY: as above, with three.
        unsafe { self.reduce(stream, &self.digest, bytes, 0, &mut arguments) }
    }

    /// Sets the result's bytes, runs a kernel, and reads the result.
    unsafe fn reduce(
        &self,
        stream: &CudaStream,
        kernel: &CudaFunction,
        bytes: usize,
        start: u8,
        arguments: &mut [*mut core::ffi::c_void],
    ) -> Result<u64, CudaError> {
        let blocks = u32::try_from(bytes.div_ceil(256).clamp(1, 2048)).unwrap_or(1);
        let config =
            LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        let mut result = [0; 8];
        // SAFETY: the result's own eight bytes; the caller's promise for the kernel.
        unsafe {
            raw::fill(stream, self.result, 8, start)?;
            raw::launch(stream, kernel.cu_function(), config, false, arguments)?;
            raw::read(stream, self.result, &mut result)?;
        }
        Ok(u64::from_le_bytes(result))
    }
}
