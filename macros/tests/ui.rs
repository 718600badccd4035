//! What the compiler says of declarations in error, and what it takes without a word.
//!
//! One file for each rule, named by it. A file that fails has its `.stderr` beside it; to accept new
//! texts, run with `TRYBUILD=overwrite` and read the difference.

use std::fs;
use std::path::{Path, PathBuf};

/// Puts the configurations where the declarations of the test files look for them: paths are
/// relative to the manifest of the crate that declares the pool, and that crate is made by trybuild.
fn configurations() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("is in the target folder");
    let krate = target.join("tests/trybuild").join(env!("CARGO_PKG_NAME"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    copy(&here.join("../examples/configs"), &krate.join("../examples/configs"));
    copy(&here.join("tests/ui.config"), &krate.join("ui.config"));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the target folder can be written");
    let files = fs::read_dir(from).expect("the folder is part of the tests");
    for file in files.map(|file| file.expect("a readable folder").path()) {
        let to: PathBuf = to.join(file.file_name().expect("a file has a name"));
        // A file that did not change keeps its time, so that nothing is built again for it.
        let text = fs::read(&file).expect("a readable file");
        if fs::read(&to).ok().as_ref() != Some(&text) {
            fs::write(to, text).expect("the target folder can be written");
        }
    }
}

#[test]
fn each_error_stands_at_the_tokens_that_caused_it() {
    configurations();
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

#[test]
fn declarations_of_every_form_are_taken() {
    configurations();
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.pass("tests/pools/*.rs");
    cases.pass(expansions());
}

/// One program with every expected expansion in a module of its own, as a reader would paste it.
fn expansions() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let files = fs::read_dir(folder).expect("the folder is part of the tests");
    let mut files: Vec<PathBuf> =
        files.map(|file| file.expect("a readable folder").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "snap"));
    files.sort();
    assert!(files.len() >= 4);
    let mut program = String::new();
    for file in files {
        let name = file.file_stem().expect("a file has a name").to_string_lossy();
        let text = fs::read_to_string(&file).expect("a readable file");
        // What stands before the second line of dashes is about the snapshot.
        let (_, expansion) = text.split_once("\n---\n").expect("a snapshot has a header");
        program.push_str(&format!("pub mod {name} {{\n{expansion}}}\n\n"));
    }
    program.push_str("fn main() {}\n");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("expected_expansions.rs");
    fs::write(&path, program).expect("the target folder can be written");
    path
}
