//! Mean durations under a model.

use prism_graph::StepGraph;
use prism_model::{DurationModel, ImpliedDependency, LawChoice};

use super::effects::log_mean_exp;
use super::sources::mean_power;

/// Mean own work and launch delay of every operation, flat `[operation][replica]`, seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Means {
    /// Own work.
    pub work_s: Vec<f64>,
    /// Launch delay, counted from the latest end of what the operation waits for; of an operation
    /// with a dependency found in the data, its lag behind that.
    pub delay_s: Vec<f64>,
}

/// Mean durations: what every operation takes in a step without noise.
///
/// Worker and position effects are kept. Operations that the model does not name take no time.
pub fn means(graph: &StepGraph, model: &DurationModel) -> Means {
    let (replicas, steps) = (model.replicas as usize, model.steps.len());
    let mut out = Means {
        work_s: vec![0.0; graph.ops().len() * replicas],
        delay_s: vec![0.0; graph.ops().len() * replicas],
    };
    let set = |of: &mut Vec<f64>, op: u32, r: usize, value: f64| {
        if let Some(slot) = of.get_mut(op as usize * replicas + r) {
            *slot = value;
        }
    };
    compute_means(model, |op, r, value| set(&mut out.work_s, op, r, value));
    let congestion = if model.congestion.is_empty() { 1.0 } else { mean(&model.congestion) };
    for transfer in &model.transfers {
        let width = transfer.members.len().max(1);
        let rows = transfer.rows_s.len() / width / transfer.cells(replicas).max(1);
        for (i, &op) in transfer.ops.iter().enumerate() {
            for r in 0..replicas {
                let own = if transfer.by_instance { i / width } else { 0 };
                let (across, replica) = if transfer.by_replica { (replicas, r) } else { (1, 0) };
                let first = (own * across + replica) * rows * width;
                let lane = transfer.rows_s[first..first + rows * width].iter().skip(i % width);
                let sum: f64 = lane.step_by(width).map(|v| f64::from(*v)).sum();
                set(&mut out.work_s, op, r, congestion * sum / rows.max(1) as f64);
            }
        }
    }
    let lane_mean = |values: &[f32], r: usize| match values.len() {
        n if n > replicas => mean(&values[r * steps..(r + 1) * steps]),
        _ => values.get(r).map_or(0.0, |v| f64::from(*v)),
    };
    for r in 0..replicas {
        for v in &model.step_work {
            set(&mut out.work_s, v.op, r, lane_mean(&v.values_s, r));
        }
        for v in &model.launch_delay {
            set(&mut out.delay_s, v.op, r, lane_mean(&v.values_s, r));
        }
        for d in &model.implied {
            let lane = d.lag_s[r * steps..(r + 1) * steps].iter().copied();
            let waits: Vec<f32> =
                lane.filter(|v| *v > 0.5 * ImpliedDependency::INACTIVE_S).collect();
            if !waits.is_empty() {
                set(&mut out.delay_s, d.op, r, mean(&waits));
            }
        }
    }
    out
}

/// Means of compute, `set(operation, replica, seconds)`.
fn compute_means(model: &DurationModel, mut set: impl FnMut(u32, usize, f64)) {
    let compute = &model.compute;
    let (replicas, steps) = (model.replicas as usize, model.steps.len());
    let (n, microbatches) = (compute.signatures.len(), model.microbatches as usize);
    let of_law = |law: &Option<LawChoice>, power: f64| {
        law.as_ref().map_or(0.0, |l| mean_power(&l.law, power).ln())
    };
    for (c, signature) in compute.signatures.iter().enumerate() {
        for r in 0..replicas {
            let worker = compute.worker_log.get(c * replicas + r).copied().unwrap_or(0.0);
            let step = if compute.step_vectors_log.is_empty() {
                of_law(&compute.step_law, signature.step_load)
                    + of_law(&compute.step_worker_law, 1.0)
            } else {
                let lane = &compute.step_vectors_log[(c * replicas + r) * steps..][..steps];
                log_mean_exp(lane.iter().map(|v| f64::from(*v)))
            };
            let inside = if compute.microbatch_vectors_log.is_empty() {
                of_law(&compute.microbatch_law, signature.microbatch_load)
                    + of_law(&signature.residual_law, 1.0)
            } else {
                let spread = compute.worker_spread.get(c * replicas + r).copied().unwrap_or(1.0);
                let spread = super::sources::rounded_spread(spread);
                let rows = compute.microbatch_vectors_log.chunks(n);
                log_mean_exp(rows.map(|row| spread * f64::from(row[c])))
            };
            for (m, op) in signature.by_position() {
                let position = compute.position_log.get(c * microbatches + m).copied();
                let log = signature.base_log_s
                    + worker
                    + f64::from(position.unwrap_or(0.0))
                    + step
                    + inside;
                set(op, r, log.exp());
            }
        }
    }
}

fn mean(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len().max(1) as f64
}
