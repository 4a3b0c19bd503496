//! The compute part of the model: estimates, decisions, and the arrays that draws use.

use prism_model::{ComputeModel, ComputeSignature, Effect, EffectKind};

use super::cube::Cube;
use super::effects::Estimates;
use super::shrink::{Keep, step_vectors};

/// Most microbatch rows kept; beyond, every k-th row is.
const MAX_ROWS: usize = 20_000;

/// Which effects the compute model has; decided once, and kept in bootstrap repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // one flag an effect
pub struct Kept {
    /// Position effect.
    pub position: bool,
    /// Worker effect.
    pub worker: bool,
    /// Step effect.
    pub step: bool,
    /// Step x worker effect.
    pub step_worker: bool,
    /// Step x worker effect that lasts for a window of steps.
    pub window: bool,
    /// Microbatch effect.
    pub microbatch: bool,
    /// Different spreads.
    pub worker_spread: bool,
}

impl Kept {
    pub(super) fn of(effects: &[Effect]) -> Kept {
        let has = |kind| effects.iter().any(|e| e.kind == kind && e.kept);
        Kept {
            position: has(EffectKind::Position),
            worker: has(EffectKind::Worker),
            step: has(EffectKind::Step),
            step_worker: has(EffectKind::StepWorker),
            window: has(EffectKind::Window),
            microbatch: has(EffectKind::Microbatch),
            worker_spread: has(EffectKind::WorkerSpread),
        }
    }
}

/// Estimates, tests and assembles the compute model. With `kept`, the decisions are taken from it
/// and nothing is tested.
pub(super) fn compute_model(
    cube: Cube,
    windows: &[u32],
    alpha: f64,
    kept: Option<Kept>,
) -> (ComputeModel, Vec<Effect>) {
    let observations_log_s = cube.values().iter().map(|&v| v as f32).collect();
    let e = Estimates::of(cube);
    let (spread_effect, spread) = e.worker_spread(alpha);
    let (microbatch_effect, loading, unique) = e.microbatch_effect(alpha);
    let mut effects = vec![
        e.worker_effect(alpha),
        e.position_effect(alpha),
        e.step_effect(alpha),
        e.step_worker_effect(alpha),
        e.window_effect(windows, alpha),
        microbatch_effect,
        spread_effect,
    ];
    let keep = kept.unwrap_or_else(|| Kept::of(&effects));
    let residual = unique.iter().sum::<f64>() / unique.len().max(1) as f64;
    effects.push(Effect {
        kind: EffectKind::Residual,
        sd_log: residual.max(0.0).sqrt(),
        test: None,
        kept: residual > 0.0,
        reason: "what the other effects leave".to_owned(),
    });
    let sd = |kind| effects.iter().find(|e| e.kind == kind).map_or(0.0, |e| e.sd_log);
    let microbatch_sd = if keep.microbatch { sd(EffectKind::Microbatch) } else { 0.0 };
    let (vectors, _) = step_vectors(
        &e.levels(),
        windows,
        Keep { step: keep.step, step_worker: keep.step_worker, window: keep.window },
    );
    let model = ComputeModel {
        signatures: signatures(&e, keep, &loading, &unique, microbatch_sd),
        position_log: if keep.position {
            e.position.iter().flatten().map(|&p| p as f32).collect()
        } else {
            Vec::new()
        },
        worker_log: if keep.worker {
            e.worker.iter().flatten().copied().collect()
        } else {
            Vec::new()
        },
        worker_spread: if keep.worker_spread {
            spread.iter().flatten().copied().collect()
        } else {
            Vec::new()
        },
        step_vectors_log: if keep.step || keep.step_worker || keep.window {
            vectors
        } else {
            Vec::new()
        },
        observations_log_s,
        microbatch_vectors_log: inner_rows(&e, keep, &spread),
        microbatch_shared: keep.microbatch,
        step_sd_log: if keep.step { sd(EffectKind::Step) } else { 0.0 },
        step_worker_sd_log: if keep.step_worker { sd(EffectKind::StepWorker) } else { 0.0 },
        microbatch_sd_log: microbatch_sd,
        worker_sd_log: if keep.worker { sd(EffectKind::Worker) } else { 0.0 },
        ..ComputeModel::default()
    };
    (model, effects)
}

