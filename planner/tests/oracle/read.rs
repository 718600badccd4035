//! Reads a well-formed spec from TOML; panics on any other.

use super::expr::{Expr, parse};
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
    if let Some(config) = config {
        let config: serde_json::Value = serde_json::from_str(config).unwrap();
        for (name, value) in config.as_object().unwrap() {
            let dim = if let Some(n) = value.as_i64() {
                Dim::Value(Expr::Int(n))
            } else if let Some(Some(list)) =
                value.as_array().map(|list| list.iter().map(serde_json::Value::as_i64).collect())
            {
                Dim::List(list)
            } else {
                continue;
            };
            if dims.iter().all(|(taken, _)| taken != name) {
                dims.push((name.clone(), dim));
            }
        }
    }
    let layers = table.get("layers").map(|_| Layers {
        count: section(&table, "layers")
            .find(|(key, _)| *key == "count")
            .map(|(_, value)| expr(value)),
        columns: section(&table, "layers")
            .filter(|(key, _)| *key != "count")
            .map(|(key, value)| match value {
                Value::String(name) => (key.clone(), Column::Named(name.clone())),
                _ => (key.clone(), Column::List(integers(value))),
            })
            .collect(),
    });
    Spec {
        name: string(pool, "name").unwrap(),
        align: pool.get("align").map(|align| align.as_integer().unwrap()),
        exclusive: strings(pool, "exclusive"),
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
    }
}

fn group(table: &Table) -> Group {
    Group {
        name: string(table, "name").unwrap(),
        when: table.get("when").map(expr),
        keep: table.get("if").map(expr),
        buffers: tables(table, "buffer")
            .map(|buffer| Buffer {
                name: string(buffer, "name").unwrap(),
                dtype: string(buffer, "dtype").unwrap(),
                shape: buffer["shape"].as_array().unwrap().iter().map(expr).collect(),
                align: buffer.get("align").map(|align| align.as_integer().unwrap()),
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

fn string(table: &Table, key: &str) -> Option<String> {
    table.get(key).map(|value| value.as_str().unwrap().to_owned())
}

fn strings(table: &Table, key: &str) -> Vec<String> {
    let items = table.get(key).into_iter().flat_map(|list| list.as_array().unwrap());
    items.map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn dim(value: &Value) -> Dim {
    if value.is_array() { Dim::List(integers(value)) } else { Dim::Value(expr(value)) }
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
