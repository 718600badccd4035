//! Damaged specs and expressions: every answer is a plan or errors with a place, never a panic and never a hang.
//!
//! The texts are those of `cases/`, damaged at random by a seed: bytes and lines are dropped, doubled, swapped and replaced
//! by what a spec is made of. `SCRATCHPOOL_DAMAGED=n` sets how many are tried.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::path::Path;

use scratchpool_planner::error::{Error, Spelling};
use scratchpool_planner::expr::Expr;
use scratchpool_planner::plan::analyze;
use scratchpool_planner::spec::{Span, Value};
use scratchpool_planner::toml_spec;

/// Marsaglia's xorshift: every test sees the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// What specs are made of, and what they should not be.
const PIECES: &[&str] = &[
    "[[step]]",
    "[[group]]",
    "[[group.buffer]]",
    "[pool]",
    "[layers]",
    "[dims]",
    "name",
    "when",
    "after",
    "\"prev.a\"",
    "shape",
    "align",
    "= 0",
    "= -1",
    "= 9223372036854775807",
    "= 9223372036854775808",
    "= 1.5",
    "= true",
    "= []",
    "= {}",
    "= [[1]]",
    "= \"\"",
    "\"\"\"",
    "''",
    "\\u0000",
    "\u{0}",
    "é",
    "\u{10ffff}",
    "\u{202e}",
    "# ",
    ".",
    ",",
    "[",
    "]",
    "{",
    "}",
    "\n",
    "\r",
    "\t",
    "==",
    "&&",
    "||",
    "!",
    "/ 0",
    "% 0",
    "layer",
    "min(",
    ")",
    "ceil_div",
    "((((((((",
    "launch = \"early\"",
    "if = \"0\"",
    "count = 4097",
    "count = 4096",
    "rows = \"n\"",
    "ubatches = 64",
    "{ runtime = 3 }",
    "1_000",
    "0x10",
    "inf",
    "nan",
    "1979-05-27",
];

