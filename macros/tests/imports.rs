//! No file of a crate needs another that needs it: the imports of every crate are free of circles,
//! but for those that are listed here with a reason.
//!
//! # The rule
//!
//! A node is a file under `src/` of a member of the workspace. A file has an edge to the file that
//! *defines* a name which it imports (`use crate::…`, `use super::…`, `use child::…`) or writes as
//! a path (`super::name`, `child::name`, `module::name` of an imported module).
//!
//! - A name that a module re-exports counts as the file that defines it. So a parent that only
//!   declares modules and re-exports is never imported from, and is on no circle. A parent with
//!   items of its own that its children import, and which calls the children, is on one.
//! - `mod name;` is no edge, and neither is an import of a module as such; what is used of it is.
//! - Code under `#[cfg(test)]` does not count: tests may look at anything.
//! - Code in quotation (`quote!`) is not code of the file.
//! - What a method call needs is not seen. Methods of a type may stand in several files of a folder.
//!
//! Between crates there is no circle, or cargo would refuse to build them.
#![allow(clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Circles that stay, each with its files and the reason.
const CIRCLES: &[(&[&str], &str)] = &[(
    &[
        "planner/src/packing/bound.rs",
        "planner/src/packing/greedy.rs",
        "planner/src/packing/mod.rs",
        "planner/src/packing/search.rs",
    ],
    "the packer is being rewritten; what its parts share gets a file with that",
)];

#[test]
fn imports_run_in_no_circle() {
    let mut found = Vec::new();
    let mut said = String::new();
    for folder in members() {
        let sources = Sources::of(&folder);
        let edges = sources.edges();
        for circle in circles(&edges) {
            let files = names(&circle);
            let listed = |known: &[&str]| files.iter().all(|file| known.contains(&file.as_str()));
            if !CIRCLES.iter().any(|(known, _)| listed(known)) {
                let _ = writeln!(said, "a circle of {}", files.join(", "));
                for ((from, to), why) in &edges {
                    if circle.contains(from) && circle.contains(to) {
                        let (to, why) = (name(to), why.iter().take(4).cloned().collect::<Vec<_>>());
                        let _ = writeln!(said, "  {} -> {to}: {}", name(from), why.join(", "));
                    }
                }
            }
            found.push(files);
        }
    }
    for (known, _) in CIRCLES {
        let of_these =
            |files: &Vec<String>| files.iter().all(|file| known.contains(&file.as_str()));
        if !found.iter().any(of_these) {
            let _ = writeln!(said, "no circle any more, so not to be listed: {}", known.join(", "));
        }
    }
    assert!(said.is_empty(), "\n{said}");
}

