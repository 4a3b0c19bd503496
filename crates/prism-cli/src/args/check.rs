//! Arguments of `prism check`.

use std::path::PathBuf;

use clap::Args;

use super::SetArgs;

/// Check a job file: is it possible, does it fit, where does its step go
///
/// Exits with 1 where the plan is impossible or does not fit the GPUs' memory, with 2 where the file
/// itself cannot be read. Nothing varies here: `prism predict` gives the distribution.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism check job.toml
  prism check job.toml --set parallelism.tensor_parallel_degree=4
  prism check job.toml --json")]
pub(crate) struct CheckArgs {
    /// Job file; `-` for standard input
    #[arg(value_name = "JOB")]
    pub(crate) job: PathBuf,
    #[command(flatten)]
    pub(crate) set: SetArgs,
    /// Write the result here instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
