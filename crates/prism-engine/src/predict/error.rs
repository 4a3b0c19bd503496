//! What can go wrong in a prediction.

use prism_graph::{GraphError, Op};
use prism_stats::StatsError;
use prism_stats::quantile_table::QuantileTableError;

use crate::sample::SampleError;

/// Why a prediction is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The model names an operation that the graph does not have.
    #[error("the model names operation {op}, which its graph does not have")]
    UnknownOp {
        /// Index of the operation.
        op: u32,
    },
    /// The model says nothing of an operation.
    #[error("the model has no duration for {kind}[{seq}] on stage {stage}", kind = op.kind, seq = op.seq, stage = op.stage)]
    NoWork {
        /// The operation.
        op: Op,
    },
    /// The graph has no end.
    #[error("the graph has no operation that ends the step")]
    NoSink,
    /// Nothing to draw.
    #[error("{what} must be at least {least}, not {got}")]
    TooSmall {
        /// Which setting.
        what: &'static str,
        /// Its least value.
        least: usize,
        /// What was asked.
        got: usize,
    },
    /// The wanted precision was not reached.
    #[error(
        "precision {wanted} not reached with {samples} samples; the interval's half-width is {reached} of the estimate"
    )]
    Precision {
        /// Relative half-width asked for.
        wanted: f64,
        /// Relative half-width reached.
        reached: f64,
        /// Samples drawn.
        samples: usize,
    },
    /// Microbatches that do not differ.
    #[error("nothing to repack: the model's microbatches have no effect of their own")]
    NothingToRepack,
    /// A model that was not estimated from steps.
    #[error("the model follows from given laws, so there are no recorded steps to resample")]
    NotEstimated,
    /// A tape that does not say when operations end.
    #[error("the tape was lowered without the timeline probe")]
    NoTimeline,
    /// A job that cannot be resized.
    #[error(transparent)]
    Resize(#[from] crate::resize::ResizeError),
    /// Arrays that do not fit the graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The kernel.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A law that cannot be tabulated.
    #[error(transparent)]
    Table(#[from] QuantileTableError),
    /// A statistic.
    #[error(transparent)]
    Stats(#[from] StatsError),
}

impl PredictError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            PredictError::UnknownOp { .. } | PredictError::NoWork { .. } | PredictError::NoSink => {
                Some("the profile is damaged or was edited; calibrate the trace again")
            }
            PredictError::TooSmall { .. } => Some("raise it"),
            PredictError::Precision { .. } => Some("ask for less, or set `--samples`"),
            PredictError::NothingToRepack => {
                Some("the microbatch effect was dropped in calibration: see `prism calibrate`")
            }
            PredictError::NotEstimated => {
                Some("leave the bootstrap out: given laws have no calibration error")
            }
            PredictError::Sample(_) | PredictError::NoTimeline => None,
            PredictError::Resize(e) => e.hint(),
            PredictError::Graph(e) => e.hint(),
            PredictError::Table(e) => Some(e.hint()),
            PredictError::Stats(e) => Some(e.hint()),
        }
    }
}
