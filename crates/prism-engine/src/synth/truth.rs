//! What was drawn.

use std::collections::BTreeMap;

use prism_model::{EffectKind, Signature};
use serde::{Deserialize, Serialize};

use super::draw::{Effects, Plan};

/// The effects behind a synthetic record, in log time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SynthTruth {
    /// Realised standard deviation of each effect that is there: of the drawn values less their
    /// means over each index (the part that a record can show), averaged over signatures as
    /// [`prism_model::Effect::sd_log`] is.
    pub realised_sd_log: BTreeMap<EffectKind, f64>,
    /// Signatures of compute, ascending.
    pub signatures: Vec<Signature>,
    /// Worker effect, a slow worker included, `[stage][replica]`.
    pub worker_log: Vec<Vec<f64>>,
    /// Factor on microbatch and residual effects, `[stage][replica]`.
    pub worker_spread: Vec<Vec<f64>>,
    /// Position effect, `[signature][microbatch]`.
    pub position_log: Vec<Vec<f64>>,
    /// Step effect at load 1, outliers and windows included, `[step]`.
    pub step_log: Vec<f64>,
    /// Congestion, `[step]`.
    pub congestion_log: Vec<f64>,
    /// Ids of outlier steps.
    pub outlier_steps: Vec<i64>,
}

impl SynthTruth {
    pub(super) fn new(plan: &Plan, steps: &[i64], effects: &Effects) -> SynthTruth {
        let replicas = plan.worker.first().map_or(1, Vec::len);
        let cells = steps.len() * replicas;
        let loads = |f: fn(&super::draw::ComputePlan) -> f64| plan.compute.iter().map(f);
        let n = plan.compute.len().max(1) as f64;
        let step_load = (loads(|c| c.step_load * c.step_load).sum::<f64>() / n).sqrt();
        let microbatch_load = loads(|c| c.microbatch_load).sum::<f64>() / n;
        let residual = effects.residual_squares.iter().sum::<f64>()
            / (n * (cells * effects.microbatch.len()).max(1) as f64);
        let realised = [
            (EffectKind::Worker, rms(plan.worker.iter().map(|w| variance(w)))),
            (EffectKind::Position, rms(plan.position.iter().map(|p| variance(p)))),
            (EffectKind::Step, step_load * variance(&effects.step).sqrt()),
            (
                EffectKind::StepWorker,
                rms(effects.step_worker.iter().map(|s| interaction(s, replicas))),
            ),
            (EffectKind::Microbatch, microbatch_load * within_cells(&effects.microbatch)),
            (EffectKind::Residual, residual.sqrt()),
            (EffectKind::Congestion, variance(&effects.congestion).sqrt()),
            (EffectKind::WorkerSpread, rms(plan.spread.iter().map(|s| relative_spread(s)))),
        ];
        SynthTruth {
            realised_sd_log: realised.into_iter().filter(|(_, sd)| *sd > 1e-12).collect(),
            signatures: plan.compute.iter().map(|c| c.signature).collect(),
            worker_log: plan.worker.clone(),
            worker_spread: plan.spread.clone(),
            position_log: plan.position.clone(),
            step_log: effects.step.clone(),
            congestion_log: effects.congestion.clone(),
            outlier_steps: steps
                .iter()
                .zip(&effects.outliers)
                .filter(|(_, o)| **o)
                .map(|(s, _)| *s)
                .collect(),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn variance(values: &[f64]) -> f64 {
    let m = mean(values);
    values.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (values.len() as f64 - 1.0).max(1.0)
}

/// Root mean of squares given as squares.
fn rms(squares: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = squares.fold((0.0, 0.0), |(s, n), v| (s + v, n + 1.0));
    if n > 0.0 { (sum / n).sqrt() } else { 0.0 }
}

/// Variance of a `[t][r]` array less its row and column means.
fn interaction(values: &[f64], replicas: usize) -> f64 {
    let steps = values.len() / replicas.max(1);
    let rows: Vec<f64> = values.chunks(replicas).map(mean).collect();
    let columns: Vec<f64> = (0..replicas)
        .map(|r| values.iter().skip(r).step_by(replicas).sum::<f64>() / steps.max(1) as f64)
        .collect();
    let grand = mean(values);
    let squares: f64 = values
        .iter()
        .enumerate()
        .map(|(i, v)| (v - rows[i / replicas] - columns[i % replicas] + grand).powi(2))
        .sum();
    squares / ((steps as f64 - 1.0) * (replicas as f64 - 1.0)).max(1.0)
}

/// S.d. of an `[m][t][r]` array less the means of its (t, r) cells and of its positions m.
fn within_cells(values: &[Vec<f64>]) -> f64 {
    let (m, cells) = (values.len(), values.first().map_or(0, Vec::len));
    let positions: Vec<f64> = values.iter().map(|row| mean(row)).collect();
    let grand = mean(&positions);
    let squares: f64 = (0..cells)
        .map(|i| {
            let cell = values.iter().map(|row| row[i]).sum::<f64>() / m as f64;
            let rest = |(row, p): (&Vec<f64>, &f64)| (row[i] - cell - p + grand).powi(2);
            values.iter().zip(&positions).map(rest).sum::<f64>()
        })
        .sum();
    (squares / ((m as f64 - 1.0) * (cells as f64 - 1.0)).max(1.0)).sqrt()
}

/// Mean square of the spreads' deviation from their root mean square, relative to it.
fn relative_spread(spread: &[f64]) -> f64 {
    let typical = rms(spread.iter().map(|s| s * s));
    spread.iter().map(|s| (s / typical - 1.0).powi(2)).sum::<f64>() / spread.len().max(1) as f64
}
