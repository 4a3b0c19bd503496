//! Why two jobs cannot be compared.

use prism_engine::predict::PredictError;
use prism_engine::profile::ProfileError;
use prism_engine::sample::SampleError;
use prism_stats::StatsError;

/// Why two jobs cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// Nothing to compare.
    #[error("no signature (kind, stage, chunk) of compute occurs in both")]
    NothingMatches,
    /// Too few steps on one side.
    #[error("{side} has {steps} steps; a comparison needs at least 2 on either side")]
    TooFewSteps {
        /// `A` or `B`.
        side: &'static str,
        /// Steps it has.
        steps: usize,
    },
    /// A step time that is no time.
    #[error("{side} has a step time of {value_s} s at step {step}")]
    StepTime {
        /// `A` or `B`.
        side: &'static str,
        /// Step id.
        step: i64,
        /// The value.
        value_s: f64,
    },
    /// A setting out of range.
    #[error("{what} is {value}, it must be {rule}")]
    Setting {
        /// Which.
        what: &'static str,
        /// The value.
        value: f64,
        /// What is allowed.
        rule: &'static str,
    },
    /// A damaged profile.
    #[error("the profile's model is of {model} replicas, its graph of {graph}")]
    Replicas {
        /// In the model.
        model: u32,
        /// In the graph.
        graph: u32,
    },
    /// A damaged profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A model that gives no step times.
    #[error("step times cannot be predicted: {0}")]
    Predict(#[from] PredictError),
    /// A program that does not run.
    #[error("step times cannot be sampled: {0}")]
    Sample(#[from] SampleError),
    /// A statistic that cannot be computed.
    #[error(transparent)]
    Stats(#[from] StatsError),
}

impl DiffError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            DiffError::NothingMatches => {
                Some("compare the step times alone: give two step logs (CSV)")
            }
            DiffError::TooFewSteps { .. } => {
                Some("record more steps; 20 on either side serve well")
            }
            DiffError::StepTime { .. } => Some("step times are positive seconds"),
            DiffError::Replicas { .. } => {
                Some("the file was edited or cut; calibrate the trace again")
            }
            DiffError::Profile(e) => e.hint(),
            DiffError::Predict(e) => e.hint(),
            DiffError::Sample(_) | DiffError::Setting { .. } | DiffError::Stats(_) => None,
        }
    }
}
