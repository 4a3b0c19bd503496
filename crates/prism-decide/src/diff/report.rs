//! What a comparison says.

use std::fmt;

use prism_engine::predict::{Bounds, ResampleUnit};
use prism_engine::replay::Builder;
use prism_model::{EffectKind, OpKind, Signature};
use serde::{Deserialize, Serialize};

/// A comparison of two jobs, A before B.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DiffReport {
    /// [`super::DIFF_SCHEMA`].
    pub schema: String,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Level of the corrected p-values of findings.
    pub alpha: f64,
    /// Seed.
    pub seed: u64,
    /// Recorded step times.
    pub overall: Overall,
    /// What changed inside the step; none for step logs.
    pub parts: Option<Parts>,
    /// What to be careful about.
    pub warnings: Vec<String>,
}

impl DiffReport {
    /// What changed; nothing for step logs.
    pub fn findings(&self) -> &[Finding] {
        self.parts.as_ref().map_or(&[], |p| &p.findings)
    }
}

/// Recorded step times of both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Overall {
    /// Steps of A.
    pub a_steps: usize,
    /// Steps of B.
    pub b_steps: usize,
    /// What counts as independent.
    pub unit: ResampleUnit,
    /// Independent units of A.
    pub a_units: usize,
    /// Independent units of B.
    pub b_units: usize,
    /// Mean, median, p95 and s.d.
    pub statistics: Vec<StatisticChange>,
    /// Tests of whether the step times of both are alike.
    pub tests: Vec<TwoSampleTest>,
}

impl Overall {
    /// The mean's change.
    pub fn mean(&self) -> Option<&StatisticChange> {
        self.statistics.iter().find(|s| s.statistic == "mean")
    }

    /// Whether B's mean step time exceeds A's by more than a share `tolerance`, its interval
    /// included.
    pub fn slower_than(&self, tolerance: f64) -> bool {
        self.mean().and_then(|m| m.ratio_interval).is_some_and(|i| i.lower > 1.0 + tolerance)
    }
}

/// A statistic of step time on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StatisticChange {
    /// `mean`, `p50`, `p95`, `sd`.
    pub statistic: String,
    /// A's, seconds.
    pub a_s: f64,
    /// B's, seconds.
    pub b_s: f64,
    /// B over A; none where A's is 0.
    pub ratio: Option<f64>,
    /// Interval of the ratio: bootstrap over units; where a side is one unit that of the mean is Student's
    /// and the others have none, nor has one of which some resamples have no spread.
    pub ratio_interval: Option<Bounds>,
}

/// A test of whether two samples are of one law.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TwoSampleTest {
    /// Name.
    pub name: String,
    /// Statistic.
    pub statistic: f64,
    /// p-value, on units.
    pub p_value: f64,
}

/// What changed inside the step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Parts {
    /// Tests made, all of them corrected for.
    pub tests: usize,
    /// Causes, the largest change of mean step time first.
    pub findings: Vec<Finding>,
    /// What all findings together explain.
    pub explained: Explained,
    /// S.d. of each effect on both sides.
    pub effects: Vec<EffectChange>,
    /// What occurs on one side only, or cannot be compared.
    pub unmatched: Vec<Unmatched>,
    /// Builder of A's graph.
    pub a_builder: Builder,
    /// Builder of B's graph.
    pub b_builder: Builder,
}

/// Which part of a step a finding is about.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Part {
    /// Forward and backward compute.
    Compute,
    /// Point-to-point transfers.
    Transfer,
    /// Collectives, optimizer and other work that a step has once.
    StepWork,
    /// Time from when an operation could start to when it did.
    LaunchDelay,
    /// The spread of an effect.
    Spread,
}

/// What a value is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Mean duration of one operation, seconds; compared by ratio.
    Duration,
    /// Mean duration or delay of one operation, seconds; compared by difference.
    Seconds,
    /// S.d. of log durations; compared by ratio.
    SdLog,
}

/// What a finding is about: what is named is common to all it covers.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Scope {
    /// Part of the step.
    pub part: Part,
    /// Effect whose spread changed.
    pub effect: Option<EffectKind>,
    /// Kind of operation.
    pub kind: Option<OpKind>,
    /// Pipeline stage.
    pub stage: Option<u16>,
    /// Model chunk.
    pub chunk: Option<i16>,
    /// Data-parallel replica.
    pub dp: Option<u32>,
}

