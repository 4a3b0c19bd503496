//! `prism predict job.toml`.

use std::path::Path;

use prism_engine::planned::{
    JobDistribution, JobOptions, JobPrediction, predict_job, variability_of_profile,
};
use prism_engine::profile::SourceFile;
use prism_graph::PlannedStep;
use prism_job::cost::costs;
use prism_job::{Job, Violation};
use prism_model::OpKind;
use prism_report::{
    JobSummary, Over, PREDICT_JOB_SCHEMA, PredictJobOutput, RequirementResult, Throughput,
    cost_assumption, json_text, memory_warning, variability_assumption,
};

use crate::args::{IsaArg, ModelArg, OverArg, PredictArgs, Requirement, Statistic};
use crate::context::Context;
use crate::error::{CliError, Outcome, usage};
use crate::input::{self, JobInput};

use super::predict::asked;

/// Predicts the distribution of a planned job's step time.
pub(crate) fn run(
    given: &JobInput,
    args: &PredictArgs,
    context: &Context,
) -> Result<Outcome, CliError> {
    check(args)?;
    let read = given.job(&args.set)?;
    given.warn(&read.warnings, context);
    let mut planned = read.job.clone();
    let taken = match &args.variability_from {
        Some(path) => Some(from_profile(path, &mut planned, args, context)?),
        None => None,
    };
    let job = &planned;
    let options = options(args, context);
    let prediction = context
        .phase("predict", || predict_job(job, &options))
        .map_err(|source| CliError::Planned { file: input::name(&args.input), source })?;
    let mut output = output(given, args, context, job, &read.warnings, prediction)?;
    if let Some((source, notes)) = taken {
        output.sources.push(source);
        output.prediction.warnings.extend(notes);
    }
    let mut document = output.document();
    // Those of the file are shown at their place in it.
    document.warnings.drain(..read.warnings.len());
    document.hint = Some(hint(args));
    let file = args.output.as_deref();
    context.deliver(file, &document, || Ok(json_text(&output)?), || Ok(output.csv()?))?;
    context.asides(&document);
    Ok(if output.all_met() { Outcome::Yes } else { Outcome::No })
}

