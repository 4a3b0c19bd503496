//! Simulated runs in a few numbers, each with the interval that so many runs allow.

use prism_stats::interval::{clopper_pearson, mean_interval, quantile_interval, ratio_interval};
use prism_stats::quantile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cause, RunError, RunOutcome, Runs};

/// A number with its interval. The interval holds the sampling error of the simulation, not what the plan
/// or the pace leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// Estimate.
    pub value: f64,
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

/// A quantile over runs with its distribution-free interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunQuantile {
    /// Probability.
    pub p: f64,
    /// Estimate.
    pub value: f64,
    /// Lower end; none where there are too few runs for one.
    pub lower: Option<f64>,
    /// Upper end; none where there are too few runs for one.
    pub upper: Option<f64>,
    /// Confidence achieved, at least that asked for.
    pub coverage: f64,
    /// Whether runs that were not finished lie at or below the upper end: the true value may be larger.
    pub at_least: bool,
}

/// A quantity over runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Mean.
    pub mean: Estimate,
    /// Quantiles.
    pub quantiles: Vec<RunQuantile>,
}

/// Where time went.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseTime {
    /// Cause.
    pub cause: Cause,
    /// Mean over runs, seconds.
    pub mean_s: Estimate,
    /// Share of the mean total.
    pub share: f64,
}

/// What a class of failures did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassTime {
    /// Class.
    pub class: String,
    /// Failures of a run, mean.
    pub failures: Estimate,
    /// Work lost to them in a run, seconds, mean; recoveries are not in it.
    pub lost_s: Estimate,
}

/// Runs in a few numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Runs simulated.
    pub runs: u64,
    /// Runs not finished within the horizon; their totals are lower bounds.
    pub unfinished: u64,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Completion time, seconds.
    pub total_s: Spread,
    /// Time of steps that count over total time.
    pub ettr: Spread,
    /// The same with stalls counted as loss.
    pub goodput: Spread,
    /// GPU hours paid, those of spare nodes in it.
    pub gpu_hours: Spread,
    /// Cost, US dollars, where a price is known.
    pub cost_usd: Option<Spread>,
    /// Failures of a run.
    pub failures: Spread,
    /// Recoveries of a run that waited for a spare node, mean.
    pub waits: Estimate,
    /// Where time went; adds up to the mean total.
    pub causes: Vec<CauseTime>,
    /// What each class of failures did.
    pub classes: Vec<ClassTime>,
    /// P(done within a deadline).
    pub done_by: Option<DoneBy>,
}

/// The probability of being done by a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DoneBy {
    /// The time, seconds after the start.
    pub time_s: f64,
    /// Probability, with the Clopper-Pearson interval, which never covers less than its confidence.
    pub probability: Estimate,
}

/// The mean of some values.
pub(crate) fn mean(values: &[f64], confidence: f64) -> Result<Estimate, RunError> {
    let interval = mean_interval(values, confidence)?;
    let value = values.iter().sum::<f64>() / values.len() as f64;
    Ok(Estimate { value, lower: interval.lower, upper: interval.upper })
}

/// The ratio of the means of paired values.
pub(crate) fn ratio(top: &[f64], bottom: &[f64], confidence: f64) -> Result<Estimate, RunError> {
    let interval = ratio_interval(top, bottom, confidence)?;
    let value = top.iter().sum::<f64>() / bottom.iter().sum::<f64>();
    Ok(Estimate { value, lower: interval.lower, upper: interval.upper })
}

/// The share of cases.
pub(crate) fn share(hits: u64, of: u64, confidence: f64) -> Result<Estimate, RunError> {
    let interval = clopper_pearson(hits, of, confidence)?;
    let value = hits as f64 / of as f64;
    Ok(Estimate { value, lower: interval.lower, upper: interval.upper })
}

