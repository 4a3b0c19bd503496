//! From samples to numbers with intervals.

use prism_graph::StepGraph;
use prism_model::DurationModel;
use prism_stats::interval::{quantile_interval, wilson};
use prism_stats::{Tolerance, quantile_type7, tolerance_upper};
use serde::{Deserialize, Serialize};

use super::bootstrap::{Bootstrap, ResampleUnit};
use super::{Draws, PredictError, PredictOptions};

/// A two-sided interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Bounds {
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

/// A number with its intervals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Sampling error alone: what more samples would narrow.
    pub sampling: Bounds,
    /// Sampling and calibration error: what more recorded steps would narrow. None without bootstrap.
    pub total: Option<Bounds>,
}

/// A quantile of step time, seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct QuantileEstimate {
    /// Its probability.
    pub p: f64,
    /// The quantile, seconds.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// The quantile less the step time with all noise removed, seconds.
    pub penalty_s: f64,
}

/// Probability that a step is slower than the noise-free step by more than some share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SlowdownEstimate {
    /// Share: 0.05 is 5 %.
    pub above: f64,
    /// The probability, with its sampling interval (Wilson).
    pub probability: f64,
    /// Sampling error alone.
    pub sampling: Bounds,
}

/// Counts of step times in equal bins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Histogram {
    /// Lower end of the first bin, seconds.
    pub from_s: f64,
    /// Upper end of the last bin, seconds.
    pub to_s: f64,
    /// Samples in each bin; the first and the last also count what lies beyond.
    pub counts: Vec<usize>,
}

/// An upper bound on a quantile of step time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum StepGuarantee {
    /// A distribution-free one-sided tolerance bound from recorded steps alone.
    Guaranteed {
        /// Bounded quantile.
        q: f64,
        /// Confidence achieved.
        confidence: f64,
        /// The bound, seconds.
        bound_s: f64,
        /// Recorded steps.
        steps: usize,
        /// Rank of the recorded step that is the bound, from 1 for the fastest.
        rank: usize,
    },
    /// Too few recorded steps: a bound that holds only as far as the model does.
    ConditionalOnModel {
        /// Bounded quantile.
        q: f64,
        /// Confidence asked for, under the model.
        confidence: f64,
        /// The bound, seconds; none without bootstrap.
        bound_s: Option<f64>,
        /// Recorded steps.
        steps: usize,
        /// Recorded steps that a guarantee needs.
        steps_needed: usize,
        /// Confidence with which the slowest recorded step bounds the quantile.
        confidence_of_slowest: f64,
    },
}

/// What is predicted of a job's step time. Times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PredictReport {
    /// Version of this report: `prism.predict/1`.
    pub schema: String,
    /// Over what the distribution is.
    pub over: String,
    /// How durations were drawn.
    pub draws: Draws,
    /// Samples drawn.
    pub samples: usize,
    /// Seed.
    pub seed: u64,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Mean step time.
    pub mean: Estimate,
    /// Standard deviation.
    pub sd: Estimate,
    /// Quantiles.
    pub quantiles: Vec<QuantileEstimate>,
    /// Step time with all noise removed.
    pub noise_free_s: f64,
    /// Probabilities of slow-down against the noise-free step.
    pub slowdowns: Vec<SlowdownEstimate>,
    /// Distribution in bins.
    pub histogram: Histogram,
    /// What the bootstrap resampled; none without.
    pub resampled: Option<ResampleUnit>,
    /// Independent units the bootstrap had.
    pub units: Option<usize>,
    /// Bootstrap repetitions.
    pub repetitions: usize,
    /// Recorded steps behind the model.
    pub steps: usize,
    /// Replicas.
    pub replicas: u32,
    /// Stages.
    pub stages: u16,
    /// Microbatches.
    pub microbatches: u32,
    /// The guarantee that was asked for.
    pub guarantee: Option<StepGuarantee>,
    /// What to be careful about.
    pub warnings: Vec<String>,
}

/// Mean, s.d. and the quantiles of sorted step times: what the bootstrap repeats.
pub(super) fn statistics(sorted: &[f64], quantiles: &[f64]) -> Vec<f64> {
    let (mean, sd) = moments(sorted);
    let mut out = vec![mean, sd];
    out.extend(quantiles.iter().map(|&p| quantile_type7(sorted, p).unwrap_or(f64::NAN)));
    out
}

fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, variance.sqrt())
}

pub(super) fn sorted(samples_s: &[f32]) -> Vec<f64> {
    let mut out: Vec<f64> = samples_s.iter().map(|&v| f64::from(v)).collect();
    out.sort_by(f64::total_cmp);
    out
}