/// Gives a job the variability of a profile; what was taken, and what was not, in words.
fn from_profile(
    path: &Path,
    job: &mut Job,
    args: &PredictArgs,
    context: &Context,
) -> Result<(SourceFile, Vec<String>), CliError> {
    let (profile, source) = input::profile(path, context)?;
    let failed = |source| CliError::Planned { file: input::name(&args.input), source };
    let step = PlannedStep::new(job, &costs(job), 1).map_err(|e| failed(e.into()))?;
    let from = variability_of_profile(&profile, &step.planned.graph, &job.variability);
    let names = |kinds: &[OpKind]| {
        let names: Vec<&str> = kinds.iter().map(|k| k.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let notes = vec![
        format!("variability from {}: {}", source.name, from.taken.join(", ")),
        format!("of the job file's preset still: {}", from.kept.join(", ")),
        format!("operations in both: {}", names(&from.matched)),
        format!("only in the planned job: {}", names(&from.unmatched)),
        format!("only in the profile: {}", names(&from.unused)),
    ];
    job.variability = from.variability;
    Ok((source, notes))
}

/// Refuses flags that mean nothing for a job file.
fn check(args: &PredictArgs) -> Result<(), CliError> {
    let of_traces = [
        ("--meta", args.read.meta.is_some()),
        ("--allow-incomplete", args.read.allow_incomplete),
        ("--precision", args.precision.is_some()),
        ("--draws", args.draws.is_some()),
        ("--model iid", args.model != ModelArg::Effects),
        ("--bootstrap", args.bootstrap.is_some()),
        ("--guarantee", args.guarantee.is_some()),
        ("--isa", args.isa != IsaArg::Auto),
        ("--dp", args.resize.dp.is_some()),
        ("--pp", args.resize.pp.is_some()),
        ("--microbatches", args.resize.microbatches.is_some()),
        ("--fresh-cluster", args.resize.fresh_cluster),
        ("--extrapolate", args.resize.extrapolate),
    ];
    match of_traces.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(usage(
            format!(
                "`{flag}` is for recorded traces, and `{}` is a job file: nothing was recorded",
                input::name(&args.input)
            ),
            match *flag {
                "--dp" => {
                    "give `--set parallelism.data_parallel_shard_degree=N`, and `cluster.gpus`"
                        .to_owned()
                }
                "--pp" => "give `--set parallelism.pipeline_parallel_degree=N`".to_owned(),
                "--microbatches" => "give `--set training.global_batch_size=N`".to_owned(),
                _ => format!("leave out `{flag}`"),
            },
        )),
    }
}

fn options(args: &PredictArgs, context: &Context) -> JobOptions {
    let (quantiles, slowdowns) = asked(args);
    let usual = JobOptions::default();
    JobOptions {
        samples: args.samples.unwrap_or(usual.samples),
        clusters: args.clusters.unwrap_or(usual.clusters),
        seed: context.seed,
        threads: context.threads,
        confidence: args.confidence,
        quantiles,
        slowdowns,
        brute_force: args.brute_force,
        over_clusters_only: false,
    }
}

fn output(
    given: &JobInput,
    args: &PredictArgs,
    context: &Context,
    job: &Job,
    warnings: &[Violation],
    mut prediction: JobPrediction,
) -> Result<PredictJobOutput, CliError> {
    let mut all: Vec<String> = warnings.iter().map(|w| given.in_words(w)).collect();
    all.extend(memory_warning(job));
    all.extend(cost_assumption(job));
    all.extend(variability_assumption(job));
    all.append(&mut prediction.warnings);
    prediction.warnings = all;
    let noise_free = Throughput::new(job, &costs(job), prediction.noise_free_s);
    let mut output = PredictJobOutput {
        schema: PREDICT_JOB_SCHEMA.to_owned(),
        sources: vec![given.source.clone()],
        set: args.set.texts(),
        seed: context.seed,
        confidence: args.confidence,
        job: JobSummary::new(job),
        noise_free,
        over_what: match args.over {
            OverArg::Steps => Over::Steps,
            OverArg::Clusters => Over::Clusters,
        },
        prediction,
        requirements: Vec::new(),
    };
    output.requirements =
        args.require.iter().map(|r| judge(r, output.asked())).collect::<Result<_, _>>()?;
    Ok(output)
}

/// Holds a requirement against a distribution.
fn judge(requirement: &Requirement, law: &JobDistribution) -> Result<RequirementResult, CliError> {
    let (value, bounds, refused) = match requirement.statistic {
        Statistic::Mean => (Some(law.mean_s), None, None),
        Statistic::Sd => (Some(law.sd_s), None, None),
        Statistic::Quantile(p) => {
            let q = law.quantiles.iter().find(|q| q.p == p);
            let bounds = q.and_then(|q| Some((q.lower_s?, q.upper_s?)));
            (q.and_then(|q| q.value_s), bounds, q.and_then(|q| q.refused.clone()))
        }
    };
    let Some(value_s) = value else {
        return Err(usage(
            format!(
                "`--require '{}'` cannot be judged: {}",
                requirement.text,
                refused.unwrap_or_else(|| "its quantile was not predicted".to_owned())
            ),
            "draw more with `--samples`, or ask for a less extreme quantile",
        ));
    };
    // Mean and s.d. come without an interval that could contain the limit.
    Ok(super::held(requirement, value_s, bounds))
}

fn hint(args: &PredictArgs) -> String {
    let file = input::name(&args.input);
    if args.over == OverArg::Steps && args.input != Path::new("-") {
        return format!("prism predict {file} --over clusters, or prism check {file}");
    }
    format!("prism check {file}")
}
