//! Arguments of `prism trace`.

use std::path::PathBuf;

use clap::Args;

use super::TraceArgs;

/// Write one step as a timeline for Perfetto, and find its critical path
///
/// Each worker is a process with a row a stream; sends have arrows to their receives; own work,
/// waiting, launch delay and slack are told apart; the critical path is a process of its own.
/// Fields have Kineto's names. The graph is that of the builder that replays the trace best.
#[derive(Clone, Debug, Args)]
pub(crate) struct TimelineArgs {
    /// Trace: Parquet, or CSV with the same columns, also gzipped; `-` for standard input
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceArgs,
    /// Recorded step; without it, the one whose time is nearest the median
    #[arg(long, value_name = "ID")]
    pub(crate) step: Option<i64>,
    /// The step with each kind's ideal work and no launch delays, instead of a recorded one
    #[arg(long, conflicts_with = "step")]
    pub(crate) ideal: bool,
    /// Where to write it: JSON, compressed if the name ends in `.gz`; `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}
