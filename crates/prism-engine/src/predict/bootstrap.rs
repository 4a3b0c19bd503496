//! Calibration error: how much the answer moves with the steps that happened to be observed.

use prism_graph::StepGraph;
use prism_model::DurationModel;
use prism_stats::{htest, resample};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{LowerOptions, PredictError, lower};
use crate::calibrate::Resampler;
use crate::sample::{RunOptions, Tape};

/// What is resampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResampleUnit {
    /// Single steps.
    Step,
    /// Windows of nearby steps, since their means differ.
    Window,
    /// Runs of consecutive steps, since neighbours resemble each other.
    Block,
}

/// Bootstrap repetitions of a set of statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct Bootstrap {
    /// What was resampled.
    pub unit: ResampleUnit,
    /// Independent units observed.
    pub units: usize,
    /// Statistics, `[repetition][statistic]`.
    pub statistics: Vec<Vec<f64>>,
}

impl Bootstrap {
    /// Standard error of statistic `k`, corrected for the number of units.
    pub fn standard_error(&self, k: usize) -> f64 {
        let values: Vec<f64> = self.statistics.iter().map(|s| s[k]).collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        let units = self.units as f64;
        (variance * units / (units - 1.0).max(1.0)).sqrt()
    }

    /// Half-width of a two-sided interval for statistic `k`: Student's t with one degree of freedom
    /// less than there are units.
    pub fn half_width(&self, k: usize, confidence: f64) -> f64 {
        let freedom = (self.units as f64 - 1.0).max(1.0);
        htest::t_quantile_upper(0.5 * (1.0 - confidence), freedom) * self.standard_error(k)
    }

    /// Reaches below and above statistic `k`, a quantile of probability `p` that lies `excess` from
    /// the median (negative below it), of an interval that leaves out `tail` on either side.
    ///
    /// Few units tell how far a tail quantile scatters: of n units `4p(1 − p)·n` are worth counting,
    /// which is n at the median and a fifth of it at p95. And where the tail was not seen, quantile
    /// and standard error are both too small: the outer reach is longer by half the error relative
    /// to the excess, the second-order term of an interval in log(excess).
    pub fn quantile_reach(&self, k: usize, p: f64, excess: f64, tail: f64) -> (f64, f64) {
        let units = self.units as f64;
        let most = (units - 1.0).max(1.0);
        let freedom = (4.0 * p * (1.0 - p) * units - 1.0).clamp(most.min(3.0), most);
        let half = htest::t_quantile_upper(tail, freedom) * self.standard_error(k);
        let relative = if excess == 0.0 { 0.0 } else { (half / excess.abs()).min(1.0) };
        let outer = half * (1.0 + 0.5 * relative);
        if excess < 0.0 { (outer, half) } else { (half, outer) }
    }
}

/// Labels of the units that are resampled, one a step, and what they are.
///
/// Windows if their means of the step effect differ (F test at 5 %); else blocks of n^⅓ steps if
/// adjacent steps are correlated (at 5 %, on adjacent step ids only); else single steps.
pub fn resample_units(model: &DurationModel) -> (ResampleUnit, Vec<u64>) {
    units_of(&step_means(model), &model.steps, &model.windows)
}

/// As [`resample_units`], for any one value a step: `effect`, step ids and windows `[t]`.
pub fn units_of(effect: &[f64], steps: &[i64], windows: &[u32]) -> (ResampleUnit, Vec<u64>) {
    let n = effect.len();
    let windows: Vec<u64> = windows.iter().map(|&w| u64::from(w)).collect();
    let count = windows.last().map_or(1, |w| *w as usize + 1);
    if count > 1 && n > count && windows_differ(effect, &windows, count) {
        return (ResampleUnit::Window, windows);
    }
    let pairs: Vec<(f64, f64)> = (1..n)
        .filter(|&t| steps[t] == steps[t - 1] + 1)
        .map(|t| (effect[t - 1], effect[t]))
        .collect();
    if pairs.len() >= 10 && correlated(&pairs) {
        let length = (n as f64).cbrt().ceil() as usize;
        let labels = (0..n).map(|t| (t / length) as u64).collect();
        return (ResampleUnit::Block, labels);
    }
    (ResampleUnit::Step, (0..n as u64).collect())
}

/// Mean log duration of each observed step over signatures, microbatches and replicas.
fn step_means(model: &DurationModel) -> Vec<f64> {
    let (steps, replicas) = (model.steps.len(), model.replicas as usize);
    let mut out = vec![0.0; steps];
    for (i, v) in model.compute.observations_log_s.iter().enumerate() {
        out[i / replicas % steps] += f64::from(*v);
    }
    let per = (model.compute.observations_log_s.len() / steps.max(1)).max(1) as f64;
    out.iter().map(|v| v / per).collect()
}

fn windows_differ(effect: &[f64], windows: &[u64], count: usize) -> bool {
    let n = effect.len() as f64;
    let grand = effect.iter().sum::<f64>() / n;
    let (mut sum, mut size) = (vec![0.0; count], vec![0.0; count]);
    for (v, &w) in effect.iter().zip(windows) {
        sum[w as usize] += v;
        size[w as usize] += 1.0;
    }
    let mean = |w: usize| sum[w] / size[w];
    let between: f64 = (0..count).map(|w| size[w] * (mean(w) - grand).powi(2)).sum();
    let within: f64 =
        effect.iter().zip(windows).map(|(v, &w)| (v - mean(w as usize)).powi(2)).sum();
    let (df1, df2) = (count as f64 - 1.0, n - count as f64);
    within > 0.0 && htest::f_sf(between / df1 / (within / df2), df1, df2) < 0.05
}

