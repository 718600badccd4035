//! The model's configuration: the values that a spec may use by name.
//!
//! A Hugging Face `config.json` is one JSON object. Its integers, its booleans (as 0 and 1), its
//! strings, and lists of these become names; what stands in a nested object is named with its path,
//! `text_config.hidden_size`. Everything else (null, floats, objects themselves, lists that mix text
//! and numbers or have other things, integers beyond 63 bits) is no name and is only remembered with
//! what it is, for a spec that uses it all the same. Keys that no expression could spell are passed
//! over, with all that is inside them.
//!
//! Invariant: what is read is bounded. A file that is not what it should be, a directory, a device,
//! a log by mistake, is an error with a reason after at most [`MOST_BYTES`], whatever its length.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::json::{self, Json};

use crate::error::Fault;
use crate::spec::{Value, is_name};

/// Most bytes of a configuration file.
pub const MOST_BYTES: u64 = 8 << 20;

/// What a configuration defines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Integers, text, and lists of these, sorted by name.
    pub names: Vec<(String, Value)>,
    /// Keys with any other value, and what that is, sorted by key.
    pub ignored: Vec<(String, &'static str)>,
}

/// Reads the configuration at `path`.
///
/// # Errors
/// [`Fault::Config`] where the file is missing, unreadable, too long, or no JSON object.
pub fn load(path: &Path) -> Result<Config, Fault> {
    let parsed = File::open(path)
        .map_err(|error| io_reason(&error))
        .and_then(|file| text_of(file, MOST_BYTES))
        .and_then(|text| parse(&text));
    parsed.map_err(|reason| Fault::Config { path: path.display().to_string(), reason })
}

/// What the text of a configuration defines.
///
/// # Errors
/// Why the text is no configuration, in words.
///
/// ```
/// use scratchpool_planner::{config, spec::Value};
/// let text = r#"{ "rope": 0.5, "ratios": [0, 4, 128], "text_config": { "head_dim": 512 } }"#;
/// let config = config::parse(text)?;
/// assert_eq!(config.names, [
///     ("ratios".to_owned(), Value::List(vec![0, 4, 128])),
///     ("text_config.head_dim".to_owned(), Value::Int(512)),
/// ]);
/// assert_eq!(config.ignored, [
///     ("rope".to_owned(), "a float"),
///     ("text_config".to_owned(), "an object"),
/// ]);
/// # Ok::<(), String>(())
/// ```
pub fn parse(text: &str) -> Result<Config, String> {
    // Editors on Windows still write a byte order mark, which JSON does not allow for.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let json = json::read(text).map_err(|error| format!("not JSON: {error}"))?;
    let Json::Object(entries) = json else {
        return Err(format!("not a JSON object but {}", describe(&json)));
    };
    let mut config = Config::default();
    collect("", entries, &mut config);
    config.names.sort_by(|(a, _), (b, _)| a.cmp(b));
    config.ignored.sort();
    Ok(config)
}

/// Adds the entries of an object, each named with the path that leads to it. The reader bounds how
/// deep objects nest.
fn collect(path: &str, entries: Vec<(String, Json)>, config: &mut Config) {
    for (key, json) in entries.into_iter().filter(|(key, _)| is_name(key)) {
        let name = if path.is_empty() { key } else { format!("{path}.{key}") };
        match value(&json) {
            Some(value) => config.names.push((name.clone(), value)),
            None => config.ignored.push((name.clone(), ignored(&json))),
        }
        if let Json::Object(inner) = json {
            collect(&name, inner, config);
        }
    }
}

fn value(json: &Json) -> Option<Value> {
    let integer = |json: &Json| match json {
        Json::Int(value) => Some(*value),
        Json::Bool(value) => Some(i64::from(*value)),
        _ => None,
    };
    let text = |json: &Json| match json {
        Json::String(text) => Some(text.clone()),
        _ => None,
    };
    match json {
        Json::String(text) => Some(Value::Text(text.clone())),
        Json::Array(items) => {
            let integers = items.iter().map(integer).collect::<Option<_>>().map(Value::List);
            integers.or_else(|| items.iter().map(text).collect::<Option<_>>().map(Value::Texts))
        }
        other => integer(other).map(Value::Int),
    }
}

/// What a value is that is no name.
const fn ignored(json: &Json) -> &'static str {
    match json {
        Json::Large => "an integer beyond 63 bits",
        Json::Float => "a float",
        Json::Array(_) => "a list that is neither all integers nor all strings",
        other => describe(other),
    }
}

