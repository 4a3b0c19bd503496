//! How much fail-slow costs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::summary::{Estimate, mean, share};
use crate::{Cause, RunError, Runs};

/// Fail-slow over runs.
///
/// What `shared-roce` was calibrated on, and what is no independent check, is said at
/// [`prism_job::run::greyhound_rows`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowCost {
    /// Share of runs that met any.
    pub hit: Estimate,
    /// Longer time of a run for it, a share of its time without it: mean over all runs.
    pub slower: Estimate,
    /// The threshold.
    pub threshold: f64,
    /// Share of runs slower by more than the threshold.
    pub above: Estimate,
}

/// What fail-slow cost each run: extra time over the time without it.
pub fn slower(runs: &Runs) -> Vec<f64> {
    let one = |o: &crate::RunOutcome| o.cause_s(Cause::Slow) / (o.total_s - o.cause_s(Cause::Slow));
    runs.outcomes.iter().map(one).collect()
}

/// Fail-slow over runs, with the share of runs slower by more than a threshold (0.5 is +50 %).
///
/// # Errors
/// If there are fewer than two runs, or the confidence is not in (0, 1).
pub fn slow_cost(runs: &Runs, threshold: f64, confidence: f64) -> Result<SlowCost, RunError> {
    let slower = slower(runs);
    let n = slower.len() as u64;
    let count = |least: f64| slower.iter().filter(|s| **s > least).count() as u64;
    Ok(SlowCost {
        hit: share(count(0.0), n, confidence)?,
        slower: mean(&slower, confidence)?,
        threshold,
        above: share(count(threshold), n, confidence)?,
    })
}