fn signatures(
    e: &Estimates,
    keep: Kept,
    loading: &[f64],
    unique: &[f64],
    microbatch_sd: f64,
) -> Vec<ComputeSignature> {
    let step_load = step_loads(e);
    (0..e.inner.len())
        .map(|c| {
            let shared = keep.microbatch && microbatch_sd > 0.0;
            ComputeSignature {
                signature: e.inner.signatures[c],
                ops: e.inner.ops[c].iter().map(|id| id.0).collect(),
                positions: Vec::new(),
                base_log_s: e.base[c],
                microbatch_load: if shared { loading[c] / microbatch_sd } else { 1.0 },
                step_load: step_load[c],
                microbatch_sd_log: if shared { loading[c] } else { 0.0 },
                residual_sd_log: if shared { unique[c] } else { e.inner_variance[c] }
                    .max(0.0)
                    .sqrt(),
                residual_law: None,
            }
        })
        .collect()
}

/// S.d. of each class's step means relative to the average class, by signature.
fn step_loads(e: &Estimates) -> Vec<f64> {
    let mut out = vec![1.0; e.inner.len()];
    let classes = e.classes();
    let sd: Vec<f64> = classes
        .iter()
        .map(|(_, class)| {
            let a = e.cell_mean(class);
            let steps: Vec<f64> = a.chunks(e.inner.replicas).map(super::effects::mean).collect();
            super::effects::variance(&steps).sqrt()
        })
        .collect();
    let average = sd.iter().sum::<f64>() / sd.len().max(1) as f64;
    if average > 0.0 {
        for ((_, class), s) in classes.iter().zip(&sd) {
            for &c in class {
                out[c] = s / average;
            }
        }
    }
    out
}

/// Of this many microbatch rows, every how-manieth is kept.
pub(super) fn row_stride(rows: usize) -> usize {
    rows.div_ceil(MAX_ROWS).max(1)
}

/// What varies inside cells, one row a (step, replica, microbatch), `[row][c]`, scaled to its
/// unbiased variance and divided by the replica's spread.
fn inner_rows(e: &Estimates, keep: Kept, spread: &[Vec<f64>]) -> Vec<f32> {
    let (m, t, r) = (e.inner.microbatches, e.inner.steps, e.inner.replicas);
    if m < 2 {
        return Vec::new();
    }
    let rows = m * t * r;
    // Removing cell and position means took (m − 1)(tr − 1) of m·tr degrees of freedom's worth.
    let position =
        if keep.position { (t * r) as f64 / ((t * r) as f64 - 1.0).max(1.0) } else { 1.0 };
    let unbias = (m as f64 / (m as f64 - 1.0) * position).sqrt();
    let n = e.inner.len();
    let value = |row: usize, c: usize| {
        let factor = if keep.worker_spread { spread[c][row % r] } else { 1.0 };
        let position = if keep.position { 0.0 } else { e.position[c][row / (t * r)] };
        let value = e.inner.signature(c)[row] * unbias + position;
        if factor > 0.0 { value / factor } else { 0.0 }
    };
    let stride = row_stride(rows);
    let mut out = vec![0.0; rows.div_ceil(stride) * n];
    for c in 0..n {
        // Of many rows some are kept; they get the mean and the variance of all.
        let (mut scale, mut shift) = (1.0, 0.0);
        if stride > 1 {
            let all = moments((0..rows).map(|row| value(row, c)));
            let some = moments((0..rows).step_by(stride).map(|row| value(row, c)));
            scale = if some.1 > 0.0 { (all.1 / some.1).sqrt() } else { 1.0 };
            shift = all.0 - scale * some.0;
        }
        for (i, row) in (0..rows).step_by(stride).enumerate() {
            out[i * n + c] = (scale * value(row, c) + shift) as f32;
        }
    }
    out
}

/// Mean and variance.
fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (sum, n) = values.clone().fold((0.0, 0.0), |(s, n), v| (s + v, n + 1.0));
    let mean = sum / n;
    (mean, values.map(|v| (v - mean) * (v - mean)).sum::<f64>() / n)
}