const fn describe(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Int(_) | Json::Large | Json::Float => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// All of `source` as text, or why that cannot be had. Reads at most one byte more than `most`.
pub(crate) fn text_of(source: impl Read, most: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    let limit = most.saturating_add(1);
    let read = source.take(limit).read_to_end(&mut bytes).map_err(|error| io_reason(&error))?;
    if u64::try_from(read).unwrap_or(u64::MAX) > most {
        return Err(format!("longer than {} MiB", most >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        format!("not UTF-8 text: wrong from byte {} on", error.utf8_error().valid_up_to())
    })
}

/// Why a file cannot be read, without the number that the system gives to the reason.
pub(crate) fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::IsADirectory => "it is a directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(name: &str, value: i64) -> (String, Value) {
        (name.into(), Value::Int(value))
    }

    #[test]
    fn integers_booleans_text_and_lists_of_these_become_names() {
        let text = r#"{
            "z": 1, "a": -9223372036854775808, "empty": [], "list": [3, 1],
            "beyond": 9223372036854775808, "float": 1.0, "exponent": 1e3, "flag": true,
            "text": "7", "nothing": null, "mixed": [1, 2.0], "flags": [true, 0, false],
            "kinds": ["full", "sliding"], "both": [1, "full"], "none": [1, null],
            "lists": [[1]], "not-a-name": 5, "twice": 1, "twice": 2
        }"#;
        let config = parse(text).unwrap();
        let texts = |list: &[&str]| Value::Texts(list.iter().map(|&text| text.into()).collect());
        assert_eq!(
            config.names,
            [
                int("a", i64::MIN),
                ("empty".into(), Value::List(vec![])),
                int("flag", 1),
                ("flags".into(), Value::List(vec![1, 0, 0])),
                ("kinds".into(), texts(&["full", "sliding"])),
                ("list".into(), Value::List(vec![3, 1])),
                ("text".into(), Value::Text("7".into())),
                int("twice", 2),
                int("z", 1),
            ]
        );
        let list = "a list that is neither all integers nor all strings";
        assert_eq!(
            ignored_of(&config),
            [
                ("beyond", "an integer beyond 63 bits"),
                ("both", list),
                ("exponent", "a float"),
                ("float", "a float"),
                ("lists", list),
                ("mixed", list),
                ("none", list),
                ("nothing", "null"),
            ]
        );
    }

    fn ignored_of(config: &Config) -> Vec<(&str, &'static str)> {
        config.ignored.iter().map(|(name, found)| (name.as_str(), *found)).collect()
    }

    #[test]
    fn what_is_nested_is_named_with_its_path() {
        let text = r#"{"a": {"n": 1, "b": {"n": 2, "f": 0.5}, "b-c": {"n": 3}}, "n": null}"#;
        let config = parse(text).unwrap();
        assert_eq!(config.names, [int("a.b.n", 2), int("a.n", 1)]);
        assert_eq!(
            ignored_of(&config),
            [("a", "an object"), ("a.b", "an object"), ("a.b.f", "a float"), ("n", "null")]
        );
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        assert_eq!(parse("\u{feff}{\"n\": 1}").unwrap().names, [int("n", 1)]);
    }

    #[test]
    fn what_is_no_object_says_what_it_is() {
        for (text, reason) in [
            ("[1]", "not a JSON object but a list"),
            ("3", "not a JSON object but a number"),
            ("null", "not a JSON object but null"),
            ("{\"a\": NaN}", "not JSON: expected a value at line 1 column 7"),
            ("", "not JSON: expected a value at line 1 column 1"),
        ] {
            assert_eq!(parse(text).unwrap_err(), reason, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(&deep).unwrap_err().starts_with("not JSON: expected less nesting"));
    }

    #[test]
    fn text_is_bounded_and_is_utf_8() {
        assert_eq!(text_of(io::repeat(b'x'), 2 << 20).unwrap_err(), "longer than 2 MiB");
        assert_eq!(
            text_of(&b"ab\xff"[..], 10).unwrap_err(),
            "not UTF-8 text: wrong from byte 2 on"
        );
        assert_eq!(text_of(&b"ab"[..], 2).unwrap(), "ab");
    }

    #[test]
    fn files_that_cannot_be_read_say_why() {
        let folder = std::env::temp_dir();
        let reason = |path: &Path| match load(path).unwrap_err() {
            Fault::Config { reason, .. } => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(&folder), "it is a directory");
        assert_eq!(reason(&folder.join("no such folder/config.json")), "there is no such file");
    }
}