#[test]
fn every_file_is_a_module_and_is_read() {
    // A file that no `mod` names, or one that is reached in a way that is not followed here, would
    // be missing from the graph.
    for folder in members() {
        let sources = Sources::of(&folder);
        let files: BTreeSet<PathBuf> = files(&folder.join("src")).into_iter().collect();
        let read = sources.modules.values().map(|module| module.file.clone());
        let read: BTreeSet<PathBuf> = read.chain(sources.of_tests.iter().cloned()).collect();
        assert_eq!(files.difference(&read).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
        // The parts of a crate lean on one another.
        assert!(files.len() < 4 || !sources.edges().is_empty(), "{}", folder.display());
    }
}

#[test]
fn the_runtime_links_no_prover() {
    let manifests: BTreeMap<String, String> = members()
        .iter()
        .map(|folder| fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default())
        .filter_map(|text| {
            let name = text.lines().find_map(|line| line.strip_prefix("name = "))?;
            Some((name.trim_matches('"').to_owned(), text))
        })
        .collect();
    let needs = |krate: &str| -> Vec<String> {
        let text = manifests.get(krate).unwrap_or_else(|| panic!("no crate {krate}"));
        let section = text.split("\n[").find_map(|section| section.strip_prefix("dependencies]"));
        let lines = section.unwrap_or("").lines();
        let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
        names.filter(|name| manifests.contains_key(*name)).map(str::to_owned).collect()
    };
    // What a macro needs runs in the compiler and is in no program.
    let linked = |krate: &str| {
        let is_macro = |name: &String| {
            manifests.get(name).is_some_and(|text| text.contains("proc-macro = true"))
        };
        let mut linked = BTreeSet::new();
        let mut open = vec![krate.to_owned()];
        while let Some(krate) = open.pop() {
            if linked.insert(krate.clone()) {
                open.extend(needs(&krate).into_iter().filter(|name| !is_macro(name)));
            }
        }
        linked
    };
    assert_eq!(linked("scratchpool-tables").len(), 1, "the shared words depend on nothing");
    for krate in ["scratchpool", "scratchpool-kernels"] {
        let linked = linked(krate);
        assert!(linked.contains("scratchpool-tables"), "{linked:?}");
        assert!(!linked.contains("scratchpool-planner"), "{linked:?}");
    }
    assert!(linked("scratchpool-examples").contains("scratchpool-planner"));
}

#[test]
fn circles_are_found() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("imports");
    let graph = |files: &[(&str, &str)]| {
        let _ = fs::remove_dir_all(&folder);
        for (file, text) in files {
            let path = folder.join("src").join(file);
            fs::create_dir_all(path.parent().unwrap_or(&path)).unwrap_or_else(|e| panic!("{e}"));
            fs::write(path, text).unwrap_or_else(|e| panic!("{e}"));
        }
        let edges = Sources::of(&folder).edges();
        circles(&edges).iter().map(names).collect::<Vec<_>>()
    };
    let circle = |files: &[&str]| {
        vec![files.iter().map(|file| format!("imports/src/{file}")).collect::<Vec<_>>()]
    };
    let two = ("lib.rs", "mod a; mod b;");
    assert_eq!(
        graph(&[
            two,
            ("a.rs", "use crate::b::B; struct A;"),
            ("b.rs", "use super::a::A; struct B;")
        ]),
        circle(&["a.rs", "b.rs"])
    );
    // A path in a function counts like an import, also by an imported module.
    assert_eq!(
        graph(&[
            two,
            ("a.rs", "use crate::b; fn f() { b::g() }"),
            ("b.rs", "fn g() { crate::a::f() }")
        ]),
        circle(&["a.rs", "b.rs"])
    );
    // An import of a module as such, tests and quotations do not count.
    assert_eq!(
        graph(&[
            two,
            ("a.rs", "use crate::b; fn f() { quote!(crate::b::g) }"),
            ("b.rs", "fn g() { crate::a::f() } #[cfg(test)] mod tests { use crate::a::f; }")
        ]),
        Vec::<Vec<String>>::new()
    );
    // A parent that only re-exports does not count, but what it re-exports does.
    let parent = ("p/mod.rs", "mod c; mod d; pub use c::C; pub use d::D;");
    let lib = ("lib.rs", "mod p; mod q;");
    assert_eq!(
        graph(&[
            lib,
            parent,
            ("p/c.rs", "struct C;"),
            ("p/d.rs", "use crate::p::C; struct D;"),
            ("q.rs", "use crate::p::D;")
        ]),
        Vec::<Vec<String>>::new()
    );
    assert_eq!(
        graph(&[
            lib,
            parent,
            ("p/c.rs", "use crate::q::Q; struct C;"),
            ("p/d.rs", "struct D;"),
            ("q.rs", "use crate::p::{C, D}; struct Q;")
        ]),
        circle(&["p/c.rs", "q.rs"])
    );
    // A parent with items of its own is on a circle with the children that it calls.
    assert_eq!(
        graph(&[
            ("lib.rs", "mod p;"),
            ("p.rs", "mod c; struct Shared; fn all() { c::part() }"),
            ("p/c.rs", "use super::Shared; fn part() {}")
        ]),
        circle(&["p.rs", "p/c.rs"])
    );
    // Names from a glob are those of the module behind it.
    assert_eq!(
        graph(&[
            ("lib.rs", "mod a; mod b; mod front { pub use crate::a::*; }"),
            ("a.rs", "pub struct A; use crate::b::B;"),
            ("b.rs", "use crate::front::A; struct B;")
        ]),
        circle(&["a.rs", "b.rs"])
    );
}

