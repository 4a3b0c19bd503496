//! Standard output and standard error, and who may write to them.
//!
//! Standard output carries the result; warnings, hints, timing and errors go to standard error.
//! Text is readable without colour.

use std::env;
use std::io::{self, IsTerminal, Write};

use prism_job::{JobFileError, Violation};
use prism_report::{Style, Tone};

use crate::args::{Colour, GlobalArgs};
use crate::error::CliError;
use crate::snippet;

/// Owns both streams.
#[derive(Clone, Debug)]
pub(crate) struct Printer {
    quiet: u8,
    verbose: u8,
    out: Style,
    err: Style,
    /// Standard output carries data, so the report goes to standard error.
    out_is_taken: bool,
}

impl Printer {
    pub(crate) fn new(global: &GlobalArgs, out_is_taken: bool) -> Printer {
        let style = |tty: bool| Style { colour: colour(global.color, tty) };
        let err = style(io::stderr().is_terminal());
        Printer {
            quiet: global.quiet,
            verbose: global.verbose,
            out: if out_is_taken { err } else { style(io::stdout().is_terminal()) },
            err,
            out_is_taken,
        }
    }

    /// How the report is emphasised.
    pub(crate) fn style(&self) -> Style {
        self.out
    }

    /// Whether text for people is wanted at all.
    pub(crate) fn silent(&self) -> bool {
        self.quiet >= 2
    }

    /// Whether long tables are shown whole.
    pub(crate) fn verbose(&self) -> bool {
        self.verbose >= 1
    }

    /// Whether progress may be shown.
    pub(crate) fn may_show_progress(&self) -> bool {
        self.quiet == 0 && io::stderr().is_terminal()
    }

    /// Writes the result.
    pub(crate) fn result(&self, text: &str) -> Result<(), CliError> {
        let written = if self.out_is_taken {
            io::stderr().lock().write_all(text.as_bytes())
        } else {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        };
        written.map_err(|source| CliError::Stdout { source })
    }

    /// Something to be careful about.
    pub(crate) fn warning(&self, text: &str) {
        if self.quiet == 0 {
            note(&format!("{}: {text}", self.err.paint("warning", Tone::Caution)));
        }
    }

    /// What is possible in a job file and seldom meant.
    pub(crate) fn job_warnings(&self, name: &str, text: &str, warnings: &[Violation]) {
        if self.quiet == 0 && !warnings.is_empty() {
            note(&snippet::warnings(name, text, warnings, self.err));
        }
    }

    /// The next command.
    pub(crate) fn hint(&self, text: &str) {
        if self.quiet == 0 {
            note(&format!("{}: {text}", self.err.paint("hint", Tone::Good)));
        }
    }

    /// What only `-v` shows.
    pub(crate) fn detail(&self, level: u8, text: &str) {
        if self.verbose >= level {
            note(&self.err.paint(text, Tone::Dim));
        }
    }

    /// An error with its causes and hint; shown however quiet.
    pub(crate) fn error(&self, error: &CliError) {
        if let CliError::Job(JobFileError::Invalid(all)) = error {
            note(&snippet::errors(all, self.err));
            return;
        }
        let mut text = error.to_string();
        let mut lines = format!("{}: {text}", self.err.paint("error", Tone::Bad));
        let mut cause = std::error::Error::source(error);
        while let Some(e) = cause {
            let why = e.to_string();
            // Some messages already end with their cause.
            if !text.contains(&why) {
                lines = format!("{lines}\n  caused by: {why}");
            }
            text = why;
            cause = e.source();
        }
        if let Some(hint) = error.hint() {
            lines = format!("{lines}\n{}: {hint}", self.err.paint("hint", Tone::Good));
        }
        note(&lines);
    }
}

/// A line on standard error; that nobody reads it is no reason to stop.
fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Whether colours are written: the flag, then the environment, then the terminal.
fn colour(choice: Colour, tty: bool) -> bool {
    let set = |name: &str| env::var_os(name).is_some_and(|v| !v.is_empty());
    match choice {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto if set("NO_COLOR") => false,
        Colour::Auto
            if env::var_os("CLICOLOR_FORCE").is_some_and(|v| !v.is_empty() && v != "0") =>
        {
            true
        }
        Colour::Auto => tty,
    }
}
