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
    /// CSV: the column of times is a running total; `=false` where it only looks like one
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) cumulative: Option<bool>,
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
            cumulative: self.cumulative == Some(true),
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
    if name.is_empty() {
        Err(format!("no column in `{text}`"))
    } else {
        Ok((name.to_owned(), unit))
    }
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
  prism watch train.log --profile run-profile.json --require 'p95<8s'

Events: slower, less slow, back, faster (a changed level of the run), stall (one or two slow steps),
systematic stall (every calibrated run had it there: no alarm), level (not that of the other runs), drift.
p is the probability that a run of the profile in which nothing is wrong shows such an event, or a stronger one,
within the steps seen so far.")]
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
    #[arg(long, value_parser = whole, value_name = "N")]
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

/// What else `prism run` looks into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum AnalysisArg {
    /// The best interval between checkpoints, and the cost of being off it
    Interval,
    /// How many spare nodes
    Spares,
    /// What each class of failures costs
    Sensitivity,
    /// Restart, warm standby, elastic, in-memory checkpoints side by side
    Policies,
    /// All of them that the plan has what it takes for
    All,
}

/// Predict a whole run: when it ends, with what probability, and where its time goes
///
/// How long steps take comes from a run profile (`prism calibrate-run`), a job file, what `prism predict --json`
/// wrote, or `--step-time`. What interrupts the run, and what is done about it, is the section `[run]` of the job
/// file, or of a file of its own (`--plan`); the flags below and `--set run.KEY=VALUE` replace its keys.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism run job.toml
  prism run run-profile.json --plan run.toml --require 'p95<60d'
  prism run --step-time 10s --steps 466560 --gpus 16384 --failures llama3-405b \\
      --checkpoint-interval 30min --set run.recovery.restart=10min --analyse all

A plan with failures says at least:
  [run]
  steps = 466_560
  gpus = 16384
  [run.checkpoint]
  interval = '30min'
  [run.failures]
  preset = 'llama3-405b'
  [run.recovery]
  restart = '10min'
All keys: `prism schema job`; a whole one: examples/run.toml")]
pub(crate) struct RunArgs {
    /// How long steps take: a run profile, a job file, or a prediction; `-` for standard input
    #[arg(value_name = "INPUT", required_unless_present = "step_time")]
    pub(crate) input: Option<PathBuf>,
    /// How long steps take, where nothing else is known of them, such as `10s`
    #[arg(long, value_parser = step_time, conflicts_with = "input", value_name = "TIME")]
    pub(crate) step_time: Option<f64>,
    /// File with a section `[run]`
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Steps of the run (`run.steps`)
    #[arg(long, value_parser = whole, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// GPUs (`run.gpus`)
    #[arg(long, value_parser = whole, value_name = "N")]
    pub(crate) gpus: Option<u64>,
    /// Failures (`run.failures.preset`): `llama3-405b`, `rsc-1`, `rsc-2`, `o100k`, `none`
    #[arg(long, value_name = "PRESET")]
    pub(crate) failures: Option<String>,
    /// Time between checkpoints (`run.checkpoint.interval`), such as `30min`
    #[arg(long, value_name = "TIME")]
    pub(crate) checkpoint_interval: Option<String>,
    /// Date, or time from the start, that the run should be done by (`run.deadline`)
    #[arg(long, value_name = "WHEN")]
    pub(crate) deadline: Option<String>,
    #[command(flatten)]
    pub(crate) set: super::SetArgs,
    /// Runs that are simulated
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000_000), default_value_t = 10_000, value_name = "N")]
    pub(crate) runs: u32,
    /// Runs that each variant of an analysis simulates
    #[arg(long, value_parser = clap::value_parser!(u32).range(20..=1_000_000), default_value_t = 2_000, value_name = "N")]
    pub(crate) analysis_runs: u32,
    /// Confidence of all intervals
    #[arg(long, value_parser = values::probability, default_value = "0.95", value_name = "P")]
    pub(crate) confidence: f64,
    /// Quantiles of the completion time
    #[arg(long, value_parser = values::quantile, value_delimiter = ',', default_value = "p5,p50,p95", value_name = "P")]
    pub(crate) quantiles: Vec<f64>,
    /// P(throughput of the whole run above this): steps or tokens in a time, such as `8000steps/d` or
    /// `2e6tokens/s`; repeatable
    #[arg(long, value_name = "RATE")]
    pub(crate) throughput_above: Vec<Rate>,
    /// What else to look into, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub(crate) analyse: Vec<AnalysisArg>,
    /// Level of availability that spares are counted for
    #[arg(long, value_parser = values::probability, default_value = "0.99", value_name = "P")]
    pub(crate) availability: f64,
    /// A bound such as `p95<60d`, `mean<50d`, `ettr>0.9`, `goodput>0.9` or `done>0.8` (the probability of being
    /// done by the deadline); exit code 1 if it does not hold; repeatable
    #[arg(long, value_name = "BOUND")]
    pub(crate) require: Vec<RunBound>,
    /// Write the report here
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

