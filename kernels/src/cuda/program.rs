//! The sources, and their compilation.

use std::ffi::{CStr, CString};

use scratchpool::cuda::cudarc::nvrtc::{result, sys};
use scratchpool::cuda::nvrtc;

use super::params::Layout;
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
    /// The structs that its kernels take.
    params: &'static [Layout],
    text: &'static str,
}

impl Program {
    /// A program of the file `cuda/NAME.cu`, whose text is `text`.
    pub(super) const fn new(
        name: &'static str,
        kernels: &'static [&'static str],
        params: &'static [Layout],
        text: &'static str,
    ) -> Self {
        Self { name, kernels, params, text }
    }
}

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
    /// The whole source, with the assertions of its parameters' layout.
    pub fn source(&self) -> String {
        let name = self.name;
        let layouts: String = self.params.iter().map(Layout::assertions).collect();
        let text = self.text;
        format!("{COMMON}\n#line 1 \"{name}.cu\"\n{text}\n#line 1 \"{name}.layout\"\n{layouts}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::PROGRAMS;

    #[test]
    fn a_struct_that_differs_from_the_sources_does_not_compile() {
        let planted = || {
            PROGRAMS.iter().flat_map(|program| program.params.iter().map(move |it| (program, it)))
        };
        assert_eq!(planted().count(), 13);
        let missing = nvrtc::check().err();
        let architecture = Architecture::of(9, 0).unwrap();
        for (program, layout) in planted() {
            let (start, last) = (format!("struct {} {{", layout.name), layout.fields.last());
            assert!(last.is_some() && program.text.contains(&start), "{}", layout.name);
            if missing.is_some() {
                continue;
            }
            let refused = format!(
                "static assertion failed with \"{} is not laid out as in Rust\"",
                layout.name
            );
            // One field more in front; and a size that is right, with two fields exchanged.
            let longer = program.text.replacen(&start, &format!("{start} u64 planted;"), 1);
            let text: &'static str = longer.leak();
            let error = Program { text, ..*program }.compile(&architecture).unwrap_err();
            assert!(error.to_string().contains(&refused), "{error}");
            let mut fields = layout.fields.to_vec();
            if let [first, second, ..] = fields.as_mut_slice() {
                core::mem::swap(&mut first.name, &mut second.name);
            }
            let exchanged = Layout { fields: fields.leak(), ..*layout };
            let params: &'static [Layout] = vec![exchanged].leak();
            let error = Program { params, ..*program }.compile(&architecture).unwrap_err();
            assert!(error.to_string().contains(&refused), "{error}");
        }
        match missing {
            Some(error) => println!("SKIPPED {} compilations: {error}", 2 * planted().count()),
            None => println!("RESULT refused {} planted layouts", 2 * planted().count()),
        }
    }
}
