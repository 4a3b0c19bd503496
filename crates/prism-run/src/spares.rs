//! How many nodes to hold in reserve.

use prism_job::run::RunPlan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::not_negative;
use crate::simulate::{Options, simulate};
use crate::summary::{Estimate, mean, share};
use crate::{Cause, RunError, Steps};

/// The smallest number of spare nodes that all nodes under repair exceed with a probability of at most
/// 1 − `level`, nodes failing independently and each one being down a share `down` of the time: the
/// `level` quantile of a binomial law.
///
/// *Holds* for nodes that fail one by one, in the steady state.
///
/// ```
/// // A machine that fails every 154 days and is repaired in 4.6 hours: four spares for 1,024 of them.
/// assert_eq!(prism_run::spares::binomial_spares(1_024, 4.6 / (154.0 * 24.0), 0.99)?, 4);
/// # Ok::<(), prism_run::RunError>(())
/// ```
///
/// # Errors
/// If a share or level is not in [0, 1).
pub fn binomial_spares(nodes: u64, down: f64, level: f64) -> Result<u32, RunError> {
    check_share("down", down)?;
    check_share("level", level)?;
    let n = nodes as f64;
    // P(k+1)/P(k) = (n − k)/(k + 1) · p/(1 − p), from P(0) in the log.
    let odds = down / (1.0 - down);
    Ok(quantile(n * (-down).ln_1p(), level, |k| ((n - k) / (k + 1.0) * odds).ln()))
}

/// The same for any number of nodes that are `mean` at a time on average: the quantile of a Poisson law.
///
/// Nodes under repair are Poisson distributed whatever the law of their repair time, if they fail as a
/// Poisson process (M/G/∞), which the failures of a simulated run do but for domains of several nodes.
///
/// # Errors
/// If the mean is negative or the level not in [0, 1).
pub fn poisson_spares(mean: f64, level: f64) -> Result<u32, RunError> {
    not_negative("mean", mean)?;
    check_share("level", level)?;
    Ok(quantile(-mean, level, |k| (mean / (k + 1.0)).ln()))
}

/// P(N ≥ n) of a Poisson law: that a failure finds `n` spares all in use.
///
/// # Errors
/// If the mean is negative.
pub fn poisson_tail(mean: f64, n: u32) -> Result<f64, RunError> {
    not_negative("mean", mean)?;
    let (mut log, mut below) = (-mean, 0.0);
    for k in 0..n {
        below += log.exp();
        log += (mean / (f64::from(k) + 1.0)).ln();
    }
    Ok((1.0 - below).max(0.0))
}

fn check_share(argument: &'static str, value: f64) -> Result<(), RunError> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    Err(RunError::Argument { argument, value, domain: "a share from 0 to below 1" })
}

/// The smallest k with P(N ≤ k) ≥ level, from ln P(0) and ln P(k+1)/P(k).
fn quantile(log_zero: f64, level: f64, step: impl Fn(f64) -> f64) -> u32 {
    let (mut log, mut k) = (log_zero, 0_u32);
    let mut below = log.exp();
    while below < level && k < 10_000_000 {
        log += step(f64::from(k));
        below += log.exp();
        k += 1;
    }
    k
}

/// Nodes of the plan's job under repair at a time, on average.
///
/// # Errors
/// If a class that takes nodes away has no time of repair.
pub fn under_repair(plan: &RunPlan) -> Result<f64, RunError> {
    let mut nodes = 0.0;
    for class in plan.failures.classes.iter().filter(|c| c.replaces) {
        let repair_s = class.repair_s.or(plan.recovery.repair_s).ok_or(RunError::Missing {
            what: "time of repair",
            hint: "write `run.recovery.repair`, such as \"3d\"",
        })?;
        let lost = f64::from(plan.machines.nodes_lost(class.domain));
        nodes += class.job_rate(&plan.machines) * lost * repair_s;
    }
    Ok(nodes)
}

/// A number of spares tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpareRow {
    /// Spare nodes.
    pub spares: u32,
    /// P(a failure that takes nodes away waits for one), by simulation; runs start with all spares free.
    pub wait: Estimate,
    /// The same in the steady state, by the Poisson law.
    pub wait_analytic: f64,
    /// Waiting of a run, seconds, mean.
    pub waiting_s: Estimate,
    /// Completion time, seconds, mean.
    pub total_s: Estimate,
    /// GPU hours paid, spares in it, mean.
    pub gpu_hours: f64,
    /// Runs not finished within the horizon.
    pub unfinished: u64,
}

/// How many spares a level of availability takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spares {
    /// Nodes under repair at a time, mean.
    pub under_repair: f64,
    /// Level: P(no more nodes under repair than there are spares).
    pub level: f64,
    /// Spares that this takes, by the Poisson law.
    pub needed: u32,
    /// Numbers tried by simulation.
    pub rows: Vec<SpareRow>,
}

/// The spares that a level takes, and what some numbers of them do in simulated runs of the same failures.
///
/// # Errors
/// If a class has no time of repair, the level is not in [0, 1), or as [`simulate`].
pub fn spares(
    steps: &dyn Steps,
    plan: &RunPlan,
    options: &Options,
    level: f64,
    numbers: &[u32],
    confidence: f64,
) -> Result<Spares, RunError> {
    let under_repair = under_repair(plan)?;
    if under_repair <= 0.0 {
        return Err(RunError::Missing {
            what: "failures that take a node away for repair",
            hint: "give a class `replaces = true` and a time of `repair`",
        });
    }
    let needed = poisson_spares(under_repair, level)?;
    let mut rows = Vec::new();
    for &n in numbers {
        let mut plan = plan.clone();
        plan.recovery.spares = Some(n);
        let runs = simulate(steps, &plan, options)?;
        let replacing = plan.failures.classes.iter().enumerate().filter(|c| c.1.replaces);
        let failures: u64 = replacing.map(|(i, _)| runs.failures_of(i)).sum();
        let waits: u64 = runs.outcomes.iter().map(|o| u64::from(o.waits)).sum();
        let waiting_s: Vec<f64> = runs.outcomes.iter().map(|o| o.cause_s(Cause::Waiting)).collect();
        let total_s = mean(&runs.totals_s(), confidence)?;
        rows.push(SpareRow {
            spares: n,
            wait: if failures > 0 {
                share(waits, failures, confidence)?
            } else {
                Estimate { value: 0.0, lower: 0.0, upper: 1.0 }
            },
            wait_analytic: poisson_tail(under_repair, n)?,
            waiting_s: mean(&waiting_s, confidence)?,
            total_s,
            gpu_hours: runs.gpu_hours(total_s.value),
            unfinished: runs.unfinished(),
        });
    }
    Ok(Spares { under_repair, level, needed, rows })
}
