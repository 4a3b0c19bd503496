//! Which random effects move durations, and whether they are there.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A crossed effect of the duration model
/// `log d = base + worker + position + step·λ + step x worker + microbatch·load + residual`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EffectKind {
    /// Persistent difference between replicas in one stage's speed (spatial).
    Worker,
    /// Persistent difference between the positions of a microbatch in a step.
    Position,
    /// A whole step is faster or slower, on every worker.
    Step,
    /// One worker is faster or slower during one step.
    StepWorker,
    /// One microbatch of one replica is larger or smaller: shared by forward and backward on all
    /// stages.
    Microbatch,
    /// What is left: independent between operations.
    Residual,
    /// A whole step's point-to-point transfers are faster or slower.
    Congestion,
    /// The spread of a worker's durations differs between replicas.
    WorkerSpread,
    /// A worker keeps an offset from the step effect for a whole window of steps.
    Window,
}

impl EffectKind {
    /// The name in files and in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            EffectKind::Worker => "worker",
            EffectKind::Position => "position",
            EffectKind::Step => "step",
            EffectKind::StepWorker => "step-worker",
            EffectKind::Microbatch => "microbatch",
            EffectKind::Residual => "residual",
            EffectKind::Congestion => "congestion",
            EffectKind::WorkerSpread => "worker-spread",
            EffectKind::Window => "window",
        }
    }
}

impl fmt::Display for EffectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The test that decided whether an effect is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EffectTest {
    /// Name of the test, for instance `F(31, 124)`.
    pub name: String,
    /// Its statistic; the largest where several signatures are tested.
    pub statistic: f64,
    /// p-value, corrected for the number of signatures tested (Bonferroni).
    pub p_value: f64,
    /// Signatures tested.
    pub comparisons: usize,
}

/// One effect of a calibrated model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Effect {
    /// Which one.
    pub kind: EffectKind,
    /// Standard deviation of the effect in log time, noise of the estimate removed; averaged
    /// (root mean square) over signatures. 0.01 is about 1 %.
    pub sd_log: f64,
    /// The test, where the plan allows one.
    pub test: Option<EffectTest>,
    /// Whether the model has it.
    pub kept: bool,
    /// Why it was kept or dropped, in words.
    pub reason: String,
}
