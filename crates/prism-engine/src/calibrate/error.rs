//! What can go wrong in calibration.

use prism_graph::{GraphError, Op};
use prism_model::Signature;
use prism_stats::StatsError;

/// Why a trace cannot be calibrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// Too few steps to tell one effect from another.
    #[error("calibration needs at least 2 steps, the selection has {steps}")]
    TooFewSteps {
        /// Steps selected.
        steps: usize,
    },
    /// No forward or backward compute.
    #[error("the trace has no forward or backward compute")]
    NoCompute,
    /// Signatures with different numbers of microbatches.
    #[error("{first} has {first_count} microbatches a step but {other} has {other_count}")]
    Unbalanced {
        /// A signature.
        first: Signature,
        /// Its operations per step and replica.
        first_count: usize,
        /// A signature that disagrees.
        other: Signature,
        /// Its operations per step and replica.
        other_count: usize,
    },
    /// A compute duration that has no logarithm.
    #[error("{kind}[{seq}] on stage {stage} took {duration_s} s in step {step}, replica {replica}; compute durations must be positive", kind = op.kind, seq = op.seq, stage = op.stage)]
    NotPositive {
        /// The operation.
        op: Op,
        /// Step id.
        step: i64,
        /// Data-parallel replica.
        replica: u32,
        /// Its duration, seconds.
        duration_s: f64,
    },
    /// A stored model whose parts do not fit together.
    #[error("the stored model is inconsistent: {}", wrong.join("; "))]
    Inconsistent {
        /// What does not fit.
        wrong: Vec<String>,
    },
    /// A selection of steps or replicas that the trace does not have, or of no replica.
    #[error("the selection does not fit a trace of {steps} steps and {replicas} replicas")]
    Selection {
        /// Steps of the trace.
        steps: usize,
        /// Replicas of the trace.
        replicas: usize,
    },
    /// A statistic.
    #[error(transparent)]
    Stats(#[from] StatsError),
    /// The graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl CalibrateError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            CalibrateError::TooFewSteps { .. } => Some("record more steps"),
            CalibrateError::NoCompute => {
                Some("operations of kind `forward-compute` and `backward-compute` are needed")
            }
            CalibrateError::Unbalanced { .. } => {
                Some("every stage must run the same number of microbatches in a step")
            }
            CalibrateError::NotPositive { .. } => {
                Some("leave that step out, or correct the recorded duration")
            }
            CalibrateError::Inconsistent { .. } => Some("calibrate the trace again"),
            CalibrateError::Selection { .. } => {
                Some("select at least one replica, and steps and replicas below those counts")
            }
            CalibrateError::Stats(e) => Some(e.hint()),
            CalibrateError::Graph(e) => e.hint(),
        }
    }
}
