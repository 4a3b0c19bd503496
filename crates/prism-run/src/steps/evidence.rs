//! What the logs of one system's runs say, before any prior.

use prism_model::WARM_UP_STEPS;
use prism_stats::autocorr::lag1;
use prism_stats::pooled::{Group, RateGroup};
use prism_stats::{Distribution, Family, Law, fit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StepsError;
use super::profile::{Deviations, Profile};
use super::recurring::{Recurring, Stalls, recurring};
use crate::separate::{Class, Separated};

/// Most rows between the first and the last step of the logs.
const MOST_ROWS: usize = 1 << 24;
/// Largest step id that is read from a file, a number that JSON holds exactly.
const LARGEST_STEP: i64 = 1 << 53;

/// A run of the evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEvidence {
    /// The log.
    pub name: String,
    /// Steps.
    pub steps: u64,
    /// Core rows.
    pub core_rows: usize,
    /// Level: mean core step, the profile taken out, seconds.
    pub level_s: f64,
    /// Excess of the warm-up, all its steps together, in core steps.
    pub warm_up: f64,
    /// Stalls that do not recur in every run: (step id, excess in core steps).
    pub stalls: Vec<(i64, f64)>,
}

/// Excess of the first steps after pauses of one kind, in core steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AfterPause {
    /// How many.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// S.d.; 0 of one.
    pub sd: f64,
}

/// What the logs of one system's runs say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Steps that a row is the mean of.
    pub averaged_over: u32,
    /// Step id of row 0.
    pub first_step: i64,
    /// Step ids between rows.
    pub stride: i64,
    /// Rows at a start that are warm-up.
    pub warm_up_rows: usize,
    /// The runs.
    pub runs: Vec<RunEvidence>,
    /// S.d. of a core row around level and profile, as a share of the level.
    pub core_cov: f64,
    /// Correlation of neighbouring core rows, 0 where it is negative.
    pub rho: f64,
    /// Law of the AR(1)'s innovations, in s.d. of a core row.
    pub innovation: Law,
    /// What the runs share step by step.
    pub profile: Option<Profile>,
    /// Rows in which stalls were looked for, all runs together.
    pub stall_rows: usize,
    /// Stalls that every run had.
    pub recurring: Vec<Recurring>,
    /// First steps after evaluations.
    pub after_evaluation: Option<AfterPause>,
    /// First steps after checkpoints.
    pub after_checkpoint: Option<AfterPause>,
    /// Durations of evaluations, seconds.
    pub evaluation_s: Vec<f64>,
    /// Durations of checkpoints, seconds.
    pub checkpoint_s: Vec<f64>,
}

impl Evidence {
    /// Collects it.
    ///
    /// # Errors
    /// [`StepsError::NoLogs`], [`StepsError::Averages`].
    pub fn of(runs: &[Separated]) -> Result<Self, StepsError> {
        let first = runs.first().ok_or(StepsError::NoLogs)?;
        if let Some(other) = runs.iter().find(|r| r.averaged_over != first.averaged_over) {
            return Err(StepsError::Averages {
                first: first.name.clone(),
                a: first.averaged_over,
                second: other.name.clone(),
                b: other.averaged_over,
            });
        }
        let stride = i64::from(first.averaged_over);
        let first_step = runs.iter().filter_map(|r| r.step.first()).min().copied().unwrap_or(0);
        spanned(runs, first_step, stride)?;
        let row = |id: i64| row_of(id, first_step, stride).unwrap_or(0);
        let deviations = Deviations(runs.iter().map(|r| deviations(r, &row)).collect());
        let split = deviations.split();
        let profile = split.profile;
        let at = |row: usize| profile.as_ref().map_or(0.0, |p| p.at(row));
        let levels: Vec<f64> = runs.iter().map(|r| level(r, |id| at(row(id)))).collect();
        let excess = |r: usize, i: usize| {
            let run: &Separated = &runs[r];
            run.step_s[i] / levels[r] - 1.0 - at(row(run.step[i]))
        };
        let of_class = |class: Class| -> Vec<f64> {
            (0..runs.len()).flat_map(|r| runs[r].of(class).map(move |i| excess(r, i))).collect()
        };
        let mut stalls: Vec<Stalls> = (0..runs.len())
            .map(|r| Stalls {
                at: runs[r]
                    .of(Class::Stall)
                    .map(|i| (runs[r].step[i], stride as f64 * excess(r, i)))
                    .collect(),
                rows: rows_of(&runs[r]),
            })
            .collect();
        let recurring = recurring(&mut stalls, stride);
        let (rho, innovation) = autoregression(&split.rest)?;
        let summaries: Vec<RunEvidence> = (0..runs.len())
            .map(|r| RunEvidence {
                name: runs[r].name.clone(),
                steps: runs[r].steps(),
                core_rows: runs[r].of(Class::Core).count(),
                level_s: levels[r],
                warm_up: stride as f64
                    * runs[r].of(Class::WarmUp).map(|i| excess(r, i)).sum::<f64>(),
                stalls: stalls[r].at.clone(),
            })
            .collect();
        let after_evaluation = AfterPause::of(&of_class(Class::AfterEvaluation));
        let after_checkpoint = AfterPause::of(&of_class(Class::AfterCheckpoint));
        Ok(Evidence {
            averaged_over: first.averaged_over,
            first_step,
            stride,
            warm_up_rows: WARM_UP_STEPS.div_ceil(first.averaged_over as usize),
            runs: summaries,
            core_cov: split.variance.max(0.0).sqrt(),
            rho,
            innovation,
            profile,
            stall_rows: runs.iter().map(rows_of).sum(),
            recurring,
            after_evaluation,
            after_checkpoint,
            evaluation_s: runs.iter().flat_map(|r| r.evaluation_s.iter().copied()).collect(),
            checkpoint_s: runs.iter().flat_map(|r| r.checkpoint_s.iter().copied()).collect(),
        })
    }

