//! The law of a job's steps: evidence and prior together.

use prism_stats::pooled::{RatePosterior, ScalePosterior, ScalePrior};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, StandardNormal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::draw::{Level, Marks, Shape};
use super::evidence::{AfterPause, Evidence, row_of};
use super::{Recurring, StepsError};
use crate::pace::{Pace, Steps};
use crate::prior::Prior;

/// Version of the file that this crate writes and reads.
pub const RUN_PROFILE_SCHEMA: &str = "prism.run-profile/1";

/// A file that a run profile was computed from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunSource {
    /// Name as given.
    pub name: String,
    /// SHA-256, lower-case hex.
    pub sha256: String,
    /// Bytes.
    pub bytes: u64,
}

/// The law of a job's steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepModel {
    /// [`RUN_PROFILE_SCHEMA`].
    pub schema: String,
    /// Program and version that wrote it.
    pub created_by: String,
    /// Files read.
    pub sources: Vec<RunSource>,
    /// What the logs say.
    pub evidence: Evidence,
    /// What other systems say.
    pub prior: Prior,
    /// What the reader must know.
    pub warnings: Vec<String>,
}

/// What is drawn from.
pub(crate) struct Posterior {
    pub(crate) level: ScalePosterior,
    pub(super) warm_up: ScalePosterior,
    /// Longest excess of a warm-up that is drawn, core steps.
    pub(super) longest_warm_up: f64,
    pub(crate) rate: RatePosterior,
    pub(crate) marks: Marks,
    pub(super) after_evaluation: AfterPause,
    /// Logarithm of each recurring stall's excess.
    pub(super) recurring: Vec<ScalePosterior>,
}

impl StepModel {
    /// Puts evidence and prior together.
    ///
    /// # Errors
    /// [`StepsError::Statistics`].
    pub fn new(evidence: Evidence, prior: Prior) -> Result<Self, StepsError> {
        let mut model = StepModel {
            schema: RUN_PROFILE_SCHEMA.to_owned(),
            created_by: format!("prism {}", env!("CARGO_PKG_VERSION")),
            sources: Vec::new(),
            evidence,
            prior,
            warnings: Vec::new(),
        };
        model.posterior()?;
        model.warnings = model.remarks();
        Ok(model)
    }

    /// The law of steps of which only a prediction exists: mean and s.d. of a step, seconds, and how far runs of
    /// it are apart, as a share.
    ///
    /// # Errors
    /// [`StepsError::Setting`] if the mean is not positive, or another number negative.
    pub fn predicted(
        name: &str,
        mean_s: f64,
        sd_s: f64,
        spread: ScalePrior,
    ) -> Result<Self, StepsError> {
        let least = |what, value: f64, zero: bool| {
            if value.is_finite() && (value > 0.0 || (zero && value == 0.0)) {
                return Ok(());
            }
            let rule = if zero { "a time of 0 or more" } else { "a time above 0" };
            Err(StepsError::Setting { what, rule, got: value.to_string() })
        };
        least("the predicted mean of a step", mean_s, false)?;
        least("the predicted s.d. of a step", sd_s, true)?;
        let evidence = Evidence::predicted(name, mean_s, sd_s / mean_s)?;
        // The prediction is the middle of all runs, not one of them: a run is `spread` from it, where it would be
        // √2 of it from another run.
        let scale = spread.scale / std::f64::consts::SQRT_2;
        let shift = ScalePrior { scale, ..spread };
        let prior = Prior { shift, ..crate::prior::mlperf() };
        StepModel::new(evidence, prior)
    }

    /// Reads a run profile.
    ///
    /// # Errors
    /// [`StepsError::File`] if it is not one, or of another version; as [`StepModel::new`].
    pub fn from_json(text: &str) -> Result<Self, StepsError> {
        let what = "a run profile";
        let model: StepModel = super::file(text, RUN_PROFILE_SCHEMA, what)?;
        model.evidence.check().map_err(|why| StepsError::File { what, why })?;
        model.prior.check().map_err(|why| StepsError::File { what, why })?;
        model.posterior()?;
        Ok(model)
    }

    /// Mean core step over all that is known, the profile's mean in it, seconds.
    ///
    /// # Errors
    /// [`StepsError::Statistics`].
    pub fn core_s(&self) -> Result<f64, StepsError> {
        Ok(self.posterior()?.level.centre().exp())
    }

    /// Quantile of the level of one more run, seconds.
    ///
    /// # Errors
    /// [`StepsError::Statistics`].
    pub fn level_quantile_s(&self, p: f64) -> Result<f64, StepsError> {
        Ok(self.posterior()?.level.quantile(p, 0.0).exp())
    }

    /// Mean rate of stalls that do not recur, per step.
    ///
    /// # Errors
    /// [`StepsError::Statistics`].
    pub fn stall_rate(&self) -> Result<f64, StepsError> {
        Ok(self.posterior()?.rate.mean() / f64::from(self.evidence.averaged_over))
    }

    /// Deviation of the core at a step id, as a share of the level.
    pub fn profile_at(&self, step: i64) -> f64 {
        let e = &self.evidence;
        let row = row_of(step, e.first_step, e.stride);
        e.profile.as_ref().zip(row).map_or(0.0, |(p, row)| p.at(row))
    }

