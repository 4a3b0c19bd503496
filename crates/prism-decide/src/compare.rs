//! Scenarios against their base, under common random numbers.

use prism_engine::predict::{
    Adjustments, Bootstrap, Bounds, Draws, Estimate, LowerOptions, PredictError, Repetitions,
    ResampleUnit, lower_adjusted, with_calibration,
};
use prism_engine::sample::{RunOptions, Tape};
use prism_graph::StepGraph;
use prism_model::DurationModel;
use prism_stats::htest;
use prism_stats::interval::wilson;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::paired::{Ordered, Resamples, Statistic, standard_error};
use crate::scenario::{Donors, Job, Scenario, ScenarioError, apply};

/// How to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct CompareOptions {
    /// How durations are drawn.
    pub draws: Draws,
    /// Samples of each side.
    pub samples: usize,
    /// Seed.
    pub seed: u64,
    /// Threads; 0 for all. Results do not depend on it.
    pub threads: usize,
    /// Bootstrap repetitions for the calibration error of differences; 0 for none.
    pub repetitions: usize,
    /// Samples of each repetition.
    pub repetition_samples: usize,
    /// Resamples for the sampling error of differences.
    pub resamples: usize,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Statistics compared.
    pub statistics: Vec<Statistic>,
}

impl Default for CompareOptions {
    fn default() -> Self {
        CompareOptions {
            draws: Draws::Empirical,
            samples: 10_000,
            seed: 1,
            threads: 0,
            repetitions: 100,
            repetition_samples: 1_024,
            resamples: 200,
            confidence: 0.95,
            statistics: vec![
                Statistic::Mean,
                Statistic::Quantile(0.5),
                Statistic::Quantile(0.95),
                Statistic::Quantile(0.99),
            ],
        }
    }
}

/// A statistic of both sides and its change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Difference {
    /// Which statistic.
    pub statistic: Statistic,
    /// Of the base, seconds.
    pub base_s: f64,
    /// Of the scenario, seconds.
    pub changed_s: f64,
    /// Scenario less base, seconds, with paired intervals.
    pub difference_s: Estimate,
    /// Difference as a share of the base, with paired intervals.
    pub relative: Estimate,
    /// Width of the paired sampling interval of the difference over that of independent samples;
    /// none where neither varies.
    pub paired_width_ratio: Option<f64>,
}

/// A share of steps with its sampling interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Probability {
    /// The share.
    pub value: f64,
    /// Its interval.
    pub sampling: Bounds,
}

/// A scenario against its base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Comparison {
    /// Name of the scenario.
    pub name: String,
    /// What it changes.
    pub scenario: Scenario,
    /// Statistics of both sides.
    pub differences: Vec<Difference>,
    /// A step under the scenario takes less time than the same step (same noise) of the base, by more
    /// than rounding (2 millionths).
    pub faster_same_noise: Probability,
    /// A step under the scenario takes less time than another, independent step of the base; equal
    /// times count half.
    pub faster: Probability,
    /// What a reader should know of how it was carried out.
    pub notes: Vec<String>,
}

/// Scenarios against their base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CompareReport {
    /// Samples of each side.
    pub samples: usize,
    /// Seed.
    pub seed: u64,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// How durations were drawn.
    pub draws: Draws,
    /// What the bootstrap for calibration error resampled; none without.
    pub resampled: Option<ResampleUnit>,
    /// Independent units it had.
    pub units: Option<usize>,
    /// Its repetitions.
    pub repetitions: usize,
    /// Each scenario.
    pub comparisons: Vec<Comparison>,
}

/// Why scenarios cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A scenario that does not apply.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A side that cannot be predicted.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// Too little to compare.
    #[error("{what} must be at least {least}, not {got}")]
    TooSmall {
        /// Which setting.
        what: &'static str,
        /// Its least value.
        least: usize,
        /// What was asked.
        got: usize,
    },
}

impl CompareError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            CompareError::Scenario(e) => e.hint(),
            CompareError::Predict(e) => e.hint(),
            CompareError::TooSmall { .. } => Some("raise it"),
        }
    }
}

