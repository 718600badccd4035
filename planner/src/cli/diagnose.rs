//! Errors as a reader sees them: for people as rustc draws them, for programs as JSON.
//!
//! Both are made from the same [`Error`], whose texts live in [`crate::error`]. What is drawn is
//! bounded, whatever the spec: long lines and places far apart are named instead of drawn.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{Annotation, AnnotationKind, Level, Origin, Renderer, Snippet};

use super::json;
use super::source::Source;
use crate::error::{Error, Fault, Label};
use crate::report::broken;
use crate::spec::Span;
use crate::toml_spec::MOST_ERRORS;

/// Most errors that are drawn; the rest is counted.
const MOST_DRAWN: usize = 50;

/// Most bytes of a spec that are handed to the drawer for one error.
const WIDEST_WINDOW: usize = 64 << 10;

/// All errors, drawn, with a line that counts them.
pub(crate) fn draw(errors: &[Error], source: &Source, colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.decor_style(DecorStyle::Ascii).term_width(110);
    let mut text = String::new();
    for error in errors.iter().take(MOST_DRAWN) {
        text.push_str(&one(error, source, &renderer));
        text.push_str("\n\n");
    }
    let name = &source.name;
    let title = match errors.len() {
        1 => format!("`{name}` has an error"),
        count if count <= MOST_DRAWN => format!("`{name}` has {count} errors"),
        count if count < MOST_ERRORS => {
            format!("`{name}` has {count} errors, of which {MOST_DRAWN} are shown")
        }
        count => format!("`{name}` has {count} errors or more, of which {MOST_DRAWN} are shown"),
    };
    text.push_str(
        &renderer
            .render(&[annotate_snippets::Group::with_title(Level::ERROR.primary_title(title))]),
    );
    text.push('\n');
    text
}

fn one(error: &Error, source: &Source, renderer: &Renderer) -> String {
    let mut notes = error.notes();
    let title = Level::ERROR.primary_title(error.message()).id(error.code().as_str());
    let mut group = if placeless(error, source) {
        title.element(Origin::path(source.name.as_str()))
    } else {
        match window(error, source) {
            Ok((window, labels)) => {
                for label in error.labels().iter().filter(|label| !labels.contains(label)) {
                    let (line, column) = source.position(label.span);
                    notes.insert(0, format!("line {line}, column {column}: {}", label.text));
                }
                let text = source.text.get(window.clone()).unwrap_or_default();
                let (line, _) = source.position(Span::new(narrow(window.start), 0));
                let part = |span: Span| part(span, &window);
                let label = Some(error.label()).filter(|label| !label.is_empty());
                let primary = AnnotationKind::Primary.span(part(error.span)).label(label);
                let related = labels.into_iter().map(|label| -> Annotation<'_> {
                    AnnotationKind::Context.span(part(label.span)).label(label.text)
                });
                title.element(
                    Snippet::source(text)
                        .path(source.name.as_str())
                        .line_start(line)
                        .annotation(primary)
                        .annotations(related),
                )
            }
            Err((line, column)) => {
                title.element(Origin::path(source.name.as_str()).line(line).char_column(column))
            }
        }
    };
    if !error.trace().is_empty() {
        group = group.element(Level::NOTE.message(trace(error.trace())));
    }
    for text in notes {
        group = group.element(Level::NOTE.message(note(&text)));
    }
    if let Some(help) = error.help() {
        group = group.element(Level::HELP.message(note(&help)));
    }
    renderer.render(&[group])
}

/// Columns of a note; the drawer puts a dozen before it.
const NOTE_WIDTH: usize = 96;

/// A note, broken to lines.
fn note(text: &str) -> String {
    broken(text, NOTE_WIDTH).join("\n")
}

/// The lines of a trace under a title, each broken to lines under its number.
fn trace(lines: &[String]) -> String {
    let lines = lines.iter().map(|line| {
        let numbered = line.starts_with(|c: char| c.is_ascii_digit());
        broken(line, NOTE_WIDTH).join(if numbered { "\n   " } else { "\n" })
    });
    lines.fold("how it goes wrong:".to_owned(), |text, line| text + "\n" + &line)
}

