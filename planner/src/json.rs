//! Reading JSON (RFC 8259), no more than a configuration needs.
//!
//! The planner is compiled into the proc macro, and everything else there builds beside it; a general
//! JSON library in front of it would cost every user's clean build two seconds. Strings are checked
//! and decoded, numbers are told apart as configurations need them. A test holds this to the field's
//! library, text by text.

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// An integer of 63 bits and a sign.
    Int(i64),
    /// A larger integer that is not negative and fits 64 bits.
    Large,
    /// Any other number.
    Float,
    String(String),
    Array(Vec<Json>),
    /// Entries in order; of a key given twice, the last.
    Object(Vec<(String, Json)>),
}

/// Deepest nesting.
const MOST_DEPTH: usize = 127;

/// Reads one value and nothing after it.
///
/// # Errors
/// What was expected, and the line and column where it is not.
pub(crate) fn read(text: &str) -> Result<Json, String> {
    let mut reader = Reader { text, at: 0 };
    let found = reader.value(0).and_then(|value| {
        reader.space();
        if reader.peek().is_some() { Err("nothing more after the value") } else { Ok(value) }
    });
    found.map_err(|expected| {
        let before = text.get(..reader.at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        format!("expected {expected} at line {line} column {column}")
    })
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

type Found<T> = Result<T, &'static str>;

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str, value: Json) -> Found<Json> {
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(value);
        }
        Err("a value")
    }

    fn value(&mut self, depth: usize) -> Found<Json> {
        self.space();
        match self.peek() {
            Some(b'{' | b'[') if depth >= MOST_DEPTH => Err("less nesting"),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'n') => self.word("null", Json::Null),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            _ => Err("a value"),
        }
    }

    fn object(&mut self, depth: usize) -> Found<Json> {
        self.at += 1;
        let mut entries: Vec<(String, Json)> = Vec::new();
        self.space();
        if self.eat(b'}') {
            return Ok(Json::Object(entries));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err("a key in quotes");
            }
            let key = self.string()?;
            self.space();
            if !self.eat(b':') {
                return Err("`:`");
            }
            let value = self.value(depth + 1)?;
            entries.push((key, value));
            self.space();
            if self.eat(b'}') {
                break;
            }
            if !self.eat(b',') {
                return Err("`,` or `}`");
            }
        }
        // Of a key given twice the last counts: keep the first of each in the reversed order.
        entries.reverse();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries.dedup_by(|(later, _), (kept, _)| later == kept);
        Ok(Json::Object(entries))
    }

    fn array(&mut self, depth: usize) -> Found<Json> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.eat(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.eat(b']') {
                return Ok(Json::Array(items));
            }
            if !self.eat(b',') {
                return Err("`,` or `]`");
            }
        }
    }

    fn number(&mut self) -> Found<Json> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        let mut whole = true;
        if self.eat(b'.') {
            whole = false;
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            whole = false;
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            self.digits()?;
        }
        let text = self.text.get(start..self.at).unwrap_or("");
        if !whole || text == "-0" {
            return Ok(Json::Float);
        }
        Ok(match (text.parse::<i64>(), text.parse::<u64>()) {
            (Ok(value), _) => Json::Int(value),
            (_, Ok(_)) => Json::Large,
            _ => Json::Float,
        })
    }

    fn digits(&mut self) -> Found<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err("a digit") }
    }

    fn string(&mut self) -> Found<String> {
        self.at += 1;
        let mut decoded = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or("");
            let Some(next) = rest.chars().next() else { return Err("`\"`") };
            if next < ' ' {
                return Err("a control character escaped");
            }
            self.at += next.len_utf8();
            match next {
                '"' => return Ok(decoded),
                '\\' => decoded.push(self.escape()?),
                other => decoded.push(other),
            }
        }
    }

    fn escape(&mut self) -> Found<char> {
        let escaped = self.peek().ok_or("an escape")?;
        let plain = match escaped {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err("an escape"),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode(&mut self) -> Found<char> {
        let first = self.four()?;
        if let Some(plain) = char::from_u32(first) {
            return Ok(plain);
        }
        // The first half of a pair needs the second.
        if first >= 0xdc00 || !(self.eat(b'\\') && self.eat(b'u')) {
            return Err("a pair of surrogates");
        }
        let second = self.four()?;
        let pair = second
            .checked_sub(0xdc00)
            .filter(|low| *low < 0x400)
            .map(|low| 0x1_0000 + (first - 0xd800) * 0x400 + low);
        pair.and_then(char::from_u32).ok_or("a pair of surrogates")
    }

    fn four(&mut self) -> Found<u32> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|four| four.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let value = digits.and_then(|four| u32::from_str_radix(four, 16).ok());
        let value = value.ok_or("four hexadecimal digits")?;
        self.at += 4;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the field's library makes of a text, in the same terms.
    fn library(text: &str) -> Option<Json> {
        fn terms(value: &serde_json::Value) -> Json {
            match value {
                serde_json::Value::Null => Json::Null,
                serde_json::Value::Bool(value) => Json::Bool(*value),
                serde_json::Value::Number(number) => match number.as_i64() {
                    Some(value) => Json::Int(value),
                    None if number.is_u64() => Json::Large,
                    None => Json::Float,
                },
                serde_json::Value::String(text) => Json::String(text.clone()),
                serde_json::Value::Array(items) => Json::Array(items.iter().map(terms).collect()),
                serde_json::Value::Object(entries) => {
                    let entries = entries.iter().map(|(key, value)| (key.clone(), terms(value)));
                    let mut entries: Vec<_> = entries.collect();
                    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                    Json::Object(entries)
                }
            }
        }
        serde_json::from_str(text).ok().map(|value| terms(&value))
    }

    const TEXTS: [&str; 12] = [
        r#"{"a": 1, "b": [0, -4, 128], "a": 2, "c": null, "d": true, "e": false}"#,
        r" [ 1.5 , -0 , 0 , 1e9 , -1E-2 , 9223372036854775807, 9223372036854775808 ] ",
        r#"{"a\u0062\n\"\\\/": "\ud83d\ude00 \u00e9 é", "": {}}"#,
        r"[18446744073709551616, -9223372036854775808, -9223372036854775809, []]",
        r#"{"x": {"y": {"z": [{"w": "deep"}]}}}"#,
        "",
        "nul",
        "01",
        "1.",
        r#""\ud800""#,
        r#"{"a" 1}"#,
        "[1,]",
    ];

    #[test]
    fn texts_mean_what_the_fields_library_takes_them_for() {
        for text in TEXTS {
            assert_eq!(read(text).ok(), library(text), "{text}");
        }
        for deep in [126, 127, 128, 200] {
            let text = "[".repeat(deep) + &"]".repeat(deep);
            assert_eq!(read(&text).is_ok(), library(&text).is_some(), "{deep} deep");
        }
    }

    #[test]
    fn damaged_texts_are_taken_or_refused_as_by_the_fields_library() {
        let mut state = 1_u64;
        let mut below = |limit: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % limit
        };
        let bytes = b"{}[]\",:0123456789.-+eE\\u/ntf \x01abd";
        for _ in 0..60_000 {
            let mut text = TEXTS[below(5)].as_bytes().to_vec();
            for _ in 0..=below(3) {
                let at = below(text.len());
                match below(3) {
                    0 => text[at] = bytes[below(bytes.len())],
                    1 => text.insert(at, bytes[below(bytes.len())]),
                    _ => drop(text.remove(at)),
                }
            }
            let Ok(text) = String::from_utf8(text) else { continue };
            // Floats beyond the range of 64 bits are an error there and merely floats here.
            if text.contains(['e', 'E']) && read(&text).is_ok() && library(&text).is_none() {
                continue;
            }
            assert_eq!(read(&text).ok(), library(&text), "{text}");
        }
    }

    #[test]
    fn an_error_says_what_and_where() {
        let error = read("{\n  \"a\": 1\n  \"b\"").unwrap_err();
        assert_eq!(error, "expected `,` or `}` at line 3 column 3");
    }
}