// ---- the sources of one crate ----

type Words = Vec<String>;

/// A module: a file, or an inline part of one.
#[derive(Default)]
struct Module {
    file: PathBuf,
    children: BTreeSet<String>,
    /// Items that it defines.
    items: BTreeSet<String>,
    /// What it imports: the name here, the path, and the line.
    imports: Vec<(String, Words, usize)>,
    /// Paths that its code writes.
    paths: Vec<(Words, usize)>,
}

/// The modules of a crate by their path; the roots of binaries begin with `bin` and their name.
#[derive(Default)]
struct Sources {
    modules: BTreeMap<Words, Module>,
    /// Files of modules that are compiled for tests only.
    of_tests: BTreeSet<PathBuf>,
}

type Edges = BTreeMap<(PathBuf, PathBuf), Vec<String>>;

impl Sources {
    fn of(folder: &Path) -> Self {
        let mut sources = Self::default();
        let source = folder.join("src");
        sources.read(&source.join("lib.rs"), &Vec::new());
        let main = source.join("main.rs");
        let bins = files(&source.join("bin")).into_iter().chain([main]);
        for bin in bins {
            sources.read(&bin, &vec![format!("bin {}", bin.display())]);
        }
        sources
    }

    fn read(&mut self, file: &Path, module: &Words) {
        let Ok(text) = fs::read_to_string(file) else { return };
        let tokens: TokenStream =
            text.parse().unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.walk(tokens, module, file);
    }

