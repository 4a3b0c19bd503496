//! What is minimised, and how well it is known.

use prism_engine::planned::{JobDistribution, JobPrediction, JobQuantile};
use prism_job::Job;
use prism_stats::{Distribution, Law};
use serde::{Deserialize, Serialize};

/// What a search minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlanObjective {
    /// Median step time, seconds.
    P50,
    /// 95 % quantile of step time, seconds.
    P95,
    /// Mean of the slowest 5 % of steps, seconds.
    Cvar,
    /// Price of a billion tokens at the mean step time; GPU-hours where no price is given.
    Cost,
}

/// Share of steps in the tail whose mean is the `CVaR`.
const TAIL: f64 = 0.05;
/// Quantiles that the mean of the tail is taken over: midpoints of equal shares.
const TAIL_POINTS: u32 = 10;
/// Tokens that a cost is for.
const TOKENS: f64 = 1e9;

impl PlanObjective {
    /// The name in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            PlanObjective::P50 => "p50",
            PlanObjective::P95 => "p95",
            PlanObjective::Cvar => "CVaR of the slowest 5 %",
            PlanObjective::Cost => "cost of a billion tokens",
        }
    }

    /// A step time, seconds, in the objective's unit.
    pub(super) fn of_step(self, step_s: f64, job: &Job, price: Option<f64>) -> f64 {
        if self != PlanObjective::Cost {
            return step_s;
        }
        let hours = step_s / 3600.0 * job.gpus() as f64;
        hours * price.unwrap_or(1.0) * TOKENS / job.tokens()
    }

    /// Quantiles that a prediction needs for it.
    pub(super) fn quantiles(self) -> Vec<f64> {
        let mut all = vec![0.5, 0.95];
        if self == PlanObjective::Cvar {
            all.extend(tail_points());
        }
        all
    }

    pub(super) fn measure(
        self,
        job: &Job,
        prediction: &JobPrediction,
        price: Option<f64>,
        confidence: f64,
    ) -> Measured {
        let law = &prediction.over_clusters;
        let step = match self {
            PlanObjective::P50 => quantile(law, 0.5),
            PlanObjective::P95 => quantile(law, 0.95),
            PlanObjective::Cvar => {
                let all: Vec<Measured> = tail_points().map(|p| quantile(law, p)).collect();
                Measured {
                    value: mean(all.iter().map(|m| m.value)),
                    lower: mean(all.iter().map(|m| m.lower)),
                    upper: mean(all.iter().map(|m| m.upper)),
                }
            }
            PlanObjective::Cost => mean_step(law, prediction.replicas, confidence),
        };
        let unit = |x: Option<f64>| x.map(|s| self.of_step(s, job, price));
        Measured { value: unit(step.value), lower: unit(step.lower), upper: unit(step.upper) }
    }
}

fn tail_points() -> impl Iterator<Item = f64> {
    let width = TAIL / f64::from(TAIL_POINTS);
    (0..TAIL_POINTS).map(move |i| 1.0 - TAIL + width * (f64::from(i) + 0.5))
}

/// A number and its sampling interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Measured {
    /// The number; none where the samples cannot answer.
    pub value: Option<f64>,
    /// Lower end of its interval; none where the samples do not bound it.
    pub lower: Option<f64>,
    /// Upper end.
    pub upper: Option<f64>,
}

impl Measured {
    /// For sorting: unknown is worst.
    pub(super) fn rank(&self) -> f64 {
        self.value.unwrap_or(f64::INFINITY)
    }

    /// Whether the intervals of this and a larger number overlap, or one is not known.
    pub(super) fn overlaps(&self, larger: &Measured) -> bool {
        match (self.upper, larger.lower) {
            (Some(upper), Some(lower)) => lower <= upper,
            _ => true,
        }
    }
}

pub(super) fn quantile(law: &JobDistribution, p: f64) -> Measured {
    let found = law.quantiles.iter().find(|q| q.p == p);
    let of = |get: fn(&JobQuantile) -> Option<f64>| found.and_then(get);
    Measured { value: of(|q| q.value_s), lower: of(|q| q.lower_s), upper: of(|q| q.upper_s) }
}

fn mean(values: impl ExactSizeIterator<Item = Option<f64>>) -> Option<f64> {
    let n = values.len() as f64;
    values.sum::<Option<f64>>().map(|sum| sum / n)
}

/// The mean of the slowest of `replicas` is worth as many samples as there are groups of them.
pub(super) fn mean_step(law: &JobDistribution, replicas: u32, confidence: f64) -> Measured {
    let samples = law.samples as f64 / f64::from(replicas.max(1));
    let z = Law::normal(0.0, 1.0).map_or(f64::NAN, |n| n.quantile(0.5 + 0.5 * confidence));
    let half = z * law.sd_s / samples.sqrt();
    let known = half.is_finite().then_some(half);
    Measured {
        value: Some(law.mean_s),
        lower: known.map(|h| law.mean_s - h),
        upper: known.map(|h| law.mean_s + h),
    }
}
