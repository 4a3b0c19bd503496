//! Cross-validation: each run of each system predicted from its other runs and the other systems.
//!
//! The prior of a system is fitted to the others only; the run that is predicted gives its number of steps and
//! the places of its evaluations, nothing else. Scores are shares of the run's true total.

use prism_stats::htest::{normal_quantile, t_quantile};
use prism_stats::quantile::quantile_type7;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::prior::{Prior, fit_prior};
use crate::separate::Separated;
use crate::steps::{Evidence, StepModel, StepsError};

/// A system and its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// Name.
    pub name: String,
    /// Its runs, at least two.
    pub runs: Vec<Separated>,
}

/// How to cross-validate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossOptions {
    /// Probability of the interval.
    pub level: f64,
    /// Draws of each total.
    pub samples: usize,
    /// Seed.
    pub seed: u64,
}

impl Default for CrossOptions {
    fn default() -> Self {
        CrossOptions { level: 0.9, samples: 1 << 15, seed: 1 }
    }
}

/// How good an interval was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scored {
    /// Lower end, seconds.
    pub lower_s: f64,
    /// Upper end, seconds.
    pub upper_s: f64,
    /// Whether the total was inside.
    pub covered: bool,
    /// Width, as a share of the total.
    pub width: f64,
    /// Interval score (Gneiting and Raftery 2007, eq. 43), as a share of the total.
    pub score: f64,
}

/// A run that was held out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldOut {
    /// The system.
    pub system: String,
    /// The run.
    pub run: String,
    /// Its steps.
    pub steps: u64,
    /// Its total, seconds.
    pub actual_s: f64,
    /// Predicted median, seconds.
    pub median_s: f64,
    /// The predicted interval.
    pub predicted: Scored,
    /// Continuous ranked probability score, as a share of the total.
    pub crps: f64,
    /// The interval of N independent steps.
    pub iid: Scored,
    /// That of Student's t on the runs' mean steps.
    pub student: Scored,
    /// That of the other systems' best constant ± band.
    pub band: Scored,
}

/// Averages over held-out runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Runs inside their interval.
    pub covered: usize,
    /// Mean width, share of the total.
    pub width_mean: f64,
    /// Median width.
    pub width_median: f64,
    /// Largest width.
    pub width_max: f64,
    /// Mean interval score.
    pub score: f64,
}

/// What cross-validation found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrossValidation {
    /// Probability of the intervals.
    pub level: f64,
    /// Systems.
    pub systems: usize,
    /// The runs.
    pub runs: Vec<HeldOut>,
    /// Of the predictions.
    pub predicted: Summary,
    /// Mean continuous ranked probability score.
    pub crps: f64,
    /// Of N independent steps.
    pub iid: Summary,
    /// Of Student's t on the other runs.
    pub student: Summary,
    /// Of the best constant band.
    pub band: Summary,
    /// Interval score of the predictions over that of the band: geometric mean over systems.
    pub score_to_band: f64,
}

/// An interval judged by what happened.
fn scored((lower_s, upper_s): (f64, f64), actual: f64, level: f64) -> Scored {
    let miss = (lower_s - actual).max(0.0) + (actual - upper_s).max(0.0);
    Scored {
        lower_s,
        upper_s,
        covered: miss == 0.0,
        width: (upper_s - lower_s) / actual,
        score: (upper_s - lower_s + 2.0 / (1.0 - level) * miss) / actual,
    }
}

/// Continuous ranked probability score of equally likely values, ascending.
fn crps(sorted: &[f64], actual: f64) -> f64 {
    let n = sorted.len() as f64;
    let distance = sorted.iter().map(|x| (x - actual).abs()).sum::<f64>() / n;
    let spread: f64 =
        sorted.iter().enumerate().map(|(i, x)| (2.0 * i as f64 + 1.0 - n) * x).sum::<f64>();
    distance - spread / (n * n)
}

/// Mean step over runs, and the naive total of one more.
fn naive_centre(others: &[&Separated], steps: u64) -> f64 {
    let mean = others.iter().map(|r| r.total_s() / r.steps() as f64).sum::<f64>();
    mean / others.len() as f64 * steps as f64
}

