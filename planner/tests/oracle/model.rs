//! What a spec says, its TOML, and the values of its names.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::expr::{Expr, Fault, Names, Value};

/// A whole pool spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) align: Option<i64>,
    /// Groups, or `group.buffer`.
    pub(crate) exclusive: Vec<String>,
    pub(crate) rows: Vec<String>,
    /// What the model's config says.
    pub(crate) config: Option<serde_json::Value>,
    /// Name of each mode, and the dims to which it gives other values.
    pub(crate) modes: Vec<(String, Vec<(String, i64)>)>,
    pub(crate) dims: Vec<(String, Dim)>,
    pub(crate) layers: Option<Layers>,
    pub(crate) steps: Vec<Step>,
    pub(crate) groups: Vec<Group>,
}

/// A value in `[dims]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dim {
    Value(Expr),
    List(Vec<i64>),
}

/// `[layers]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layers {
    pub(crate) count: Option<Expr>,
    pub(crate) columns: Vec<(String, Column)>,
}

/// The values of one attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Column {
    Named(String),
    List(Vec<Value>),
}

/// How a step is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launch {
    Full,
    Dependent,
    Early,
}

/// What a step waits for: a step of the same layer, or the latest earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct After {
    pub(crate) prev: bool,
    pub(crate) step: String,
}

/// `[[step]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) stream: String,
    pub(crate) when: Option<Expr>,
    pub(crate) after: Vec<After>,
    pub(crate) launch: Launch,
    /// Groups, `group.buffer`, or `group.buffer[part]`, as in the two lists below.
    pub(crate) writes: Vec<String>,
    pub(crate) reads: Vec<String>,
    pub(crate) uses: Vec<String>,
}

/// `[[group]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) when: Option<Expr>,
    pub(crate) keep: Option<Expr>,
    pub(crate) persistent: bool,
    pub(crate) external: bool,
    pub(crate) per_layer: bool,
    pub(crate) buffers: Vec<Buffer>,
}

/// `[[group.buffer]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<Expr>,
    pub(crate) align: Option<i64>,
    pub(crate) parts: Option<i64>,
}

/// Bytes of one element.
pub(crate) fn element_bytes(dtype: &str) -> i64 {
    match dtype {
        "bool" | "u8" | "i8" | "f8e4m3" | "f8e5m2" | "e8m0" => 1,
        "u16" | "i16" | "f16" | "bf16" => 2,
        "u32" | "i32" | "f32" => 4,
        "u64" | "i64" | "f64" => 8,
        _ => panic!("no element type {dtype}"),
    }
}

impl Spec {
    /// Alignment of the pool.
    pub(crate) fn pool_align(&self) -> i64 {
        self.align.unwrap_or(256)
    }

    /// All names that are the same in every layer, in a mode or, where there is none, as they stand.
    ///
    /// Dims may stand in any order, so those that have a value are added until none is left.
    pub(crate) fn names_in(&self, mode: Option<usize>) -> Result<Names, Fault> {
        let mut names = Names::new();
        if let Some(config) = &self.config {
            config_names("", config, &mut names);
        }
        // A dim comes before what the config calls the same.
        for (name, _) in &self.dims {
            names.remove(name);
        }
        let other = mode.map(|mode| self.modes[mode].1.as_slice()).unwrap_or_default();
        let mut open: Vec<(&String, &Expr)> = Vec::new();
        for (name, dim) in &self.dims {
            match dim {
                Dim::List(values) => {
                    let values = values.iter().map(|n| Value::Int(*n)).collect();
                    names.insert(name.clone(), Value::List(values));
                }
                Dim::Value(expr) => match other.iter().find(|(given, _)| given == name) {
                    Some((_, n)) => {
                        names.insert(name.clone(), Value::Int(*n));
                    }
                    None => open.push((name, expr)),
                },
            }
        }
        while !open.is_empty() {
            let mut later = Vec::new();
            let mut fault = None;
            let before = open.len();
            for (name, expr) in open {
                match expr.value(&names) {
                    Ok(value) => {
                        names.insert(name.clone(), Value::Int(value));
                    }
                    Err(Fault::UnknownName(missing)) => {
                        fault = Some(Fault::UnknownName(missing));
                        later.push((name, expr));
                    }
                    Err(fault) => return Err(fault),
                }
            }
            match fault {
                Some(fault) if later.len() == before => return Err(fault),
                _ => open = later,
            }
        }
        Ok(names)
    }

