//! A schedule as a user declares it, in two spellings: the planner's [`Spec`] and TOML text.
//!
//! Much smaller than the whole language: layers have one attribute, conditions compare it with a number,
//! buffers are bytes. What is left is all that order, live ranges and interference depend on.

use std::fmt::Write as _;

use scratchpool_planner::expr::Expr;
use scratchpool_planner::spec::{
    After, Buffer, Column, ColumnSource, DType, Group, Launch, Layers, Name, Span, Spanned, Spec,
    Step, Target,
};

/// The name of the layers' attribute.
pub const ATTRIBUTE: &str = "compress_ratio";

/// A declared schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The attribute of each layer; at least one.
    pub layers: Vec<i64>,
    /// The steps, in the order of issue.
    pub steps: Vec<DeclaredStep>,
    /// The groups.
    pub groups: Vec<DeclaredGroup>,
    /// Groups claimed exclusive.
    pub exclusive: Vec<String>,
}

/// A declared step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredStep {
    /// Its name.
    pub name: String,
    /// Its stream.
    pub stream: String,
    /// It runs in the layers with this attribute; `None`: in all.
    pub when: Option<i64>,
    /// What it waits for: `step` or `prev.step`.
    pub after: Vec<String>,
    /// How it is launched.
    pub launch: Launch,
    /// Groups, or `group.buffer`.
    pub writes: Vec<String>,
    /// Groups, or `group.buffer`.
    pub reads: Vec<String>,
}

/// A declared group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredGroup {
    /// Its name.
    pub name: String,
    /// It exists in the layers with this attribute; `None`: in all.
    pub when: Option<i64>,
    /// Name and bytes of each buffer.
    pub buffers: Vec<(String, u64)>,
}

