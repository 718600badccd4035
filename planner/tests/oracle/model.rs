//! What a spec says, its TOML, and the values of its names.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::expr::{Expr, Fault, Names};

/// A whole pool spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) align: Option<i64>,
    pub(crate) exclusive: Vec<String>,
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
    List(Vec<i64>),
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
    pub(crate) writes: Vec<String>,
    pub(crate) reads: Vec<String>,
}

/// `[[group]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) when: Option<Expr>,
    pub(crate) keep: Option<Expr>,
    pub(crate) buffers: Vec<Buffer>,
}

/// `[[group.buffer]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<Expr>,
    pub(crate) align: Option<i64>,
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

    /// The integers among the dims. They may stand in any order, so those that have a value are added until none is left.
    pub(crate) fn names(&self) -> Result<Names, Fault> {
        let mut names = Names::new();
        let mut open: Vec<(&String, &Expr)> = Vec::new();
        for (name, dim) in &self.dims {
            if let Dim::Value(expr) = dim {
                open.push((name, expr));
            }
        }
        while !open.is_empty() {
            let mut later = Vec::new();
            let mut fault = None;
            let before = open.len();
            for (name, expr) in open {
                match expr.value(&names) {
                    Ok(value) => {
                        names.insert(name.clone(), value);
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

    /// The names in scope in each layer: the dims, the layer's attributes, and `layer`.
    pub(crate) fn layer_names(&self) -> Result<Vec<Names>, Fault> {
        let names = self.names()?;
        let mut columns: BTreeMap<&str, &[i64]> = BTreeMap::new();
        let mut count = None;
        if let Some(layers) = &self.layers {
            for (attribute, column) in &layers.columns {
                let values = match column {
                    Column::List(values) => values,
                    Column::Named(list) => match self.dims.iter().find(|(name, _)| name == list) {
                        Some((_, Dim::List(values))) => values,
                        _ => return Err(Fault::UnknownName(list.clone())),
                    },
                };
                columns.insert(attribute, values);
            }
            count = match &layers.count {
                Some(count) => Some(usize::try_from(count.value(&names)?).unwrap()),
                None => columns.values().map(|values| values.len()).min(),
            };
        }
        let mut all = Vec::new();
        for layer in 0..count.unwrap_or(1) {
            let mut here = names.clone();
            for (attribute, values) in &columns {
                here.insert((*attribute).to_owned(), values[layer]);
            }
            here.insert("layer".to_owned(), i64::try_from(layer).unwrap());
            all.push(here);
        }
        Ok(all)
    }

    /// The spec in TOML.
    pub(crate) fn toml(&self) -> String {
        let mut out = format!("[pool]\nname = \"{}\"\n", self.name);
        if let Some(align) = self.align {
            writeln!(out, "align = {align}").unwrap();
        }
        if !self.exclusive.is_empty() {
            writeln!(out, "exclusive = {}", strings(&self.exclusive)).unwrap();
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
        if let Some(layers) = &self.layers {
            out.push_str("\n[layers]\n");
            if let Some(count) = &layers.count {
                writeln!(out, "count = {}", expression(count)).unwrap();
            }
            for (attribute, column) in &layers.columns {
                match column {
                    Column::Named(list) => writeln!(out, "{attribute} = \"{list}\"").unwrap(),
                    Column::List(values) => writeln!(out, "{attribute} = {values:?}").unwrap(),
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
            writeln!(out, "when = \"{when}\"").unwrap();
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
    }
}

impl Group {
    fn toml(&self, out: &mut String) {
        writeln!(out, "\n[[group]]\nname = \"{}\"", self.name).unwrap();
        if let Some(when) = &self.when {
            writeln!(out, "when = \"{when}\"").unwrap();
        }
        if let Some(keep) = &self.keep {
            writeln!(out, "if = \"{keep}\"").unwrap();
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
        }
    }
}

/// An integer stands bare, everything else as a string.
fn expression(expr: &Expr) -> String {
    match expr {
        Expr::Int(n) => n.to_string(),
        _ => format!("\"{expr}\""),
    }
}

fn strings(items: &[String]) -> String {
    let quoted = items.iter().map(|item| format!("\"{item}\"")).collect::<Vec<_>>();
    format!("[{}]", quoted.join(", "))
}