fn spread(
    values: &[f64],
    unfinished: u64,
    probabilities: &[f64],
    confidence: f64,
) -> Result<Spread, RunError> {
    let sorted = quantile::sorted(values);
    let done = sorted.len() as u64 - unfinished;
    let quantiles = probabilities.iter().map(|p| {
        let q = quantile_interval(&sorted, *p, confidence)?;
        let rank = q.upper.map_or(u64::MAX, |b| b.rank);
        Ok(RunQuantile {
            p: *p,
            value: q.estimate,
            lower: q.lower.map(|b| b.value),
            upper: q.upper.map(|b| b.value),
            coverage: q.coverage,
            at_least: unfinished > 0 && rank > done,
        })
    });
    let quantiles = quantiles.collect::<Result<_, RunError>>()?;
    Ok(Spread { mean: mean(values, confidence)?, quantiles })
}

/// Summarises runs at some probabilities; with a deadline, also P(done by it).
///
/// # Errors
/// If there are fewer than two runs, or a probability or the confidence is not in (0, 1).
pub fn summarise(
    runs: &Runs,
    probabilities: &[f64],
    confidence: f64,
    deadline_s: Option<f64>,
) -> Result<Summary, RunError> {
    let unfinished = runs.unfinished();
    let of = |f: &dyn Fn(&RunOutcome) -> f64| -> Vec<f64> { runs.outcomes.iter().map(f).collect() };
    let total_s = of(&|o| o.total_s);
    let spread = |values: &[f64]| spread(values, unfinished, probabilities, confidence);
    let scaled = |factor: f64| total_s.iter().map(|t| t * factor).collect::<Vec<f64>>();
    let hour = runs.gpu_hours(1.0);
    let mean_total_s = total_s.iter().sum::<f64>() / total_s.len() as f64;
    let mut causes = Vec::new();
    for cause in Cause::ALL {
        let mean_s = mean(&of(&|o| o.cause_s(cause)), confidence)?;
        causes.push(CauseTime { cause, mean_s, share: mean_s.value / mean_total_s });
    }
    let cost = runs.gpu_hour_usd.map(|price| spread(&scaled(hour * price)));
    Ok(Summary {
        runs: total_s.len() as u64,
        unfinished,
        confidence,
        total_s: spread(&total_s)?,
        ettr: spread(&of(&RunOutcome::ettr))?,
        goodput: spread(&of(&RunOutcome::goodput))?,
        gpu_hours: spread(&scaled(hour))?,
        cost_usd: cost.transpose()?,
        failures: spread(&of(&|o| f64::from(o.failures)))?,
        waits: mean(&of(&|o| f64::from(o.waits)), confidence)?,
        causes,
        classes: classes(runs, confidence)?,
        done_by: deadline_s.map(|t| done_by(runs, t, confidence)).transpose()?,
    })
}

fn classes(runs: &Runs, confidence: f64) -> Result<Vec<ClassTime>, RunError> {
    let n = runs.classes.len();
    let one = |(i, class): (usize, &String)| {
        let failures = runs.class_failures.iter().skip(i).step_by(n);
        let failures: Vec<f64> = failures.map(|f| f64::from(*f)).collect();
        let lost_s: Vec<f64> = runs.class_lost_s.iter().skip(i).step_by(n).copied().collect();
        Ok(ClassTime {
            class: class.clone(),
            failures: mean(&failures, confidence)?,
            lost_s: mean(&lost_s, confidence)?,
        })
    };
    runs.classes.iter().enumerate().map(one).collect()
}

/// P(done within a time, in seconds).
///
/// # Errors
/// If there are no runs, or the confidence is not in (0, 1).
pub fn done_by(runs: &Runs, time_s: f64, confidence: f64) -> Result<DoneBy, RunError> {
    let hits = runs.outcomes.iter().filter(|o| o.finished && o.total_s <= time_s).count() as u64;
    let probability = share(hits, runs.outcomes.len() as u64, confidence)?;
    Ok(DoneBy { time_s, probability })
}

/// P(steps per second over the whole run at least so many).
///
/// # Errors
/// As [`done_by`], and if the rate is not above 0.
pub fn throughput_above(
    runs: &Runs,
    steps_per_s: f64,
    confidence: f64,
) -> Result<Estimate, RunError> {
    crate::error::positive("steps_per_s", steps_per_s)?;
    Ok(done_by(runs, runs.steps as f64 / steps_per_s, confidence)?.probability)
}
