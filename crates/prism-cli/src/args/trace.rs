//! Arguments of `prism trace`.

use std::path::PathBuf;

use clap::Args;

use super::TraceArgs;
use super::values::quantile;
use crate::planned::PlannedArgs;

/// Write one step as a timeline for Perfetto, and find its critical path
///
/// Each worker is a process with a row a stream; sends have arrows to their receives; own work,
/// waiting, launch delay and slack are told apart; the critical path is a process of its own.
/// Fields have Kineto's names. The graph is that of the builder that replays the trace best.
#[derive(Clone, Debug, Args)]
pub(crate) struct TimelineArgs {
    /// Trace (Parquet, or CSV with the same columns, also gzipped), or with `--quantile` a profile,
    /// or with `--quantile` or `--ideal` a job file; `-` for standard input
    #[arg(value_name = "INPUT")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceArgs,
    #[command(flatten)]
    pub(crate) planned: PlannedArgs,
    /// Recorded step; without it, the one whose time is nearest the median
    #[arg(long, value_name = "ID")]
    pub(crate) step: Option<i64>,
    /// The step with each kind's ideal work and no launch delays, instead of a recorded one; of a job
    /// file the step without noise, all GPUs alike
    #[arg(long, conflicts_with = "step")]
    pub(crate) ideal: bool,
    /// A step that the model draws, instead of a recorded one: the sampled step whose time
    /// is nearest this quantile, `0.95` or `p95`
    #[arg(long, value_parser = quantile, conflicts_with_all = ["step", "ideal"], value_name = "P")]
    pub(crate) quantile: Option<f64>,
    /// A scenario that the sampled step is drawn under, as in `prism whatif`
    #[arg(long, requires = "quantile", value_name = "SCENARIO")]
    pub(crate) scenario: Option<String>,
    /// Steps that are sampled [default: 400]
    #[arg(long, requires = "quantile", value_parser = clap::value_parser!(u32).range(20..=20_000), value_name = "N")]
    pub(crate) samples: Option<u32>,
    /// Where to write it: JSON, compressed if the name ends in `.gz`; `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}
