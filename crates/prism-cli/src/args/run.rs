//! Arguments of `prism calibrate-run` and `prism watch`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use prism_io::{LogFormat, StepLogOptions};

use super::Requirement;
use super::values;

/// What wrote a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormatArg {
    /// A table with a header
    Csv,
    /// Megatron-LM's text
    Megatron,
    /// `MLPerf`'s `:::MLLOG` lines
    Mllog,
    /// `NeMo`'s text
    Nemo,
    /// torchtitan's text
    Torchtitan,
}

/// How logs of step times are read.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reading logs")]
pub(crate) struct StepLogArgs {
    /// What wrote the logs; without it, their content tells
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormatArg>,
    /// CSV: the column of times and its unit (`s`, `ms`, `us`), such as `train_time:ms`
    #[arg(long, value_parser = time_column, value_name = "NAME:UNIT")]
    pub(crate) time_column: Option<(String, f64)>,
    /// CSV: the column of times is a running total
    #[arg(long)]
    pub(crate) cumulative: bool,
    /// CSV: columns that together name the system
    #[arg(long, value_delimiter = ',', value_name = "COLUMN")]
    pub(crate) system_columns: Vec<String>,
    /// torchtitan: tokens that a GPU works through in a step (the global batch over the GPUs)
    #[arg(long, value_parser = positive, value_name = "N")]
    pub(crate) tokens_per_gpu_step: Option<f64>,
}

impl StepLogArgs {
    /// What the reader is told.
    pub(crate) fn options(&self) -> StepLogOptions {
        StepLogOptions {
            format: self.log_format.map(|f| match f {
                LogFormatArg::Csv => LogFormat::Csv,
                LogFormatArg::Megatron => LogFormat::Megatron,
                LogFormatArg::Mllog => LogFormat::Mllog,
                LogFormatArg::Nemo => LogFormat::Nemo,
                LogFormatArg::Torchtitan => LogFormat::Torchtitan,
            }),
            time_column: self.time_column.clone(),
            cumulative: self.cumulative,
            system_columns: self.system_columns.clone(),
            tokens_per_gpu_step: self.tokens_per_gpu_step,
            ..StepLogOptions::default()
        }
    }
}

/// A column and seconds in its unit.
fn time_column(text: &str) -> Result<(String, f64), String> {
    let (name, unit) = text.rsplit_once(':').ok_or_else(|| {
        format!("`{text}` has no unit; write `{text}:s`, `{text}:ms` or `{text}:us`")
    })?;
    let unit = values::duration(&format!("1{unit}"))?;
    if name.is_empty() { Err(format!("no column in `{text}`")) } else { Ok((name.to_owned(), unit)) }
}

/// A positive number.
fn positive(text: &str) -> Result<f64, String> {
    match values::number(text) {
        Ok(v) if v > 0.0 => Ok(v),
        Ok(v) => Err(format!("{v} is not positive")),
        Err(e) => Err(e),
    }
}

/// Learn the law of a job's steps from logs of its runs
///
/// Logs are CSV (a step column and a time column), Megatron-LM, `MLPerf` (`:::MLLOG`), `NeMo` or torchtitan text,
/// also gzipped; several runs, in one file or many. What is learnt: the level of a step and how far runs differ,
/// the spread and correlation of its core, a course that the runs share, warm-up, stalls, first steps after
/// evaluations. Two or three runs say little about how far runs differ, so that is pooled with other systems
/// (`--prior`). `prism run` and `prism watch` read what `-o` writes.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism calibrate-run run1.log run2.log -o run-profile.json
  prism calibrate-run steps.csv --system gpt3-96 --run 0 --run 1 -o run-profile.json
  prism calibrate-run logs/*/*.log --fit-prior -o my-prior.json
  prism calibrate-run steps.csv --cross-validate")]
pub(crate) struct CalibrateRunArgs {
    /// Logs of step times; `-` for standard input
    #[arg(required = true, value_name = "LOG")]
    pub(crate) logs: Vec<PathBuf>,
    /// Only this system of the logs
    #[arg(long, value_name = "NAME")]
    pub(crate) system: Option<String>,
    /// Only this run; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Vec<String>,
    /// What other systems say of how runs differ: `mlperf-llm`, or a file that `--fit-prior` wrote
    #[arg(long, default_value = "mlperf-llm", value_name = "NAME|FILE")]
    pub(crate) prior: String,
    /// Fit such a prior to logs of several systems instead; logs that name no system belong to the one that
    /// their folder is called
    #[arg(long, conflicts_with_all = ["prior", "run", "system", "cross_validate"])]
    pub(crate) fit_prior: bool,
    /// Predict each run of each system from its other runs, with a prior of the other systems, and say how good
    /// that is
    #[arg(long, conflicts_with_all = ["prior", "run", "system", "output"])]
    pub(crate) cross_validate: bool,
    /// Draws of each predicted total of `--cross-validate`
    #[arg(long, value_parser = values::samples, default_value = "32768", value_name = "N")]
    pub(crate) samples: usize,
    #[command(flatten)]
    pub(crate) read: StepLogArgs,
    /// Write the run profile (or the prior) here
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Watch a log of steps against what was predicted of it
///
/// Says when a run left its predicted distribution: where steps became slower and by how much, where they came
/// back, stalls, drift, and a level that is not that of the other runs, each with its probability under the
/// model and the time that it costs. Slow steps that every calibrated run had at the same place are told apart
/// from alarms. One line an event. With `--follow`, reads on while the file grows. Exit code 1 if a bound of
/// `--require` is broken.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism watch train.log --profile run-profile.json --steps 100000
  prism watch train.log --profile job.toml --follow --json
  prism watch train.log --profile run-profile.json --require 'p95<8s'")]
pub(crate) struct WatchArgs {
    /// Log of step times; `-` for standard input
    #[arg(value_name = "LOG")]
    pub(crate) log: PathBuf,
    /// What was predicted: a run profile of `prism calibrate-run`, a job file, or what `prism predict --json` wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: PathBuf,
    /// Only this run of the log, where it has several
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
    /// Only this system of the log, where it has several
    #[arg(long, value_name = "NAME")]
    pub(crate) system: Option<String>,
    /// Steps of the whole run, for the time that events will cost until its end
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// Read on while the file grows, until interrupted or `--idle`
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// With `--follow`, stop after so long without a new step
    #[arg(long, value_parser = values::duration, requires = "follow", value_name = "TIME")]
    pub(crate) idle: Option<f64>,
    /// False alarms of a changed level that are put up with in 10,000 steps
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    pub(crate) alarms: f64,
    /// Smallest change of level that is told, a share such as `0.5%`
    #[arg(long, value_parser = values::share, default_value = "0.5%", value_name = "SHARE")]
    pub(crate) least: f64,
    /// A bound on the observed steps after the warm-up, such as `p95<8s`; exit code 1 if it is broken; repeatable
    #[arg(long, value_name = "BOUND")]
    pub(crate) require: Vec<Requirement>,
    #[command(flatten)]
    pub(crate) read: StepLogArgs,
}
