//! Job files where a trace or a profile is asked about: a planned job becomes a model.

use std::path::Path;

use clap::Args;
use prism_engine::planned::{ModelOptions, duration_model, planned_profile};
use prism_job::Job;

use crate::args::{SetArgs, TraceArgs};
use crate::context::Context;
use crate::error::{CliError, usage};
use crate::input::{self, JobInput};
use crate::job::Calibrated;

/// How a job file is read and modelled.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Job files")]
pub(crate) struct PlannedArgs {
    #[command(flatten)]
    pub(crate) set: SetArgs,
    /// Model only so many of a job's data-parallel replicas: a step waits for the slowest of fewer
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) replicas: Option<u32>,
    /// Steps whose values are drawn together; 0 for the default.
    #[arg(skip)]
    pub(crate) steps: usize,
}

impl PlannedArgs {
    /// Refuses flags about job files where none was given.
    pub(crate) fn check_unused(&self, path: &Path) -> Result<(), CliError> {
        let flags = [("--set", !self.set.set.is_empty()), ("--replicas", self.replicas.is_some())];
        match flags.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(usage(
                format!("`{flag}` is for job files, and `{}` is none", input::name(path)),
                format!("leave out `{flag}`, or give a job file (TOML)"),
            )),
        }
    }
}

/// Reads the job of a job file.
fn read_planned(given: &JobInput, args: &PlannedArgs, context: &Context) -> Result<Job, CliError> {
    let read = given.job(&args.set)?;
    given.warn(&read.warnings, context);
    Ok(read.job)
}

/// Models the job of a job file.
pub(crate) fn model(
    given: &JobInput,
    path: &Path,
    read: &TraceArgs,
    args: &PlannedArgs,
    context: &Context,
) -> Result<Calibrated, CliError> {
    let flags = [("--meta", read.meta.is_some()), ("--allow-incomplete", read.allow_incomplete)];
    if let Some((flag, _)) = flags.into_iter().find(|(_, given)| *given) {
        return Err(usage(
            format!("`{flag}` is about reading a trace, but `{}` is a job file", input::name(path)),
            format!("leave out `{flag}`"),
        ));
    }
    let job = read_planned(given, args, context)?;
    let options = ModelOptions {
        seed: context.seed,
        replicas: args.replicas,
        steps: args.steps,
        ..ModelOptions::default()
    };
    let planned = context
        .phase("model", || duration_model(&job, &options))
        .map_err(|source| CliError::Planned { file: input::name(path), source })?;
    let sources = vec![given.source.clone()];
    let profile = planned_profile(&job, &planned.graph, planned.model, sources.clone());
    Ok(Calibrated {
        profile,
        graph: planned.graph,
        sources,
        notes: planned.notes,
        gpus_per_node: Some(job.cluster.gpus_per_node),
    })
}