/// Whether an error has no place in the text, such as one of the command line.
fn placeless(error: &Error, source: &Source) -> bool {
    source.text.is_empty() || error.span == Span::default()
}

/// The whole lines that hold an error's place and as many of its labels as are near enough, or the
/// place alone where its own lines are too long to draw.
fn window(error: &Error, source: &Source) -> Result<(Range<usize>, Vec<Label>), (usize, usize)> {
    let mut window = source.lines(error.span);
    if window.len() > WIDEST_WINDOW {
        return Err(source.position(error.span));
    }
    let mut near = Vec::new();
    for label in error.labels() {
        let lines = source.lines(label.span);
        let wider = window.start.min(lines.start)..window.end.max(lines.end);
        if wider.len() <= WIDEST_WINDOW {
            window = wider;
            near.push(label);
        }
    }
    Ok((window, near))
}

/// A span relative to the window it lies in.
fn part(span: Span, window: &Range<usize>) -> Range<usize> {
    let place = |at: u32| widen(at).clamp(window.start, window.end) - window.start;
    place(span.start)..place(span.end.max(span.start))
}

fn widen(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// How many errors there are and what the first one is, in one line.
pub(crate) fn in_one_line(errors: &[Error], source: &Source) -> String {
    let Some(first) = errors.first() else { return "no error".into() };
    let place = if placeless(first, source) {
        String::new()
    } else {
        let (line, column) = source.position(first.span);
        format!("{line}:{column}: ")
    };
    let text = format!("{place}error[{}]: {}", first.code(), first.message());
    match errors.len() {
        1 => text,
        2 => format!("{text} (and 1 more error)"),
        count => format!("{text} (and {} more errors)", count - 1),
    }
}

/// All errors as one JSON document.
pub(crate) fn as_json(errors: &[Error], source: &Source) -> String {
    let errors = errors.iter().map(|error| error_json(error, source));
    json::document([("errors", json::lines(errors))])
}

/// One error as a JSON object.
pub(crate) fn error_json(error: &Error, source: &Source) -> String {
    // A reader of the message alone should learn the nearest name, too.
    let message = match (&error.fault, error.help()) {
        (Fault::UnknownKey { .. } | Fault::UnknownName { .. }, Some(help)) => {
            format!("{}; {help}", error.message())
        }
        _ => error.message(),
    };
    let mut fields = vec![
        ("code", json::string(error.code().as_str())),
        ("message", json::string(&message)),
        ("trace", json::strings(error.trace())),
        ("file", json::string(&source.name)),
    ];
    if !placeless(error, source) {
        let (line, column) = source.position(error.span);
        fields.push(("line", line.to_string()));
        fields.push(("column", column.to_string()));
    }
    fields.extend(findings(error));
    fields.push(("notes", json::strings(&error.notes())));
    fields.push(("help", error.help().map_or("null".into(), |help| json::string(&help))));
    json::object(fields)
}

/// What a finding of the prover involves: groups, buffers, steps, layers.
fn findings(error: &Error) -> Vec<(&'static str, String)> {
    let conflict = match &error.fault {
        Fault::Race(conflict) | Fault::Reuse(conflict) | Fault::NotExclusive { conflict, .. } => {
            conflict
        }
        Fault::ReadBeforeWrite { buffers, read, layers, .. } => {
            let layers = layers.iter().map(ToString::to_string);
            return vec![
                ("buffers", json::strings(buffers)),
                ("accesses", json::list([json::access(read)])),
                ("layers", json::list(layers)),
            ];
        }
        _ => return Vec::new(),
    };
    let accesses = json::list([json::access(&conflict.first), json::access(&conflict.second)]);
    let mut fields = Vec::new();
    if let Fault::NotExclusive { a, b, pairs, bytes, .. } = &error.fault {
        fields.push(("groups", json::pair(a, b)));
        fields.push(("pairs", json::list(pairs.iter().map(|(a, b)| json::pair(a, b)))));
        fields.push(("bytes", bytes.map_or("null".into(), |bytes| bytes.to_string())));
    } else {
        fields.push(("buffers", json::strings(&conflict.buffers)));
    }
    fields.push(("accesses", accesses));
    fields.push(("layers", json::layers(&conflict.layers)));
    fields
}
