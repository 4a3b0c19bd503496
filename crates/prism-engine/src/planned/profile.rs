//! A planned job in the form that decisions take: a profile of steps that were never recorded.

use prism_graph::{GraphFile, StepGraph};
use prism_job::Job;
use prism_model::DurationModel;

use crate::profile::{JobFile, PROFILE_SCHEMA, Profile, Provenance, SourceFile};
use crate::replay::{Builder, ReplayError};

/// A profile of a planned job. It is no file to be kept: what it holds follows from the job.
pub fn planned_profile(
    job: &Job,
    graph: &StepGraph,
    model: DurationModel,
    sources: Vec<SourceFile>,
) -> Profile {
    let none = ReplayError { mean_percent: 0.0, rms_percent: 0.0 };
    Profile {
        schema: PROFILE_SCHEMA.to_owned(),
        provenance: Provenance {
            created_by: concat!("prism ", env!("CARGO_PKG_VERSION")).to_owned(),
            sources,
            job: JobFile {
                trial_name: job.name.clone(),
                run_id: 0,
                dp_size: graph.replicas(),
                dsp_size: job.plan.context_parallel,
                pp_size: job.plan.pipeline_parallel,
                tp_size: job.plan.tensor_parallel,
                vpp_size: job.plan.virtual_chunks,
                world_size: u32::try_from(job.gpus()).unwrap_or(u32::MAX),
            },
            steps_recorded: 0,
            steps_dropped: Vec::new(),
            builder: Builder::Planned,
            zero_delay_error: none,
            reference_error: none,
            with_delay_error: none,
            alpha: 0.0,
        },
        graph: GraphFile::from(graph),
        recorded_step_s: Vec::new(),
        model,
    }
}
