//! Arguments of `prism validate`.

use std::path::PathBuf;

use clap::Args;

use super::TraceArgs;
use super::values::probability;

/// Predict held-out steps of a trace and say how far off the predictions are
///
/// The model is calibrated on one half of the steps and compared with the other, in random halves
/// and first against second, beside comparators that know step totals only. Stage compute, waiting
/// and single replicas are predicted too: what no fit to totals could know.
#[derive(Clone, Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Trace: Parquet, or CSV with the same columns, also gzipped; `-` for standard input
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceArgs,
    /// Random half splits
    #[arg(long, default_value_t = 30, value_name = "N")]
    pub(crate) splits: usize,
    /// Samples of each prediction
    #[arg(long, default_value_t = 4_000, value_name = "N")]
    pub(crate) samples: usize,
    /// Step ids to leave out altogether; repeatable
    #[arg(long, value_delimiter = ',', value_name = "STEP")]
    pub(crate) exclude_steps: Vec<i64>,
    /// Level at which an effect is kept
    #[arg(long, default_value = "0.01", value_parser = probability, value_name = "P")]
    pub(crate) alpha: f64,
}
