//! A plan for people: the arena in a picture, who shares bytes with whom and why that is safe, what
//! it saves, and which waits the pool needs.
//!
//! Lines are at most 110 columns wide where names allow it.

use std::fmt::Write as _;

use scratchpool_tables::layer_list;

use crate::explain::{Proof, ProofPath};
use crate::layout::Placed;
use crate::plan::{Explainer, Plan};

/// Columns of a line.
pub(crate) const WIDTH: usize = 110;

/// Most entries of a section; the JSON holds all.
const MOST_ENTRIES: usize = 60;

/// Most pairs of buffers for which a reason is looked for; the JSON holds all.
const MOST_PAIRS: usize = 200;

/// The memory map of a plan, as `scratchpool plan` prints it.
pub fn map(plan: &Plan) -> String {
    let layout = &plan.layout;
    let explainer = plan.explain();
    let mut text = String::new();
    let (total, align) = (layout.total_bytes, layout.align);
    let _ = writeln!(text, "{}: an arena of {}, aligned to {align}", layout.pool, amount(total));
    for (dim, value) in &plan.sizes.runtime {
        let _ =
            writeln!(text, "at {dim} = {value}, which is known only when the pool is allocated");
    }
    let copies = plan.sizes.ubatches;
    if copies > 1 {
        let all = total.saturating_mul(copies);
        let _ = writeln!(text, "{copies} micro-batches in flight, each its own: {}", amount(all));
    }
    arena(plan, &mut text);
    shared(plan, &explainer, &mut text);
    totals(plan, &mut text);
    waits(&explainer, &mut text);
    text
}

// ---- the arena ----

fn arena(plan: &Plan, text: &mut String) {
    let mut rows: Vec<_> = plan.layout.buffers.iter().filter(|buffer| buffer.accessed).collect();
    rows.sort_by(|a, b| (a.offset, b.bytes, &a.name).cmp(&(b.offset, a.bytes, &b.name)));
    let idle: Vec<_> = plan.layout.buffers.iter().filter(|buffer| !buffer.accessed).collect();
    if !rows.is_empty() {
        let tensor = |buffer: &Placed| {
            let shape: Vec<_> = buffer.shape.iter().map(ToString::to_string).collect();
            format!("{}[{}]", buffer.dtype.as_str(), shape.join(", "))
        };
        let longest = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0);
        let offsets = longest(&mut rows.iter().map(|row| row.offset.to_string().len())).max(6);
        let sizes = longest(&mut rows.iter().map(|row| size(row.bytes).len())).max(4);
        let names = longest(&mut rows.iter().map(|row| width(&row.name))).clamp(6, 34);
        let tensors = longest(&mut rows.iter().map(|row| width(&tensor(row)))).clamp(6, 30);
        let used = offsets + sizes + names + tensors + 8;
        let cells = WIDTH.saturating_sub(used).clamp(12, 40);
        let _ = writeln!(
            text,
            "\n{:>offsets$}  {:>sizes$}  {:names$}  {:tensors$}  arena",
            "offset", "size", "buffer", "tensor"
        );
        for row in rows {
            let bar = bar(row.offset, row.bytes, plan.layout.total_bytes, cells);
            let _ = writeln!(
                text,
                "{:>offsets$}  {:>sizes$}  {:names$}  {:tensors$}  {bar}",
                row.offset,
                size(row.bytes),
                cut(&row.name, names),
                cut(&tensor(row), tensors),
            );
        }
    }
    if !idle.is_empty() {
        let names: Vec<_> = idle.iter().map(|buffer| buffer.name.as_str()).collect();
        text.push('\n');
        wrap(text, "", &format!("never accessed, so without bytes: {}", names.join(", ")));
    }
}

/// The part of the arena that a buffer takes, in cells: full, less than half full, empty.
fn bar(offset: u64, bytes: u64, total: u64, cells: usize) -> String {
    let total = u128::from(total.max(1));
    let (start, end) = (u128::from(offset), u128::from(offset) + u128::from(bytes));
    let count = u128::try_from(cells).unwrap_or(0);
    (0..count)
        .map(|cell| {
            // In units of 1 / count of a byte, so that cells need no rounding.
            let (left, right) = (cell * total, (cell + 1) * total);
            let covered = right.min(end * count).saturating_sub(left.max(start * count));
            match covered {
                0 => '·',
                covered if covered * 2 < total => '▌',
                _ => '█',
            }
        })
        .collect()
}

