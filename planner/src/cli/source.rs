//! The text of a spec, where it came from, and lines and columns in it.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::config::{io_reason, text_of};
use crate::error::{Error, Fault};
use crate::spec::Span;
use crate::toml_spec::MOST_BYTES;

/// The text of a spec.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// What messages call it.
    pub(crate) name: String,
    /// The text; empty where it cannot be read.
    pub(crate) text: String,
    /// The folder that its paths are relative to.
    pub(crate) base: PathBuf,
}

impl Source {
    /// Reads a spec; `-` is standard input.
    pub(crate) fn read(path: &Path, stdin: &mut dyn Read) -> (Self, Result<(), Box<Error>>) {
        let standard = path.as_os_str() == "-";
        let name = if standard { "standard input".to_owned() } else { path.display().to_string() };
        let read = if standard {
            text_of(stdin, MOST_BYTES)
        } else {
            File::open(path)
                .map_err(|error| io_reason(&error))
                .and_then(|file| text_of(file, MOST_BYTES))
        };
        let base = if standard { None } else { path.parent() };
        let base = base.map_or_else(PathBuf::new, Path::to_owned);
        match read {
            Ok(text) => (Self { name, text, base }, Ok(())),
            Err(reason) => {
                let fault = Fault::Unreadable { path: name.clone(), reason };
                let error = Box::new(Error::new(fault, Span::default()));
                (Self { name, text: String::new(), base }, Err(error))
            }
        }
    }

    /// Line and column of a span's start, both from 1, the column in characters.
    pub(crate) fn position(&self, span: Span) -> (usize, usize) {
        let before = self.before(span);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        (line, column)
    }

    /// The bytes of the whole lines that a span touches.
    pub(crate) fn lines(&self, span: Span) -> Range<usize> {
        let start = self.before(span).rfind('\n').map_or(0, |newline| newline + 1);
        let end = usize::try_from(span.end).unwrap_or(usize::MAX).clamp(start, self.text.len());
        // An end right after a newline belongs to the line before.
        let last = end.saturating_sub(usize::from(end > start));
        let rest = self.text.as_bytes().get(last..).unwrap_or_default();
        let newline = rest.iter().position(|byte| *byte == b'\n');
        start..newline.map_or(self.text.len(), |length| last + length)
    }

    fn before(&self, span: Span) -> &str {
        let start = usize::try_from(span.start).unwrap_or(usize::MAX);
        self.text.get(..start).unwrap_or(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_and_windows_hold_whole_lines() {
        let text = "äb = 1\ncd = 2\n".to_owned();
        let source = Source { name: "x".into(), text, base: PathBuf::new() };
        let text = |span: Span| &source.text[source.lines(span)];
        for (span, position, lines) in [
            (Span::new(0, 0), (1, 1), "äb = 1"),
            (Span::new(2, 3), (1, 2), "äb = 1"),
            (Span::new(8, 10), (2, 1), "cd = 2"),
            (Span::new(2, 9), (1, 2), "äb = 1\ncd = 2"),
            (Span::new(0, 8), (1, 1), "äb = 1"),
            (Span::new(15, 15), (3, 1), ""),
            (Span::new(90, 95), (3, 1), ""),
        ] {
            assert_eq!((source.position(span), text(span)), (position, lines), "{span:?}");
        }
    }
}
