//! Reads a well-formed spec from TOML; panics on any other.

use super::expr::{self, Expr, parse};
use super::model::{After, Buffer, Column, Dim, Group, Launch, Layers, Spec, Step};
use toml::{Table, Value};

/// Reads a spec. `config` is the text of the file that the spec names, if it names one.
pub(crate) fn read(text: &str, config: Option<&str>) -> Spec {
    let table: Table = text.parse().unwrap();
    let pool = table["pool"].as_table().unwrap();
    let mut dims = Vec::new();
    for (name, value) in section(&table, "dims") {
        dims.push((name.clone(), dim(value)));
    }
    let layers = table.get("layers").map(|_| Layers {
        count: section(&table, "layers")
            .find(|(key, _)| *key == "count")
            .map(|(_, value)| expr(value)),
        columns: section(&table, "layers")
            .filter(|(key, _)| *key != "count")
            .map(|(key, value)| match value {
                Value::String(name) => (key.clone(), Column::Named(name.clone())),
                _ => (key.clone(), Column::List(items(value))),
            })
            .collect(),
    });
    Spec {
        name: string(pool, "name").unwrap(),
        align: pool.get("align").map(|align| align.as_integer().unwrap()),
        exclusive: strings(pool, "exclusive"),
        rows: match pool.get("rows") {
            Some(Value::String(row)) => vec![row.clone()],
            _ => strings(pool, "rows"),
        },
        config: config.map(|config| serde_json::from_str(config).unwrap()),
        modes: section(&table, "modes")
            .map(|(mode, dims)| {
                let dims = dims.as_table().unwrap().iter();
                let dims = dims.map(|(name, n)| (name.clone(), n.as_integer().unwrap()));
                (mode.clone(), dims.collect())
            })
            .collect(),
        dims,
        layers,
        steps: tables(&table, "step").map(step).collect(),
        groups: tables(&table, "group").map(group).collect(),
    }
}

fn step(table: &Table) -> Step {
    Step {
        name: string(table, "name").unwrap(),
        stream: string(table, "stream").unwrap_or("main".to_owned()),
        when: table.get("when").map(expr),
        after: strings(table, "after")
            .iter()
            .map(|wait| match wait.strip_prefix("prev.") {
                Some(step) => After { prev: true, step: step.to_owned() },
                None => After { prev: false, step: wait.clone() },
            })
            .collect(),
        launch: match string(table, "launch").as_deref() {
            None | Some("full") => Launch::Full,
            Some("dependent") => Launch::Dependent,
            Some("early") => Launch::Early,
            Some(other) => panic!("no launch {other}"),
        },
        writes: strings(table, "writes"),
        reads: strings(table, "reads"),
        uses: strings(table, "uses"),
    }
}

fn group(table: &Table) -> Group {
    Group {
        name: string(table, "name").unwrap(),
        when: table.get("when").map(expr),
        keep: table.get("if").map(expr),
        persistent: holds(table, "persistent"),
        external: holds(table, "external"),
        per_layer: holds(table, "per_layer"),
        buffers: tables(table, "buffer")
            .map(|buffer| Buffer {
                name: string(buffer, "name").unwrap(),
                dtype: string(buffer, "dtype").unwrap(),
                shape: buffer["shape"].as_array().unwrap().iter().map(expr).collect(),
                align: buffer.get("align").map(|align| align.as_integer().unwrap()),
                parts: buffer.get("parts").map(|parts| parts.as_integer().unwrap()),
            })
            .collect(),
    }
}

fn section<'a>(table: &'a Table, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    table.get(key).into_iter().flat_map(|section| section.as_table().unwrap())
}

fn tables<'a>(table: &'a Table, key: &str) -> impl Iterator<Item = &'a Table> {
    table
        .get(key)
        .into_iter()
        .flat_map(|list| list.as_array().unwrap())
        .map(|item| item.as_table().unwrap())
}

fn holds(table: &Table, key: &str) -> bool {
    table.get(key).is_some_and(|value| value.as_bool().unwrap())
}

fn string(table: &Table, key: &str) -> Option<String> {
    table.get(key).map(|value| value.as_str().unwrap().to_owned())
}

fn strings(table: &Table, key: &str) -> Vec<String> {
    let items = table.get(key).into_iter().flat_map(|list| list.as_array().unwrap());
    items.map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn dim(value: &Value) -> Dim {
    match value {
        Value::Array(_) => Dim::List(integers(value)),
        // Known at start-up; planned for the given value.
        Value::Table(table) => Dim::Value(expr(&table["runtime"])),
        _ => Dim::Value(expr(value)),
    }
}

/// The entries of a column.
fn items(value: &Value) -> Vec<expr::Value> {
    let item = |item: &Value| match item {
        Value::Integer(n) => expr::Value::Int(*n),
        Value::String(text) => expr::Value::Text(text.clone()),
        other => panic!("{other:?} in a column"),
    };
    value.as_array().unwrap().iter().map(item).collect()
}

fn integers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|item| item.as_integer().unwrap()).collect()
}

fn expr(value: &Value) -> Expr {
    match value {
        Value::Integer(n) => Expr::Int(*n),
        _ => parse(value.as_str().unwrap()),
    }
}
