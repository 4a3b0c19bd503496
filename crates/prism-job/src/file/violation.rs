//! What is wrong with a job file, all of it at once.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use crate::Plan;

/// One thing wrong with a job file, or worth a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// Dotted key concerned, such as `parallelism.tensor_parallel_degree`; empty where the text is no
    /// TOML.
    pub key: String,
    /// Code of the rule, such as `tp-heads`.
    pub rule: &'static str,
    /// Bytes of the job file's text concerned; `None` where a `--set` argument is.
    pub span: Option<Range<usize>>,
    /// The `--set` argument concerned, as `key=value`.
    pub set: Option<String>,
    /// What is wrong: a sentence without a full stop.
    pub message: String,
    /// What to do: the nearest legal values where there are any.
    pub hint: Option<String>,
}

/// A job file's violations with the text they point into. Displays as one line for each,
/// `name:line:column: message (hint)`, and the nearest possible plans.
#[derive(Clone, Debug, PartialEq)]
pub struct Violations {
    /// Name of the file.
    pub name: String,
    /// Text of the file.
    pub text: String,
    /// The violations in the order of the text, those of `--set` arguments last. At least one.
    pub violations: Vec<Violation>,
    /// Where nothing but the plan is wrong: the possible plans nearest to it on the same GPUs, the
    /// nearest first.
    pub nearest_plans: Vec<Plan>,
    /// Whether the file is well formed, and only the job that it describes is impossible.
    pub says_job: bool,
}

/// A job file that gives no job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobFileError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// It breaks rules.
    #[error("{0}")]
    Invalid(Box<Violations>),
}

impl JobFileError {
    /// What to do about it; violations carry hints of their own.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            JobFileError::Read { .. } => Some("`prism init` writes a job file to start from"),
            JobFileError::Invalid(_) => None,
        }
    }

    /// The violations, where the file was read.
    pub fn violations(&self) -> &[Violation] {
        match self {
            JobFileError::Read { .. } => &[],
            JobFileError::Invalid(all) => &all.violations,
        }
    }
}

impl Violation {
    /// Line and column in `text`, from 1; columns count characters. `None` where a `--set` argument
    /// is concerned.
    pub fn line_column(&self, text: &str) -> Option<(usize, usize)> {
        let start = self.span.as_ref()?.start.min(text.len());
        let before = text.get(..start)?;
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        Some((line, column))
    }

    /// `place: message (hint)`, where the place is `name:line:column` or the `--set` argument.
    pub fn render(&self, name: &str, text: &str) -> String {
        let place = match (self.line_column(text), &self.set) {
            (_, Some(set)) => format!("--set {}", set.replace('\n', "\\n")),
            (Some((line, column)), None) if name.is_empty() => format!("{line}:{column}"),
            (Some((line, column)), None) => format!("{name}:{line}:{column}"),
            (None, None) => name.to_owned(),
        };
        let hint = self.hint.as_ref().map(|h| format!(" ({h})")).unwrap_or_default();
        format!("{place}: {}{hint}", self.message)
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, violation) in self.violations.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            f.write_str(&violation.render(&self.name, &self.text))?;
        }
        if let Some(first) = self.nearest_plans.first() {
            write!(f, "\nnearest possible plans for {} GPUs:", first.gpus())?;
            for plan in &self.nearest_plans {
                write!(f, "\n  {plan}")?;
            }
        }
        Ok(())
    }
}
