//! Arguments of `prism fit-cluster` and `prism fit-job`.

use std::path::PathBuf;

use clap::Args;

use super::SetArgs;

/// Fit a cluster's efficiencies to measured step and collective times
///
/// Each row of `--points` is a step that was measured: a column `step_time_s` or `step_time_ms`, and
/// columns named as keys of the job file (`training.global_batch_size`, `cluster.name`, …) whose values
/// replace the job file's. Each row of `--collectives` is a collective: kind (all-reduce, all-gather,
/// reduce-scatter, all-to-all), bytes (the whole buffer of a rank), ranks, stride (optional, GPUs between
/// neighbours), and `time_s`, `time_ms` or `time_us`.
/// GPU parameters are shared by all rows on one chip, network and fixed overhead by all rows with one
/// `cluster.name`. Every parameter stays inside its physical bounds; those that the measurements do not
/// tell are named, and stay.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism fit-cluster job.toml --points steps.csv -o fitted.toml
  prism fit-cluster job.toml --points steps.csv --collectives nccl.csv --fit gemm,memory,nvlink")]
pub(crate) struct FitClusterArgs {
    /// Job file that the rows change; `-` for standard input
    #[arg(value_name = "JOB")]
    pub(crate) job: PathBuf,
    /// Measured steps (CSV)
    #[arg(long, value_name = "FILE")]
    pub(crate) points: Option<PathBuf>,
    /// Measured collectives (CSV)
    #[arg(long, value_name = "FILE")]
    pub(crate) collectives: Option<PathBuf>,
    /// Parameters that may move, separated by commas; without it, all of them
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) fit: Vec<String>,
    #[command(flatten)]
    pub(crate) set: SetArgs,
    /// Write the job file with the fitted efficiencies here
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Fit a job to its step times, where nothing but a log of them exists
///
/// The median step gives the efficiency of the matrix products, the core's spread the step effect. With
/// jobs of different step time on one cluster (`--also`), the fixed overhead and its spread are told
/// apart from them. Effects that step times do not tell stay as the job file has them, and are listed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  prism fit-job job.toml --steps run.csv -o fitted.toml
  prism fit-job small.toml --steps a.csv --steps b.csv --also large.toml=c.csv -o fitted.toml")]
pub(crate) struct FitJobArgs {
    /// Job file; `-` for standard input
    #[arg(value_name = "JOB")]
    pub(crate) job: PathBuf,
    /// Log of the job's step times (CSV); repeatable, one file a run
    #[arg(long, required = true, value_name = "FILE")]
    pub(crate) steps: Vec<PathBuf>,
    /// Another job on the same cluster and the log of a run of it; repeatable
    #[arg(long, value_parser = super::values::assignment, value_name = "JOB=FILE")]
    pub(crate) also: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) set: SetArgs,
    /// Write the job file with what was fitted here
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
