//! The distribution of step time, with intervals.

mod adjust;
mod bootstrap;
mod damp;
mod effects;
mod error;
mod lower;
mod means;
mod options;
mod sources;
mod summary;
mod timelines;
mod walk;

use prism_graph::StepGraph;
use prism_model::DurationModel;

pub use adjust::{Adjustments, Burst, Repack, Scope, SpreadOf};
pub(crate) use bootstrap::bootstrap_as;
pub use bootstrap::{
    Bootstrap, Repetitions, ResampleUnit, bootstrap, relabel, resample_units, units_of,
};
pub use damp::{Damped, Source, damp};
pub(crate) use effects::log_mean_exp;
pub(crate) use effects::microbatch_part;
pub use error::PredictError;
pub use lower::{lower, lower_adjusted};
pub use means::{Means, means};
pub use options::{Draws, LowerOptions, Probes};
pub(crate) use sources::entity;
pub use summary::{
    Bounds, Estimate, Histogram, PredictReport, QuantileEstimate, SlowdownEstimate, StepGuarantee,
    guarantee, with_calibration,
};
pub use timelines::{Timelines, timelines};
pub(crate) use walk::{Durations, wait_name, walk};

use crate::resize::Resizer;
use crate::sample::{Isa, RunOptions};

/// How to predict.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictOptions {
    /// How durations are drawn.
    pub draws: Draws,
    /// Samples; ignored if `precision` is set.
    pub samples: usize,
    /// Draw until the half-width of the p95's sampling interval is at most this share of it.
    pub precision: Option<f64>,
    /// Seed.
    pub seed: u64,
    /// Threads; 0 for all.
    pub threads: usize,
    /// Instruction set; `None` for the fastest.
    pub isa: Option<Isa>,
    /// Bootstrap repetitions for the calibration error; 0 for none.
    pub repetitions: usize,
    /// Samples of each repetition.
    pub repetition_samples: usize,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Probabilities whose quantiles are reported.
    pub quantiles: Vec<f64>,
    /// Relative slow-downs whose probability is reported.
    pub slowdowns: Vec<f64>,
    /// Distribution over clusters one might be given, instead of over steps on the given one.
    pub over_clusters: bool,
}

impl Default for PredictOptions {
    fn default() -> Self {
        PredictOptions {
            draws: Draws::Empirical,
            samples: 10_000,
            precision: None,
            seed: 1,
            threads: 0,
            isa: None,
            repetitions: 100,
            repetition_samples: 1_024,
            confidence: 0.95,
            quantiles: vec![0.05, 0.5, 0.95, 0.99],
            slowdowns: vec![0.01, 0.02, 0.05, 0.10, 0.20],
            over_clusters: false,
        }
    }
}

/// Most samples that `precision` may take.
const MAX_SAMPLES: usize = 1 << 22;

/// A predicted distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Step times in the order of the samples, seconds.
    pub samples_s: Vec<f32>,
    /// What is reported of them.
    pub report: PredictReport,
}

/// Predicts the step time of a calibrated job.
///
/// # Errors
/// [`PredictError`] if the model does not fit the graph, a setting is out of range, or the wanted
/// precision is not reached.
pub fn predict(
    graph: &StepGraph,
    model: &DurationModel,
    options: &PredictOptions,
) -> Result<Prediction, PredictError> {
    predict_as(graph, model, model, |model, _| Ok(model), options)
}

/// Predicts the step time of a resized job.
///
/// Each bootstrap repetition resizes a model re-estimated on resampled steps, and draws the new
/// replicas anew: total intervals hold also that the new replicas are not known.
///
/// # Errors
/// As [`predict`], and [`PredictError::Resize`].
pub fn predict_resized(
    resizer: &Resizer<'_>,
    model: &DurationModel,
    options: &PredictOptions,
) -> Result<Prediction, PredictError> {
    let resized = resizer.apply(model, options.seed)?;
    let other = |model: DurationModel, k: usize| {
        let seed = options.seed.wrapping_add(k as u64 + 1);
        Ok(resizer.apply(&model, seed)?)
    };
    predict_as(resizer.graph(), &resized, model, other, options)
}

