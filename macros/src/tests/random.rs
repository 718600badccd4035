//! Random specs as TOML, the same for the same seed.

use std::fmt::Write as _;

/// A generator of specs.
pub(super) struct Random {
    state: u64,
}

const STREAMS: [&str; 3] = ["main", "aux0", "aux1"];
const WHENS: [&str; 5] =
    ["ratio == 4", "ratio != 4 && layer > 0", "layer % 2 == 0", "!(ratio == 4)", "ratio >= n - 8"];
const SHAPES: [&str; 8] = [
    "n",
    "n * 3",
    "ceil_div(n, 3), m",
    "m, align_up(m, 8)",
    "max(n, m), 2",
    "n / 2, min(n, m)",
    "m - 4, 5",
    "n + m * (n - 3)",
];
const DTYPES: [&str; 6] = ["u8", "bf16", "f32", "f64", "bool", "e8m0"];

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d }
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        // splitmix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn pick<'w>(&mut self, words: &[&'w str]) -> &'w str {
        let index = self.below(words.len().try_into().unwrap());
        words[usize::try_from(index).unwrap()]
    }

    /// A spec: sound about as often as not, never malformed.
    pub(super) fn spec(mut self) -> String {
        let groups = 1 + self.below(4);
        let steps = 1 + self.below(6);
        let layers = 1 + self.below(4);
        let mut text = String::from("[pool]\nname = \"Random\"\n");
        if self.one_in(3) {
            let _ = writeln!(
                text,
                "align = {}",
                [64, 256, 512, 96][usize::try_from(self.below(4)).unwrap()]
            );
        }
        if self.one_in(3) && groups > 1 {
            text.push_str("exclusive = [\"g0\", \"g1\"]\n");
        }
        if self.one_in(4) {
            text.push_str("rows = \"n\"\n");
        }
        if self.one_in(4) {
            let _ = writeln!(text, "ubatches = {}", self.below(4));
        }
        let n = ["n = 16", "n = { runtime = 32 }", "n = \"m * 2\"", "n = 7"];
        let n = n[usize::try_from(self.below(8)).unwrap().min(3) % 4];
        let _ =
            writeln!(text, "[dims]\n{n}\nm = {}\nratios = [4, 0, 128, 4, 4]", 4 + self.below(9));
        let _ = writeln!(text, "[layers]\ncount = {layers}\nratio = \"ratios\"");
        for step in 0..steps {
            let _ = writeln!(text, "[[step]]\nname = \"s{step}\"");
            if self.one_in(3) {
                let _ = writeln!(text, "stream = \"{}\"", self.pick(&STREAMS));
            }
            if self.one_in(4) {
                let _ = writeln!(text, "when = \"{}\"", self.pick(&WHENS));
            }
            if self.one_in(8) {
                let _ = writeln!(text, "launch = \"{}\"", self.pick(&["dependent", "early"]));
            }
            let mut after = Vec::new();
            for other in 0..steps {
                if other < step && self.one_in(2) {
                    after.push(format!("\"s{other}\""));
                } else if self.one_in(3) {
                    after.push(format!("\"prev.s{other}\""));
                } else if self.one_in(60) {
                    after.push(format!("\"s{other}\""));
                }
            }
            let _ = writeln!(text, "after = [{}]", after.join(", "));
            for key in ["writes", "reads"] {
                let mut targets = Vec::new();
                for group in 0..groups {
                    // The first step writes nearly everything, so that most reads are of something.
                    let touches =
                        if step == 0 { key == "writes" && !self.one_in(9) } else { self.one_in(3) };
                    if touches {
                        let buffer = if step > 0 && self.one_in(4) { ".b0" } else { "" };
                        targets.push(format!("\"g{group}{buffer}\""));
                    }
                }
                let _ = writeln!(text, "{key} = [{}]", targets.join(", "));
            }
        }
        for group in 0..groups {
            let _ = writeln!(text, "[[group]]\nname = \"g{group}\"");
            if self.one_in(6) {
                let _ = writeln!(text, "when = \"{}\"", self.pick(&WHENS));
            }
            if self.one_in(8) {
                let _ = writeln!(text, "if = \"m > {}\"", self.below(12));
            }
            for buffer in 0..=self.below(3) {
                let shape = self.pick(&SHAPES).split(", ").collect::<Vec<_>>();
                let _ = writeln!(text, "[[group.buffer]]\nname = \"b{buffer}\"");
                let _ = writeln!(
                    text,
                    "dtype = \"{}\"\nshape = {:?}",
                    self.pick(&DTYPES),
                    joined(&shape)
                );
                if self.one_in(8) {
                    text.push_str("align = 1024\n");
                }
            }
        }
        text
    }
}

/// Extents that were split inside a call, put together again.
fn joined(parts: &[&str]) -> Vec<String> {
    let mut extents: Vec<String> = Vec::new();
    for part in parts {
        match extents.last_mut() {
            Some(last) if last.matches('(').count() > last.matches(')').count() => {
                last.push_str(", ");
                last.push_str(part);
            }
            _ => extents.push((*part).to_owned()),
        }
    }
    extents
}