// ---- shared bytes ----

/// Pairs of buffers of two groups that overlap for one and the same reason.
struct Shared {
    pairs: Vec<String>,
    reasons: Vec<String>,
}

fn shared(plan: &Plan, explainer: &Explainer<'_>, text: &mut String) {
    let mut blocks: Vec<Shared> = Vec::new();
    // The largest overlaps first: where there are too many to tell, they matter most.
    let mut pairs = plan.sharing();
    pairs.sort_by_key(|(a, b)| std::cmp::Reverse(plan.shared_bytes(*a, *b)));
    let untold = pairs.len().saturating_sub(MOST_PAIRS);
    for (a, b) in pairs.into_iter().take(MOST_PAIRS) {
        let (Some(first), Some(second)) = (plan.layout.buffers.get(a), plan.layout.buffers.get(b))
        else {
            continue;
        };
        let reasons = match explainer.proof(a, b) {
            Some(Proof::HappensBefore { paths }) => reasons(&paths),
            // Overlapping buffers have bytes, so both are accessed.
            Some(Proof::NeverAccessed { .. }) | None => Vec::new(),
        };
        let pair =
            format!("{} with {} ({})", first.name, second.name, size(plan.shared_bytes(a, b)));
        match blocks.iter_mut().find(|block| block.reasons == reasons) {
            Some(block) => block.pairs.push(pair),
            None => blocks.push(Shared { pairs: vec![pair], reasons }),
        }
    }
    if blocks.is_empty() {
        return;
    }
    text.push_str("\nshared bytes, and the order that makes it safe\n");
    let hidden: usize = blocks.iter().skip(MOST_ENTRIES).map(|block| block.pairs.len()).sum();
    for block in blocks.iter().take(MOST_ENTRIES) {
        wrap(text, "  ", &block.pairs.join(", "));
        for reason in &block.reasons {
            wrap(text, "      ", reason);
        }
    }
    and_more(text, hidden + untold);
}

/// The groups of two buffers, or the buffers themselves where they are of one group.
fn between<'n>(a: &'n str, b: &'n str) -> (&'n str, &'n str) {
    let group = |name: &'n str| name.split('.').next().unwrap_or(name);
    if group(a) == group(b) { (a, b) } else { (group(a), group(b)) }
}

/// One line for each way in which one group's buffers follow the other's.
fn reasons(paths: &[ProofPath]) -> Vec<String> {
    // Paths that differ only in how far they reach are one line.
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for path in paths {
        let (before, after) = between(&path.before, &path.after);
        let line = format!("{before}, then {after}: {}", chain(path));
        let reach = reach(path);
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, reaches)) if reaches.contains(&reach) => {}
            Some((_, reaches)) => reaches.push(reach),
            None => lines.push((line, vec![reach])),
        }
    }
    let said = |(line, reaches): (String, Vec<&str>)| format!("{line}, {}", reaches.join(" or "));
    lines.into_iter().map(said).collect()
}

/// The steps of a path.
pub(crate) fn chain(path: &ProofPath) -> String {
    let mut text = path.from.step.clone();
    for edge in &path.edges {
        // An edge reads `step -> step (why)`.
        let (steps, _) = edge.split_once(" (").unwrap_or((edge, ""));
        text.push_str(" -> ");
        text.push_str(steps.split_once(" -> ").map_or(steps, |(_, to)| to));
    }
    text
}

/// How far a path reaches.
pub(crate) const fn reach(path: &ProofPath) -> &'static str {
    if path.to.pass > 0 {
        "in the next pass"
    } else if path.to.layer > path.from.layer {
        "in a later layer"
    } else {
        "in the same layer"
    }
}

// ---- totals ----

fn totals(plan: &Plan, text: &mut String) {
    let layout = &plan.layout;
    let saved = layout.sum_bytes.saturating_sub(layout.total_bytes);
    let digits = layout.sum_bytes.max(layout.total_bytes).to_string().len();
    let line = |text: &mut String, name: &str, bytes: u64, what: &str| {
        let gap = if what.is_empty() { "" } else { "   " };
        let _ = writeln!(text, "{name:<12} {bytes:>digits$} bytes  {:>9}{gap}{what}", size(bytes));
    };
    let of_sum = percent(saved, layout.sum_bytes);
    let bound = if layout.optimal {
        "no smaller arena exists for this order".to_owned()
    } else {
        let gap = layout.total_bytes.saturating_sub(layout.least_bytes);
        let of_bound = percent(gap, layout.least_bytes);
        format!("the arena is at most {gap} bytes ({of_bound}) above the smallest")
    };
    text.push('\n');
    line(text, "unshared", layout.sum_bytes, "");
    line(text, "arena", layout.total_bytes, &format!("{saved} bytes ({of_sum}) saved"));
    line(text, "lower bound", layout.lower_bound_bytes, &bound);
    let _ = writeln!(text, "fingerprint  {}", layout.fingerprint);
}

