//! Arguments of `prism diff`.

use std::path::PathBuf;

use clap::Args;

use super::values::{probability, repetitions, samples, share};

/// Compare two traces, profiles, job files or step logs: what changed, and what it cost
///
/// Says by how much the recorded step time changed, which operations, ranks and effects did (each with
/// an interval, all tests corrected for their number), and how much of the change of step time each
/// explains. Whether an input is a profile (JSON), a trace or a step log (CSV with a column `step` or
/// `iteration` and one of `step_s`, `step_time_s`, `step_time_ms`, `elapsed_ms`) is told by its
/// content; of step logs the step times alone are compared. Of job
/// files steps are drawn from their variability, under the same noise: what is alike is equal.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism diff before.parquet after.parquet
  prism diff before.json after.parquet --tolerance 2% -q
  prism diff before.toml after.toml
  prism diff monday.csv tuesday.csv.gz --tolerance 1% --json")]
pub(crate) struct DiffArgs {
    /// Before: trace, profile, job file or step log
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// After: trace, profile, job file or step log
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// Exit with 1 if B's mean step time exceeds A's by more than this share, interval included
    #[arg(long, value_parser = share, value_name = "SHARE")]
    pub(crate) tolerance: Option<f64>,
    /// Exit with 1 if anything inside the step changed
    #[arg(long)]
    pub(crate) fail_on_findings: bool,
    /// Level of p-values, corrected for the number of tests
    #[arg(long, default_value = "0.05", value_parser = probability, value_name = "P")]
    pub(crate) alpha: f64,
    /// Confidence of intervals
    #[arg(long, default_value = "0.95", value_parser = probability, value_name = "P")]
    pub(crate) confidence: f64,
    /// Samples of each predicted distribution
    #[arg(long, default_value = "4096", value_parser = samples, value_name = "N")]
    pub(crate) samples: usize,
    /// Bootstrap repetitions for the intervals of explained step time; 0 for none [default: 40, none
    /// of job files]
    #[arg(long, value_parser = repetitions, value_name = "N")]
    pub(crate) bootstrap: Option<usize>,
    /// Metadata of trace A (YAML); without it, `meta-T.yaml` beside `trace-T.parquet` is read
    #[arg(long, value_name = "FILE")]
    pub(crate) meta_a: Option<PathBuf>,
    /// Metadata of trace B
    #[arg(long, value_name = "FILE")]
    pub(crate) meta_b: Option<PathBuf>,
    /// Drop steps that lack operations instead of refusing a trace
    #[arg(long)]
    pub(crate) allow_incomplete: bool,
    /// Write the report to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
