//! Parts that no fit to step totals could know.

use prism_graph::{OpId, StepGraph};
use prism_model::KernelClass;
use serde::{Deserialize, Serialize};

use super::score::{median, moments};
use crate::predict::wait_name;
use crate::replay::Replayed;
use crate::sample::Samples;

/// Total compute of one stage, or waiting of one collective: predicted against held-out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PartScore {
    /// `compute@STAGE` or `wait:KIND[SEQ]@STAGE`.
    pub part: String,
    /// Held-out mean over steps and replicas, seconds.
    pub held_out_mean_s: f64,
    /// Predicted mean, seconds.
    pub predicted_mean_s: f64,
    /// Mean absolute error of a replica's mean, percent of the mean step time.
    pub error_percent_of_step: f64,
    /// The same in units of the replica's held-out s.d., median over replicas and splits.
    pub error_sds: f64,
    /// Predicted over held-out s.d. of a replica, median over replicas and splits.
    pub sd_ratio: f64,
}

/// Comparisons of one part, one entry a (split, replica).
#[derive(Clone, Debug, Default)]
struct Comparisons {
    held_out: Vec<f64>,
    predicted: Vec<f64>,
    sds: Vec<f64>,
    ratio: Vec<f64>,
}

/// Collects comparisons over splits.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    names: Vec<String>,
    comparisons: Vec<Comparisons>,
}

impl Parts {
    /// Adds one split: probed samples against the held-out steps.
    pub(super) fn add(&mut self, samples: &Samples, replayed: &Replayed, held_out: &[usize]) {
        for (name, observed) in observed_parts(replayed) {
            let Some(output) = samples.get(&name) else { continue };
            let at = self.names.iter().position(|n| *n == name).unwrap_or_else(|| {
                self.names.push(name.clone());
                self.comparisons.push(Comparisons::default());
                self.names.len() - 1
            });
            let replicas = replayed.observed.replicas() as usize;
            for r in 0..replicas {
                let row = output.row(if output.rows() > 1 { r } else { 0 });
                let predicted: Vec<f64> = row.iter().map(|&v| f64::from(v)).collect();
                let test: Vec<f64> = held_out.iter().map(|&t| observed[t * replicas + r]).collect();
                let ((pm, ps), (tm, ts)) = (moments(&predicted), moments(&test));
                let c = &mut self.comparisons[at];
                c.held_out.push(tm);
                c.predicted.push(pm);
                if ts > 0.0 {
                    c.sds.push((pm - tm).abs() / ts);
                    c.ratio.push(ps / ts);
                }
            }
        }
    }

    /// The scores, stage compute first, then the collectives that wait.
    pub(super) fn scores(self, step_s: f64) -> Vec<PartScore> {
        let average = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
        self.names
            .into_iter()
            .zip(self.comparisons)
            .map(|(part, c)| {
                let errors: Vec<f64> =
                    c.predicted.iter().zip(&c.held_out).map(|(p, t)| (p - t).abs()).collect();
                PartScore {
                    part,
                    held_out_mean_s: average(&c.held_out),
                    predicted_mean_s: average(&c.predicted),
                    error_percent_of_step: 100.0 * average(&errors) / step_s,
                    error_sds: median(c.sds),
                    sd_ratio: median(c.ratio),
                }
            })
            .collect()
    }
}

/// Recorded values of every part, `[step][replica]`, seconds.
fn observed_parts(replayed: &Replayed) -> Vec<(String, Vec<f64>)> {
    let (graph, observed) = (&replayed.graph, &replayed.observed);
    let mut out = Vec::new();
    for stage in 0..graph.stages() {
        let mut total = vec![0.0; observed.samples()];
        for (id, op) in graph.iter() {
            if op.kind.is_microbatch_compute() && op.stage == stage {
                add(&mut total, observed.duration(id).unwrap_or_default());
            }
        }
        out.push((format!("compute@{stage}"), total));
    }
    for (id, op) in graph.iter() {
        if op.kind.class() == KernelClass::Collective && graph.group_of(id).is_some() {
            out.push((wait_name(op), waits(replayed, graph, id)));
        }
    }
    out
}

/// Waiting of one grouped operation: its duration less its own transfer.
fn waits(replayed: &Replayed, _graph: &StepGraph, id: OpId) -> Vec<f64> {
    let duration = replayed.observed.duration(id).unwrap_or_default();
    duration.iter().zip(replayed.split.work_of(id)).map(|(d, w)| d - w).collect()
}

fn add(total: &mut [f64], values: &[f64]) {
    total.iter_mut().zip(values).for_each(|(t, v)| *t += v);
}