    /// The recurring stall that a step belongs to.
    pub fn recurring_at(&self, step: i64) -> Option<&Recurring> {
        self.evidence.recurring.iter().find(|r| (r.first..=r.last).contains(&step))
    }

    pub(crate) fn posterior(&self) -> Result<Posterior, StepsError> {
        let (evidence, prior) = (&self.evidence, &self.prior);
        let of = |what: &'static str| {
            move |source| StepsError::Statistics { what: what.to_owned(), source }
        };
        Ok(Posterior {
            level: prior
                .shift
                .posterior(&evidence.levels())
                .map_err(of("the level of the runs"))?,
            longest_warm_up: evidence.longest_warm_up(),
            warm_up: prior
                .warm_up
                .posterior(&evidence.warm_ups())
                .map_err(of("the warm-up of the runs"))?,
            rate: prior.stalls.posterior(evidence.stalls()).map_err(of("the rate of stalls"))?,
            marks: Marks::new(evidence.marks().collect(), prior.marks.clone()),
            after_evaluation: evidence.after_evaluation.unwrap_or(prior.after_evaluation),
            recurring: evidence
                .recurring
                .iter()
                .map(Recurring::posterior)
                .collect::<Result<_, _>>()
                .map_err(of("recurring stalls"))?,
        })
    }

    fn remarks(&self) -> Vec<String> {
        let e = &self.evidence;
        let mut out = Vec::new();
        if e.stall_rows == 0 {
            out.push(format!(
                "stalls, warm-up and first steps after evaluations are those of other systems ({}): a \
                 prediction has none",
                self.prior.name
            ));
            return out;
        }
        if e.runs.len() == 1 {
            out.push(format!(
                "one run says nothing of how far runs are apart: that is the prior's ({})",
                self.prior.name
            ));
        }
        if e.averaged_over > 1 {
            out.push(format!(
                "times are means over {} steps: stalls and spread inside are not seen",
                e.averaged_over
            ));
        }
        if e.after_evaluation.is_none() {
            out.push(format!(
                "no evaluation in the logs: the first step after one is the prior's ({})",
                self.prior.name
            ));
        }
        if e.core_cov < 1e-5 {
            out.push(
                "core steps do not vary: the times are rounded or made up, and `prism watch` will alarm at \
                 anything"
                    .to_owned(),
            );
        }
        let warm_up = e.warm_ups().values.iter().sum::<f64>() / e.runs.len().max(1) as f64;
        if warm_up < -0.5 {
            out.push(format!(
                "the first {} steps are {:.1} steps shorter than as many others: `prism run` takes no time off for \
                 a start",
                e.warm_up_rows as i64 * e.stride,
                -warm_up
            ));
        }
        if e.rho >= 0.98 {
            out.push("core steps drift: their correlation is at its bound of 0.98".to_owned());
        }
        out
    }

    /// The pace of runs of a shape, for the simulation of failures.
    ///
    /// # Errors
    /// [`StepsError::Statistics`].
    pub fn paced(&self, shape: &Shape) -> Result<Paced, StepsError> {
        let posterior = self.posterior()?;
        let profile = self.mean_profile(shape);
        let e = &self.evidence;
        // Several steps make a row: the spread of one step is that of a row of independent ones.
        let k = f64::from(e.averaged_over);
        Ok(Paced {
            level: Level::new(posterior.level),
            warm_up: posterior.warm_up,
            longest_warm_up: posterior.longest_warm_up,
            rate: posterior.rate,
            marks: posterior.marks,
            profile,
            core_cov: e.core_cov * if k > 1.0 { k.sqrt() } else { 1.0 },
            rho: if k > 1.0 { 0.0 } else { e.rho },
            stride: k,
            after_evaluation: posterior.after_evaluation.mean,
        })
    }
}

/// Paces drawn from a calibrated law.
pub struct Paced {
    level: Level,
    warm_up: ScalePosterior,
    longest_warm_up: f64,
    rate: RatePosterior,
    marks: Marks,
    /// Mean profile, and how far off it may be.
    profile: (f64, f64),
    core_cov: f64,
    rho: f64,
    stride: f64,
    after_evaluation: f64,
}

impl Steps for Paced {
    fn pace(&self, rng: &mut ChaCha8Rng) -> Pace {
        let z: f64 = StandardNormal.sample(rng);
        let profile = (self.profile.0 + self.profile.1 * z).max(-0.9);
        let level = self.level.draw(rng, 0.0) * (1.0 + profile);
        // A start that is faster than the steps after it is noise, not time that a restart would save.
        let warm_up = self.warm_up.sample(rng, 0.0).clamp(0.0, self.longest_warm_up);
        let rate = self.rate.sample(rng) / self.stride;
        Pace {
            core_s: level,
            core_cov: self.core_cov,
            rho: self.rho,
            stall_rate: if self.marks.is_empty() { 0.0 } else { rate },
            stall_marks: self.marks.list(),
            warm_up_s: warm_up * level,
            after_evaluation_s: self.after_evaluation * level,
        }
    }
}
