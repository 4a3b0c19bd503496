//! Variability measured on another job, for a planned one.

use std::collections::BTreeSet;

use prism_graph::StepGraph;
use prism_job::{MicrobatchSpread, Variability};
use prism_model::{DurationModel, EffectKind, OpKind};
use prism_stats::{Distribution, Law};

use crate::profile::Profile;

/// What a profile gives to a planned job.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileVariability {
    /// Spreads: the profile's where it knows them, the base's elsewhere.
    pub variability: Variability,
    /// Components taken from the profile, each with where it comes from.
    pub taken: Vec<String>,
    /// Components that the profile does not know, which stay as they were.
    pub kept: Vec<&'static str>,
    /// Kinds of operations that both jobs have.
    pub matched: Vec<OpKind>,
    /// Kinds of the planned job that the profile has never seen: their spread is the base's, or that of
    /// other operations.
    pub unmatched: Vec<OpKind>,
    /// Kinds of the profile that the planned job does not have.
    pub unused: Vec<OpKind>,
}

/// The variability of a calibrated job, over a base for what it cannot tell.
///
/// Spreads are per operation and per cell, so that the plan and scale may differ. A profile records one
/// rank of each cell, which is as slow as the slowest of its tensor-parallel GPUs: the spread between
/// single GPUs is the worker effect's over that of the maximum of as many normals.
pub fn variability_of_profile(
    profile: &Profile,
    planned: &StepGraph,
    base: &Variability,
) -> ProfileVariability {
    let model = &profile.model;
    let compute = &model.compute;
    let mut v = base.clone();
    v.preset = format!("profile of {}", profile.provenance.job.trial_name);
    let (mut taken, mut kept) = (Vec::new(), Vec::new());
    let there = |kind| model.effects.iter().any(|e| e.kind == kind && e.kept);
    let effect = |kind, sd: f64| if there(kind) { sd } else { 0.0 };
    let percent = |sd: f64| format!("{:.2} %", 100.0 * sd);

    v.step_sd = effect(EffectKind::Step, compute.step_sd_log);
    taken.push(format!("step_sd {}", percent(v.step_sd)));
    v.step_worker_sd = effect(EffectKind::StepWorker, compute.step_worker_sd_log);
    taken.push(format!("step_worker_sd {}", percent(v.step_worker_sd)));
    let sd = effect(EffectKind::Microbatch, compute.microbatch_sd_log);
    v.microbatch = MicrobatchSpread { sd, skew: if sd > 0.0 { skew(model) } else { 0.0 } };
    taken.push(format!("microbatch {} (skewness {:.2})", percent(sd), v.microbatch.skew));
    let residuals = compute.signatures.iter().map(|s| s.residual_sd_log);
    v.residual_sd = root_mean_square(residuals);
    taken.push(format!("residual_sd {}", percent(v.residual_sd)));
    if model.replicas > 1 {
        let tp = f64::from(profile.provenance.job.tp_size.max(1));
        let one = effect(EffectKind::Worker, compute.worker_sd_log) / sd_of_maximum(tp);
        v.gpu_compute_sd = one;
        taken.push(format!("gpu_compute_sd {}, {} replicas seen", percent(one), model.replicas));
    } else {
        kept.push("gpu_compute_sd: one replica shows no difference between workers");
    }
    let transfers: Vec<f64> = model.transfers.iter().filter_map(|t| log_sd(&t.rows_s)).collect();
    if transfers.is_empty() {
        kept.push("transfer_sd: no point-to-point transfers were recorded");
    } else {
        v.transfer_sd = root_mean_square(transfers.into_iter());
        taken.push(format!("transfer_sd {}", percent(v.transfer_sd)));
    }
    match log_sd(&model.congestion) {
        Some(sd) if there(EffectKind::Congestion) => {
            v.congestion_sd = sd;
            taken.push(format!("congestion_sd {}", percent(sd)));
        }
        _ => v.congestion_sd = 0.0,
    }
    kept.extend(["gpu_memory_sd", "laggards", "bursts", "expert_imbalance_sd", "diurnal", "hang"]);
    kept.push("overhead_sd_s");
    let kinds = |graph: &StepGraph| -> BTreeSet<OpKind> {
        graph.ops().iter().map(|op| op.kind).filter(|k| OpKind::TIMED.contains(k)).collect()
    };
    let recorded: BTreeSet<OpKind> = profile.step_graph().map(|g| kinds(&g)).unwrap_or_default();
    let wanted = kinds(planned);
    ProfileVariability {
        variability: v,
        taken,
        kept,
        matched: wanted.intersection(&recorded).copied().collect(),
        unmatched: wanted.difference(&recorded).copied().collect(),
        unused: recorded.difference(&wanted).copied().collect(),
    }
}

fn root_mean_square(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0.0_f64);
    for v in values {
        sum += v * v;
        n += 1.0;
    }
    (sum / n.max(1.0)).sqrt()
}

/// S.d. of the logarithms of positive values; none of fewer than two.
fn log_sd(values: &[f32]) -> Option<f64> {
    let logs: Vec<f64> = values.iter().filter(|v| **v > 0.0).map(|v| f64::from(*v).ln()).collect();
    let n = logs.len() as f64;
    if n < 2.0 {
        return None;
    }
    let mean = logs.iter().sum::<f64>() / n;
    Some((logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
}

/// Skewness of the microbatch effect, averaged over signatures to leave the residual out; within ±3.
fn skew(model: &DurationModel) -> f64 {
    let n = model.compute.signatures.len().max(1);
    let rows: Vec<f64> = model
        .compute
        .microbatch_vectors_log
        .chunks(n)
        .map(|row| row.iter().map(|v| f64::from(*v)).sum::<f64>() / row.len().max(1) as f64)
        .collect();
    let count = rows.len().max(1) as f64;
    let mean = rows.iter().sum::<f64>() / count;
    let moment = |k: i32| rows.iter().map(|r| (r - mean).powi(k)).sum::<f64>() / count;
    let (second, third) = (moment(2), moment(3));
    if second > 0.0 { (third / second.powf(1.5)).clamp(-3.0, 3.0) } else { 0.0 }
}

/// S.d. of the largest of n standard normals, by 20,000 equally likely values.
fn sd_of_maximum(n: f64) -> f64 {
    let Ok(normal) = Law::normal(0.0, 1.0) else { return 1.0 };
    let points = 20_000;
    let at = |i: i32| {
        let u = (f64::from(i) + 0.5) / f64::from(points);
        normal.quantile_upper(-(u.ln() / n).exp_m1())
    };
    let mean = (0..points).map(at).sum::<f64>() / f64::from(points);
    let variance = (0..points).map(|i| (at(i) - mean).powi(2)).sum::<f64>() / f64::from(points);
    variance.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Harter 1961: variances of the largest of 1, 2 and 8 normals are 1, 0.68169 and 0.37290.
    #[test]
    fn the_largest_of_normals_spreads_less() {
        for (n, variance) in [(1.0, 1.0), (2.0, 0.681_69), (8.0, 0.372_90)] {
            let sd = sd_of_maximum(n);
            assert!((sd * sd / variance - 1.0).abs() < 2e-3, "{n}: {}", sd * sd);
        }
    }
}
