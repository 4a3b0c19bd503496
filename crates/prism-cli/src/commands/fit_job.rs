//! `prism fit-job`.

use std::path::{Path, PathBuf};

use prism_engine::planned::{Identified, JobOptions, LoggedJob, fit_job};
use prism_engine::profile::SourceFile;
use prism_io::{Limits, read_step_log};
use prism_report::{FIT_JOB_SCHEMA, FitJobOutput, json_text};

use super::fit_cluster::write_job;
use crate::args::FitJobArgs;
use crate::context::Context;
use crate::error::{CliError, Outcome};
use crate::input;

/// Fits a job to its step times.
pub(crate) fn run(args: &FitJobArgs, context: &Context) -> Result<Outcome, CliError> {
    input::not_itself(args.output.as_deref(), &args.job, "-o")?;
    let mut sources = Vec::new();
    let mut logged = vec![job(&args.job, &args.steps, args, context, &mut sources)?];
    let mut names = vec![input::name(&args.job)];
    let mut also: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
    for (file, log) in &args.also {
        let (file, log) = (PathBuf::from(file), PathBuf::from(log));
        match also.iter_mut().find(|(known, _)| *known == file) {
            Some((_, logs)) => logs.push(log),
            None => also.push((file, vec![log])),
        }
    }
    for (file, logs) in &also {
        logged.push(job(file, logs, args, context, &mut sources)?);
        names.push(input::name(file));
    }
    let options = JobOptions {
        seed: context.seed,
        threads: context.threads,
        samples: 1 << 14,
        ..JobOptions::default()
    };
    let fit = context
        .phase("fit", || fit_job(&logged, &options))
        .map_err(|source| CliError::Planned { file: names.join(", "), source })?;
    let mut fitted = logged.swap_remove(0).job;
    fit.apply(&mut fitted);
    let file = write_job(args.output.as_deref(), &fitted)?;
    let mut warnings = fit.notes.clone();
    for p in fit.cluster.parameters.iter().filter(|p| p.identified == Identified::No) {
        warnings.push(format!("`{}` is not told by these step times", p.name));
    }
    for p in fit.cluster.parameters.iter().filter(|p| p.at_bound) {
        warnings.push(format!(
            "`{}` ended on its physical bound {:e}: the plan, the cluster or the log is not what the \
             job file says",
            p.name, p.value
        ));
    }
    let output = FitJobOutput {
        schema: FIT_JOB_SCHEMA.to_owned(),
        sources,
        set: args.set.texts(),
        jobs: names,
        cores: fit.cores,
        parameters: fit.cluster.parameters,
        step_sd: fit.step_sd,
        overhead_sd_s: fit.overhead_sd_s,
        kept: fit.kept.iter().map(|k| (*k).to_owned()).collect(),
        file,
        warnings,
    };
    let mut document = output.document();
    document.hint = args.output.as_deref().map(|f| format!("prism predict {}", input::name(f)));
    context.deliver(None, &document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    context.asides(&document);
    Ok(Outcome::Yes)
}

fn job(
    path: &Path,
    logs: &[PathBuf],
    args: &FitJobArgs,
    context: &Context,
    sources: &mut Vec<SourceFile>,
) -> Result<LoggedJob, CliError> {
    let given = input::job_file(path)?;
    let read = given.job(&args.set)?;
    given.warn(&read.warnings, context);
    sources.push(given.source.clone());
    let mut runs_s = Vec::with_capacity(logs.len());
    for log in logs {
        let log = read_step_log(log, Limits::default())?;
        sources.push(SourceFile::from(&log.source));
        runs_s.push(log.step_s);
    }
    Ok(LoggedJob { job: read.job, runs_s })
}
