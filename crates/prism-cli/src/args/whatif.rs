//! Arguments of `prism whatif`.

use std::path::PathBuf;

use clap::Args;

use super::TraceArgs;

/// Say what the recorded steps would have taken had operations not varied
///
/// Without further flags: the reference what-if analysis of a trace. Each operation's work is
/// either as recorded or its kind's ideal, the mean or median over the whole trace; the graph of
/// the trace format's own rules is replayed without launch delays. Prints the slowdown by kind of
/// operation, pipeline stage, data-parallel replica and worker, and how much of it the slowest
/// workers (`M_W`) and the last stage (`M_S`) explain.
#[derive(Clone, Debug, Args)]
pub(crate) struct WhatifArgs {
    /// Trace: Parquet, or CSV with the same columns, also gzipped; `-` for standard input
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceArgs,
    /// Figures of each step too
    #[arg(long)]
    pub(crate) per_step: bool,
    /// Write the slowdown by worker as CSV: a row a replica, a column a stage; `-` for standard
    /// output
    #[arg(long, value_name = "FILE")]
    pub(crate) heatmap: Option<PathBuf>,
    /// Write the report to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
