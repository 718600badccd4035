//! Machine code on disk, by content and architecture.
//!
//! A file's name is a hash of the source, of all options and of NVRTC's version. It holds a header
//! with that hash and one of the code, so that a file that was cut short, or is another's, is not
//! used but written again. Files appear by renaming, so readers see whole ones. A cache that
//! cannot be read or written costs time and nothing else.
//!
//! The folder: `SCRATCHPOOL_CACHE`, else `XDG_CACHE_HOME/scratchpool`, else `HOME/.cache/scratchpool`;
//! an empty `SCRATCHPOOL_CACHE` turns the cache off.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use scratchpool::cuda::cudarc::nvrtc::sys;
use scratchpool::cuda::nvrtc;

use super::program::{Architecture, Program};
use crate::error::Error;

const MAGIC: &[u8; 16] = b"scratchpool-bin1";

/// FNV-1a, 128 bits: the same on every machine and for every version of Rust.
fn hash<'b>(parts: impl IntoIterator<Item = &'b [u8]>) -> u128 {
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for part in parts {
        // The length first, so that no two lists of parts read the same.
        for byte in (part.len() as u64).to_le_bytes().iter().chain(part) {
            hash =
                (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
    hash
}

fn folder() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("SCRATCHPOOL_CACHE") {
        return (!folder.is_empty()).then(|| folder.into());
    }
    let base = env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let base = base.or_else(|| Some(env::home_dir()?.join(".cache")))?;
    Some(base.join("scratchpool"))
}

/// What a compilation depends on.
fn key(program: &Program, architecture: &Architecture) -> u128 {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both numbers are written; the caller has checked that NVRTC is there.
    let _ = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    let (source, options) = (program.source(), Program::options(architecture));
    let version = format!("{major}.{minor}");
    let parts = [source.as_bytes(), version.as_bytes()];
    hash(parts.into_iter().chain(options.iter().map(String::as_bytes)))
}

fn read(path: &Path, key: u128) -> Option<Vec<u8>> {
    let file = fs::read(path).ok()?;
    let code = file.strip_prefix(MAGIC)?.strip_prefix(&key.to_le_bytes())?;
    let (sum, code) = code.split_first_chunk::<16>()?;
    (u128::from_le_bytes(*sum) == hash([code])).then(|| code.to_vec())
}

fn write(path: &Path, key: u128, code: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = MAGIC.to_vec();
    file.extend(key.to_le_bytes());
    file.extend(hash([code]).to_le_bytes());
    file.extend(code);
    let partial = path.with_extension(format!("{}.part", process::id()));
    fs::write(&partial, file)?;
    fs::rename(&partial, path)
}

/// The machine code of a program, from disk or compiled.
pub(super) fn machine_code(
    program: &Program,
    architecture: &Architecture,
) -> Result<Vec<u8>, Error> {
    nvrtc::check().map_err(scratchpool::Error::from)?;
    let key = key(program, architecture);
    let path = folder().map(|folder| {
        folder.join(format!("{}-{}-{key:032x}.cubin", program.name, architecture.name()))
    });
    if let Some(code) = path.as_ref().and_then(|path| read(path, key)) {
        return Ok(code);
    }
    let code = program.compile(architecture)?;
    if let Some(path) = path {
        // The next process compiles again; that is all.
        let _ = write(&path, key, &code);
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_cut_short_or_is_anothers_is_not_used() {
        let folder = env::temp_dir().join(format!("scratchpool-cache-test-{}", process::id()));
        let path = folder.join("x.cubin");
        write(&path, 7, b"machine code").unwrap();
        assert_eq!(read(&path, 7).as_deref(), Some(&b"machine code"[..]));
        assert_eq!(read(&path, 8), None);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read(&path, 7), None, "{length}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_hash_tells_where_parts_end() {
        assert_ne!(hash([&b"ab"[..], b"c"]), hash([&b"a"[..], b"bc"]));
        assert_ne!(hash([&b""[..]]), hash([]));
    }
}
