//! Jobs that need not exist: from a plan and a cluster's variability to the law of step time.

mod assemble;
mod error;
mod fleet;
mod fsdp;
mod lanes;
mod laws;
mod lower;
mod model;
mod predict;
mod transfers;

pub use error::PlannedError;
pub use model::{MOST_OPERATIONS, ModelOptions, PlannedJob, duration_model};
pub use predict::{
    ClusterLaw, JobDistribution, JobOptions, JobPrediction, JobQuantile, JobSlowdown, predict_job,
};

use prism_graph::PlannedStep;
use prism_job::Job;
use prism_job::cost::costs;

/// Step time of a job without noise, seconds: pipelined, at its costs.
///
/// # Errors
/// [`PlannedError::Graph`] if the schedule does not exist at this size.
pub fn noise_free_s(job: &Job) -> Result<f64, PlannedError> {
    let costs = costs(job);
    Ok(PlannedStep::new(job, &costs, 1)?.seconds()?)
}