    /// The modes to look at: each, or the one without a name.
    pub(crate) fn every_mode(&self) -> Vec<Option<usize>> {
        if self.modes.is_empty() { vec![None] } else { (0..self.modes.len()).map(Some).collect() }
    }

    /// The names for conditions and layers: those that no mode changes.
    pub(crate) fn names(&self) -> Result<Names, Fault> {
        let mut names = self.names_in(self.every_mode()[0])?;
        for moving in self.moving() {
            names.remove(&moving);
        }
        Ok(names)
    }

    /// Dims that a mode changes, and those that depend on them.
    pub(crate) fn moving(&self) -> Vec<String> {
        let mut moving: Vec<String> = Vec::new();
        for (_, dims) in &self.modes {
            moving.extend(dims.iter().map(|(name, _)| name.clone()));
        }
        // Each round finds the dims one step further away.
        for _ in 0..self.dims.len() {
            for (name, dim) in &self.dims {
                if let Dim::Value(expr) = dim
                    && expr.names().iter().any(|used| moving.iter().any(|it| it == used))
                {
                    moving.push(name.clone());
                }
            }
        }
        moving
    }

    /// The names in scope in each layer: the dims, the layer's attributes, and `layer`.
    pub(crate) fn layer_names(&self) -> Result<Vec<Names>, Fault> {
        let names = self.names()?;
        let mut columns: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        let mut count = None;
        if let Some(layers) = &self.layers {
            for (attribute, column) in &layers.columns {
                let values = match column {
                    Column::List(values) => values.clone(),
                    Column::Named(list) => match names.get(list) {
                        Some(Value::List(values)) => values.clone(),
                        _ => return Err(Fault::UnknownName(list.clone())),
                    },
                };
                columns.insert(attribute, values);
            }
            count = match &layers.count {
                Some(count) => Some(usize::try_from(count.value(&names)?).unwrap()),
                None => columns.values().map(Vec::len).min(),
            };
        }
        let mut all = Vec::new();
        for layer in 0..count.unwrap_or(1) {
            let mut here = names.clone();
            for (attribute, values) in &columns {
                here.insert((*attribute).to_owned(), values[layer].clone());
            }
            here.insert("layer".to_owned(), Value::Int(i64::try_from(layer).unwrap()));
            all.push(here);
        }
        Ok(all)
    }

    /// The spec in TOML; a config is named `CONFIG`, for the caller to put a file's name there.
    pub(crate) fn toml(&self) -> String {
        let mut out = String::new();
        if self.config.is_some() {
            out.push_str("config = \"CONFIG\"\n\n");
        }
        write!(out, "[pool]\nname = \"{}\"\n", self.name).unwrap();
        if let Some(align) = self.align {
            writeln!(out, "align = {align}").unwrap();
        }
        if !self.exclusive.is_empty() {
            writeln!(out, "exclusive = {}", strings(&self.exclusive)).unwrap();
        }
        match self.rows.as_slice() {
            [] => {}
            [row] => writeln!(out, "rows = \"{row}\"").unwrap(),
            rows => writeln!(out, "rows = {}", strings(rows)).unwrap(),
        }
        if !self.dims.is_empty() {
            out.push_str("\n[dims]\n");
        }
        for (name, dim) in &self.dims {
            match dim {
                Dim::Value(expr) => writeln!(out, "{name} = {}", expression(expr)).unwrap(),
                Dim::List(values) => writeln!(out, "{name} = {values:?}").unwrap(),
            }
        }
        for (mode, dims) in &self.modes {
            writeln!(out, "\n[modes.{mode}]").unwrap();
            for (name, n) in dims {
                writeln!(out, "{name} = {n}").unwrap();
            }
        }
        if let Some(layers) = &self.layers {
            out.push_str("\n[layers]\n");
            if let Some(count) = &layers.count {
                writeln!(out, "count = {}", expression(count)).unwrap();
            }
            for (attribute, column) in &layers.columns {
                match column {
                    Column::Named(list) => writeln!(out, "{attribute} = \"{list}\"").unwrap(),
                    Column::List(values) => {
                        let items = values.iter().map(|value| match value {
                            Value::Int(n) => n.to_string(),
                            Value::Text(text) => format!("\"{text}\""),
                            Value::List(_) => panic!("a list in a column"),
                        });
                        let items = items.collect::<Vec<_>>().join(", ");
                        writeln!(out, "{attribute} = [{items}]").unwrap();
                    }
                }
            }
        }
        for step in &self.steps {
            step.toml(&mut out);
        }
        for group in &self.groups {
            group.toml(&mut out);
        }
        out
    }
}

