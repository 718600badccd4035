//! JSON with keys in the order given.
//!
//! `serde_json` sorts keys; a plan reads better in the order of its story. Strings are its own.

use crate::error::AccessAt;

/// A string.
pub(crate) fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A list in one line.
pub(crate) fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

/// A list of strings in one line.
pub(crate) fn strings(items: &[String]) -> String {
    list(items.iter().map(|item| string(item)))
}

/// A list with one item a line.
pub(crate) fn lines(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<_> = items.into_iter().collect();
    if items.is_empty() { "[]".into() } else { format!("[\n  {}\n ]", items.join(",\n  ")) }
}

/// An object in one line.
pub(crate) fn object<'k>(fields: impl IntoIterator<Item = (&'k str, String)>) -> String {
    let fields: Vec<_> =
        fields.into_iter().map(|(key, value)| format!("{}: {value}", string(key))).collect();
    format!("{{{}}}", fields.join(", "))
}

/// A whole document: an object with one field a line, and a newline.
pub(crate) fn document<'k>(fields: impl IntoIterator<Item = (&'k str, String)>) -> String {
    let fields: Vec<_> =
        fields.into_iter().map(|(key, value)| format!("{}: {value}", string(key))).collect();
    format!("{{\n {}\n}}\n", fields.join(",\n "))
}

/// Two strings.
pub(crate) fn pair(a: &str, b: &str) -> String {
    list([string(a), string(b)])
}

/// Pairs of layers.
pub(crate) fn layers(pairs: &[(usize, usize)]) -> String {
    list(pairs.iter().map(|(a, b)| format!("[{a}, {b}]")))
}

/// One access of a step.
pub(crate) fn access(at: &AccessAt) -> String {
    object([
        ("step", string(&at.step)),
        ("stream", string(&at.stream)),
        ("layer", at.layer.to_string()),
        ("pass", at.pass.to_string()),
        ("write", at.write.to_string()),
    ])
}