impl Declared {
    /// The steps of a table, one a line: `name stream [kind] [== when] [> after]… [+ write]… [- read]…`,
    /// words apart by blanks, where `kind` is `dependent` or `early`.
    ///
    /// ```
    /// use scratchpool_prover::declared::Declared;
    /// let declared = Declared::new(&[0], &[("a", None, 256)], "
    ///     produce main + a
    ///     consume side == 0 > produce - a
    /// ");
    /// assert_eq!(declared.steps[1].after, ["produce"]);
    /// assert_eq!(declared.steps[1].reads, ["a"]);
    /// ```
    pub fn new(layers: &[i64], groups: &[(&str, Option<i64>, u64)], steps: &str) -> Self {
        let mut declared = Self {
            layers: layers.to_vec(),
            steps: Vec::new(),
            groups: Vec::new(),
            exclusive: Vec::new(),
        };
        for (name, when, bytes) in groups {
            // `group` alone has one buffer `x`; `group.buffer` adds a buffer to its group.
            let (group, buffer) = name.split_once('.').unwrap_or((name, "x"));
            let buffer = (buffer.to_owned(), *bytes);
            match declared.groups.iter_mut().find(|each| each.name == group) {
                Some(known) => known.buffers.push(buffer),
                None => declared.groups.push(DeclaredGroup {
                    name: group.to_owned(),
                    when: *when,
                    buffers: vec![buffer],
                }),
            }
        }
        for line in steps.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(stream)) = (words.next(), words.next()) else { continue };
            let mut step = DeclaredStep::new(name, stream);
            while let Some(word) = words.next() {
                match Launch::from_word(word) {
                    Some(launch) => step.launch = launch,
                    None => {
                        let argument = words.next().unwrap_or_default();
                        match word {
                            "==" => step.when = argument.parse().ok(),
                            ">" => step.after.push(argument.to_owned()),
                            "+" => step.writes.push(argument.to_owned()),
                            _ => step.reads.push(argument.to_owned()),
                        }
                    }
                }
            }
            declared.steps.push(step);
        }
        declared
    }

    /// With a claim that groups are exclusive.
    #[must_use]
    pub fn exclusive(mut self, groups: &[&str]) -> Self {
        self.exclusive = groups.iter().map(|&group| group.to_owned()).collect();
        self
    }

    /// The streams, in order of first use.
    pub fn streams(&self) -> Vec<&str> {
        let mut streams: Vec<&str> = Vec::new();
        for step in &self.steps {
            if !streams.contains(&step.stream.as_str()) {
                streams.push(&step.stream);
            }
        }
        streams
    }

    /// Full names of the buffers, with their groups, in the order of declaration.
    pub fn buffers(&self) -> Vec<(String, &DeclaredGroup)> {
        let of = |group| {
            let DeclaredGroup { name, buffers, .. }: &DeclaredGroup = group;
            buffers.iter().map(move |(buffer, _)| (format!("{name}.{buffer}"), group))
        };
        self.groups.iter().flat_map(of).collect()
    }

    /// The planner's form.
    pub fn spec(&self) -> Spec {
        let name = |text: &str| Name::new(text.to_owned(), Span::default());
        let when = |value: Option<i64>| {
            value.and_then(|value| {
                Expr::parse(&format!("{ATTRIBUTE} == {value}"), &|_, _| Span::default()).ok()
            })
        };
        let target = |text: &String| {
            let (group, buffer) = match text.split_once('.') {
                Some((group, buffer)) => (group, Some(buffer.to_owned())),
                None => (text.as_str(), None),
            };
            Target { group: group.to_owned(), buffer, span: Span::default() }
        };
        let column = Column {
            name: name(ATTRIBUTE),
            source: ColumnSource::List(Spanned::new(self.layers.clone(), Span::default())),
        };
        Spec {
            name: name("Explored"),
            exclusive: self.exclusive.iter().map(|group| name(group)).collect(),
            layers: Layers { count: None, columns: vec![column], span: Span::default() },
            steps: self
                .steps
                .iter()
                .map(|step| Step {
                    name: name(&step.name),
                    stream: Some(name(&step.stream)),
                    when: when(step.when),
                    after: step
                        .after
                        .iter()
                        .map(|after| {
                            let (prev, step) = split_after(after);
                            After { prev, step: step.to_owned(), span: Span::default() }
                        })
                        .collect(),
                    launch: step.launch,
                    writes: step.writes.iter().map(target).collect(),
                    reads: step.reads.iter().map(target).collect(),
                })
                .collect(),
            groups: self
                .groups
                .iter()
                .map(|group| Group {
                    name: name(&group.name),
                    when: when(group.when),
                    condition: None,
                    buffers: group
                        .buffers
                        .iter()
                        .map(|(buffer, bytes)| Buffer {
                            name: name(buffer),
                            dtype: Spanned::new(DType::U8, Span::default()),
                            shape: vec![Expr::int(
                                i64::try_from(*bytes).unwrap_or(i64::MAX),
                                Span::default(),
                            )],
                            align: None,
                        })
                        .collect(),
                })
                .collect(),
            ..Spec::default()
        }
    }

    /// The spec as TOML.
    pub fn toml(&self) -> String {
        let mut text = String::from("[pool]\nname = \"Explored\"\n");
        if !self.exclusive.is_empty() {
            let _ = writeln!(text, "exclusive = {:?}", self.exclusive);
        }
        let _ = writeln!(text, "[layers]\n{ATTRIBUTE} = {:?}", self.layers);
        for step in &self.steps {
            let _ = writeln!(text, "[[step]]\nname = {:?}\nstream = {:?}", step.name, step.stream);
            if let Some(value) = step.when {
                let _ = writeln!(text, "when = \"{ATTRIBUTE} == {value}\"");
            }
            if step.launch != Launch::Full {
                let _ = writeln!(text, "launch = {:?}", step.launch.as_str());
            }
            for (key, list) in
                [("after", &step.after), ("writes", &step.writes), ("reads", &step.reads)]
            {
                if !list.is_empty() {
                    let _ = writeln!(text, "{key} = {list:?}");
                }
            }
        }
        for group in &self.groups {
            let _ = writeln!(text, "[[group]]\nname = {:?}", group.name);
            if let Some(value) = group.when {
                let _ = writeln!(text, "when = \"{ATTRIBUTE} == {value}\"");
            }
            for (buffer, bytes) in &group.buffers {
                let _ = writeln!(
                    text,
                    "[[group.buffer]]\nname = {buffer:?}\ndtype = \"u8\"\nshape = [{bytes}]"
                );
            }
        }
        text
    }
}

impl DeclaredStep {
    /// A full launch in every layer that waits for nothing and touches nothing.
    pub fn new(name: &str, stream: &str) -> Self {
        Self {
            name: name.to_owned(),
            stream: stream.to_owned(),
            when: None,
            after: Vec::new(),
            launch: Launch::Full,
            writes: Vec::new(),
            reads: Vec::new(),
        }
    }
}

/// `prev.step` or `step`, taken apart.
pub fn split_after(after: &str) -> (bool, &str) {
    after.strip_prefix("prev.").map_or((false, after), |step| (true, step))
}
