//! The command `scratchpool`: plan a spec, explain a pair of buffers, check many specs.
//!
//! ```text
//! scratchpool plan SPEC [--format table|json] [--dim NAME=VALUE]...
//! scratchpool explain SPEC A B [--format table|json] [--dim NAME=VALUE]...
//! scratchpool check SPEC... [--format table|json]
//! ```
//!
//! `-` reads standard input. Exit codes: 0 where all went well, 1 where a spec has errors or cannot
//! be read (code `syntax`), 2 where the command line is wrong. As a table, errors go to standard
//! error; as JSON, all goes to standard output.
//!
//! Invariant: what is read is bounded, nothing panics, and a reader that closes the pipe early is
//! no error. Everything is made in memory first and written in one go.

mod diagnose;
mod explain;
mod json;
mod plan_json;
mod source;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand, ValueEnum};

use crate::error::{Error, Fault, Hint, NameKind, hint_at_config};
use crate::expr::Expr;
use crate::plan::{Plan, analyze};
use crate::report;
use crate::spec::{Dim, DimValue, Name, Span, Spec, is_name};
use crate::toml_spec::{self, MOST_ERRORS};
use source::Source;

/// Exit code where a spec has errors.
const FAILED: u8 = 1;

/// What the command reads from and writes to.
pub struct Streams<'s> {
    /// Read where a spec is `-`.
    pub stdin: &'s mut dyn Read,
    /// Plans, and everything that is JSON.
    pub stdout: &'s mut dyn Write,
    /// Errors for people.
    pub stderr: &'s mut dyn Write,
    /// Whether errors for people are coloured.
    pub colour: bool,
}

/// Proves which GPU scratch buffers can never be live together and packs them into one arena.
#[derive(Debug, Parser)]
#[command(name = "scratchpool", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prove a spec and lay its arena out
    Plan {
        /// A pool spec in TOML; `-` for standard input
        spec: PathBuf,
        #[command(flatten)]
        options: Options,
    },
    /// Say why two buffers may or may not share bytes
    Explain {
        /// A pool spec in TOML; `-` for standard input
        spec: PathBuf,
        /// A buffer `group.buffer`, or a group
        a: String,
        /// Another buffer or group
        b: String,
        #[command(flatten)]
        options: Options,
    },
    /// Check specs, one line each
    Check {
        /// Pool specs in TOML; `-` for standard input
        #[arg(required = true)]
        specs: Vec<PathBuf>,
        #[command(flatten)]
        options: Options,
    },
}

#[derive(Debug, clap::Args)]
struct Options {
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Set a dim of the spec to another value
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = dim)]
    dims: Vec<(String, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

fn dim(text: &str) -> Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let name = name.trim();
    if !is_name(name) {
        return Err(format!("`{name}` is not a name"));
    }
    let value = value.trim().parse().map_err(|_| format!("`{value}` is not an integer"))?;
    Ok((name.to_owned(), value))
}

/// What a command prints, and its exit code.
#[derive(Default)]
struct Output {
    stdout: String,
    stderr: String,
    code: u8,
}

/// Runs the command with its arguments, the program's name first, and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>, streams: &mut Streams<'_>) -> u8 {
    let output = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => execute(arguments.command, streams.stdin, streams.colour),
        Err(error) => {
            let text = error.render().to_string();
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            if error.use_stderr() {
                Output { stderr: text, code, ..Output::default() }
            } else {
                Output { stdout: text, code, ..Output::default() }
            }
        }
    };
    // Nobody is left to tell that standard error is closed.
    let _ = streams.stderr.write_all(output.stderr.as_bytes());
    let written =
        streams.stdout.write_all(output.stdout.as_bytes()).and_then(|()| streams.stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let _ = writeln!(streams.stderr, "error: cannot write the output: {error}");
            output.code.max(FAILED)
        }
        _ => output.code,
    }
}

