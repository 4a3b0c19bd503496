//! Logs of step times.
//!
//! Every format is one file with a [`line::LineFormat`] and one row in [`detect`]'s table. Lines go
//! through [`feed::Feed`], whole files and growing ones alike; what they say goes through
//! [`sink::Sink`], which holds what all formats have in common: runs, ascending steps, pauses.

#![allow(clippy::doc_markdown, reason = "names of programs, not of items")]

mod collect;
mod csv;
mod detect;
mod feed;
mod line;
mod megatron;
mod mllog;
mod nemo;
mod options;
mod sink;
mod tail;
mod torchtitan;

use std::fmt;
use std::path::Path;

use crate::error::{Foreign, IoError};
use crate::op_table::Source;
use crate::options::Limits;
use crate::source::{self, Content};

pub use detect::looks_like_step_log;
pub use options::StepLogOptions;
pub use tail::{LogEvent, StepLogTail};

use feed::Feed;

/// Step times of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct StepLog {
    /// Step ids, ascending.
    pub step: Vec<i64>,
    /// Step times, seconds, positive.
    pub step_s: Vec<f64>,
    /// Time from the previous step's end to the step's, by the log's clock, seconds; NaN where it is not
    /// known. Empty where the log has no clock. Where a time is the mean of several steps, so is this. A
    /// pause is not in it where the log tells how long the pause was, otherwise it is.
    pub wall_s: Vec<f64>,
    /// What came between steps, in order.
    pub pauses: Vec<Pause>,
    /// Steps that each time is the mean of, where the log averages over several; otherwise 1. The most
    /// frequent number, where it varies: the first line of a start, or one after a lost line, can differ.
    pub averaged_over: u32,
    /// Which run of the file, where it has several.
    pub run: Option<String>,
    /// What ran (a system, a job), where the file names it.
    pub system: Option<String>,
    /// What wrote the file.
    pub format: LogFormat,
    /// The file.
    pub source: Source,
}

/// Something other than training between two steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause {
    /// What.
    pub kind: PauseKind,
    /// Steps of the log that came before it: the pause is right before `step_s[after]`, or after the last
    /// step where `after` is their number.
    pub after: usize,
    /// How long, seconds; `None` where the log only says that it was there.
    pub duration_s: Option<f64>,
}

/// What a pause was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PauseKind {
    /// Evaluation or validation.
    Evaluation,
    /// A checkpoint for which training stopped.
    Checkpoint,
    /// The job was started anew.
    Restart,
    /// A new block of steps, of which the log does not say why.
    Block,
}

/// What wrote a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LogFormat {
    /// A table with a header.
    Csv,
    /// Megatron-LM's text.
    Megatron,
    /// MLPerf's `:::MLLOG` lines.
    Mllog,
    /// NeMo's text.
    Nemo,
    /// torchtitan's text.
    Torchtitan,
}

impl LogFormat {
    /// All of them.
    pub const ALL: [LogFormat; 5] = [
        LogFormat::Csv,
        LogFormat::Megatron,
        LogFormat::Mllog,
        LogFormat::Nemo,
        LogFormat::Torchtitan,
    ];

