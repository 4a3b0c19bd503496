//! The `prism` command: from a trace of a training job to a distribution of its step time.
//!
//! | module | does |
//! |---|---|
//! | `args` | what can be typed, and nothing else |
//! | `commands` | one file a command: engine calls, then a report |
//! | `input` | traces and profiles, told apart by content |
//! | `logs` | logs of step times |
//! | `steps` | how long steps take, from whatever says it |
//! | `context` | settings of a run, its progress and its timing |
//! | `snippet` | what is wrong with a job file, at its place in the text |
//! | `printer` | owns standard output and standard error |
//! | `error` | what can go wrong, with hints and exit codes |

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod commands;
mod context;
mod error;
mod input;
mod job;
mod logs;
mod planned;
mod printer;
mod snippet;
mod steps;

use std::process::ExitCode;

use clap::Parser;

use args::Cli;
use context::Context;
use error::Outcome;
use printer::Printer;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version go to standard output and are no error; a closed pipe is neither.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let printer = Printer::new(&cli.global, cli.command.writes_data_to_stdout());
    let context = Context::new(&cli.global, printer);
    let done = context.and_then(|mut context| commands::run(&cli.command, &mut context));
    match done {
        Ok(Outcome::Yes) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Ok(Outcome::Interrupted) => ExitCode::from(130),
        Err(e) if e.is_broken_pipe() => ExitCode::SUCCESS,
        Err(e) => {
            Printer::new(&cli.global, false).error(&e);
            ExitCode::from(2)
        }
    }
}