/// Half-width of the p95's sampling interval relative to the p95.
pub(super) fn relative_half_width(samples_s: &[f32], confidence: f64) -> Result<f64, PredictError> {
    let sorted = sorted(samples_s);
    let interval = quantile_interval(&sorted, 0.95, confidence)?;
    let (Some(lower), Some(upper)) = (interval.lower, interval.upper) else {
        return Ok(f64::INFINITY);
    };
    Ok(0.5 * (upper.value - lower.value) / interval.estimate.abs())
}

/// Adds calibration error, which reaches so far below and above, to a sampling interval: in
/// quadrature.
pub fn with_calibration(value: f64, sampling: Bounds, below: f64, above: f64) -> Bounds {
    Bounds {
        lower: value - (value - sampling.lower).hypot(below),
        upper: value + (sampling.upper - value).hypot(above),
    }
}

fn total(value: f64, sampling: Bounds, reach: Option<(f64, f64)>) -> Option<Bounds> {
    let (below, above) = reach?;
    Some(with_calibration(value, sampling, below, above))
}

/// An estimate of what cannot be negative: symmetric intervals end at 0.
fn not_negative(mut estimate: Estimate) -> Estimate {
    for bounds in std::iter::once(&mut estimate.sampling).chain(&mut estimate.total) {
        bounds.lower = bounds.lower.max(0.0);
    }
    estimate
}

pub(super) fn report(
    samples_s: &[f32],
    noise_free_s: f64,
    repeated: Option<&Bootstrap>,
    graph: &StepGraph,
    model: &DurationModel,
    options: &PredictOptions,
    mut warnings: Vec<String>,
) -> Result<PredictReport, PredictError> {
    let times = sorted(samples_s);
    let n = times.len();
    let half = |k: usize| {
        let half = repeated.map(|b| b.half_width(k, options.confidence));
        half.map(|h| (h, h))
    };
    let median = quantile_type7(&times, 0.5)?;
    let tail = 0.5 * (1.0 - options.confidence);
    let (mean, sd) = moments(&times);
    let z = prism_stats::htest::normal_quantile(0.5 * (1.0 + options.confidence));
    let around = |value: f64, error: f64, k: usize| {
        let sampling = Bounds { lower: value - z * error, upper: value + z * error };
        Estimate { value, sampling, total: total(value, sampling, half(k)) }
    };
    let fourth = times.iter().map(|t| (t - mean).powi(4)).sum::<f64>() / n as f64;
    let sd_error = if sd > 0.0 {
        ((fourth - sd.powi(4)).max(0.0) / n as f64).sqrt() / (2.0 * sd)
    } else {
        0.0
    };
    let mut quantiles = Vec::new();
    for (i, &p) in options.quantiles.iter().enumerate() {
        let interval = quantile_interval(&times, p, options.confidence)?;
        let sampling = Bounds {
            lower: interval.lower.map_or(f64::NEG_INFINITY, |b| b.value),
            upper: interval.upper.map_or(f64::INFINITY, |b| b.value),
        };
        if !sampling.lower.is_finite() || !sampling.upper.is_finite() {
            warnings.push(format!("{n} samples do not bound quantile {p} on both sides"));
        }
        let excess = interval.estimate - median;
        let reach = repeated.map(|b| b.quantile_reach(i + 2, p, excess, tail));
        quantiles.push(QuantileEstimate {
            p,
            estimate: Estimate {
                value: interval.estimate,
                sampling,
                total: total(interval.estimate, sampling, reach),
            },
            penalty_s: interval.estimate - noise_free_s,
        });
    }
    let mut slowdowns = Vec::new();
    for &above in &options.slowdowns {
        let limit = noise_free_s * (1.0 + above);
        let count = n - times.partition_point(|t| *t <= limit);
        let interval = wilson(count as u64, n as u64, options.confidence)?;
        slowdowns.push(SlowdownEstimate {
            above,
            probability: count as f64 / n as f64,
            sampling: Bounds { lower: interval.lower, upper: interval.upper },
        });
    }
    Ok(PredictReport {
        schema: "prism.predict/1".to_owned(),
        over: if options.over_clusters {
            "clusters one might be given".to_owned()
        } else {
            "steps on the given cluster".to_owned()
        },
        draws: options.draws,
        samples: n,
        seed: options.seed,
        confidence: options.confidence,
        mean: around(mean, sd / (n as f64).sqrt(), 0),
        sd: not_negative(around(sd, sd_error, 1)),
        quantiles,
        noise_free_s,
        slowdowns,
        histogram: histogram(&times),
        resampled: repeated.map(|b| b.unit),
        units: repeated.map(|b| b.units),
        repetitions: repeated.map_or(0, |b| b.statistics.len()),
        steps: model.steps.len(),
        replicas: model.replicas,
        stages: graph.stages(),
        microbatches: model.microbatches,
        guarantee: None,
        warnings,
    })
}