fn damage(random: &mut Random, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    // Half of the texts stay well formed as TOML, mostly: words and numbers change places.
    if random.below(2) == 0 {
        let mut parts: Vec<String> = text.split('"').map(str::to_owned).collect();
        for _ in 0..=random.below(2) {
            let words = parts.len() / 2;
            match random.below(3) {
                0 if words > 0 => {
                    let (from, to) = (random.below(words), random.below(words));
                    let word = parts[2 * from + 1].clone();
                    parts[2 * to + 1] = word;
                }
                1 => {
                    let part = random.below(parts.len());
                    let digit = |c: char| c.is_ascii_digit();
                    if let Some(at) = parts[part].find(digit) {
                        let number = ["0", "1", "2", "4", "8", "1000", "63"][random.below(7)];
                        parts[part].replace_range(at..=at, number);
                    }
                }
                _ => {
                    let lines: Vec<String> = parts.join("\"").lines().map(str::to_owned).collect();
                    let gone = random.below(lines.len().max(1));
                    let kept = lines.iter().enumerate().filter(|(at, _)| *at != gone);
                    let text = kept.map(|(_, line)| line.as_str()).collect::<Vec<_>>().join("\n");
                    parts = text.split('"').map(str::to_owned).collect();
                }
            }
        }
        return parts.join("\"");
    }
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(12)).min(bytes.len());
        match random.below(6) {
            0 => {
                bytes.drain(at..end);
            }
            1 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..at, piece.bytes());
            }
            3 => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..end, piece.bytes());
            }
            4 => {
                let from = random.below(bytes.len() + 1);
                let to = (from + random.below(40)).min(bytes.len());
                let piece = bytes[from..to].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let mut lines: Vec<Vec<u8>> =
                    bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                if random.below(2) == 0 {
                    lines.swap(a, b);
                } else {
                    lines.remove(a);
                }
                bytes = lines.join(&b'\n');
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An error says something, in both spellings, and stands inside the text.
fn well_formed(text: &str, error: &Error) {
    assert!(!error.message().is_empty());
    assert!(error.message().len() < 4000, "{} bytes of message", error.message().len());
    for spelling in [Spelling::Toml, Spelling::Rust] {
        assert_ne!(error.help_in(spelling), Some(String::new()));
    }
    let labels = error.labels();
    for span in labels.iter().map(|label| label.span).chain([error.span]) {
        let (start, end) =
            (usize::try_from(span.start).unwrap(), usize::try_from(span.end).unwrap());
        assert!(start <= end && end <= text.len(), "{span:?} of {}", text.len());
        assert!(
            text.is_char_boundary(start) && text.is_char_boundary(end),
            "{span:?} cuts a letter"
        );
    }
    assert!(error.notes().iter().chain(error.trace()).all(|line| !line.is_empty()));
}

fn count(otherwise: usize) -> usize {
    std::env::var("SCRATCHPOOL_DAMAGED").ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn damaged_specs_are_plans_or_errors_with_a_place() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let texts: Vec<String> =
        paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let mut random = Random(0x00da_3a6e);
    let (mut read, mut planned) = (0, 0);
    let count = count(4000);
    for number in 0..count {
        let text = damage(&mut random, &texts[number % texts.len()]);
        let Ok(()) = std::panic::catch_unwind(|| {
            let found = toml_spec::read(&text, &folder);
            for error in &found.errors {
                well_formed(&text, error);
            }
            let _ = analyze(&found.spec);
        }) else {
            panic!("this text:\n{text}");
        };
        if let Ok(spec) = toml_spec::read(&text, &folder).whole() {
            read += 1;
            let (plan, errors) = analyze(&spec);
            for error in &errors {
                well_formed(&text, error);
            }
            if let (Some(plan), true) = (plan, errors.is_empty()) {
                planned += 1;
                assert!(plan.layout.verify(&plan.interference).is_empty(), "{text}");
            }
        }
    }
    assert!(read * 6 > count && planned * 30 > count, "{read} read, {planned} planned of {count}");
}

#[test]
fn damaged_expressions_are_values_or_errors_with_a_place() {
    let good = [
        "max_num_tokens * index_n_heads",
        "ceil_div(n, 64) * 64",
        "layer % 2 == 0 && !(n > 3)",
        "min(n, 3) + max(4, n)",
        "align_up(n * 576, 16)",
        "-n + -(-3)",
        "1 || 0",
        "9223372036854775807 - 1",
        "(((n)))",
        "n / n % 7 * 2 - 1 >= 0 != 1",
    ];
    let mut random = Random(0x00e8_9e55);
    let mut values = 0;
    for number in 0..count(20_000) {
        let text = damage(&mut random, good[number % good.len()]);
        let inside = |span: Span| {
            let (start, end) =
                (usize::try_from(span.start).unwrap(), usize::try_from(span.end).unwrap());
            assert!(start <= end && end <= text.len(), "{span:?} of {text:?}");
        };
        let place = |start: usize, end: usize| {
            assert!(
                start <= end && text.is_char_boundary(start) && text.is_char_boundary(end),
                "{text:?}"
            );
            Span::new(u32::try_from(start).unwrap(), u32::try_from(end).unwrap())
        };
        match Expr::parse(&text, &place) {
            Err(error) => inside(error.span),
            Ok(expr) => match expr.eval(&|name| (name.len() < 9).then_some(Value::Int(12))) {
                Ok(_) => values += 1,
                Err(error) => inside(error.span),
            },
        }
    }
    assert!(values > 100, "{values}");
}

#[test]
fn deep_and_long_texts_are_errors_not_overflows() {
    for (open, close) in [("(", ")"), ("!", ""), ("-", ""), ("min(1, ", ")"), ("1 + ", "")] {
        for depth in [10, 60, 70, 1000, 100_000] {
            let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let parsed = Expr::parse(&text, &|_, _| Span::default());
            if depth > 2000 {
                assert!(parsed.is_err(), "{open} {depth}");
            }
            if let Ok(expr) = parsed {
                let _ = expr.eval(&|_| None);
            }
        }
    }
    for text in
        ["[".repeat(100_000), "a.".repeat(50_000), "a = {".repeat(20_000), "\"".repeat(99_999)]
    {
        assert!(toml_spec::read(&text, ".".as_ref()).whole().is_err());
    }
}
