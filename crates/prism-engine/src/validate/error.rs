//! What can go wrong in validation.

use prism_stats::StatsError;

use crate::calibrate::CalibrateError;
use crate::predict::PredictError;
use crate::sample::SampleError;

/// Why a trace cannot be validated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValidateError {
    /// Too few steps to hold some out.
    #[error("validation needs at least 8 steps, {steps} remain")]
    TooFewSteps {
        /// Steps that remain.
        steps: usize,
    },
    /// An excluded step that is not there.
    #[error("step {step} is to be left out but the trace does not have it")]
    UnknownStep {
        /// Its id.
        step: i64,
    },
    /// Settings out of range.
    #[error("validation needs at least 1 split and 100 samples")]
    Options,
    /// Calibration of a part.
    #[error("calibrating a part of the steps: {0}")]
    Calibrate(#[from] CalibrateError),
    /// Prediction.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// The kernel.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A statistic.
    #[error(transparent)]
    Stats(#[from] StatsError),
}

impl ValidateError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ValidateError::TooFewSteps { .. } => Some("record more steps, or leave out fewer"),
            ValidateError::UnknownStep { .. } => Some("`prism replay --per-step` lists the steps"),
            ValidateError::Options => Some("raise `--splits` or `--samples`"),
            ValidateError::Calibrate(e) => e.hint(),
            ValidateError::Predict(e) => e.hint(),
            ValidateError::Sample(_) => None,
            ValidateError::Stats(e) => Some(e.hint()),
        }
    }
}