    /// The file of a child module.
    fn child(file: &Path, module: &[String], name: &str) -> Option<PathBuf> {
        let parent = file.parent()?;
        let stem = file.file_stem()?.to_str()?;
        let is_root =
            ["lib", "main", "mod"].contains(&stem) || module.len() == 1 && stem_is_bin(file);
        let folder = if is_root { parent.to_owned() } else { parent.join(stem) };
        [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")]
            .into_iter()
            .find(|path| path.exists())
    }

    fn walk(&mut self, tokens: TokenStream, module: &Words, file: &Path) {
        file.clone_into(&mut self.modules.entry(module.clone()).or_default().file);
        let mut rest = tokens.into_iter().collect::<Vec<_>>().into_iter().peekable();
        // Whether the item at hand is for tests only, and the token before this one.
        let mut test = false;
        let mut before = String::new();
        while let Some(token) = rest.next() {
            let word = token.to_string();
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    rest.next_if(|next| next.to_string() == "!");
                    if let Some(TokenTree::Group(group)) = rest.peek()
                        && group.delimiter() == Delimiter::Bracket
                    {
                        test |= group.stream().to_string().replace(' ', "") == "cfg(test)";
                        rest.next();
                    }
                }
                TokenTree::Group(group) => {
                    if !test {
                        self.walk(group.stream(), module, file);
                    }
                    test &= group.delimiter() != Delimiter::Brace;
                }
                TokenTree::Punct(punct) => test &= punct.as_char() != ';',
                TokenTree::Ident(ident) if word == "use" && before != "+" => {
                    let line = ident.span().start().line;
                    let mut tree = Vec::new();
                    while let Some(part) = rest.next_if(|next| next.to_string() != ";") {
                        tree.push(part);
                    }
                    if !test {
                        let mut imports = Vec::new();
                        leaves(tree.into_iter().peekable(), &[], &mut imports);
                        let imports = imports.into_iter().map(|(name, path)| (name, path, line));
                        self.modules.entry(module.clone()).or_default().imports.extend(imports);
                    }
                }
                TokenTree::Ident(_) if word == "mod" => {
                    let Some(TokenTree::Ident(name)) = rest.next() else { continue };
                    let name = name.to_string();
                    let mut child = module.clone();
                    child.push(name.clone());
                    match rest.next() {
                        Some(TokenTree::Group(body)) if !test => {
                            self.declare(module, &name);
                            self.walk(body.stream(), &child, file);
                        }
                        Some(TokenTree::Punct(_)) => {
                            let Some(path) = Self::child(file, module, &name) else {
                                panic!("{}: no file of module {name}", file.display())
                            };
                            if test {
                                let folder = path.with_extension("");
                                self.of_tests.extend(files(&folder).into_iter().chain([path]));
                            } else {
                                self.declare(module, &name);
                                self.read(&path, &child);
                            }
                        }
                        _ => {}
                    }
                    test = false;
                }
                TokenTree::Ident(_) if ITEMS.contains(&word.as_str()) => {
                    if let Some(TokenTree::Ident(name)) = rest.peek() {
                        let name = name.to_string();
                        self.modules.entry(module.clone()).or_default().items.insert(name);
                    }
                }
                TokenTree::Ident(_) if QUOTES.contains(&word.as_str()) => {
                    if rest.next_if(|next| next.to_string() == "!").is_some() {
                        rest.next();
                    }
                }
                TokenTree::Ident(ident) => {
                    let line = ident.span().start().line;
                    let mut path = vec![word.clone()];
                    while colons(&mut rest) {
                        match rest.next_if(|next| matches!(next, TokenTree::Ident(_))) {
                            Some(next) => path.push(next.to_string()),
                            None => break,
                        }
                    }
                    if path.len() > 1 && !test && before != ":" && before != "." {
                        self.modules.entry(module.clone()).or_default().paths.push((path, line));
                    }
                }
                TokenTree::Literal(_) => {}
            }
            before = word;
        }
    }

    fn declare(&mut self, module: &Words, child: &str) {
        self.modules.entry(module.clone()).or_default().children.insert(child.to_owned());
    }

    /// Each file's edges, with the names and lines that make them.
    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (at, module) in &self.modules {
            let imports = module.imports.iter().map(|(_, path, line)| (path, line));
            let paths = module.paths.iter().map(|(path, line)| (path, line));
            for (path, line) in imports.chain(paths) {
                if let Some(file) = self.defining(at, path, 0)
                    && file != module.file
                {
                    let why = format!("{} (line {line})", path.join("::"));
                    edges.entry((module.file.clone(), file)).or_default().push(why);
                }
            }
        }
        edges
    }

    /// The file that defines what a path names, as seen from a module. `None`: another crate's, or
    /// a module as such.
    fn defining(&self, at: &Words, path: &[String], depth: usize) -> Option<PathBuf> {
        if depth > 16 {
            return None;
        }
        let (first, mut rest) = path.split_first()?;
        let mut here = match first.as_str() {
            "crate" => {
                at.iter().take(usize::from(at.first()?.starts_with("bin "))).cloned().collect()
            }
            "self" => at.clone(),
            "super" => at.split_last()?.1.to_vec(),
            child if self.modules.get(at)?.children.contains(child) => {
                let mut here = at.clone();
                here.push(child.to_owned());
                here
            }
            alias => {
                let (_, imported, _) =
                    self.modules.get(at)?.imports.iter().find(|(name, ..)| name == alias)?;
                if imported.first() == Some(first) || rest.is_empty() {
                    return None;
                }
                let longer: Words = imported.iter().chain(rest).cloned().collect();
                return self.defining(at, &longer, depth + 1);
            }
        };
        while let Some((next, after)) = rest.split_first() {
            let module = self.modules.get(&here)?;
            if next == "super" {
                here.pop()?;
            } else if module.children.contains(next) {
                here.push(next.clone());
            } else if next == "*" {
                return Some(module.file.clone());
            } else {
                let import = module.imports.iter().find(|(name, ..)| name == next);
                if let Some((_, imported, _)) = import.filter(|_| !module.items.contains(next)) {
                    let longer: Words = imported.iter().chain(after).cloned().collect();
                    return self.defining(&here, &longer, depth + 1);
                }
                let globs = module.imports.iter().filter(|(name, ..)| name == "*");
                let mut behind = globs.filter_map(|(_, glob, _)| {
                    let mut longer = glob.split_last()?.1.to_vec();
                    longer.push(next.clone());
                    let file = self.defining(&here, &longer, depth + 1)?;
                    let defines =
                        |module: &&Module| module.file == file && module.items.contains(next);
                    self.modules.values().any(|module| defines(&module)).then_some(file)
                });
                let behind = behind.next().filter(|_| !module.items.contains(next));
                return Some(behind.unwrap_or_else(|| module.file.clone()));
            }
            rest = after;
        }
        None
    }
}