/// N independent steps, drawn from all that were logged.
fn iid(others: &[&Separated], steps: u64, level: f64) -> (f64, f64) {
    let all: Vec<f64> = others.iter().flat_map(|r| r.step_s.iter().copied()).collect();
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let sd = (all.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let k = f64::from(others[0].averaged_over);
    let reach = normal_quantile(0.5 + level / 2.0) * sd * k * (steps as f64 / k).sqrt();
    (mean * steps as f64 - reach, mean * steps as f64 + reach)
}

/// Student's t on the runs' mean steps.
fn student(others: &[&Separated], steps: u64, level: f64) -> (f64, f64) {
    let means: Vec<f64> = others.iter().map(|r| r.total_s() / r.steps() as f64).collect();
    let n = means.len() as f64;
    let mean = means.iter().sum::<f64>() / n;
    if means.len() < 2 {
        return (f64::NEG_INFINITY, f64::INFINITY);
    }
    let sd = (means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let reach = t_quantile(0.5 + level / 2.0, n - 1.0) * sd * (1.0 + 1.0 / n).sqrt();
    ((mean - reach) * steps as f64, (mean + reach) * steps as f64)
}

/// The half-width, as a share of the centre, with the least mean interval score over (centre, actual).
fn best_band(pairs: &[(f64, f64)], level: f64) -> f64 {
    let mean_score = |c: f64| {
        let score = |&(m, y): &(f64, f64)| scored((m * (1.0 - c), m * (1.0 + c)), y, level).score;
        pairs.iter().map(score).sum::<f64>()
    };
    // The score is piecewise linear in c: its minimum is where a total is just inside.
    let corners = pairs.iter().map(|(m, y)| (y / m - 1.0).abs());
    corners.min_by(|a, b| mean_score(*a).total_cmp(&mean_score(*b))).unwrap_or(0.0)
}

fn summary(of: impl Iterator<Item = Scored>) -> Summary {
    let all: Vec<Scored> = of.collect();
    let n = all.len().max(1) as f64;
    let mut widths: Vec<f64> = all.iter().map(|s| s.width).collect();
    widths.sort_by(f64::total_cmp);
    Summary {
        covered: all.iter().filter(|s| s.covered).count(),
        width_mean: widths.iter().sum::<f64>() / n,
        width_median: quantile_type7(&widths, 0.5).unwrap_or(f64::NAN),
        width_max: widths.last().copied().unwrap_or(f64::NAN),
        score: all.iter().map(|s| s.score).sum::<f64>() / n,
    }
}

/// All runs but one.
fn without(runs: &[Separated], out: usize) -> Vec<&Separated> {
    (0..runs.len()).filter(|&r| r != out).map(|r| &runs[r]).collect()
}

/// The prior of all systems but the k-th.
///
/// # Errors
/// As [`fit_prior`].
pub fn prior_of_others(evidence: &[Evidence], k: usize) -> Result<Prior, StepsError> {
    let others: Vec<&Evidence> =
        (0..evidence.len()).filter(|&j| j != k).map(|j| &evidence[j]).collect();
    fit_prior("other systems", "", &others)
}

/// Predicts each run of each system from its other runs, with a prior of the other systems.
///
/// `progress` is told of each system done.
///
/// # Errors
/// [`StepsError::TooFewSystems`] with fewer than 4 systems of two runs; as [`Evidence::of`], [`fit_prior`],
/// [`StepModel::total`].
pub fn cross_validate(
    systems: &[System],
    options: CrossOptions,
    mut progress: impl FnMut(usize),
) -> Result<CrossValidation, StepsError> {
    let systems: Vec<&System> = systems.iter().filter(|s| s.runs.len() > 1).collect();
    let need = crate::prior::FEWEST + 1;
    if systems.len() < need {
        let have = systems.len();
        return Err(StepsError::TooFewSystems { what: "cross-validation", have, need });
    }
    let evidence = systems.iter().map(|s| Evidence::of(&s.runs)).collect::<Result<Vec<_>, _>>()?;
    let centres: Vec<Vec<(f64, f64)>> = systems
        .iter()
        .map(|s| {
            let centre = |r: usize| naive_centre(&without(&s.runs, r), s.runs[r].steps());
            (0..s.runs.len()).map(|r| (centre(r), s.runs[r].total_s())).collect()
        })
        .collect();
    let mut runs = Vec::new();
    for (k, system) in systems.iter().enumerate() {
        let prior = prior_of_others(&evidence, k)?;
        let pairs: Vec<(f64, f64)> =
            (0..systems.len()).filter(|&j| j != k).flat_map(|j| centres[j].clone()).collect();
        let band = best_band(&pairs, options.level);
        for (r, run) in system.runs.iter().enumerate() {
            let known: Vec<Separated> = without(&system.runs, r).into_iter().cloned().collect();
            let model = StepModel::new(Evidence::of(&known)?, prior.clone())?;
            let total = model.total(&run.shape(), options.samples, options.seed)?;
            let at = |p: f64| {
                quantile_type7(&total.sorted_s, p)
                    .map_err(|source| StepsError::Statistics { what: run.name.clone(), source })
            };
            let (low, high) = (at(0.5 - options.level / 2.0)?, at(0.5 + options.level / 2.0)?);
            let actual = run.total_s();
            let known: Vec<&Separated> = known.iter().collect();
            let judged = |interval| scored(interval, actual, options.level);
            let centre = centres[k][r].0;
            runs.push(HeldOut {
                system: system.name.clone(),
                run: run.name.clone(),
                steps: run.steps(),
                actual_s: actual,
                median_s: at(0.5)?,
                predicted: judged((low, high)),
                crps: crps(&total.sorted_s, actual) / actual,
                iid: judged(iid(&known, run.steps(), options.level)),
                student: judged(student(&known, run.steps(), options.level)),
                band: judged((centre * (1.0 - band), centre * (1.0 + band))),
            });
        }
        progress(k + 1);
    }
    Ok(whole(options.level, &systems, runs))
}

fn whole(level: f64, systems: &[&System], runs: Vec<HeldOut>) -> CrossValidation {
    let ratio = |name: &str| {
        let of = |pick: fn(&HeldOut) -> f64| {
            runs.iter().filter(|r| r.system == name).map(pick).sum::<f64>()
        };
        (of(|r| r.predicted.score) / of(|r| r.band.score)).ln()
    };
    let logs: f64 = systems.iter().map(|s| ratio(&s.name)).sum();
    CrossValidation {
        level,
        systems: systems.len(),
        predicted: summary(runs.iter().map(|r| r.predicted)),
        crps: runs.iter().map(|r| r.crps).sum::<f64>() / runs.len() as f64,
        iid: summary(runs.iter().map(|r| r.iid)),
        student: summary(runs.iter().map(|r| r.student)),
        band: summary(runs.iter().map(|r| r.band)),
        score_to_band: (logs / systems.len() as f64).exp(),
        runs,
    }
}
