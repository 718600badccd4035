//! Finding and calling the run-time compiler.
//!
//! cudarc looks NVRTC up by its bare name, and panics where there is none. Where the loader does
//! not know the name, the folders of a toolkit or of a Python wheel are searched, and the library is
//! loaded from there by its path; the bare name then resolves to what is loaded. Looked for once.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx_with_opts};
use libloading::Library;

use super::error::CudaError;

/// The variable that names a folder to look into first, or the one above it.
const FOLDER_VARIABLE: &str = "SCRATCHPOOL_NVRTC";

/// Whether NVRTC can be called.
///
/// # Errors
///
/// [`CudaError::NoNvrtc`], with the folders that were looked into.
pub fn check() -> Result<(), CudaError> {
    static FOUND: OnceLock<Result<(), CudaError>> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

/// Compiles CUDA C++ to PTX for a compute capability. Needs no GPU. `options` are those of NVRTC,
/// such as `--use_fast_math`.
///
/// # Errors
///
/// [`CudaError::NoNvrtc`] and [`CudaError::Compile`].
pub fn compile(
    source: &str,
    (major, minor): (i32, i32),
    options: &[&str],
) -> Result<Ptx, CudaError> {
    check()?;
    if source.contains('\0') {
        return Err(CudaError::Compile { log: "the source holds a zero byte".to_owned() });
    }
    let mut all = vec![format!("--gpu-architecture=compute_{major}{minor}")];
    all.extend(options.iter().map(|option| (*option).to_owned()));
    let options = CompileOptions { options: all, ..CompileOptions::default() };
    compile_ptx_with_opts(source, options).map_err(|error| match error {
        CompileError::CompileError { log, .. } => {
            CudaError::Compile { log: log.to_string_lossy().into_owned() }
        }
        other => CudaError::Compile { log: other.to_string() },
    })
}

/// Whether cudarc would find the library.
fn by_name() -> bool {
    // SAFETY: loading NVRTC runs its initialisers, as any use of it does.
    unsafe { cudarc::nvrtc::sys::is_culib_present() }
}

fn find() -> Result<(), CudaError> {
    let forced = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
    if forced.is_none() && by_name() {
        return Ok(());
    }
    let forced = forced.into_iter().flat_map(|folder| {
        let below = ["lib64", "lib"].map(|name| folder.join(name));
        std::iter::once(folder).chain(below)
    });
    let searched: Vec<PathBuf> = forced.chain(folders()).collect();
    for folder in &searched {
        if load_from(folder) && by_name() {
            return Ok(());
        }
    }
    if by_name() { Ok(()) } else { Err(CudaError::NoNvrtc { searched }) }
}

/// Loads the library, and the one of builtins that it looks for by name, and keeps both.
fn load_from(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    names.sort();
    let starts = |path: &&PathBuf, start: &str| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(start) && !name.contains(".alt."))
    };
    let mut loaded = false;
    for start in ["libnvrtc-builtins.so", "libnvrtc.so"] {
        for path in names.iter().filter(|path| starts(path, start)) {
            // SAFETY: as in `by_name`; the library is never unloaded.
            if let Ok(library) = unsafe { Library::new(path) } {
                std::mem::forget(library);
                loaded = start == "libnvrtc.so";
                break;
            }
        }
    }
    loaded
}

/// The folders in which toolkits and Python wheels put it.
fn folders() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"]
        .iter()
        .filter_map(std::env::var_os)
        .map(PathBuf::from)
        .collect();
    roots.push(PathBuf::from("/usr/local/cuda"));
    let mut found: Vec<PathBuf> =
        roots.iter().flat_map(|root| [root.join("lib64"), root.join("lib")]).collect();
    let mut pythons: Vec<PathBuf> = Vec::new();
    if let Some(path) = std::env::var_os("PYTHONPATH") {
        found.extend(std::env::split_paths(&path).flat_map(|site| wheel_folders(&site)));
    }
    pythons.extend(std::env::var_os("VIRTUAL_ENV").map(PathBuf::from));
    pythons.extend(["/usr/local", "/usr", "/opt/venv"].map(PathBuf::from));
    if let Some(home) = std::env::home_dir() {
        pythons.push(home.join(".local"));
        let versions = std::fs::read_dir(home.join(".pyenv/versions"));
        pythons.extend(versions.into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    for python in pythons {
        for entry in std::fs::read_dir(python.join("lib")).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("python3") {
                for site in ["site-packages", "dist-packages"] {
                    found.extend(wheel_folders(&entry.path().join(site)));
                }
            }
        }
    }
    found
}

/// Those that exist: a machine may have many Pythons.
fn wheel_folders(site: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    ["nvidia/cu13/lib", "nvidia/cu12/lib", "nvidia/cuda_nvrtc/lib"]
        .map(|path| site.join(path))
        .into_iter()
        .filter(|path| path.is_dir())
}
