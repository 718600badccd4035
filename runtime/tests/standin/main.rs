//! The CUDA device on a stand-in for the driver: each call that it makes, compared with what the
//! schedule wants.
//!
//! The stand-in, `driver.rs`, is compiled to a library that bears the driver's name and loaded first, so
//! that whatever asks the loader for the driver afterwards finds it. It executes nothing and writes down
//! each call; rules of captures that the driver enforces, it enforces too. What real kernels see is the
//! GPU tests' affair.

#![cfg(all(feature = "cuda", target_os = "linux"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::pedantic,
    reason = "a test fails by panicking"
)]

mod attacks;
mod order;

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;
use scratchpool::Error;
use scratchpool::cuda::cudarc::driver::{CudaFunction, LaunchConfig};
use scratchpool::cuda::cudarc::nvrtc::Ptx;
use scratchpool::cuda::{Cuda, KernelArg, Stream};

static DRIVER: OnceLock<Library> = OnceLock::new();
static TURN: Mutex<()> = Mutex::new(());

/// Compiles the stand-in and loads it under the driver's name, once.
fn driver() -> &'static Library {
    DRIVER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // A name of its own: another process may be at the same.
        let built = folder.join(format!("standin-{}.so", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/driver.rs");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let done = Command::new(rustc)
            .args(["--edition=2024", "--crate-name=standin", "--crate-type=cdylib"])
            .args(["-Clink-arg=-Wl,-soname,libcuda.so", "-Awarnings", "-o"])
            .arg(&built)
            .arg(&source)
            .status()
            .expect("the compiler starts");
        assert!(done.success(), "the stand-in compiles");
        // SAFETY: its initialisers do nothing.
        let library = unsafe { Library::new(&built) }.expect("the stand-in loads");
        std::fs::remove_file(&built).unwrap();
        library
    })
}

/// The device on the stand-in, for the test whose turn it is.
struct Lab {
    cuda: Cuda,
    kernel: CudaFunction,
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the symbol has this type.
        unsafe { driver().get::<extern "C" fn()>(b"standin_reset\0").unwrap()() };
        let cuda = Cuda::open(0).unwrap();
        let module = cuda.load(Ptx::from_src("")).unwrap();
        let kernel = cuda.kernel(&module, "k").unwrap();
        Self { cuda, kernel, _turn: turn }
    }

    /// The calls since the last time.
    fn calls(&self) -> Vec<String> {
        // SAFETY: the symbols have these types; the text is given back once.
        unsafe {
            let take = driver().get::<extern "C" fn() -> *mut c_char>(b"standin_take_log\0");
            let free = driver().get::<unsafe extern "C" fn(*mut c_char)>(b"standin_free\0");
            let text = take.unwrap()();
            let lines = CStr::from_ptr(text).to_str().unwrap().lines().map(str::to_owned).collect();
            free.unwrap()(text);
            lines
        }
    }

    /// The launches since the last time: how each was launched.
    fn kinds(&self) -> Vec<String> {
        let launches = self.calls().into_iter().filter(|call| call.starts_with("launch"));
        launches.map(|call| call.split(' ').nth(3).unwrap().to_owned()).collect()
    }

    /// Makes the call of a name fail, after so many that succeed.
    fn fail(&self, call: &str, calls: usize) {
        let call = CString::new(call).unwrap();
        // SAFETY: the symbol has this type, and the string ends.
        unsafe {
            let fail =
                driver().get::<unsafe extern "C" fn(*const c_char, usize)>(b"standin_fail\0");
            fail.unwrap()(call.as_ptr(), calls);
        }
    }

    /// Launches on a stream, with one argument.
    fn launch(&self, stream: &Stream, argument: &impl KernelArg) -> Result<(), Error> {
        let config =
            LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: nothing is executed.
        unsafe { stream.kernel(&self.kernel).arg(argument).launch(config) }
    }
}