/// Predicts from `model`; repetitions are made by `other` of `recorded`, re-estimated.
fn predict_as(
    graph: &StepGraph,
    model: &DurationModel,
    recorded: &DurationModel,
    other: impl Fn(DurationModel, usize) -> Result<DurationModel, PredictError> + Sync,
    options: &PredictOptions,
) -> Result<Prediction, PredictError> {
    if options.samples < 2 {
        return Err(PredictError::TooSmall { what: "samples", least: 2, got: options.samples });
    }
    let lowering = LowerOptions {
        draws: options.draws,
        redraw_workers: options.over_clusters,
        ..LowerOptions::default()
    };
    let tape = lower(graph, model, &lowering)?.compile()?;
    let mut run = RunOptions {
        seed: options.seed,
        samples: options.samples,
        threads: options.threads,
        isa: options.isa,
        ..RunOptions::default()
    };
    let mut samples_s: Vec<f32> = Vec::new();
    loop {
        run.first_sample = samples_s.len() as u64;
        run.samples = match options.precision {
            None => options.samples,
            Some(_) => samples_s.len().max(4_096),
        };
        let new = tape.run(&run)?;
        samples_s.extend_from_slice(new.get("step").map_or(&[], |o| o.row(0)));
        let Some(wanted) = options.precision else { break };
        let reached = summary::relative_half_width(&samples_s, options.confidence)?;
        if reached <= wanted {
            break;
        }
        if samples_s.len() >= MAX_SAMPLES {
            return Err(PredictError::Precision { wanted, reached, samples: samples_s.len() });
        }
    }
    let repeated = if options.repetitions > 1 {
        let run = RunOptions { first_sample: 0, samples: options.repetition_samples, ..run };
        let wanted = options.quantiles.clone();
        let statistics = move |sorted: &[f64]| summary::statistics(sorted, &wanted);
        let n = options.repetitions;
        Some(bootstrap_as(graph, recorded, other, &lowering, &run, n, statistics)?)
    } else {
        None
    };
    let noise_free_s = noise_free_step(graph, model, options)?;
    let warnings = summary::warnings(model, options);
    let report = summary::report(
        &samples_s,
        noise_free_s,
        repeated.as_ref(),
        graph,
        model,
        options,
        warnings,
    )?;
    Ok(Prediction { samples_s, report })
}

/// What is reported of step times (seconds) that another model drew for the same job.
///
/// Intervals are those of sampling alone. The noise-free step is that of `model`, so that slow-downs
/// compare with a prediction of `model` itself.
///
/// # Errors
/// [`PredictError`] if there are too few samples, or the model does not fit the graph.
pub fn report_of(
    samples_s: &[f32],
    graph: &StepGraph,
    model: &DurationModel,
    options: &PredictOptions,
) -> Result<PredictReport, PredictError> {
    let noise_free_s = noise_free_step(graph, model, options)?;
    summary::report(samples_s, noise_free_s, None, graph, model, options, Vec::new())
}

/// Step time with all noise removed: every operation takes its mean, persistent worker and position
/// effects are kept; seconds.
///
/// # Errors
/// [`PredictError`] if the model does not fit the graph.
pub fn noise_free_step(
    graph: &StepGraph,
    model: &DurationModel,
    options: &PredictOptions,
) -> Result<f64, PredictError> {
    let quiet = damp(graph, model, |source, _, _| f64::from(u8::from(source == Source::Worker)));
    // A model without observed vectors has laws alone.
    let observed = !model.compute.microbatch_vectors_log.is_empty()
        || !model.compute.step_vectors_log.is_empty();
    let draws = if observed { Draws::Empirical } else { options.draws };
    let lowering = LowerOptions { draws, ..LowerOptions::default() };
    let tape = lower_adjusted(graph, &quiet.model, &lowering, &quiet.adjust)?.compile()?;
    let run = RunOptions { samples: 1, threads: 1, isa: options.isa, ..RunOptions::default() };
    let samples = tape.run(&run)?;
    Ok(samples.get("step").and_then(|o| o.row(0).first()).map_or(f64::NAN, |&v| f64::from(v)))
}
