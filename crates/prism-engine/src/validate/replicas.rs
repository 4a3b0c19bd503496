//! Leave one replica out: a replica's own finish time from the others.

use prism_stats::htest::t_quantile_upper;
use prism_stats::robust;
use serde::{Deserialize, Serialize};

use super::score::moments;
use super::{ValidateError, ValidateOptions};
use crate::calibrate::{CalibrateOptions, Selection, calibrate};
use crate::predict::{LowerOptions, Probes, lower};
use crate::replay::Replayed;
use crate::sample::RunOptions;

/// One replica, predicted from the others: when its last microbatch compute ends, before it waits
/// for other replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReplicaScore {
    /// The replica left out.
    pub replica: u32,
    /// Whether some worker of it is so far from the others' that it is not one of their population;
    /// such replicas also do not train predictions of others.
    pub outlier: bool,
    /// Replicas that trained the prediction.
    pub trained_on: Vec<u32>,
    /// Its recorded mean finish, seconds.
    pub recorded_mean_s: f64,
    /// Predicted mean finish, seconds.
    pub predicted_mean_s: f64,
    /// Error of the mean, percent.
    pub mean_error_percent: f64,
    /// 95 % prediction interval for the mean of a new replica, from the spread between the training
    /// replicas (Student's t); none with a single one.
    pub over_clusters_s: Option<(f64, f64)>,
    /// Whether the recorded mean lies inside.
    pub inside: Option<bool>,
    /// Predicted over recorded s.d. over steps.
    pub sd_ratio: f64,
}

/// Replicas with a worker whose mean log compute time is further from the median over replicas than
/// both 5 % and 6 scaled MADs, in some signature.
fn outliers(replayed: &Replayed) -> Vec<bool> {
    let (graph, observed) = (&replayed.graph, &replayed.observed);
    let replicas = observed.replicas() as usize;
    let mut sums: std::collections::BTreeMap<prism_model::Signature, Vec<f64>> =
        std::collections::BTreeMap::new();
    let mut counts = sums.clone();
    for (id, op) in graph.iter().filter(|(_, op)| op.kind.is_microbatch_compute()) {
        let lane = observed.duration(id).unwrap_or_default();
        let sum = sums.entry(op.signature()).or_insert_with(|| vec![0.0; replicas]);
        let count = counts.entry(op.signature()).or_insert_with(|| vec![0.0; replicas]);
        for (i, d) in lane.iter().enumerate() {
            sum[i % replicas] += d.ln();
            count[i % replicas] += 1.0;
        }
    }
    let mut out = vec![false; replicas];
    for (signature, sum) in &sums {
        let means: Vec<f64> = sum.iter().zip(&counts[signature]).map(|(s, n)| s / n).collect();
        let (Ok(centre), Ok(mad)) = (robust::median(&means), robust::mad(&means)) else { continue };
        let limit = (6.0 * robust::MAD_TO_SD * mad).max(0.05);
        for (flag, mean) in out.iter_mut().zip(&means) {
            *flag |= (mean - centre).abs() > limit;
        }
    }
    out
}

/// Predicts every replica from the others. Empty with fewer than two replicas.
pub(super) fn leave_one_out(
    replayed: &Replayed,
    steps: &[usize],
    options: &ValidateOptions,
) -> Result<Vec<ReplicaScore>, ValidateError> {
    let replicas = replayed.observed.replicas() as usize;
    let outlier = outliers(replayed);
    let finish = recorded_finish(replayed);
    let mut out = Vec::new();
    for left_out in 0..replicas {
        let train: Vec<usize> = (0..replicas).filter(|&r| r != left_out && !outlier[r]).collect();
        if train.is_empty() {
            continue;
        }
        let selection =
            Selection { steps: steps.to_vec(), replicas: train.clone(), all_replicas: replicas };
        let finish_s: Vec<f64> = steps.iter().map(|&t| finish[t * replicas + left_out]).collect();
        out.push(one(replayed, &selection, left_out, outlier[left_out], &finish_s, options)?);
    }
    Ok(out)
}

fn one(
    replayed: &Replayed,
    selection: &Selection,
    left_out: usize,
    outlier: bool,
    finish_s: &[f64],
    options: &ValidateOptions,
) -> Result<ReplicaScore, ValidateError> {
    let calibration = CalibrateOptions { laws: false, alpha: options.alpha };
    let trained = calibrate(replayed, selection, &calibration)?;
    let lowering = LowerOptions {
        probes: Probes { compute_finish: true, ..Probes::default() },
        ..LowerOptions::default()
    };
    let tape = lower(&trained.graph, &trained.model, &lowering)?.compile()?;
    let run = RunOptions {
        seed: options.seed,
        samples: options.samples,
        threads: options.threads,
        ..RunOptions::default()
    };
    let samples = tape.run(&run)?;
    let rows: Vec<(f64, f64)> = samples
        .get("compute-finish")
        .map(|o| {
            (0..o.rows())
                .map(|r| moments(&o.row(r).iter().map(|&v| f64::from(v)).collect::<Vec<_>>()))
                .collect()
        })
        .unwrap_or_default();
    let n = rows.len() as f64;
    let (predicted_mean_s, between) = moments(&rows.iter().map(|r| r.0).collect::<Vec<_>>());
    let over_clusters_s = (rows.len() > 1).then(|| {
        let half = t_quantile_upper(0.025, n - 1.0) * between * (1.0 + 1.0 / n).sqrt();
        (predicted_mean_s - half, predicted_mean_s + half)
    });
    let (recorded_mean_s, recorded_sd) = moments(finish_s);
    let predicted_sd = (rows.iter().map(|r| r.1 * r.1).sum::<f64>() / n).sqrt();
    Ok(ReplicaScore {
        replica: left_out as u32,
        outlier,
        trained_on: selection.replicas.iter().map(|&r| r as u32).collect(),
        recorded_mean_s,
        predicted_mean_s,
        mean_error_percent: 100.0 * (predicted_mean_s / recorded_mean_s - 1.0),
        over_clusters_s,
        inside: over_clusters_s.map(|(l, u)| l <= recorded_mean_s && recorded_mean_s <= u),
        sd_ratio: predicted_sd / recorded_sd,
    })
}

/// End of each replica's last microbatch compute, `[step][replica]`, seconds.
fn recorded_finish(replayed: &Replayed) -> Vec<f64> {
    let mut out = vec![f64::NEG_INFINITY; replayed.observed.samples()];
    for (id, _) in replayed.graph.iter().filter(|(_, op)| op.kind.is_microbatch_compute()) {
        for (o, &e) in out.iter_mut().zip(replayed.observed.end(id).unwrap_or_default()) {
            *o = e.max(*o);
        }
    }
    out
}