// ---- waits ----

fn waits(explainer: &Explainer<'_>, text: &mut String) {
    let reports = explainer.waits();
    if reports.is_empty() {
        return;
    }
    text.push_str("\nwaits for events\n");
    let longest = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0).min(30);
    let steps = longest(&mut reports.iter().map(|wait| width(&wait.step)));
    let afters = longest(&mut reports.iter().map(|wait| width(&wait.after)));
    let more = reports.len().saturating_sub(MOST_ENTRIES);
    for wait in reports.iter().take(MOST_ENTRIES) {
        let indent = format!("  {:steps$} after {:afters$}  ", wait.step, wait.after);
        let what = if wait.layers.is_empty() {
            "not issued: streams and the other waits imply it".to_owned()
        } else {
            let needed = match wait.needed_for.as_slice() {
                [] => "no buffer needs it; what lies outside the pool may".to_owned(),
                pairs => format!("needed between {}", needed(pairs)),
            };
            format!("{}; {needed}", layer_list(&wait.layers))
        };
        wrap(text, &indent, &what);
    }
    and_more(text, more);
}

/// The groups between whose buffers a wait keeps order.
fn needed(pairs: &[(String, String)]) -> String {
    let mut groups: Vec<String> = Vec::new();
    for (a, b) in pairs {
        let text = if a == b {
            format!("{a} and its next value")
        } else {
            let (a, b) = between(a, b);
            format!("{a} and {b}")
        };
        if !groups.contains(&text) {
            groups.push(text);
        }
    }
    let more = groups.len().saturating_sub(4);
    groups.truncate(4);
    let mut text = groups.join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}

// ---- cells ----

fn and_more(text: &mut String, more: usize) {
    if more > 0 {
        let _ = writeln!(text, "  and {more} more; `--format json` has all");
    }
}

/// Bytes with one decimal in the largest unit that they fill.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in units {
        if bytes >> shift > 0 {
            let tenths = (u128::from(bytes) * 10) >> shift;
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} B")
}

/// Bytes exactly, and in a larger unit where they fill one.
pub(crate) fn amount(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes} bytes") } else { format!("{bytes} bytes ({})", size(bytes)) }
}

fn percent(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 1000).checked_div(u128::from(whole)).unwrap_or(0);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Writes `text` after `indent`, broken between words, later lines below the first.
pub(crate) fn wrap(out: &mut String, indent: &str, text: &str) {
    let blank = " ".repeat(width(indent));
    let room = WIDTH.saturating_sub(width(indent)).max(30);
    for (position, line) in broken(text, room).iter().enumerate() {
        let lead = if position == 0 { indent } else { &blank };
        let _ = writeln!(out, "{lead}{line}");
    }
}

/// `text` in lines of at most `room` columns, broken between words.
pub(crate) fn broken(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && width(&line) + 1 + width(word) > room {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_decimal_in_the_largest_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (574_619_648, "548.0 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(percent(1, 8), "12.5 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }

    #[test]
    fn a_bar_covers_the_cells_that_the_bytes_touch() {
        assert_eq!(bar(0, 100, 100, 4), "████");
        assert_eq!(bar(50, 25, 100, 4), "··█·");
        assert_eq!(bar(99, 1, 100, 4), "···▌");
        assert_eq!(bar(0, 0, 0, 4), "····");
        assert_eq!(bar(0, u64::MAX, u64::MAX, 2), "██");
    }

    #[test]
    fn long_text_is_broken_between_words() {
        let mut out = String::new();
        wrap(&mut out, "  ab  ", &["word"; 30].join(" "));
        assert!(out.lines().count() == 2 && out.lines().all(|line| line.len() <= WIDTH));
        assert!(out.lines().nth(1).unwrap().starts_with("      word"));
    }
}
