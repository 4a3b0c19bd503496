//! Arguments of `prism place`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::TraceArgs;
use super::values::{probability, slow_factor};
use crate::job::HealArgs;
use crate::planned::PlannedArgs;

/// Say which worker should be which (replica, stage) cell
///
/// Workers differ in speed for good; a pipeline feels a slow one more in some stages than in others,
/// and slow ones cost less in the same replica than apart. Without `--speeds` the workers are those of
/// the recording, by their estimated effects; with it, measured ones in the order of the file: replica
/// by replica, stage by stage, then spares. The median worker of a stage has factor 1. The result is
/// never worse than the order as given: it is checked on samples that were not searched on.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism place trace.parquet
  prism place profile.json --speeds gpus.csv --tp 8 -o assignment.csv
  prism place profile.json --speeds gpus.csv.gz --time-column perf --same rail --objective mean
  prism place profile.json --speeds gpus.csv --drop-or-keep
  prism place job.toml --speeds gpus.csv
  prism place trace.parquet --slow x1.2 --heal rank=0")]
pub(crate) struct PlaceArgs {
    /// Trace, profile or job file; `-` for standard input
    #[arg(value_name = "INPUT")]
    pub(crate) input: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceArgs,
    #[command(flatten)]
    pub(crate) planned: PlannedArgs,
    #[command(flatten)]
    pub(crate) heal: HealArgs,
    /// Measured speeds: CSV with a GPU's name (`gpu`, `uuid`, `worker`), a time, and where needed
    /// `node` and labels; rows of the same GPU are repeats
    #[arg(long, value_name = "FILE")]
    pub(crate) speeds: Option<PathBuf>,
    /// Column with the time [default: the only one with a known name, such as `time_ms`]
    #[arg(long, value_name = "NAME", requires = "speeds")]
    pub(crate) time_column: Option<String>,
    /// Column with the node [default: `node`]
    #[arg(long, value_name = "NAME", requires = "speeds")]
    pub(crate) node_column: Option<String>,
    /// GPUs of a worker, a tensor-parallel group inside a node [default: the job's own]
    #[arg(long, value_name = "N", requires = "speeds")]
    pub(crate) tp: Option<u32>,
    /// Label column whose value all workers of a replica must share, such as `rail`
    #[arg(long, value_name = "NAME", requires = "speeds")]
    pub(crate) same: Option<String>,
    /// What is minimised
    #[arg(long, value_enum, default_value_t = ObjectiveArg::P95, value_name = "WHAT")]
    pub(crate) objective: ObjectiveArg,
    /// Samples of the check, from which all numbers come [default: 4000; 20000 with `--slow`]
    #[arg(long, value_name = "N")]
    pub(crate) samples: Option<usize>,
    /// Random orders to compare with
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) random_orders: usize,
    /// Confidence of all intervals
    #[arg(long, default_value = "0.95", value_parser = probability, value_name = "P")]
    pub(crate) confidence: f64,
    /// Also say whether to keep the slowest worker, let a spare take over, or drop its replica
    #[arg(long)]
    pub(crate) drop_or_keep: bool,
    /// Instead of placing: what one worker slowed by this factor costs, by stage
    #[arg(
        long,
        value_parser = slow_factor,
        value_name = "xF",
        conflicts_with_all = ["speeds", "drop_or_keep", "random_orders"]
    )]
    pub(crate) slow: Option<f64>,
    /// Write the assignment here: JSON if the name ends in `.json`, else CSV
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What a placement minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectiveArg {
    /// 95 % quantile of step time
    P95,
    /// Mean step time
    Mean,
    /// Mean of the slowest 5 % of steps
    Cvar,
}

impl PlaceArgs {
    /// Samples: a difference of single cells needs more of them than one of whole orders.
    pub(crate) fn samples(&self) -> usize {
        self.samples.unwrap_or(if self.slow.is_some() { 20_000 } else { 4_000 })
    }
}
