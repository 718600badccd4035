//! How low and how fast the packer packs, beside first-fit by falling size, the usual greedy rule.
//!
//! ```sh
//! cargo bench -p scratchpool-planner --bench packing
//! ```
//!
//! With `SCRATCHPOOL_MINIMALLOC` naming a folder, the benchmark reads every `NAME.CAPACITY.csv` in
//! it too: buffers with half-open lifespans, in the columns `id,lower,upper,size`. The set with which
//! the field compares allocators is `benchmarks/challenging` of
//! <https://github.com/google/minimalloc> (Apache License 2.0); it is not part of this repository.
//!
//! ```sh
//! git clone --depth 1 https://github.com/google/minimalloc /tmp/minimalloc
//! SCRATCHPOOL_MINIMALLOC=/tmp/minimalloc/benchmarks/challenging \
//!     cargo bench -p scratchpool-planner --bench packing
//! ```
//!
//! `SCRATCHPOOL_NODES` replaces the node limit of the search, 0 for none of it.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use scratchpool_planner::packing::{Conflicts, Item, Limits, Problem, pack_with};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("packing: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut limits = Limits::default();
    if let Ok(nodes) = std::env::var("SCRATCHPOOL_NODES") {
        limits.nodes = nodes
            .parse()
            .map_err(|_| format!("SCRATCHPOOL_NODES is {nodes:?}, expected a number"))?;
    }
    println!(
        "{:<26} {:>5} {:>12} {:>12} {:>7} {:>8} {:>9} {:>10} {:>8} {:>10}",
        "problem",
        "items",
        "lower bound",
        "total",
        "ratio",
        "optimal",
        "nodes",
        "time",
        "greedy",
        "its time"
    );
    for (shape, align) in [
        ("intervals", false),
        ("intervals, mixed align", true),
        ("graph", false),
        ("graph, mixed align", true),
    ] {
        for items in [6, 12, 40, 150] {
            let problem = random(items, shape.starts_with("intervals"), align);
            row(shape, &problem, limits, None)?;
        }
    }
    if let Ok(folder) = std::env::var("SCRATCHPOOL_MINIMALLOC") {
        println!("\nlifespans from {folder}; capacity is what the set asks to fit in");
        for (name, capacity, problem) in lifespans(Path::new(&folder))? {
            row(&name, &problem, limits, Some(capacity))?;
        }
    }
    Ok(())
}

fn row(name: &str, problem: &Problem, limits: Limits, capacity: Option<u64>) -> Result<(), String> {
    let start = Instant::now();
    let packing = pack_with(problem, limits).map_err(|error| error.to_string())?;
    let time = start.elapsed();
    let start = Instant::now();
    let greedy = first_fit(problem);
    let greedy_time = start.elapsed();
    let bound = packing.lower_bound;
    print!(
        "{name:<26} {:>5} {bound:>12} {:>12} {:>7} {:>8} {:>9} {:>10} {:>8} {:>10}",
        problem.items.len(),
        packing.total,
        ratio(packing.total, bound),
        if packing.optimal { "yes" } else { "open" },
        packing.nodes,
        shown(time),
        ratio(greedy, bound),
        shown(greedy_time),
    );
    match capacity {
        Some(capacity) => println!("   {} of capacity", ratio(packing.total, capacity)),
        None => println!(),
    }
    Ok(())
}

/// `a / b` to four places, without floating point.
fn ratio(a: u64, b: u64) -> String {
    let scaled = u128::from(a) * 10_000 / u128::from(b.max(1));
    format!("{}.{:04}", scaled / 10_000, scaled % 10_000)
}

fn shown(time: Duration) -> String {
    if time < Duration::from_millis(10) {
        format!("{} us", time.as_micros())
    } else {
        format!("{} ms", time.as_millis())
    }
}

/// The baseline: items by falling size, each at the lowest place that is free.
fn first_fit(problem: &Problem) -> u64 {
    let mut order: Vec<(usize, Item)> = problem.items.iter().copied().enumerate().collect();
    order.sort_by_key(|&(_, item)| std::cmp::Reverse(item.bytes));
    let mut placed: Vec<(usize, u64, u64)> = Vec::new();
    let mut total = 0;
    for (i, item) in order {
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|&&(j, _, _)| problem.conflicts.get(i, j))
            .map(|&(_, from, to)| (from, to))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (from, to) in taken {
            if offset + item.bytes <= from {
                break;
            }
            offset = offset.max(to.next_multiple_of(item.align));
        }
        placed.push((i, offset, offset + item.bytes));
        total = total.max(offset + item.bytes);
    }
    total
}

fn random(items: usize, intervals: bool, mixed: bool) -> Problem {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ items as u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let granules = 64;
    let list = (0..items)
        .map(|_| Item {
            bytes: 256 * (1 + next(granules)),
            align: if mixed { 256 << next(4) } else { 256 },
        })
        .collect();
    let span = items as u64 * 2;
    let lives: Vec<(u64, u64)> = (0..items)
        .map(|_| {
            let from = next(span);
            (from, from + 1 + next(span / 3))
        })
        .collect();
    let mut conflicts = Conflicts::new(items);
    for (a, x) in lives.iter().enumerate() {
        for (b, y) in lives.iter().enumerate().take(a) {
            let clash = if intervals { x.0 < y.1 && y.0 < x.1 } else { next(100) < 40 };
            if clash {
                conflicts.set(a, b);
            }
        }
    }
    Problem { items: list, conflicts }
}

type Named = (String, u64, Problem);

fn lifespans(folder: &Path) -> Result<Vec<Named>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let parts: Vec<&str> = name.split('.').collect();
        if let [stem, capacity, "csv"] = parts.as_slice() {
            let capacity =
                capacity.parse().map_err(|_| format!("{name}: no capacity in the name"))?;
            let text = std::fs::read_to_string(&path).map_err(failed)?;
            let problem =
                problem(&text).ok_or_else(|| format!("{name}: not id,lower,upper,size"))?;
            found.push(((*stem).to_owned(), capacity, problem));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

fn problem(text: &str) -> Option<Problem> {
    let mut items = Vec::new();
    let mut lives: Vec<(i64, i64)> = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [_, lower, upper, size] = fields.as_slice() else {
            return None;
        };
        lives.push((lower.parse().ok()?, upper.parse().ok()?));
        items.push(Item { bytes: size.parse().ok()?, align: 1 });
    }
    let mut conflicts = Conflicts::new(items.len());
    for (a, x) in lives.iter().enumerate() {
        for (b, y) in lives.iter().enumerate().take(a) {
            if x.0 < y.1 && y.0 < x.1 {
                conflicts.set(a, b);
            }
        }
    }
    Some(Problem { items, conflicts })
}
