//! Whether a plan fits into memory, without following a whole step.

use prism_graph::{GraphError, StageMemory, memory};
use prism_job::{Job, ScheduleName};

/// Microbatches a stage after which the order of every schedule but `GPipe` repeats itself: warm-ups
/// take at most twice the stages, and the pattern between them and the cool-down lasts for as many
/// microbatches as there are stages.
const REPEATS: u32 = 4;

/// Memory of every stage, as [`memory()`] says; for long steps from the same step with fewer
/// microbatches, whose peak is the same.
pub(super) fn stages(job: &Job) -> Result<Vec<StageMemory>, GraphError> {
    let (plan, microbatches) = (&job.plan, job.microbatches());
    let few = plan.pipeline_parallel.saturating_mul(REPEATS);
    if plan.schedule == ScheduleName::GPipe || microbatches <= few {
        return memory(job);
    }
    let mut short = job.clone();
    let batch =
        u64::from(few) * u64::from(plan.data_parallel()) * u64::from(job.training.micro_batch_size);
    match u32::try_from(batch) {
        Ok(batch) => short.training.global_batch_size = batch,
        Err(_) => return memory(job),
    }
    memory(&short)
}

/// Memory that the fullest stage leaves free, bytes; negative where it does not fit.
pub(super) fn headroom_bytes(job: &Job) -> Result<f64, GraphError> {
    let least = stages(job)?
        .iter()
        .map(|stage| stage.gpu_bytes - stage.total_bytes())
        .fold(f64::INFINITY, f64::min);
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::super::tests::random_jobs;
    use super::*;

    #[test]
    fn short_steps_store_what_long_ones_do() {
        let mut shortened = 0;
        for job in random_jobs(500, 11) {
            let (Ok(fast), Ok(slow)) = (stages(&job), memory(&job)) else { continue };
            assert_eq!(fast, slow, "{:?}", job.plan);
            shortened += u32::from(job.microbatches() > REPEATS * job.plan.pipeline_parallel);
        }
        assert!(shortened > 100, "{shortened}");
    }
}