impl RunArgs {
    /// Keys of `[run]` that are replaced, in order: flags, then `--set`.
    pub(crate) fn replaced(&self) -> Vec<(String, String)> {
        let text = |key: &str, value: &Option<String>| {
            value.as_ref().map(|v| (format!("run.{key}"), v.clone()))
        };
        let number =
            |key: &str, value: Option<u64>| value.map(|v| (format!("run.{key}"), v.to_string()));
        let flags = [
            number("steps", self.steps),
            number("gpus", self.gpus),
            text("failures.preset", &self.failures),
            text("checkpoint.interval", &self.checkpoint_interval),
            text("deadline", &self.deadline),
        ];
        flags.into_iter().flatten().chain(self.set.set.iter().cloned()).collect()
    }
}

/// A length of time with its unit, from `us` to `d`, in seconds.
pub(crate) fn span(text: &str) -> Result<f64, String> {
    let value = prism_job::Span::parse(text).map_err(|e| e.to_string())?.value();
    if value > 0.0 { Ok(value) } else { Err(format!("`{text}` is not above 0")) }
}

/// A step's time: at most a day.
fn step_time(text: &str) -> Result<f64, String> {
    match span(text)? {
        t if t <= 86_400.0 => Ok(t),
        _ => Err(format!("a step of `{text}` is longer than a day")),
    }
}

/// A whole number, also as `1e6` or `1_000_000`.
fn whole(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    if let Ok(n) = plain.parse::<u64>() {
        return Ok(n);
    }
    match plain.parse::<f64>() {
        Ok(v) if v >= 0.0 && v.fract() == 0.0 && v < 1e18 => Ok(v as u64),
        _ => Err(format!("`{text}` is not a whole number such as `466560` or `1e6`")),
    }
}

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Steps,
    Tokens,
}

/// Steps or tokens in a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rate {
    /// As typed.
    pub(crate) text: String,
    pub(crate) of: Counted,
    pub(crate) per_s: f64,
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("`{text}` is no rate such as `8000steps/d` or `2e6tokens/s`");
        let (amount, unit) = text.split_once('/').ok_or_else(form)?;
        let amount = amount.trim();
        let (number, of) = if let Some(n) = amount.strip_suffix("steps") {
            (n, Counted::Steps)
        } else if let Some(n) = amount.strip_suffix("tokens") {
            (n, Counted::Tokens)
        } else {
            return Err(form());
        };
        let per_s = positive(number.trim())? / span(&format!("1{}", unit.trim()))?;
        Ok(Rate { text: text.to_owned(), of, per_s })
    }
}

/// What a bound on a run is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RunStatistic {
    /// A quantile of completion time.
    Quantile(f64),
    /// Mean completion time.
    Mean,
    /// Mean effective training time ratio.
    Ettr,
    /// Mean goodput.
    Goodput,
    /// P(done by the deadline).
    Done,
}

/// A bound on a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunBound {
    /// As typed.
    pub(crate) text: String,
    pub(crate) statistic: RunStatistic,
    pub(crate) relation: super::Relation,
    /// Seconds, or a share.
    pub(crate) limit: f64,
}

impl std::str::FromStr for RunBound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form =
            "a bound is written `p95<60d`, `mean<50d`, `ettr>0.9`, `goodput>0.9` or `done>0.8`";
        let (name, relation, limit) =
            values::relation(text).ok_or_else(|| format!("no `<` or `>` in `{text}`; {form}"))?;
        let statistic = match name {
            "mean" => RunStatistic::Mean,
            "ettr" => RunStatistic::Ettr,
            "goodput" => RunStatistic::Goodput,
            "done" => RunStatistic::Done,
            p if p.starts_with('p') => RunStatistic::Quantile(values::quantile(p)?),
            other => return Err(format!("unknown statistic `{other}`; {form}")),
        };
        let limit = match statistic {
            RunStatistic::Quantile(_) | RunStatistic::Mean => span(limit)?,
            _ => values::number(limit)?,
        };
        Ok(RunBound { text: text.to_owned(), statistic, relation, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_bounds_have_units() {
        let r: Rate = "8640 steps/d".parse().unwrap();
        assert_eq!((r.of, r.per_s), (Counted::Steps, 0.1));
        let r: Rate = "2e6tokens/s".parse().unwrap();
        assert_eq!((r.of, r.per_s), (Counted::Tokens, 2e6));
        for wrong in ["8000/d", "8000steps", "steps/d", "-1steps/d", "5steps/fortnight"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
        let b: RunBound = "p95<60d".parse().unwrap();
        assert_eq!((b.statistic, b.limit), (RunStatistic::Quantile(0.95), 60.0 * 86_400.0));
        let b: RunBound = "ettr >= 0.9".parse().unwrap();
        assert_eq!((b.statistic, b.limit), (RunStatistic::Ettr, 0.9));
        for wrong in ["p95", "p95<60", "ettr>high", "max<60d", "done=1"] {
            assert!(wrong.parse::<RunBound>().is_err(), "{wrong}");
        }
    }
}