    /// What a prediction says in place of logs: a level that is known, a spread, and nothing else.
    pub(super) fn predicted(name: &str, level_s: f64, core_cov: f64) -> Result<Self, StepsError> {
        let failed = |source| StepsError::Statistics { what: name.to_owned(), source };
        let law = if core_cov > 0.0 { Law::normal(0.0, 1.0) } else { Law::constant(0.0) };
        Ok(Evidence {
            averaged_over: 1,
            first_step: 0,
            stride: 1,
            warm_up_rows: WARM_UP_STEPS,
            runs: vec![RunEvidence {
                name: name.to_owned(),
                steps: 0,
                // The prediction's mean has no noise of its own.
                core_rows: 1_000_000_000,
                level_s,
                warm_up: 0.0,
                stalls: Vec::new(),
            }],
            core_cov,
            rho: 0.0,
            innovation: law.map_err(failed)?,
            profile: None,
            stall_rows: 0,
            recurring: Vec::new(),
            after_evaluation: None,
            after_checkpoint: None,
            evaluation_s: Vec::new(),
            checkpoint_s: Vec::new(),
        })
    }

    /// What is wrong with it, read from a file.
    pub(super) fn check(&self) -> Result<(), String> {
        let positive = |what: &str, v: f64| {
            if v.is_finite() && v > 0.0 {
                Ok(())
            } else {
                Err(format!("`{what}` is {v}, which is not finite and positive"))
            }
        };
        positive("averaged_over", f64::from(self.averaged_over))?;
        if self.stride != i64::from(self.averaged_over) {
            return Err(format!(
                "`stride` is {}, `averaged_over` {}",
                self.stride, self.averaged_over
            ));
        }
        if self.warm_up_rows > MOST_ROWS {
            return Err(format!("`warm_up_rows` is {}, above {MOST_ROWS}", self.warm_up_rows));
        }
        let steps = self.recurring.iter().flat_map(|r| [r.first, r.last]);
        if let Some(step) =
            steps.chain([self.first_step]).find(|s| !(-LARGEST_STEP..=LARGEST_STEP).contains(s))
        {
            return Err(format!("step {step} is beyond what is counted"));
        }
        for r in &self.runs {
            positive("level_s", r.level_s)?;
        }
        if self.runs.is_empty() {
            return Err("`runs` is empty".to_owned());
        }
        if !(self.core_cov.is_finite() && self.core_cov >= 0.0) {
            return Err(format!("`core_cov` is {}", self.core_cov));
        }
        if !(0.0..1.0).contains(&self.rho) {
            return Err(format!("`rho` is {}, which is not in [0, 1)", self.rho));
        }
        if self.recurring.iter().any(|r| r.excess.is_empty()) {
            return Err("a recurring stall has no excess".to_owned());
        }
        let deviations = self.profile.iter().flat_map(|p| &p.deviation);
        match deviations.into_iter().find(|d| !(d.is_finite() && **d > -1.0)) {
            Some(d) => Err(format!("`deviation` has {d}, which is not finite and above -1")),
            None => Ok(()),
        }
    }

    /// Variance of the mean of `rows` core rows, as a share of the level squared.
    pub fn mean_variance(&self, rows: f64) -> f64 {
        self.core_cov.powi(2) * (1.0 + self.rho) / (1.0 - self.rho) / rows.max(1.0)
    }

    /// Logarithms of the runs' levels, with the noise of their means.
    pub fn levels(&self) -> Group {
        Group {
            values: self.runs.iter().map(|r| r.level_s.ln()).collect(),
            variances: self.runs.iter().map(|r| self.mean_variance(r.core_rows as f64)).collect(),
        }
    }

    /// Excess of the warm-ups, in core steps, with the noise that core steps would have made of them.
    pub fn warm_ups(&self) -> Group {
        let rows = self.warm_up_rows as f64;
        let noise = self.mean_variance(rows) * (rows * self.stride as f64).powi(2);
        Group {
            values: self.runs.iter().map(|r| r.warm_up).collect(),
            variances: vec![noise; self.runs.len()],
        }
    }

