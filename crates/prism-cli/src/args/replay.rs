//! Arguments of `prism replay`.

use std::path::PathBuf;

use clap::Args;

use super::TraceArgs;

/// Split a recorded trace into work, waiting and launch delays, and replay it
///
/// Prints the figures of the reference builder (the trace format's own dependency rules), those of
/// the program-order builder (blocking, batched sends and receives) beside them, and which of the
/// two `calibrate` and `predict` use: the one whose step times without launch delays are closest
/// to the record.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Trace: Parquet, or CSV with the same columns, also gzipped; `-` for standard input
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceArgs,
    /// Figures of each step too
    #[arg(long)]
    pub(crate) per_step: bool,
    /// Write the report to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