fn execute(command: Command, stdin: &mut dyn Read, colour: bool) -> Output {
    match command {
        Command::Plan { spec, options } => {
            let Planned { source, plan, warnings } = planned(&spec, &options, stdin);
            let mut output = match plan {
                Ok(plan) => {
                    let stdout = match options.format {
                        Format::Table => report::map(&plan),
                        Format::Json => plan_json::write(&plan),
                    };
                    Output { stdout, ..Output::default() }
                }
                Err(errors) => failed(&errors, &source, options.format, colour),
            };
            if options.format == Format::Table {
                output.stderr.insert_str(0, &warnings);
            }
            output
        }
        Command::Explain { spec, a, b, options } => {
            let (source, planned) = explained(&spec, [&a, &b], &options, stdin);
            match planned {
                Ok((plan, [first, second])) => {
                    let pairs = explain::pairs(&plan, &first, &second);
                    let stdout = match options.format {
                        Format::Table => explain::draw(&pairs, &b),
                        Format::Json => explain::as_json(&pairs),
                    };
                    Output { stdout, ..Output::default() }
                }
                Err(errors) => failed(&errors, &source, options.format, colour),
            }
        }
        Command::Check { specs, options } => check(&specs, &options, stdin),
    }
}

/// What a plan's declaration says without effect, a line each.
fn warnings(plan: &Plan, spec: &Spec, source: &Source) -> String {
    let mut text = String::new();
    for warning in plan.structure.warnings(spec) {
        let (line, column) = source.position(warning.span);
        let _ = writeln!(text, "warning: {}:{line}:{column}: {}", source.name, warning.text);
    }
    text
}

fn failed(errors: &[Error], source: &Source, format: Format, colour: bool) -> Output {
    match format {
        Format::Table => {
            let stderr = diagnose::draw(errors, source, colour);
            Output { stderr, code: FAILED, ..Output::default() }
        }
        Format::Json => {
            let stdout = diagnose::as_json(errors, source);
            Output { stdout, code: FAILED, ..Output::default() }
        }
    }
}

fn check(specs: &[PathBuf], options: &Options, stdin: &mut dyn Read) -> Output {
    let mut output = Output::default();
    let mut files = Vec::with_capacity(specs.len());
    for spec in specs {
        let Planned { source, plan, warnings } = planned(spec, options, stdin);
        output.stderr.push_str(&warnings);
        let name = &source.name;
        let errors = match &plan {
            Ok(plan) => {
                let (pool, bytes) = (&plan.layout.pool, plan.layout.total_bytes);
                let size = report::size(bytes);
                let _ =
                    writeln!(output.stdout, "{name}: ok, `{pool}` takes {bytes} bytes ({size})");
                &[]
            }
            Err(errors) => {
                output.code = FAILED;
                let _ =
                    writeln!(output.stdout, "{name}: {}", diagnose::in_one_line(errors, &source));
                errors.as_slice()
            }
        };
        let errors = json::list(errors.iter().map(|error| diagnose::error_json(error, &source)));
        let ok = plan.is_ok().to_string();
        files.push(json::object([("file", json::string(name)), ("ok", ok), ("errors", errors)]));
    }
    if options.format == Format::Json {
        output.stdout = json::document([("files", json::lines(files))]);
    }
    output
}

/// A spec that was read and planned.
struct Planned {
    source: Source,
    plan: Result<Plan, Vec<Error>>,
    /// What it says without effect, a line each.
    warnings: String,
}

/// Reads a spec and plans it.
///
/// A text with errors goes on to the planner with what could be read, for the errors there that
/// stand on their own.
fn planned(path: &Path, options: &Options, stdin: &mut dyn Read) -> Planned {
    let (source, read) = read(path, options, stdin);
    let read = match read {
        Ok(read) => read,
        Err(errors) => return Planned { source, plan: Err(errors), warnings: String::new() },
    };
    let (plan, later) = analyze(&read.spec);
    // In a text that was read only in part, what seems unused may be used by the rest.
    let whole = plan.as_ref().filter(|_| read.errors.is_empty());
    let warnings = whole.map_or_else(String::new, |plan| warnings(plan, &read.spec, &source));
    let later = later.into_iter().filter(|error| read.stands(error)).collect();
    let errors = [read.errors, later].concat();
    let plan = match plan {
        Some(plan) if errors.is_empty() => Ok(plan),
        _ => Err(told(errors, &read.spec, options)),
    };
    Planned { source, plan, warnings }
}

/// Errors as they are told: by place, and each with its cause once.
fn told(mut errors: Vec<Error>, spec: &Spec, options: &Options) -> Vec<Error> {
    for (name, value) in options.dims.iter().filter(|(_, value)| *value < 1) {
        let depending = depending(spec, name);
        let before = errors.len();
        errors.retain(|error| !is_small(error, spec, &depending));
        if errors.len() < before {
            let fault = Fault::DimValue { dim: name.clone(), value: *value };
            errors.push(Error::new(fault, Span::default()).with(dim_argument(name, *value)));
        }
    }
    errors.sort_by_key(|error| error.span);
    if spec.config.is_empty() && spec.config_ignored.is_empty() {
        hint_at_config(&mut errors);
    }
    errors.truncate(MOST_ERRORS);
    errors
}

