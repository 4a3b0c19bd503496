//! Laws of steps for `prism run` and `prism watch`, from whatever says how long steps take.

use std::path::Path;

use prism_engine::planned::{JobOptions, JobPrediction, predict_job};
use prism_job::{Job, RunDefaults};
use prism_run::StepModel;
use prism_run::steps::{RUN_PROFILE_SCHEMA, RunSource};
use prism_stats::pooled::ScalePrior;
use serde_json::Value;

use crate::args::SetArgs;
use crate::context::Context;
use crate::error::{CliError, usage};
use crate::input::{self, JobInput};

/// How far a cost model may be off, and runs of a predicted job from it: for watching.
const MODEL_ERROR: ScalePrior = ScalePrior { scale: 0.03, dof: 4.0 };

/// A law of steps, and where it is from.
pub(crate) struct StepsFrom {
    pub(crate) model: StepModel,
    pub(crate) source: Option<RunSource>,
    /// The job, where that was the input, and its text.
    pub(crate) job: Option<(JobInput, Job)>,
    pub(crate) warnings: Vec<String>,
}

impl StepsFrom {
    /// What a plan takes from the input where it says nothing.
    pub(crate) fn defaults(&self) -> RunDefaults {
        let Some((_, job)) = &self.job else { return RunDefaults::default() };
        RunDefaults {
            gpus: Some(job.gpus()),
            gpus_per_node: Some(job.cluster.gpus_per_node),
            tokens_per_step: Some(job.tokens()),
        }
    }
}

/// A prediction: mean and s.d. of a step, seconds, and how far clusters are apart, a share.
struct Predicted {
    mean_s: f64,
    sd_s: f64,
    clusters: f64,
}

impl Predicted {
    fn of(mean_s: f64, sd_s: f64, over_mean_s: f64, over_sd_s: f64) -> Self {
        let between = (over_sd_s * over_sd_s - sd_s * sd_s).max(0.0).sqrt();
        Predicted { mean_s: over_mean_s, sd_s, clusters: between / mean_s }
    }
}

impl From<&JobPrediction> for Predicted {
    fn from(p: &JobPrediction) -> Self {
        let (steps, over) = (&p.steps, &p.over_clusters);
        Predicted::of(steps.mean_s, steps.sd_s, over.mean_s, over.sd_s)
    }
}

/// The law of steps of a file: a run profile, a job file, or a prediction.
pub(crate) fn from_file(
    path: &Path,
    set: &SetArgs,
    context: &Context,
) -> Result<StepsFrom, CliError> {
    if input::is_job_file(path) {
        return from_job(path, set, context, None);
    }
    let (text, source) = read(path)?;
    let failed = |source| CliError::RunFile { file: input::name(path), source };
    let value: Value = serde_json::from_str(&text).map_err(|_| neither(path))?;
    let schema = value.get("schema").and_then(Value::as_str).unwrap_or_default();
    if schema == RUN_PROFILE_SCHEMA || schema.starts_with("prism.run-profile/") {
        let model = StepModel::from_json(&text).map_err(failed)?;
        return Ok(StepsFrom { model, source: Some(source), job: None, warnings: Vec::new() });
    }
    let predicted = prediction(&value, schema).ok_or_else(|| neither(path))?;
    let mut out = law(&input::name(path), &predicted, None)?;
    out.source = Some(source);
    Ok(out)
}

/// The law of steps of which only the time is known, seconds.
pub(crate) fn of_time(step_s: f64) -> Result<StepsFrom, CliError> {
    let predicted = Predicted { mean_s: step_s, sd_s: 0.0, clusters: 0.0 };
    law("a given step time", &predicted, None)
}

/// The law of steps to watch by.
pub(crate) fn for_watch(
    path: &Path,
    context: &Context,
) -> Result<(StepModel, Vec<String>), CliError> {
    let wide = if input::is_job_file(path) {
        from_job(path, &SetArgs::default(), context, Some(MODEL_ERROR))?
    } else {
        from_file(path, &SetArgs::default(), context)?
    };
    let predicted = wide.model.evidence.stall_rows == 0;
    let mut model = wide.model;
    if predicted {
        model.prior.shift = MODEL_ERROR;
    }
    Ok((model, wide.warnings))
}

fn from_job(
    path: &Path,
    set: &SetArgs,
    context: &Context,
    spread: Option<ScalePrior>,
) -> Result<StepsFrom, CliError> {
    let given = input::job_file(path)?;
    if given.text.contains("[run") && !given.text.contains("[model") {
        return Err(usage(
            format!("`{}` is the plan of a run and says nothing of its steps", input::name(path)),
            format!(
                "give it as `--plan {}`, with a run profile, a job file or `--step-time`",
                input::name(path)
            ),
        ));
    }
    let read = given.job(set)?;
    given.warn(&read.warnings, context);
    let options =
        JobOptions { seed: context.seed, threads: context.threads, ..JobOptions::default() };
    let prediction = context
        .phase("predict", || predict_job(&read.job, &options))
        .map_err(|source| CliError::Planned { file: input::name(path), source })?;
    let mut out = law(&input::name(path), &Predicted::from(&prediction), spread)?;
    out.source = Some(RunSource {
        name: given.source.name.clone(),
        sha256: given.source.sha256.clone(),
        bytes: given.source.bytes,
    });
    out.warnings.extend(prediction.warnings);
    out.job = Some((given, read.job));
    Ok(out)
}

/// Runs of a prediction differ as clusters do, and as runs on one cluster do.
fn law(
    name: &str,
    predicted: &Predicted,
    spread: Option<ScalePrior>,
) -> Result<StepsFrom, CliError> {
    let usual = prism_run::prior::mlperf().shift;
    let both = if predicted.clusters > usual.scale {
        ScalePrior { scale: predicted.clusters.hypot(usual.scale), dof: 30.0 }
    } else {
        usual
    };
    let spread = spread.unwrap_or(both);
    let model = StepModel::predicted(name, predicted.mean_s, predicted.sd_s, spread)?;
    let warnings = Vec::new();
    Ok(StepsFrom { model, source: None, job: None, warnings })
}

/// Mean and s.d. of what `prism predict --json` wrote.
fn prediction(value: &Value, schema: &str) -> Option<Predicted> {
    let at = |pointer: &str| value.pointer(pointer).and_then(Value::as_f64);
    if schema.starts_with("prism.predict-job/") {
        return Some(Predicted::of(
            at("/steps/mean_s")?,
            at("/steps/sd_s")?,
            at("/over_clusters/mean_s")?,
            at("/over_clusters/sd_s")?,
        ));
    }
    if schema.starts_with("prism.predict/") {
        let (mean_s, sd_s) = (at("/mean/value")?, at("/sd/value")?);
        return Some(Predicted { mean_s, sd_s, clusters: 0.0 });
    }
    None
}

fn neither(path: &Path) -> CliError {
    usage(
        format!("`{}` does not say how long steps take", input::name(path)),
        "give a run profile (`prism calibrate-run LOG… -o FILE`), a job file, or what `prism predict --json` \
         wrote",
    )
}

fn read(path: &Path) -> Result<(String, RunSource), CliError> {
    let text = input::text(path)?;
    let source = RunSource {
        name: input::name(path),
        sha256: prism_io::sha256_hex(text.as_bytes()),
        bytes: text.len() as u64,
    };
    Ok((text, source))
}