/// What to be careful about in predictions of this model.
pub(super) fn warnings(model: &DurationModel, options: &PredictOptions) -> Vec<String> {
    let mut out = Vec::new();
    let steps = model.steps.len();
    let tail = options.quantiles.iter().copied().fold(0.0, f64::max);
    if (1.0 - tail) * (steps as f64) < 1.0 {
        out.push(format!(
            "p{} lies beyond what {steps} recorded steps show of step-level effects: its tail comes from \
             combining observed vectors",
            100.0 * tail
        ));
    }
    for regime in &model.regimes {
        let ids: Vec<String> = regime.steps.iter().take(8).map(ToString::to_string).collect();
        let more = if regime.steps.len() > 8 { ", …" } else { "" };
        let kind = match regime.kind {
            prism_model::RegimeKind::Outlier => "outlier steps",
            _ => "an early window",
        };
        out.push(format!(
            "{kind} kept at their observed frequency: steps {}{more} ({:+.1} %)",
            ids.join(", "),
            100.0 * regime.excess
        ));
    }
    out
}

/// Bins between the 0.1 % and 99.9 % quantiles.
fn histogram(sorted: &[f64]) -> Histogram {
    const BINS: usize = 40;
    let at = |p: f64| quantile_type7(sorted, p).unwrap_or(f64::NAN);
    let (from_s, to_s) = (at(0.001), at(0.999));
    let width = (to_s - from_s) / BINS as f64;
    let mut counts = vec![0; BINS];
    for t in sorted {
        let bin = if width > 0.0 { ((t - from_s) / width).max(0.0) as usize } else { 0 };
        counts[bin.min(BINS - 1)] += 1;
    }
    Histogram { from_s, to_s, counts }
}

/// An upper bound on quantile `q` of step time at the given confidence.
///
/// With enough recorded steps (`steps_s`, seconds) it is a distribution-free one-sided tolerance
/// bound (an order statistic); with fewer it is the model's quantile plus a one-sided bootstrap
/// margin, labelled as conditional on the model.
///
/// # Errors
/// [`PredictError`] if `q` or the confidence is not inside (0, 1), or the model cannot be run.
pub fn guarantee(
    graph: &StepGraph,
    model: &DurationModel,
    steps_s: &[f64],
    q: f64,
    confidence: f64,
    options: &PredictOptions,
) -> Result<StepGuarantee, PredictError> {
    let n = steps_s.len();
    match tolerance_upper(n as u64, q, confidence)? {
        Tolerance::Bound { rank, confidence } => {
            let mut sorted = steps_s.to_vec();
            sorted.sort_by(f64::total_cmp);
            let rank = rank as usize;
            Ok(StepGuarantee::Guaranteed {
                q,
                confidence,
                bound_s: sorted[rank - 1],
                steps: n,
                rank,
            })
        }
        Tolerance::NeedMore { n_needed, confidence_of_max } => {
            let bound_s = conditional_bound(graph, model, q, confidence, options)?;
            Ok(StepGuarantee::ConditionalOnModel {
                q,
                confidence,
                bound_s,
                steps: n,
                steps_needed: n_needed as usize,
                confidence_of_slowest: confidence_of_max,
            })
        }
    }
}

fn conditional_bound(
    graph: &StepGraph,
    model: &DurationModel,
    q: f64,
    confidence: f64,
    options: &PredictOptions,
) -> Result<Option<f64>, PredictError> {
    if options.repetitions < 2 {
        return Ok(None);
    }
    let lowering = super::LowerOptions { draws: options.draws, ..super::LowerOptions::default() };
    let run = crate::sample::RunOptions {
        seed: options.seed,
        samples: options.samples.max(10_000),
        threads: options.threads,
        isa: options.isa,
        ..crate::sample::RunOptions::default()
    };
    let tape = super::lower(graph, model, &lowering)?.compile()?;
    let times = sorted(tape.run(&run)?.get("step").map_or(&[], |o| o.row(0)));
    let estimate = quantile_type7(&times, q)?;
    let upper = quantile_interval(&times, q, 2.0 * confidence - 1.0)
        .ok()
        .and_then(|i| i.upper)
        .map_or(estimate, |b| b.value);
    let small = crate::sample::RunOptions { samples: options.repetition_samples, ..run };
    let repeated = super::bootstrap(graph, model, &lowering, &small, options.repetitions, |s| {
        vec![quantile_type7(s, q).unwrap_or(f64::NAN)]
    })?;
    let excess = estimate - quantile_type7(&times, 0.5)?;
    let (_, margin) = repeated.quantile_reach(0, q, excess, 1.0 - confidence);
    Ok(Some(estimate + margin.hypot(upper - estimate)))
}