impl fmt::Display for Scope {
    /// `forward-compute on dp 1, stage 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.part, self.effect) {
            (Part::LaunchDelay, _) => f.write_str("launch delay")?,
            (Part::Spread, Some(effect)) => write!(f, "spread of the {effect} effect")?,
            _ => {}
        }
        let of = match self.part {
            Part::LaunchDelay => " of ",
            Part::Spread => " in ",
            _ => "",
        };
        match (self.kind, self.part) {
            (Some(kind), _) => write!(f, "{of}{kind}")?,
            (None, Part::Compute) => f.write_str("all compute")?,
            (None, Part::Transfer) => f.write_str("all transfers")?,
            (None, Part::StepWork) => f.write_str("all step-level work")?,
            (None, Part::LaunchDelay | Part::Spread) => {}
        }
        let mut at = Vec::new();
        if let Some(dp) = self.dp {
            at.push(format!("dp {dp}"));
        }
        if let Some(stage) = self.stage {
            at.push(format!("stage {stage}"));
        }
        if let Some(chunk) = self.chunk.filter(|c| *c > 0) {
            at.push(format!("chunk {chunk}"));
        }
        if at.is_empty() { Ok(()) } else { write!(f, " on {}", at.join(", ")) }
    }
}

/// One cause: a part of the step that changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Finding {
    /// In words.
    pub name: String,
    /// What it is about.
    pub scope: Scope,
    /// What is measured.
    pub measure: Measure,
    /// Cells (signature x rank) covered.
    pub cells: usize,
    /// A's value (geometric mean over the cells where it is a duration).
    pub a: f64,
    /// B's value.
    pub b: f64,
    /// Change that belongs to this cause, other findings on the same cells taken out: a ratio minus 1,
    /// or seconds.
    pub change: f64,
    /// Its interval, for this finding alone; none where the s.d. of a side is not above its noise.
    pub interval: Option<Bounds>,
    /// Of the t test.
    pub p_value: f64,
    /// The same, corrected for all tests of the report (Holm).
    pub p_corrected: f64,
    /// Of the permutation test; none where units are too few or many.
    pub p_permutation: Option<f64>,
    /// What counted as independent.
    pub unit: ResampleUnit,
    /// Independent units of A and B.
    pub units: (usize, usize),
    /// Step time of A with this part as in B, less that of A; none if it cannot be put there.
    pub added_to_a: Option<StepChange>,
    /// Step time of B less that of B with this part as in A; none if it cannot be put there.
    pub removed_from_b: Option<StepChange>,
}

/// Change of step time, seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepChange {
    /// Of the mean.
    pub mean_s: f64,
    /// Its interval.
    pub mean_interval_s: Option<Bounds>,
    /// Of the p95.
    pub p95_s: f64,
    /// Its interval.
    pub p95_interval_s: Option<Bounds>,
}

/// How much of the change of step time the findings explain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Explained {
    /// Change of the recorded mean, seconds.
    pub recorded_mean_s: f64,
    /// Change that both models predict.
    pub total: StepChange,
    /// The single changes "added to A", summed.
    pub sum: StepChange,
    /// All findings put into A at once.
    pub joint: StepChange,
    /// `total - joint`.
    pub remainder: StepChange,
    /// Samples of each prediction.
    pub samples: usize,
    /// Bootstrap repetitions behind the intervals.
    pub repetitions: usize,
}

/// The s.d. of an effect on both sides, in log time, as calibrated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EffectChange {
    /// Which.
    pub effect: EffectKind,
    /// A's; none if A's model dropped the effect.
    pub a_sd_log: Option<f64>,
    /// B's.
    pub b_sd_log: Option<f64>,
    /// p-value of the test of a changed spread, corrected with all others; none if not tested.
    pub p_corrected: Option<f64>,
}

/// What occurs on one side only, or cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Unmatched {
    /// `A`, `B`, or `both`.
    pub side: String,
    /// What, and why.
    pub what: String,
    /// Signatures concerned.
    pub signatures: Vec<Signature>,
}
