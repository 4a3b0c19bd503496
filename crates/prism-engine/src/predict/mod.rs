//! The distribution of step time, with intervals.

mod bootstrap;
mod error;
mod lower;
mod options;
mod sources;
mod summary;
mod timelines;
mod walk;

use prism_graph::StepGraph;
use prism_model::DurationModel;

pub use bootstrap::{Bootstrap, ResampleUnit, bootstrap, resample_units};
pub use error::PredictError;
pub use lower::lower;
pub use options::{Draws, LowerOptions, Probes};
pub(crate) use sources::entity;
pub use summary::{
    Bounds, Estimate, Histogram, PredictReport, QuantileEstimate, SlowdownEstimate, StepGuarantee,
    guarantee,
};
pub use timelines::{Timelines, timelines};
pub(crate) use walk::{Durations, wait_name, walk};

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
        Some(bootstrap(graph, model, &lowering, &run, options.repetitions, statistics)?)
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

/// Step time with all noise removed: every random effect at its centre, persistent worker and
/// position effects kept, step-level values and launch delays at their means; seconds.
///
/// # Errors
/// [`PredictError`] if the model does not fit the graph.
pub fn noise_free_step(
    graph: &StepGraph,
    model: &DurationModel,
    options: &PredictOptions,
) -> Result<f64, PredictError> {
    let quiet = quiet(model);
    let tape = lower(graph, &quiet, &LowerOptions::default())?.compile()?;
    let run = RunOptions { samples: 1, threads: 1, isa: options.isa, ..RunOptions::default() };
    let samples = tape.run(&run)?;
    Ok(samples.get("step").and_then(|o| o.row(0).first()).map_or(f64::NAN, |&v| f64::from(v)))
}

/// The model with its noise removed.
fn quiet(model: &DurationModel) -> DurationModel {
    let mut quiet = model.clone();
    quiet.compute.step_vectors_log.clear();
    quiet.compute.microbatch_vectors_log.clear();
    quiet.compute.worker_spread.clear();
    quiet.congestion.clear();
    let replicas = model.replicas as usize;
    let steps = model.steps.len();
    let mean = |lane: &[f32]| {
        (lane.iter().map(|v| f64::from(*v)).sum::<f64>() / lane.len().max(1) as f64) as f32
    };
    for vector in quiet.step_work.iter_mut().chain(&mut quiet.launch_delay) {
        if vector.values_s.len() > replicas {
            vector.values_s = vector.values_s.chunks(steps).map(mean).collect();
        }
    }
    for dependency in &mut quiet.implied {
        dependency.lag_s =
            dependency.lag_s.chunks(steps).flat_map(|l| vec![mean(l); l.len()]).collect();
    }
    for transfer in &mut quiet.transfers {
        let width = transfer.members.len();
        let cell = transfer.rows_s.len() / transfer.cells(replicas);
        let means = |rows: &[f32]| -> Vec<f32> {
            let member = |k| rows.iter().skip(k).step_by(width).copied().collect::<Vec<_>>();
            (0..width).map(|k| mean(&member(k))).collect()
        };
        transfer.rows_s = transfer.rows_s.chunks(cell.max(1)).flat_map(means).collect();
    }
    quiet
}