    /// The longest excess of a warm-up that is believed, core steps: twice the longest seen, and at least that its
    /// steps take twice their time. Systems differ so much in it that the law alone has no mean.
    pub(super) fn longest_warm_up(&self) -> f64 {
        let seen = self.runs.iter().map(|r| r.warm_up).fold(0.0, f64::max);
        (2.0 * seen).max(self.warm_up_rows as f64 * self.stride as f64)
    }

    /// Stalls that do not recur, over rows.
    pub fn stalls(&self) -> RateGroup {
        let count = self.runs.iter().map(|r| r.stalls.len() as u64).sum();
        RateGroup { count, exposure: self.stall_rows as f64 }
    }

    /// Excess of each stall that does not recur, in core steps.
    pub fn marks(&self) -> impl Iterator<Item = f64> + '_ {
        self.runs.iter().flat_map(|r| r.stalls.iter().map(|s| s.1))
    }
}

impl AfterPause {
    /// Of these values; none of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let sum: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let sd = if values.len() > 1 { (sum / (n - 1.0)).sqrt() } else { 0.0 };
        (!values.is_empty()).then_some(AfterPause { count: values.len(), mean, sd })
    }
}

/// Row of a step id; none before the first, or beyond what can be counted.
pub(super) fn row_of(id: i64, first_step: i64, stride: i64) -> Option<usize> {
    let rows = id.checked_sub(first_step)?.checked_div(stride)?;
    usize::try_from(rows).ok()
}

/// Refuses step ids so far apart that rows between them, which a course is followed along, fill the memory.
fn spanned(runs: &[Separated], first_step: i64, stride: i64) -> Result<(), StepsError> {
    for run in runs {
        let Some(&last) = run.step.last() else { continue };
        if row_of(last, first_step, stride).is_none_or(|r| r >= MOST_ROWS) {
            let (name, most) = (run.name.clone(), MOST_ROWS);
            return Err(StepsError::Span { name, first: first_step, last, most });
        }
    }
    Ok(())
}

/// Rows in which a stall would have been seen.
fn rows_of(run: &Separated) -> usize {
    run.of(Class::Core).count() + run.of(Class::Stall).count()
}

/// Deviations of a run's core rows from their mean, by row.
fn deviations(run: &Separated, row: &impl Fn(i64) -> usize) -> Vec<f64> {
    let mean = run.core_mean_s();
    let rows = run.step.last().map_or(0, |&last| row(last) + 1);
    let mut out = vec![f64::NAN; rows];
    for i in run.of(Class::Core) {
        out[row(run.step[i])] = run.step_s[i] / mean - 1.0;
    }
    out
}

/// Core rows over what the profile makes of them: the level, seconds.
fn level(run: &Separated, at: impl Fn(i64) -> f64) -> f64 {
    let (mut sum, mut expected) = (0.0, 0.0);
    for i in run.of(Class::Core) {
        sum += run.step_s[i];
        expected += 1.0 + at(run.step[i]);
    }
    sum / expected
}

/// Correlation of neighbours, and the law of what is new in each, in s.d. of a row.
fn autoregression(rest: &[Vec<f64>]) -> Result<(f64, Law), StepsError> {
    let failed = |source| StepsError::Statistics { what: "core steps".to_owned(), source };
    let (mut sum, mut weight) = (0.0, 0.0);
    for run in rest {
        let there: Vec<usize> = (0..run.len()).filter(|&i| run[i].is_finite()).collect();
        let ids: Vec<i64> = there.iter().map(|&i| i as i64).collect();
        let values: Vec<f64> = there.iter().map(|&i| run[i]).collect();
        if let Some(a) = lag1(&ids, &values).map_err(failed)? {
            sum += a.lag1 * a.pairs as f64;
            weight += a.pairs as f64;
        }
    }
    let rho: f64 = if weight > 0.0 { (sum / weight).clamp(0.0, 0.98) } else { 0.0 };
    let new: Vec<f64> = rest
        .iter()
        .flat_map(|run| run.windows(2).map(|w| w[1] - rho * w[0]))
        .filter(|v| v.is_finite())
        .collect();
    let sd = (new.iter().map(|v| v * v).sum::<f64>() / new.len().max(1) as f64).sqrt();
    if sd <= 0.0 {
        return Ok((rho, Law::constant(0.0).map_err(failed)?));
    }
    let share = (1.0 - rho * rho).sqrt();
    let unit: Vec<f64> = new.iter().map(|v| v / sd * share).collect();
    // A log of too few or too regular steps has no fit of its own: the normal law of that s.d. stands in.
    let fitted = fit(Family::StudentT, &unit).map(|f| f.law).ok().filter(|l| l.sd().is_finite());
    match fitted {
        Some(law) => Ok((rho, law)),
        None => Ok((rho, Law::normal(0.0, share).map_err(failed)?)),
    }
}