/// Compares each scenario with the job as it is.
///
/// Both sides draw the same random numbers, so that their difference is far sharper than either of
/// them. The sampling interval of a difference resamples pairs; with `repetitions`, the total interval
/// adds how the difference moves with the steps that happened to be recorded (both sides re-estimated
/// on the same resampled steps).
///
/// # Errors
/// [`CompareError`].
pub fn compare(
    job: &Job<'_>,
    scenarios: &[Scenario],
    donors: &Donors<'_>,
    options: &CompareOptions,
) -> Result<CompareReport, CompareError> {
    for (what, least, got) in
        [("samples", 100, options.samples), ("resamples", 20, options.resamples)]
    {
        if got < least {
            return Err(CompareError::TooSmall { what, least, got });
        }
    }
    let changed: Vec<_> =
        scenarios.iter().map(|s| apply(job, s, donors)).collect::<Result<_, _>>()?;
    let none = Adjustments::default();
    let base = run(job.graph, job.model, &none, options)?;
    let resamples = Resamples::new(options.samples, options.resamples, options.seed);
    let calibration = repeat(job, scenarios, donors, options)?;
    let mut comparisons = Vec::new();
    for (i, (scenario, changed)) in scenarios.iter().zip(&changed).enumerate() {
        let samples = run(job.graph, &changed.model, &changed.adjust, options)?;
        let repeated = calibration.as_ref().map(|c| (c, i));
        comparisons.push(Comparison {
            name: scenario.name.clone(),
            scenario: scenario.clone(),
            differences: differences(&base, &samples, &resamples, repeated, options),
            faster_same_noise: faster_same_noise(&base, &samples, options.confidence)?,
            faster: faster(&base, &samples, options.confidence),
            notes: changed.notes.clone(),
        });
    }
    Ok(CompareReport {
        samples: options.samples,
        seed: options.seed,
        confidence: options.confidence,
        draws: options.draws,
        resampled: calibration.as_ref().map(|c| c.unit),
        units: calibration.as_ref().map(|c| c.units),
        repetitions: options.repetitions,
        comparisons,
    })
}

/// Step times of a job with changes, seconds.
///
/// # Errors
/// [`PredictError`] if the model does not fit the graph.
pub fn run(
    graph: &StepGraph,
    model: &DurationModel,
    adjust: &Adjustments,
    options: &CompareOptions,
) -> Result<Vec<f32>, PredictError> {
    let lowering = LowerOptions { draws: options.draws, ..LowerOptions::default() };
    let tape = lower_adjusted(graph, model, &lowering, adjust)?.compile()?;
    step_times(&tape, options.seed, options.samples, options.threads)
}

/// Runs a tape.
pub(crate) fn step_times(
    tape: &Tape,
    seed: u64,
    samples: usize,
    threads: usize,
) -> Result<Vec<f32>, PredictError> {
    let run = RunOptions { seed, samples, threads, ..RunOptions::default() };
    let out = tape.run(&run)?.into_outputs();
    let step = out.into_iter().find(|o| o.name() == "step");
    Ok(step.map(prism_engine::sample::Output::into_data).unwrap_or_default())
}

fn differences(
    base: &[f32],
    changed: &[f32],
    resamples: &Resamples,
    repeated: Option<(&Bootstrap, usize)>,
    options: &CompareOptions,
) -> Vec<Difference> {
    let (x, y) = (Ordered::new(base), Ordered::new(changed));
    let replicates = resamples.map(|counts| {
        let of = |o: &Ordered<'_>| -> Vec<f64> {
            options.statistics.iter().map(|s| o.of(*s, counts)).collect()
        };
        (of(&x), of(&y))
    });
    let z = htest::normal_quantile(0.5 * (1.0 + options.confidence));
    let around = |value: f64, spread: &[f64], reach: Option<f64>| {
        let half = z * standard_error(spread);
        let sampling = Bounds { lower: value - half, upper: value + half };
        Estimate { value, sampling, total: reach.map(|r| with_calibration(value, sampling, r, r)) }
    };
    let all = options.statistics.iter().enumerate();
    all.map(|(k, &statistic)| {
        let (base_s, changed_s) = (x.of_all(statistic), y.of_all(statistic));
        let each = |f: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
            replicates.iter().map(|(a, b)| f(a[k], b[k])).collect()
        };
        let difference = each(&|a, b| b - a);
        let apart = standard_error(&each(&|a, _| a)).hypot(standard_error(&each(&|_, b| b)));
        let width = 2 * options.statistics.len();
        let reach = |column: usize| {
            repeated.map(|(b, i)| b.half_width(i * width + column, options.confidence))
        };
        Difference {
            statistic,
            base_s,
            changed_s,
            difference_s: around(changed_s - base_s, &difference, reach(2 * k)),
            relative: around(
                changed_s / base_s - 1.0,
                &each(&|a, b| b / a - 1.0),
                reach(2 * k + 1),
            ),
            paired_width_ratio: (apart > 0.0).then(|| standard_error(&difference) / apart),
        }
    })
    .collect()
}