fn dim_argument(name: &str, value: i64) -> Hint {
    Hint::Argument(format!("--dim {name}={value}"))
}

/// A dim and all that are computed from it.
fn depending<'s>(spec: &'s Spec, name: &'s str) -> BTreeSet<&'s str> {
    let mut depending = BTreeSet::from([name]);
    loop {
        let before = depending.len();
        for dim in &spec.dims {
            if let DimValue::Expr(expr) = &dim.value
                && uses(expr, &depending)
            {
                depending.insert(&dim.name.value);
            }
        }
        if depending.len() == before {
            return depending;
        }
    }
}

fn uses(expr: &Expr, names: &BTreeSet<&str>) -> bool {
    let mut found = false;
    expr.names(&mut |name, _| found |= names.contains(name));
    found
}

/// Whether an error is that a size from one of the dims is below 1.
fn is_small(error: &Error, spec: &Spec, dims: &BTreeSet<&str>) -> bool {
    let buffers = || spec.groups.iter().flat_map(|group| &group.buffers);
    match &error.fault {
        Fault::DimValue { dim, .. } => dims.contains(dim.as_str()),
        Fault::Dimension { .. } => buffers()
            .flat_map(|buffer| &buffer.shape)
            .any(|extent| extent.span == error.span && uses(extent, dims)),
        _ => false,
    }
}

/// A plan and the buffers that two words of the command line name in it.
type Asked = (Plan, [Vec<usize>; 2]);

/// Reads and plans a spec to explain buffers of it, by their names.
///
/// A claim that does not hold is no reason not to say why.
fn explained(
    path: &Path,
    words: [&str; 2],
    options: &Options,
    stdin: &mut dyn Read,
) -> (Source, Result<Asked, Vec<Error>>) {
    let (source, read) = read(path, options, stdin);
    let explained = read.and_then(|read| {
        if !read.errors.is_empty() {
            return Err(told(read.errors, &read.spec, options));
        }
        let (plan, errors) = analyze(&read.spec);
        let claim = |error: &Error| matches!(error.fault, Fault::NotExclusive { .. });
        let Some(plan) = plan.filter(|_| errors.iter().all(claim)) else {
            return Err(told(errors, &read.spec, options));
        };
        let [a, b] = words;
        match [explain::buffers(&plan, "A", a), explain::buffers(&plan, "B", b)] {
            [Ok(a), Ok(b)] => Ok((plan, [a, b])),
            found => Err(found.into_iter().filter_map(|each| each.err().map(|e| *e)).collect()),
        }
    });
    (source, explained)
}

/// Reads a spec with the dims of the command line.
fn read(
    path: &Path,
    options: &Options,
    stdin: &mut dyn Read,
) -> (Source, Result<toml_spec::Read, Vec<Error>>) {
    let (source, text) = Source::read(path, stdin);
    if let Err(error) = text {
        return (source, Err(vec![*error]));
    }
    let mut read = toml_spec::read(&source.text, &source.base);
    set_dims(&mut read, &options.dims);
    (source, Ok(read))
}

/// Sets dims, declared in the spec or taken from its configuration, to values of the command line.
fn set_dims(read: &mut toml_spec::Read, dims: &[(String, i64)]) {
    let whole = read.errors.is_empty();
    let spec = &mut read.spec;
    for (name, value) in dims {
        let declared = spec.dims.iter_mut().find(|dim| dim.name.value == *name);
        if let Some(dim) = declared {
            dim.value = DimValue::Expr(Expr::int(*value, dim.name.span));
        } else if spec.config.iter().any(|(known, _)| known == name) {
            let place = Span::default();
            let value = DimValue::Expr(Expr::int(*value, place));
            spec.dims.push(Dim { name: Name::new(name.clone(), place), value });
        } else if whole {
            let known = spec.dims.iter().map(|dim| dim.name.value.as_str());
            let known = known.chain(spec.config.iter().map(|(name, _)| name.as_str()));
            let error = Error::unknown_name(NameKind::Dim, name, known, Span::default());
            read.errors.push(error.with(dim_argument(name, *value)));
        }
    }
}