/// Words before the name of an item.
const ITEMS: [&str; 9] =
    ["struct", "enum", "union", "trait", "type", "fn", "const", "static", "macro_rules"];

/// Macros that hold code of another file.
const QUOTES: [&str; 3] = ["quote", "quote_spanned", "parse_quote"];

/// Takes `::` if it comes next.
fn colons(rest: &mut Peekable<IntoIter<TokenTree>>) -> bool {
    let colon = |token: &TokenTree| token.to_string() == ":";
    // A type after one colon begins with no other.
    let mut ahead = rest.clone();
    let both = ahead.next().is_some_and(|a| colon(&a)) && ahead.next().is_some_and(|b| colon(&b));
    if both {
        *rest = ahead;
    }
    both
}

/// The names that a tree of `use` brings in, with their paths; a glob is called `*`.
fn leaves(
    mut tree: Peekable<IntoIter<TokenTree>>,
    prefix: &[String],
    found: &mut Vec<(String, Words)>,
) {
    let mut path = prefix.to_vec();
    let mut alias = None;
    let mut nested = false;
    while let Some(token) = tree.next() {
        match token {
            TokenTree::Ident(ident) if ident == "as" => {
                alias = tree.next().map(|name| name.to_string());
            }
            TokenTree::Ident(ident) => path.push(ident.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == '*' => path.push("*".to_owned()),
            TokenTree::Group(group) => {
                nested = true;
                let mut part = Vec::new();
                for token in group.stream() {
                    if token.to_string() == "," {
                        leaves(std::mem::take(&mut part).into_iter().peekable(), &path, found);
                    } else {
                        part.push(token);
                    }
                }
                leaves(part.into_iter().peekable(), &path, found);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    // `{self}` names the module before it.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(name) = alias.or_else(|| path.last().cloned())
        && !nested
        && path.len() > prefix.len().min(path.len() - 1)
    {
        found.push((name, path));
    }
}

// ---- files and graphs ----

/// The folders of the workspace's crates.
fn members() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let list = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next());
    let names = list.unwrap_or("").split(',').map(|name| name.trim().trim_matches('"'));
    let members: Vec<PathBuf> =
        names.filter(|name| !name.is_empty()).map(|name| root.join(name)).collect();
    assert!(members.len() > 4, "{members:?}");
    members
}

/// All Rust files below a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Whether a file is the root of a binary.
fn stem_is_bin(file: &Path) -> bool {
    file.parent().and_then(Path::file_name).is_some_and(|folder| folder == "bin")
}

/// A file as it is listed: from the folder of its crate on.
fn name(file: &Path) -> String {
    let parts: Vec<String> = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let source = parts.iter().rposition(|part| part == "src").unwrap_or(1);
    parts.get(source.saturating_sub(1)..).unwrap_or(&[]).join("/")
}

/// The names of files, in order.
fn names(circle: &BTreeSet<PathBuf>) -> Vec<String> {
    let mut names: Vec<String> = circle.iter().map(|file| name(file)).collect();
    names.sort();
    names
}

/// The sets of files that reach one another.
fn circles(edges: &Edges) -> Vec<BTreeSet<PathBuf>> {
    let reach = |from: &PathBuf| {
        let mut seen: BTreeSet<&PathBuf> = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for (_, to) in edges.keys().filter(|(source, _)| source == at) {
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let nodes: BTreeSet<&PathBuf> = edges.keys().flat_map(|(from, to)| [from, to]).collect();
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
        nodes.iter().map(|node| (*node, reach(node))).collect();
    let both = |a: &PathBuf, b: &PathBuf| {
        reached.get(a).is_some_and(|seen| seen.contains(b))
            && reached.get(b).is_some_and(|seen| seen.contains(a))
    };
    let found: BTreeSet<BTreeSet<PathBuf>> = nodes
        .iter()
        .filter(|node| both(node, node))
        .map(|node| nodes.iter().filter(|other| both(node, other)).map(|n| (*n).clone()).collect())
        .collect();
    found.into_iter().collect()
}
