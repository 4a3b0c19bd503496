//! What can go wrong with a planned job.

use prism_graph::GraphError;
use prism_stats::StatsError;
use prism_stats::quantile_table::QuantileTableError;

use crate::compose::ComposeError;
use crate::predict::PredictError;
use crate::sample::SampleError;

/// Why a planned job cannot be evaluated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlannedError {
    /// A setting out of range.
    #[error("{what} must be {rule}, not {got}")]
    Setting {
        /// Which.
        what: &'static str,
        /// Its range.
        rule: &'static str,
        /// What was given.
        got: String,
    },
    /// A measured time that cannot be this job's.
    #[error("{measured_s:.6} s was measured where the plan costs about {expected_s:.6} s")]
    Implausible {
        /// Measured, seconds.
        measured_s: f64,
        /// By the costs, seconds.
        expected_s: f64,
    },
    /// Too few samples of a replica for the slowest of many.
    #[error(
        "{samples} samples of a replica cannot tell the slowest of {replicas}: it takes about {needed}"
    )]
    Samples {
        /// Samples drawn.
        samples: usize,
        /// Replicas.
        replicas: u32,
        /// Samples that the median needs.
        needed: usize,
    },
    /// Too large to simulate replica by replica.
    #[error("{replicas} replicas of {ops} operations are too many to simulate one by one")]
    TooLarge {
        /// Replicas.
        replicas: u32,
        /// Operations of one.
        ops: usize,
    },
    /// Replicas that wait for each other at every layer.
    #[error(
        "fully sharded replicas wait for each other at every layer, which no graph of a step holds"
    )]
    Layered,
    /// The graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The lowering.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// The composition over replicas.
    #[error(transparent)]
    Compose(#[from] ComposeError),
    /// The kernel.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A law.
    #[error(transparent)]
    Stats(#[from] StatsError),
    /// A law's table.
    #[error(transparent)]
    Table(#[from] QuantileTableError),
    /// A fit.
    #[error(transparent)]
    Fit(#[from] prism_stats::least_squares::LeastSquaresError),
}

impl PlannedError {
    /// What the caller can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            PlannedError::Setting { .. } => "change the setting",
            PlannedError::Implausible { .. } => {
                "check the unit of the times, and that they are this job's"
            }
            PlannedError::Samples { .. } => "draw more with `--samples`, or leave it out",
            PlannedError::TooLarge { .. } => {
                "evaluate a plan with fewer data-parallel replicas, or some of them by `--replicas`"
            }
            PlannedError::Layered => {
                "`prism predict` evaluates it; elsewhere shard less (`zero_stage = 2`) or use a pipeline"
            }
            PlannedError::Graph(_) => "change the plan's stages, chunks or microbatches",
            PlannedError::Fit(_) => "give more measurements, or let fewer parameters move",
            PlannedError::Compose(_) => "ask for less extreme quantiles, or draw more samples",
            _ => "check the job's variability",
        }
    }
}
