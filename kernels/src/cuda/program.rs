//! The sources, and their compilation.

use std::ffi::{CStr, CString};

use scratchpool::cuda::cudarc::nvrtc::{result, sys};
use scratchpool::cuda::nvrtc;

use crate::error::Error;

/// What all sources begin with.
const COMMON: &str = include_str!("../../cuda/common.cuh");

/// One source file and the kernels in it.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// The kernels that are launched from it.
    pub kernels: &'static [&'static str],
    text: &'static str,
}

macro_rules! program {
    ($name:literal: $($kernel:literal)*) => {
        Program {
            name: $name,
            kernels: &[$($kernel),*],
            text: include_str!(concat!("../../cuda/", $name, ".cu")),
        }
    };
}

/// All programs, in the order of `CudaKernels`' tables.
pub const PROGRAMS: [Program; 7] = [
    program!("q_insert":
        "q_insert_paged_bf16_1" "q_insert_paged_bf16_2" "q_insert_paged_bf16_4"
        "q_insert_rows_bf16_1" "q_insert_rows_bf16_2" "q_insert_rows_bf16_4"
        "q_insert_fp8_bf16_1" "q_insert_fp8_bf16_2" "q_insert_fp8_bf16_4"
        "q_insert_paged_fp8_1" "q_insert_paged_fp8_2" "q_insert_paged_fp8_4"
        "q_insert_rows_fp8_1" "q_insert_rows_fp8_2" "q_insert_rows_fp8_4"
        "q_insert_fp8_fp8_1" "q_insert_fp8_fp8_2" "q_insert_fp8_fp8_4"),
    program!("indexer_q":
        "indexer_q_fp8_any" "indexer_q_fp8_4" "indexer_q_mxfp4_any" "indexer_q_mxfp4_4"),
    program!("topk_map":
        "topk_map_warp" "topk_map_in_place" "topk_map_packed" "combine_indices"),
    program!("compressor":
        "save_state" "compress_main" "compress_fp8" "compress_mxfp4" "compress_pool"
        "compress_store"),
    program!("indexer_topk": "indexer_logits_fp8" "indexer_logits_mxfp4" "indexer_topk"),
    program!("attention": "attention"),
    program!("gather": "gather_paged" "gather_rows"),
];

/// An architecture to compile for.
///
/// ```
/// use scratchpool_kernels::cuda::Architecture;
/// assert_eq!(Architecture::of(9, 0)?.name(), "sm_90a");
/// assert_eq!(Architecture::of(10, 0)?.name(), "sm_100a");
/// assert_eq!(Architecture::common_to(10, 0)?.name(), "sm_100");
/// assert!(Architecture::of(7, 5).is_err());
/// # Ok::<(), scratchpool_kernels::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Architecture(String);

impl Architecture {
    /// That of a compute capability.
    ///
    /// # Errors
    ///
    /// [`Error::TooOld`] before 8.0.
    pub fn of(major: i32, minor: i32) -> Result<Self, Error> {
        if major < 8 {
            return Err(Error::TooOld { major, minor });
        }
        // With the suffix come the instructions that only some GPUs have: a conversion to E2M1 from
        // 10.0 on. The code is for one GPU, so it need not run on another.
        let suffix = if (9..=12).contains(&major) { "a" } else { "" };
        Ok(Self(format!("sm_{major}{minor}{suffix}")))
    }

    /// What all GPUs from a compute capability on have in common, within its major version: without
    /// the instructions that only some have, so the kernels round to E2M1 by arithmetic.
    ///
    /// # Errors
    ///
    /// [`Error::TooOld`] before 8.0.
    pub fn common_to(major: i32, minor: i32) -> Result<Self, Error> {
        if major < 8 {
            return Err(Error::TooOld { major, minor });
        }
        Ok(Self(format!("sm_{major}{minor}")))
    }

    /// Its name, as NVRTC knows it.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Program {
    /// The whole source.
    pub fn source(&self) -> String {
        format!("{COMMON}\n#line 1 \"{}.cu\"\n{}", self.name, self.text)
    }

    /// The options that it is compiled with.
    pub(crate) fn options(architecture: &Architecture) -> [String; 3] {
        [
            format!("--gpu-architecture={}", architecture.name()),
            "--std=c++17".to_owned(),
            "--generate-line-info".to_owned(),
        ]
    }

    /// Compiles it to machine code. Needs NVRTC and no GPU.
    ///
    /// # Errors
    ///
    /// A missing NVRTC as the runtime's error, and [`Error::Compile`] with NVRTC's log.
    pub fn compile(&self, architecture: &Architecture) -> Result<Vec<u8>, Error> {
        nvrtc::check().map_err(scratchpool::Error::from)?;
        let refused = |code: String, log: String| Error::Compile {
            program: self.name,
            arch: architecture.name().to_owned(),
            code,
            log,
        };
        let failed = |code: result::NvrtcError| refused(code.to_string(), String::new());
        let source = CString::new(self.source())
            .map_err(|_| refused("a zero byte in the source".to_owned(), String::new()))?;
        let handle = Handle(result::create_program(&source, None).map_err(failed)?);
        // SAFETY: the handle is live until the end of this function.
        let compiled = unsafe { result::compile_program(handle.0, &Self::options(architecture)) };
        if let Err(code) = compiled {
            // SAFETY: as above.
            let log = unsafe { result::get_program_log(handle.0) }.unwrap_or_default();
            return Err(refused(code.to_string(), text(&log)));
        }
        let mut size = 0;
        // SAFETY: as above; `size` is written.
        unsafe { sys::nvrtcGetCUBINSize(handle.0, &raw mut size) }.result().map_err(failed)?;
        let mut code = vec![0_u8; size];
        // SAFETY: as above, and the buffer has the size that NVRTC asked for.
        unsafe { sys::nvrtcGetCUBIN(handle.0, code.as_mut_ptr().cast()) }
            .result()
            .map_err(failed)?;
        Ok(code)
    }
}

/// A program of NVRTC's, destroyed when dropped.
struct Handle(sys::nvrtcProgram);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by `create_program`, and destroyed once, here. It can only fail for an
        // invalid handle.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// A text of NVRTC's, up to its zero byte.
fn text(log: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = log.iter().map(|byte| byte.to_ne_bytes()[0]).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}
