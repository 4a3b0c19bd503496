//! What to do when a run stops: policies side by side.

use std::fmt;

use prism_job::run::{Policy, RunPlan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::simulate::{Options, simulate};
use crate::summary::{Estimate, mean, ratio};
use crate::{RunError, RunOutcome, Steps};

/// A policy against the first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRow {
    /// Policy.
    pub policy: Policy,
    /// Completion time, seconds, mean.
    pub total_s: Estimate,
    /// Effective training time ratio, mean.
    pub ettr: Estimate,
    /// How many times faster than the first policy: ratio of mean completion times, paired.
    pub faster: Estimate,
    /// Runs not finished within the horizon.
    pub unfinished: u64,
}

impl fmt::Display for PolicyRow {
    /// `warm-standby is 1.07 ± 0.01 x faster`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = 0.5 * (self.faster.upper - self.faster.lower);
        write!(f, "{} is {:.3} ± {half:.3} x faster", self.policy, self.faster.value)
    }
}

/// The policies for which a plan has what they take; `restart` always.
pub fn possible(plan: &RunPlan) -> Vec<Policy> {
    let r = &plan.recovery;
    let mut policies = vec![Policy::Restart];
    policies.extend(r.standby_swap_s.filter(|_| r.spares != Some(0)).map(|_| Policy::WarmStandby));
    policies.extend(r.elastic.map(|_| Policy::Elastic));
    policies.extend(r.in_memory.map(|_| Policy::InMemory));
    policies
}

/// Compares policies on runs that meet the same failures at the same times.
///
/// # Errors
/// If there are none, a policy lacks its part of the plan, or as [`simulate`].
pub fn compare(
    steps: &dyn Steps,
    plan: &RunPlan,
    policies: &[Policy],
    options: &Options,
    confidence: f64,
) -> Result<Vec<PolicyRow>, RunError> {
    let mut first: Option<Vec<f64>> = None;
    let mut rows = Vec::new();
    for &policy in policies {
        let mut plan = plan.clone();
        plan.recovery.policy = policy;
        let runs = simulate(steps, &plan, options)?;
        let totals_s = runs.totals_s();
        let ettr: Vec<f64> = runs.outcomes.iter().map(RunOutcome::ettr).collect();
        rows.push(PolicyRow {
            policy,
            total_s: mean(&totals_s, confidence)?,
            ettr: mean(&ettr, confidence)?,
            faster: ratio(first.as_ref().unwrap_or(&totals_s), &totals_s, confidence)?,
            unfinished: runs.unfinished(),
        });
        first.get_or_insert(totals_s);
    }
    if rows.is_empty() {
        return Err(RunError::Missing { what: "policies", hint: "name at least one" });
    }
    Ok(rows)
}
