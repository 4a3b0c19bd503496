//! Steps of a planned job as if they had been recorded: what a comparison of jobs looks at.

use prism_graph::{StepGraph, evaluate};
use prism_model::{DurationModel, TransferModel};

use crate::calibrate::transfer_stride;
use crate::profile::Profile;
use crate::synth::{SynthError, drawn_work};

/// Fills in what a profile of recorded steps holds: observations, transfers and step times of as many
/// steps as the model's vectors have, each drawn once. Two jobs recorded under one seed share their
/// noise, so that what is alike in both is equal.
///
/// # Errors
/// [`SynthError::BothWays`] if microbatches pass a stage in both directions, [`SynthError::Model`] if the
/// model does not fit its graph.
pub fn record(profile: &mut Profile, graph: &StepGraph, seed: u64) -> Result<(), SynthError> {
    let model = &mut profile.model;
    if model.compute.signatures.iter().any(|s| !s.positions.is_empty()) {
        return Err(SynthError::BothWays);
    }
    let work = drawn_work(graph, model, seed)?;
    profile.recorded_step_s = evaluate(graph, model.steps.len(), &work, None)?.step_times(graph);
    model.compute.observations_log_s = observations(model, &work);
    let (replicas, steps) = (model.replicas as usize, model.steps.len());
    let congestion = std::mem::take(&mut model.congestion);
    for transfer in &mut model.transfers {
        transfer.rows_s = rows(transfer, &work, (replicas, steps), &congestion);
    }
    model.congestion = congestion;
    Ok(())
}

/// Log durations, `[c][m][t][r]`; `work` is `[operation][t][r]`, seconds.
fn observations(model: &DurationModel, work: &[f64]) -> Vec<f32> {
    let samples = model.replicas as usize * model.steps.len();
    let of = |op: &u32| &work[*op as usize * samples..][..samples];
    // Times of nothing have a logarithm too.
    let log = |v: &f64| v.max(1e-17).ln() as f32;
    model
        .compute
        .signatures
        .iter()
        .flat_map(|s| s.ops.iter().flat_map(|op| of(op).iter().map(log)))
        .collect()
}

/// Rows in the order of a calibrated transfer model: instance, replica, step.
fn rows(
    transfer: &TransferModel,
    work: &[f64],
    (replicas, steps): (usize, usize),
    congestion: &[f32],
) -> Vec<f32> {
    let width = transfer.members.len().max(1);
    let full = transfer.ops.len() / width * replicas * steps;
    let mut out = Vec::new();
    for row in (0..full).step_by(transfer_stride(full)) {
        let (instance, r, t) = (row / (replicas * steps), row / steps % replicas, row % steps);
        let factor = congestion.get(t).map_or(1.0, |c| f64::from(*c));
        for op in &transfer.ops[instance * width..][..width] {
            out.push((work[(*op as usize * steps + t) * replicas + r] / factor) as f32);
        }
    }
    out
}
