//! How a log is read.

use super::LogFormat;
use crate::options::Limits;

/// How [`crate::read_step_logs`] reads.
///
/// ```
/// use prism_io::{LogFormat, StepLogOptions};
///
/// let options = StepLogOptions::default().with_format(LogFormat::Torchtitan).with_tokens_per_gpu_step(8192.0);
/// assert_eq!(options.format, Some(LogFormat::Torchtitan));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepLogOptions {
    /// What wrote the log; without it, the content tells.
    pub format: Option<LogFormat>,
    /// CSV: the column of times, and seconds in its unit.
    pub time_column: Option<(String, f64)>,
    /// CSV: the column of times is a running total of each run.
    pub cumulative: bool,
    /// CSV: the columns that together name the system; empty for the usual ones.
    pub system_columns: Vec<String>,
    /// torchtitan: tokens that a GPU works through in one step, with which `tps` gives the step's time:
    /// tokens of the global batch divided by the number of GPUs.
    pub tokens_per_gpu_step: Option<f64>,
    /// Upper limits on what is read.
    pub limits: Limits,
}

impl StepLogOptions {
    /// Says what wrote the log.
    #[must_use]
    pub fn with_format(mut self, format: LogFormat) -> Self {
        self.format = Some(format);
        self
    }

    /// Takes times from this column, in a unit of so many seconds.
    #[must_use]
    pub fn with_time_column(mut self, name: impl Into<String>, seconds_per_unit: f64) -> Self {
        self.time_column = Some((name.into(), seconds_per_unit));
        self
    }

    /// Takes times as running totals.
    #[must_use]
    pub fn with_cumulative(mut self, cumulative: bool) -> Self {
        self.cumulative = cumulative;
        self
    }

    /// Takes the system's name from these columns.
    #[must_use]
    pub fn with_system_columns<S: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = S>,
    ) -> Self {
        self.system_columns = names.into_iter().map(Into::into).collect();
        self
    }

    /// Tokens that a GPU works through in one step.
    #[must_use]
    pub fn with_tokens_per_gpu_step(mut self, tokens: f64) -> Self {
        self.tokens_per_gpu_step = Some(tokens);
        self
    }

    /// Limits what is read.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}
