//! Effects of a model, apart: what observed vectors hold together is split into its parts.

use prism_model::ComputeModel;

/// Step effect and step x worker effect: `step_vectors_log[c][r][t] = load(c)·step(t) + rest`.
///
/// The step effect is the least-squares fit over signatures and replicas, scaled so that its variance
/// is the calibrated one; the rest (step x worker, and window effects) is what remains, so that both
/// add up exactly.
pub(crate) fn step_parts(compute: &ComputeModel, replicas: usize, steps: usize) -> Vec<f64> {
    let mut step = vec![0.0; steps];
    if compute.step_vectors_log.is_empty() || compute.step_sd_log <= 0.0 {
        return step;
    }
    let mut weight = 0.0;
    for (c, signature) in compute.signatures.iter().enumerate() {
        weight += signature.step_load * signature.step_load * replicas as f64;
        let lanes = &compute.step_vectors_log[c * replicas * steps..][..replicas * steps];
        for (i, v) in lanes.iter().enumerate() {
            step[i % steps] += signature.step_load * f64::from(*v);
        }
    }
    if weight <= 0.0 {
        return vec![0.0; steps];
    }
    for s in &mut step {
        *s /= weight;
    }
    // Without a step x worker effect the vectors are the step effect alone.
    if compute.step_worker_sd_log > 0.0 {
        let shrink = (compute.step_sd_log / sd(&step)).min(1.0);
        for s in &mut step {
            *s *= shrink;
        }
    }
    step
}

/// Microbatch effect of each row: `microbatch_vectors_log[row][c] = load(c)·microbatch(row) + rest`.
///
/// As [`step_parts`]: least squares over signatures, scaled to the calibrated variance.
pub(crate) fn microbatch_part(compute: &ComputeModel) -> Vec<f64> {
    let n = compute.signatures.len().max(1);
    let rows = compute.microbatch_vectors_log.chunks_exact(n);
    if !compute.microbatch_shared {
        return vec![0.0; rows.len()];
    }
    let weight: f64 = compute.signatures.iter().map(|s| s.microbatch_load.powi(2)).sum();
    if weight <= 0.0 {
        return vec![0.0; rows.len()];
    }
    let mut effect: Vec<f64> = rows
        .map(|row| {
            let parts = compute.signatures.iter().zip(row);
            parts.map(|(s, v)| s.microbatch_load * f64::from(*v)).sum::<f64>() / weight
        })
        .collect();
    let residual: f64 = compute.signatures.iter().map(|s| s.residual_sd_log.powi(2)).sum();
    if residual > 0.0 {
        let shrink = (compute.microbatch_sd_log / sd(&effect)).min(1.0);
        for e in &mut effect {
            *e *= shrink;
        }
    }
    effect
}

/// Root mean square; effects are centred. At least the smallest positive number.
fn sd(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().map(|v| v * v).sum();
    (sum / values.len().max(1) as f64).sqrt().max(f64::MIN_POSITIVE)
}

/// Logarithm of the mean of exponentials; 0 of nothing.
pub(crate) fn log_mean_exp(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0_usize);
    for v in values {
        sum += v.exp();
        n += 1;
    }
    if n == 0 { 0.0 } else { (sum / n as f64).ln() }
}
