//! The figures.

use std::collections::BTreeMap;

use prism_engine::predict::Bounds;
use prism_engine::replay::{Builder, Ideal, StepReplay};
use prism_stats::interval::{mean_interval, ratio_interval};
use serde::{Deserialize, Serialize};

use super::CONFIDENCE;

/// A ratio of means over the recorded steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Estimate {
    /// The recorded steps' own: exact.
    pub value: f64,
    /// Jackknife interval over the steps, treated as independent; `None` for fewer than 2 steps.
    pub interval: Option<Bounds>,
}

impl Estimate {
    /// Mean of `numerators` over mean of `denominators`, both one a step; `None` if that is no
    /// number.
    pub(super) fn ratio(numerators: &[f64], denominators: &[f64]) -> Option<Estimate> {
        let value = mean(numerators) / mean(denominators);
        let interval = ratio_interval(numerators, denominators, CONFIDENCE)
            .ok()
            .map(|i| Bounds { lower: i.lower, upper: i.upper });
        value.is_finite().then_some(Estimate { value, interval })
    }
}

/// What variation in a part of the operations alone does: recorded work there, ideal elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PartSlowdown {
    /// Mean step time over the mean ideal step time.
    pub slowdown: Estimate,
    /// Mean step time, seconds.
    pub mean_s: f64,
    /// Step time over ideal step time, in the order of the report's steps.
    pub per_step: Vec<f64>,
}

/// What one worker does: the lesser of its replica's and its stage's slowdown (`S_w`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WorkerSlowdown {
    /// Global rank.
    pub rank: u32,
    /// Data-parallel replica.
    pub dp: u32,
    /// Pipeline stage.
    pub stage: u16,
    /// `S_w`, with the interval of the lesser of the two.
    pub slowdown: Estimate,
    /// The lesser of the two in each step, in the order of the report's steps.
    pub per_step: Vec<f64>,
}

/// How much of the slowdown a set of operations explains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Explained {
    /// Share of the slowdown that is gone when the set has ideal work; `None` without a slowdown.
    /// Can be negative, or above 1.
    pub rem: Option<Estimate>,
    /// Share of the slowdown that the set alone makes; `None` without a slowdown.
    pub add: Option<Estimate>,
    /// Mean step time with ideal work on the set, recorded work elsewhere, seconds.
    pub trem_s: f64,
    /// Mean step time with recorded work on the set, ideal work elsewhere, seconds.
    pub tadd_s: f64,
    /// Mean step time with recorded work, seconds.
    pub tori_s: f64,
    /// Mean step time with ideal work, seconds.
    pub tideal_s: f64,
}

/// The slowdown by what it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Decomposition {
    /// `S_t`; sends and receives of a direction are `forward-pp-comm` and `backward-pp-comm`.
    pub by_op_type: BTreeMap<String, PartSlowdown>,
    /// `S_pp` by pipeline stage.
    pub by_stage: BTreeMap<u16, PartSlowdown>,
    /// `S_dp` by data-parallel replica.
    pub by_dp: BTreeMap<u32, PartSlowdown>,
    /// `S_w`, by replica, then stage.
    pub workers: Vec<WorkerSlowdown>,
    /// Ranks of the slowest workers, the slowest first, the lower rank of equals.
    pub slowest_ranks: Vec<u32>,
    /// The slowest workers' part of the slowdown; its `rem` is `M_W`.
    pub slowest_workers: Explained,
    /// The last stage's part of the slowdown; its `rem` is `M_S`.
    pub last_stage: Explained,
}

/// All figures of the analysis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReferenceReport {
    /// How the graph was built; the published figures are of the reference builder.
    pub builder: Builder,
    /// Operations of one replica's step.
    pub operations: usize,
    /// Data-parallel replicas.
    pub replicas: u32,
    /// Pipeline stages.
    pub stages: u16,
    /// Mean recorded step time (`T_base`), seconds.
    pub mean_base_s: f64,
    /// Student's interval of it over the steps; `None` for fewer than 2 steps.
    pub mean_base_interval_s: Option<Bounds>,
    /// Mean step time without launch delays (`T_nd`), seconds.
    pub mean_no_delay_s: f64,
    /// Student's interval of it over the steps; `None` for fewer than 2 steps.
    pub mean_no_delay_interval_s: Option<Bounds>,
    /// Mean step time with ideal work and no launch delays (`T_id`), seconds. The same in every
    /// step, so without an interval.
    pub mean_ideal_s: f64,
    /// `S = mean T_nd / mean T_id`.
    pub slowdown: Estimate,
    /// `mean T_base / mean T_nd`, in double precision; the published analysis takes the mean of
    /// `T_base` in single precision, which moves it by up to 1e-7.
    pub launch_slowdown: Estimate,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Ideal work by kind, seconds.
    pub ideal: Ideal,
    /// `None` where the slowdown is below [`super::LEAST_SLOWDOWN`].
    pub decomposition: Option<Decomposition>,
    /// Each step.
    pub steps: Vec<StepReplay>,
}

/// Student's interval for the mean of one value a step.
pub(super) fn mean_bounds(values: &[f64]) -> Option<Bounds> {
    mean_interval(values, CONFIDENCE).ok().map(|i| Bounds { lower: i.lower, upper: i.upper })
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
