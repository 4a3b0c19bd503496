//! Arguments of `prism calibrate`.

use std::path::PathBuf;

use clap::Args;

use super::TraceArgs;
use super::values::probability;

/// Estimate the duration model of a trace and write it as a profile
///
/// Every effect is tested and dropped if it is not there. The report shows effects, signatures,
/// laws with their losers, regimes and implied dependencies; the profile itself goes to `-o FILE`,
/// or to standard output with `--json`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Trace: Parquet, or CSV with the same columns, also gzipped; `-` for standard input
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceArgs,
    /// Level at which an effect is kept
    #[arg(long, default_value = "0.01", value_parser = probability, value_name = "P")]
    pub(crate) alpha: f64,
    /// Write the profile (JSON) here; `-` for standard output, with the report on standard error
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