/// Differences under models of resampled steps: per scenario and statistic, seconds and share.
fn repeat(
    job: &Job<'_>,
    scenarios: &[Scenario],
    donors: &Donors<'_>,
    options: &CompareOptions,
) -> Result<Option<Bootstrap>, CompareError> {
    if options.repetitions < 2 {
        return Ok(None);
    }
    let fresh = Repetitions::new(job.model, options.seed)?;
    let none = Adjustments::default();
    let lowering = LowerOptions { draws: options.draws, ..LowerOptions::default() };
    let one = |tapes: &mut Vec<Option<Tape>>, k: usize| -> Result<Vec<f64>, CompareError> {
        let model = fresh.model(k);
        let again = Job { model: &model, ..*job };
        tapes.resize(scenarios.len() + 1, None);
        let statistics = |slot: &mut Option<Tape>,
                          model: &DurationModel,
                          adjust: &Adjustments|
         -> Result<Vec<f64>, CompareError> {
            let program = lower_adjusted(job.graph, model, &lowering, adjust)?;
            let tape = bound(slot, &program)?;
            let samples = step_times(tape, options.seed, options.repetition_samples, 1)?;
            let ordered = Ordered::new(&samples);
            Ok(options.statistics.iter().map(|s| ordered.of_all(*s)).collect())
        };
        let base = statistics(&mut tapes[0], &model, &none)?;
        let mut out = Vec::new();
        for (i, scenario) in scenarios.iter().enumerate() {
            let changed = apply(&again, scenario, donors)?;
            let values = statistics(&mut tapes[i + 1], &changed.model, &changed.adjust)?;
            for (b, v) in base.iter().zip(values) {
                out.extend([v - b, v / b - 1.0]);
            }
        }
        Ok(out)
    };
    let all: Result<Vec<_>, _> = if options.threads == 1 {
        let mut tapes = Vec::new();
        (0..options.repetitions).map(|k| one(&mut tapes, k)).collect()
    } else {
        (0..options.repetitions).into_par_iter().map_init(Vec::new, one).collect()
    };
    Ok(Some(Bootstrap { unit: fresh.unit, units: fresh.units(), statistics: all? }))
}

/// A program on a tape that may have run another one of the same form.
pub(crate) fn bound<'a>(
    slot: &'a mut Option<Tape>,
    program: &prism_engine::sample::Program,
) -> Result<&'a Tape, PredictError> {
    let fits = match slot {
        Some(tape) => tape.rebind(program.clone())?,
        None => false,
    };
    if !fits {
        *slot = Some(program.compile()?);
    }
    slot.as_ref().ok_or(PredictError::NoSink)
}

/// Times that differ by less than this share are equal: programs round differently in single precision.
const ROUNDING: f32 = 2e-6;

fn faster_same_noise(
    base: &[f32],
    changed: &[f32],
    confidence: f64,
) -> Result<Probability, PredictError> {
    let n = base.len();
    let count = base.iter().zip(changed).filter(|(x, y)| **y < **x * (1.0 - ROUNDING)).count();
    let interval = wilson(count as u64, n as u64, confidence)?;
    Ok(Probability {
        value: count as f64 / n as f64,
        sampling: Bounds { lower: interval.lower, upper: interval.upper },
    })
}

/// P(Y < X) + P(Y = X)/2 of independent X and Y (Mann–Whitney), its standard error by the placements of
/// both (`DeLong` et al., Biometrics 44, 1988), which are correlated here.
fn faster(base: &[f32], changed: &[f32], confidence: f64) -> Probability {
    let sorted = |values: &[f32]| {
        let mut out = values.to_vec();
        out.sort_by(f32::total_cmp);
        out
    };
    let (x, y) = (sorted(base), sorted(changed));
    let n = base.len() as f64;
    let share_below = |sorted: &[f32], v: f32| {
        let below = sorted.partition_point(|s| *s < v) as f64;
        let upto = sorted.partition_point(|s| *s <= v) as f64;
        0.5 * (below + upto) / n
    };
    let placements: Vec<f64> =
        base.iter().zip(changed).map(|(&a, &b)| share_below(&y, a) - share_below(&x, b)).collect();
    // Mean of F_Y(X) − F_X(Y) is P(Y < X) − P(X < Y).
    let mean = placements.iter().sum::<f64>() / n;
    let value = 0.5 * (1.0 + mean);
    let error = standard_error(&placements) / n.sqrt();
    let half = htest::normal_quantile(0.5 * (1.0 + confidence)) * error;
    Probability {
        value,
        sampling: Bounds { lower: (value - half).max(0.0), upper: (value + half).min(1.0) },
    }
}
