//! Arguments of `prism explain`.

use std::path::PathBuf;

use clap::Args;

use super::values::{probability, quantile, repetitions, samples};
use super::{DrawsArg, TraceArgs};
use crate::job::HealArgs;
use crate::planned::PlannedArgs;

/// Say where the step time and its tail come from, and what to fix first
///
/// Shares out the penalty of variation between effects, classes and kinds of operations (alone,
/// removed, Shapley values); follows the critical path of sampled steps; and ranks the changes that
/// would gain most, each under the same random numbers as the job as it is.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism explain trace.parquet
  prism explain profile.json --quantile p99 --json
  prism explain trace.parquet --heal rank=12
  prism explain job.toml --set variability.preset=lemon
  prism explain trace.parquet --paths -v")]
pub(crate) struct ExplainArgs {
    /// Trace, profile or job file; `-` for standard input
    #[arg(value_name = "INPUT")]
    pub(crate) input: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceArgs,
    #[command(flatten)]
    pub(crate) planned: PlannedArgs,
    #[command(flatten)]
    pub(crate) heal: HealArgs,
    /// The tail that is explained, `0.95` or `p95`
    #[arg(long, value_parser = quantile, default_value = "p95", value_name = "P")]
    pub(crate) quantile: f64,
    /// Samples of each coalition of parts and of each change
    #[arg(long, default_value = "2048", value_parser = samples, value_name = "N")]
    pub(crate) samples: usize,
    /// Sampled steps whose critical path is followed
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..=20_000), value_name = "N")]
    pub(crate) path_samples: u32,
    /// Most parts of a breakdown; the smallest are joined. Work doubles with each
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(2..=12), value_name = "N")]
    pub(crate) max_parts: u8,
    /// Print the critical paths of a median and of a slow step line by line
    #[arg(long)]
    pub(crate) paths: bool,
    /// How durations are drawn
    #[arg(long, value_enum, default_value_t = DrawsArg::Empirical, value_name = "HOW")]
    pub(crate) draws: DrawsArg,
    /// Confidence of all intervals
    #[arg(long, default_value = "0.95", value_parser = probability, value_name = "P")]
    pub(crate) confidence: f64,
    /// Bootstrap repetitions for the calibration error of changes; 0 for none [default: 0]
    #[arg(long, value_parser = repetitions, value_name = "N")]
    pub(crate) bootstrap: Option<usize>,
    /// GPUs of a node [default: the job's cluster's, or 8]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) gpus_per_node: Option<u32>,
    /// Write the report to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
