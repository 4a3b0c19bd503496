//! Jobs that need not exist: from a plan and a cluster's variability to the law of step time.

mod error;
mod fit;
mod fit_job;
mod fleet;
mod fsdp;
mod laws;
mod lower;
mod predict;

pub use error::PlannedError;
pub use fit::{
    ClusterFit, CollectivePoint, Field, FittedParameter, Identified, StepPoint, fit_cluster,
};
pub use fit_job::{Core, JobFit, LoggedJob, core_of, fit_job};
pub use predict::{
    ClusterLaw, JobDistribution, JobOptions, JobPrediction, JobQuantile, JobSlowdown, predict_job,
};

use prism_graph::PlannedStep;
use prism_job::Job;
use prism_job::cost::costs;

/// Step time of a job without noise, seconds: every GPU alike, every operation at its cost.
///
/// # Errors
/// [`PlannedError::Graph`] if the schedule does not exist at this size.
pub fn noise_free_s(job: &Job) -> Result<f64, PlannedError> {
    if fsdp::is_layered(job) {
        return fsdp::noise_free_s(job);
    }
    Ok(PlannedStep::new(job, &costs(job), 1)?.seconds()?)
}
