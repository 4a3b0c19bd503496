//! Jobs that need not exist: from a plan and a cluster's variability to the law of step time.

mod assemble;
mod error;
mod fit;
mod fit_job;
mod fleet;
mod from_profile;
mod fsdp;
mod lanes;
mod laws;
mod lower;
mod model;
mod predict;
mod profile;
mod recorded;
mod report;
mod shared;
mod transfers;

pub use error::PlannedError;
pub use fit::{
    ClusterFit, CollectivePoint, Field, FittedParameter, Identified, StepPoint, fit_cluster,
};
pub use fit_job::{Core, JobFit, LoggedJob, core_of, fit_job};
pub use from_profile::{ProfileVariability, variability_of_profile};
pub use model::{MOST_OPERATIONS, ModelOptions, PlannedJob, duration_model};
pub use predict::{JobOptions, predict_job};
pub use profile::planned_profile;
pub use recorded::record;
pub use report::{ClusterLaw, JobDistribution, JobPrediction, JobQuantile, JobSlowdown};

use prism_graph::PlannedStep;
use prism_job::Job;
use prism_job::cost::{StepCosts, costs};

/// Step time of a job without noise, seconds: what [`predict_job`] measures penalties from.
///
/// # Errors
/// As [`noise_free_with`].
pub fn noise_free_s(job: &Job) -> Result<f64, PlannedError> {
    noise_free_with(job, &|_| {})
}

/// The same at costs as `change` leaves them, so that a part of the step can be taken out. Fully
/// sharded jobs have their costs by layer: `change` sees as many chunks as there are layers.
///
/// # Errors
/// [`PlannedError::Graph`] if the schedule does not exist at this size.
pub fn noise_free_with(job: &Job, change: &dyn Fn(&mut StepCosts)) -> Result<f64, PlannedError> {
    if fsdp::is_layered(job) {
        return fsdp::noise_free_s(job, change);
    }
    let mut costs = costs(job);
    change(&mut costs);
    Ok(PlannedStep::new(job, &costs, 1)?.seconds()?)
}