impl Step {
    fn toml(&self, out: &mut String) {
        writeln!(out, "\n[[step]]\nname = \"{}\"", self.name).unwrap();
        if self.stream != "main" {
            writeln!(out, "stream = \"{}\"", self.stream).unwrap();
        }
        if let Some(when) = &self.when {
            writeln!(out, "when = {}", quoted(when)).unwrap();
        }
        if !self.after.is_empty() {
            let list = self
                .after
                .iter()
                .map(|after| format!("{}{}", if after.prev { "prev." } else { "" }, after.step));
            writeln!(out, "after = {}", strings(&list.collect::<Vec<_>>())).unwrap();
        }
        match self.launch {
            Launch::Full => {}
            Launch::Dependent => out.push_str("launch = \"dependent\"\n"),
            Launch::Early => out.push_str("launch = \"early\"\n"),
        }
        if !self.writes.is_empty() {
            writeln!(out, "writes = {}", strings(&self.writes)).unwrap();
        }
        if !self.reads.is_empty() {
            writeln!(out, "reads = {}", strings(&self.reads)).unwrap();
        }
        if !self.uses.is_empty() {
            writeln!(out, "uses = {}", strings(&self.uses)).unwrap();
        }
    }
}

impl Group {
    fn toml(&self, out: &mut String) {
        writeln!(out, "\n[[group]]\nname = \"{}\"", self.name).unwrap();
        if let Some(when) = &self.when {
            writeln!(out, "when = {}", quoted(when)).unwrap();
        }
        if let Some(keep) = &self.keep {
            writeln!(out, "if = {}", quoted(keep)).unwrap();
        }
        for (key, holds) in [
            ("persistent", self.persistent),
            ("external", self.external),
            ("per_layer", self.per_layer),
        ] {
            if holds {
                writeln!(out, "{key} = true").unwrap();
            }
        }
        for buffer in &self.buffers {
            let shape = buffer.shape.iter().map(expression).collect::<Vec<_>>().join(", ");
            writeln!(
                out,
                "\n[[group.buffer]]\nname = \"{}\"\ndtype = \"{}\"\nshape = [{shape}]",
                buffer.name, buffer.dtype
            )
            .unwrap();
            if let Some(align) = buffer.align {
                writeln!(out, "align = {align}").unwrap();
            }
            if let Some(parts) = buffer.parts {
                writeln!(out, "parts = {parts}").unwrap();
            }
        }
    }
}

/// The numbers, strings and lists of a config, a nested one by its path.
fn config_names(path: &str, json: &serde_json::Value, names: &mut Names) {
    for (key, json) in json.as_object().unwrap() {
        let name = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if json.is_object() {
            config_names(&name, json, names);
        } else if let Some(list) = json.as_array() {
            if let Some(list) = list.iter().map(config_value).collect() {
                names.insert(name, Value::List(list));
            }
        } else if let Some(value) = config_value(json) {
            names.insert(name, value);
        }
    }
}

fn config_value(json: &serde_json::Value) -> Option<Value> {
    match json {
        serde_json::Value::Bool(holds) => Some(Value::Int(i64::from(*holds))),
        serde_json::Value::Number(number) => number.as_i64().map(Value::Int),
        serde_json::Value::String(text) => Some(Value::Text(text.clone())),
        _ => None,
    }
}

/// An integer stands bare, everything else as a string.
fn expression(expr: &Expr) -> String {
    match expr {
        Expr::Int(n) => n.to_string(),
        _ => quoted(expr),
    }
}

/// In quotes that the expression does not hold.
fn quoted(expr: &Expr) -> String {
    let text = expr.to_string();
    if text.contains('"') { format!("'{text}'") } else { format!("\"{text}\"") }
}

fn strings(items: &[String]) -> String {
    let quoted = items.iter().map(|item| format!("\"{item}\"")).collect::<Vec<_>>();
    format!("[{}]", quoted.join(", "))
}
