//! What the compiler says of declarations in error, and what it takes without a word.
//!
//! One file for each rule, named by it. A file that fails has its `.stderr` beside it; to accept new
//! texts, run with `TRYBUILD=overwrite` and read the difference.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};

#[test]
fn each_error_stands_at_the_tokens_that_caused_it() -> io::Result<()> {
    configurations()?;
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
    Ok(())
}

#[test]
fn declarations_of_every_form_are_taken() -> io::Result<()> {
    configurations()?;
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.pass("tests/pools/*.rs");
    cases.pass(expansions()?);
    Ok(())
}

/// Puts the configurations where the declarations of the test files look for them: paths are
/// relative to the manifest of the crate that declares the pool, and that crate is made by trybuild.
fn configurations() -> io::Result<()> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    let krate = target.join("tests/trybuild").join(env!("CARGO_PKG_NAME"));
    fs::create_dir_all(&krate)?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    copy(&here.join("../examples/configs"), &krate.join("../examples/configs"))?;
    copy(&here.join("tests/ui.config"), &krate.join("ui.config"))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for file in files(from, "json")? {
        let to: PathBuf = to.join(file.file_name().unwrap_or_default());
        // A file that did not change keeps its time, so that nothing is built again for it.
        let text = fs::read(&file)?;
        if fs::read(&to).ok().as_ref() != Some(&text) {
            fs::write(to, text)?;
        }
    }
    Ok(())
}

/// The files of a folder with an extension, in order of name.
fn files(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder)?.map(|file| file.map(|file| file.path()));
    let mut files = files.collect::<io::Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|each| each == extension));
    files.sort();
    Ok(files)
}

/// One program with every expected expansion in a module of its own.
fn expansions() -> io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let mut program = String::new();
    let snapshots = files(&folder, "snap")?;
    assert!(snapshots.len() >= 4);
    for file in snapshots {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&file)?;
        // What stands before the second line of dashes is about the snapshot.
        let parts = text.split_once("\n---\n");
        let (_, expansion) = parts.ok_or_else(|| Error::other("a snapshot without a header"))?;
        let _ = write!(program, "pub mod {name} {{\n{expansion}}}\n\n");
    }
    program.push_str("fn main() {}\n");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("expected_expansions.rs");
    fs::write(&path, program)?;
    Ok(path)
}