fn correlated(pairs: &[(f64, f64)]) -> bool {
    let n = pairs.len() as f64;
    let (mx, my) = pairs.iter().fold((0.0, 0.0), |(a, b), p| (a + p.0 / n, b + p.1 / n));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        xx += (x - mx) * (x - mx);
        yy += (y - my) * (y - my);
        xy += (x - mx) * (y - my);
    }
    xx > 0.0 && yy > 0.0 && xy / (xx * yy).sqrt() * n.sqrt() > 1.645
}

/// Models that other recorded steps could have given: each estimated on resampled steps.
#[derive(Clone, Debug)]
pub struct Repetitions<'a> {
    model: &'a DurationModel,
    seed: u64,
    /// What is resampled.
    pub unit: ResampleUnit,
    units: resample::Windows,
    resampler: Resampler<'a>,
}

impl<'a> Repetitions<'a> {
    /// Prepares the resampling of a model's steps.
    ///
    /// # Errors
    /// [`PredictError::NotEstimated`] if the model holds no observations.
    pub fn new(model: &'a DurationModel, seed: u64) -> Result<Repetitions<'a>, PredictError> {
        if model.compute.observations_log_s.is_empty() {
            return Err(PredictError::NotEstimated);
        }
        let (unit, labels) = resample_units(model);
        let units = resample::Windows::from_labels(&labels);
        Ok(Repetitions { model, seed, unit, units, resampler: Resampler::new(model) })
    }

    /// Independent units there are.
    pub fn units(&self) -> usize {
        self.units.len()
    }

    /// The model of one repetition.
    pub fn model(&self, repetition: usize) -> DurationModel {
        let rows = self.units.bootstrap(self.seed, repetition as u64);
        let windows = relabel(&rows, &self.model.windows);
        self.resampler.repeat(&rows, &windows)
    }
}

/// Re-estimates the model on resampled steps `repetitions` times and applies `statistics` to the
/// sorted step times of each, in seconds. All repetitions use the same random numbers, so that they
/// differ by calibration only.
///
/// # Errors
/// [`PredictError`] if a repetition cannot be lowered or run.
pub fn bootstrap(
    graph: &StepGraph,
    model: &DurationModel,
    options: &LowerOptions,
    run: &RunOptions,
    repetitions: usize,
    statistics: impl Fn(&[f64]) -> Vec<f64> + Sync,
) -> Result<Bootstrap, PredictError> {
    let same = |model: DurationModel, _| Ok(model);
    bootstrap_as(graph, model, same, options, run, repetitions, statistics)
}

/// As [`bootstrap`], of another job: `other` makes its model, on `graph`, of a model re-estimated
/// from the recorded one's steps in a repetition.
pub(crate) fn bootstrap_as(
    graph: &StepGraph,
    model: &DurationModel,
    other: impl Fn(DurationModel, usize) -> Result<DurationModel, PredictError> + Sync,
    options: &LowerOptions,
    run: &RunOptions,
    repetitions: usize,
    statistics: impl Fn(&[f64]) -> Vec<f64> + Sync,
) -> Result<Bootstrap, PredictError> {
    let fresh = Repetitions::new(model, run.seed)?;
    // A repetition has other numbers in the same program: one is compiled, the others are bound.
    let first = other(model.clone(), 0)?;
    let compiled = lower(graph, &first, options)?.compile()?;
    let one = |tape: &mut Tape, repetition: usize| -> Result<Vec<f64>, PredictError> {
        let fresh = other(fresh.model(repetition), repetition)?;
        if !tape.rebind(lower(graph, &fresh, options)?)? {
            *tape = lower(graph, &fresh, options)?.compile()?;
        }
        let samples = tape.run(&RunOptions { threads: 1, ..*run })?;
        let mut times: Vec<f64> = samples
            .get("step")
            .map_or(&[][..], |o| o.row(0))
            .iter()
            .map(|&v| f64::from(v))
            .collect();
        times.sort_by(f64::total_cmp);
        Ok(statistics(&times))
    };
    let all: Result<Vec<_>, _> = if run.threads == 1 {
        let mut tape = compiled.clone();
        (0..repetitions).map(|k| one(&mut tape, k)).collect()
    } else {
        (0..repetitions).into_par_iter().map_init(|| compiled.clone(), one).collect()
    };
    Ok(Bootstrap { unit: fresh.unit, units: fresh.units(), statistics: all? })
}

/// Window labels of resampled rows, numbered in order of appearance; rows are kept in order.
pub fn relabel(rows: &[usize], windows: &[u32]) -> Vec<u32> {
    let mut seen: Vec<u32> = Vec::new();
    rows.iter()
        .map(|&t| {
            let w = windows[t];
            let at = seen.iter().position(|s| *s == w).unwrap_or_else(|| {
                seen.push(w);
                seen.len() - 1
            });
            at as u32
        })
        .collect()
}