    /// Short stable name, in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            LogFormat::Csv => "csv",
            LogFormat::Megatron => "megatron",
            LogFormat::Mllog => "mllog",
            LogFormat::Nemo => "nemo",
            LogFormat::Torchtitan => "torchtitan",
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Reads all runs of a log of step times; also gzipped, `-` for standard input.
///
/// What wrote the log is told by its content, unless the options say it:
///
/// | format | told by | step | time | several runs |
/// |---|---|---|---|---|
/// | CSV | its header | `step`, else `iteration`, else `step_idx` | one of `step_s`, `step_time_s`, `step_time_ms`, `elapsed_ms`, or the one named | by system and `run`; rows may be interleaved |
/// | Megatron-LM | `iteration N/ M … elapsed time per iteration (ms): X` | N | mean since the line before | by starts |
/// | MLPerf | `:::MLLOG` | order in the run, from 0 | `train_step_time` or `train_step_timing` in `tracked_stats` | by `run_start` |
/// | NeMo | `train_step_timing in s` | `global_step`, exact also where a progress bar rounds it | that step's own | by starts |
/// | torchtitan | `step: N loss: … tps: X` | N | [`StepLogOptions::tokens_per_gpu_step`] over `tps`; else from time stamps | by starts |
///
/// In CSV, the columns `round`, `submitter`, `system`, `bench` that are there name the system (joined by
/// `/`), or those of [`StepLogOptions::system_columns`]; a new value of `block` is a pause of kind
/// [`PauseKind::Block`]; `wall_s` is read as it is. Rows whose `kind` is none of `train`, `training`,
/// `step`, `log` are no steps but pauses: [`PauseKind::Evaluation`] for `val`, `valid`, `validation`,
/// `eval`, `evaluation`, `test`; [`PauseKind::Checkpoint`] for `checkpoint`, `save`; else
/// [`PauseKind::Block`]. With [`StepLogOptions::cumulative`] a time is the difference to the run's row
/// before, divided by the difference of the steps. The first row of a run has a time only if its step is 0
/// or 1 and its total positive; a total that falls means that the timer was set to zero, so that the row
/// has no time: it is a pause of kind [`PauseKind::Block`].
///
/// In text logs, a step at or below the one before is a new start if lines of a starting program came
/// between: each start is a run of its own (`start 1`, `start 2`, …), and the second begins with
/// [`PauseKind::Restart`]. Where the steps go on ascending, the restart is a pause inside the run. Without
/// such lines it is a violation, but for a line that is there twice, which counts once. A last line that
/// was cut short is left out.
///
/// # Errors
/// [`IoError::Invalid`] lists every violation with its line; the other variants say why the content
/// could not be judged.
pub fn read_step_logs(path: &Path, options: &StepLogOptions) -> Result<Vec<StepLog>, IoError> {
    let bytes = source::slurp(path, options.limits)?;
    read_step_logs_bytes(&source::name(path), &bytes, options)
}

/// Reads all runs of a log of step times from memory; `name` stands for the file in messages.
///
/// ```
/// use prism_io::{StepLogOptions, read_step_logs_bytes};
///
/// let table = b"run,step,train_time_ms\na,1,50\nb,1,52\na,2,100\nb,2,103\n";
/// let options = StepLogOptions::default()
///     .with_time_column("train_time_ms", 1e-3)
///     .with_cumulative(true);
/// let logs = read_step_logs_bytes("runs.csv", table, &options)?;
/// assert_eq!(logs[0].run.as_deref(), Some("a"));
/// assert_eq!(logs[0].step_s, [0.05, 0.05]);
/// # Ok::<(), prism_io::IoError>(())
/// ```
///
/// # Errors
/// As [`read_step_logs`].
pub fn read_step_logs_bytes(
    name: &str,
    bytes: &[u8],
    options: &StepLogOptions,
) -> Result<Vec<StepLog>, IoError> {
    let own = source::source(name, bytes);
    let (content, bytes) = source::unpack(name, bytes, options.limits)?;
    if content == Content::Parquet {
        return Err(IoError::Foreign { file: name.to_owned(), what: Foreign::NotALog });
    }
    let mut feed = Feed::new(name, options);
    feed.push(&bytes)?;
    drop(bytes);
    feed.finish()?;
    collect::logs(feed, &own)
}

/// Reads a log of step times that holds one run, in any format that [`read_step_logs`] reads.
///
/// # Errors
/// As [`read_step_logs`]; [`IoError::SeveralRuns`] names the runs where there are several.
pub fn read_step_log(path: &Path, limits: Limits) -> Result<StepLog, IoError> {
    let bytes = source::slurp(path, limits)?;
    read_step_log_bytes(&source::name(path), &bytes, limits)
}

/// Reads a log of step times of one run from memory; `name` stands for the file in messages.
///
/// ```
/// use prism_io::{Limits, read_step_log_bytes};
///
/// let log = read_step_log_bytes("run.csv", b"step,step_time_ms\n1,250\n2,251.5\n", Limits::default())?;
/// assert_eq!((log.step, log.step_s), (vec![1, 2], vec![0.25, 0.2515]));
/// # Ok::<(), prism_io::IoError>(())
/// ```
///
/// # Errors
/// As [`read_step_log`].
pub fn read_step_log_bytes(name: &str, bytes: &[u8], limits: Limits) -> Result<StepLog, IoError> {
    let options = StepLogOptions::default().with_limits(limits);
    let mut logs = read_step_logs_bytes(name, bytes, &options)?;
    match (logs.pop(), logs.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(IoError::Empty { file: name.to_owned(), what: "no steps" }),
        (Some(last), false) => {
            logs.push(last);
            let runs = logs.iter().map(collect::title).collect();
            Err(IoError::SeveralRuns { file: name.to_owned(), runs })
        }
    }
}
