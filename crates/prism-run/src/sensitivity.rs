//! Which failures cost what.

use prism_job::run::RunPlan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::simulate::{Options, Thinning, simulate_thinned};
use crate::summary::{Estimate, mean};
use crate::{RunError, Steps};

/// What a class of failures costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassCost {
    /// Class; none for all classes at a time.
    pub class: Option<String>,
    /// Failures of the job in a day at the plan's rate.
    pub per_day: f64,
    /// Change of completion time with the class gone, seconds, mean of pairs.
    pub removed_s: Estimate,
    /// The same at half its rate.
    pub halved_s: Estimate,
    /// The same at twice its rate.
    pub doubled_s: Estimate,
}

/// What each class of failures costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sensitivity {
    /// Completion time at the plan's rates, seconds, mean.
    pub base_s: Estimate,
    /// Each class, and all of them at the end. Classes overlap little, and so nearly add up.
    pub classes: Vec<ClassCost>,
    /// Runs not finished within the horizon, over all variants; differences are lower bounds then.
    pub unfinished: u64,
}

/// Changes each class's rate with everything else, down to the moments of failures, left alone: failures
/// are drawn at twice the plan's rates, and each variant keeps its share of them.
///
/// # Errors
/// As [`crate::simulate::simulate`], and with fewer than two runs.
pub fn sensitivity(
    steps: &dyn Steps,
    plan: &RunPlan,
    options: &Options,
    confidence: f64,
) -> Result<Sensitivity, RunError> {
    let n = plan.failures.classes.len();
    let mut unfinished = 0;
    let mut totals = |factors: Vec<f64>| -> Result<Vec<f64>, RunError> {
        let thinning = Thinning { envelope: 2.0, factors };
        let runs = simulate_thinned(steps, plan, options, Some(&thinning))?;
        unfinished += runs.unfinished();
        Ok(runs.totals_s())
    };
    let base = totals(vec![1.0; n])?;
    let mut change = |factors: Vec<f64>| -> Result<Estimate, RunError> {
        let pairs: Vec<f64> = totals(factors)?.iter().zip(&base).map(|(a, b)| a - b).collect();
        mean(&pairs, confidence)
    };
    let mut classes = Vec::new();
    for at in 0..=n {
        let factors = |factor: f64| -> Vec<f64> {
            (0..n).map(|i| if i == at || at == n { factor } else { 1.0 }).collect()
        };
        let of = |i: usize| plan.failures.classes[i].job_rate(&plan.machines);
        let rate: f64 = (0..n).filter(|i| *i == at || at == n).map(of).sum();
        classes.push(ClassCost {
            class: plan.failures.classes.get(at).map(|c| c.name.clone()),
            per_day: rate * 86_400.0,
            removed_s: change(factors(0.0))?,
            halved_s: change(factors(0.5))?,
            doubled_s: change(factors(2.0))?,
        });
    }
    Ok(Sensitivity { base_s: mean(&base, confidence)?, classes, unfinished })
}
