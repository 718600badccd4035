//! The command `scratchpool`; see [`scratchpool_planner::cli`].
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use scratchpool_planner::cli;

fn main() -> ExitCode {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut streams = cli::Streams {
        stdin: &mut io::stdin().lock(),
        stdout: &mut io::stdout().lock(),
        stderr: &mut io::stderr().lock(),
        colour,
    };
    ExitCode::from(cli::run(std::env::args_os(), &mut streams))
}
