//! The same model from other steps: what a profile leaves out, and bootstrap repetitions.

use prism_model::{DurationModel, ImpliedDependency, StepVector};

use super::compute::compute_model;
use super::cube::Cube;
use super::{CalibrateError, Kept};

/// Computes what is not stored in files from what is.
///
/// # Errors
/// [`CalibrateError::Inconsistent`] if array lengths do not fit the model's plan.
pub fn rebuild(model: &mut DurationModel) -> Result<(), CalibrateError> {
    check_model(model)?;
    let rows: Vec<usize> = (0..model.steps.len()).collect();
    let kept = Kept::of(&model.effects);
    let (fresh, _) = compute_model(Cube::of_model(model, &rows), &model.windows, 0.5, Some(kept));
    model.compute.step_vectors_log = fresh.step_vectors_log;
    model.compute.microbatch_vectors_log = fresh.microbatch_vectors_log;
    Ok(())
}

/// The model re-estimated on the given rows of its observed steps (a row may occur several times)
/// with the same effects. `windows` labels the new rows. Laws, point-to-point rows and implied
/// dependencies keep their form.
pub fn resampled(model: &DurationModel, rows: &[usize], windows: &[u32]) -> DurationModel {
    let kept = Kept::of(&model.effects);
    let (mut compute, _) = compute_model(Cube::of_model(model, rows), windows, 0.5, Some(kept));
    compute.step_law.clone_from(&model.compute.step_law);
    compute.step_worker_law.clone_from(&model.compute.step_worker_law);
    compute.microbatch_law.clone_from(&model.compute.microbatch_law);
    for (new, old) in compute.signatures.iter_mut().zip(&model.compute.signatures) {
        new.residual_law.clone_from(&old.residual_law);
    }
    let steps = model.steps.len();
    let select = |values: &[f32]| -> Vec<f32> {
        values.chunks(steps).flat_map(|lane| rows.iter().map(|&t| lane[t])).collect()
    };
    let select_vectors = |vectors: &[StepVector]| -> Vec<StepVector> {
        vectors
            .iter()
            .map(|v| StepVector {
                op: v.op,
                values_s: if v.values_s.len() == model.replicas as usize {
                    v.values_s.clone()
                } else {
                    select(&v.values_s)
                },
            })
            .collect()
    };
    DurationModel {
        steps: rows.iter().map(|&t| model.steps[t]).collect(),
        windows: windows.to_vec(),
        replicas: model.replicas,
        microbatches: model.microbatches,
        effects: model.effects.clone(),
        compute,
        transfers: model.transfers.clone(),
        congestion: select(&model.congestion),
        step_work: select_vectors(&model.step_work),
        launch_delay: select_vectors(&model.launch_delay),
        implied: model
            .implied
            .iter()
            .map(|d| ImpliedDependency { op: d.op, on: d.on, lag_s: select(&d.lag_s) })
            .collect(),
        regimes: model.regimes.clone(),
    }
}

/// Checks that the arrays of a stored model have the lengths its plan implies.
pub(crate) fn check_model(model: &DurationModel) -> Result<(), CalibrateError> {
    let (steps, replicas) = (model.steps.len(), model.replicas as usize);
    let (n, m) = (model.compute.signatures.len(), model.microbatches as usize);
    let mut wrong = Vec::new();
    let mut expect = |what: &'static str, got: usize, allowed: &[usize]| {
        if !allowed.contains(&got) {
            wrong.push(format!("{what} has {got} values, expected {}", allowed[allowed.len() - 1]));
        }
    };
    expect("windows", model.windows.len(), &[steps]);
    let observations = n * m * steps * replicas;
    expect("observations_log_s", model.compute.observations_log_s.len(), &[observations]);
    expect("position_log", model.compute.position_log.len(), &[0, n * m]);
    expect("worker_log", model.compute.worker_log.len(), &[0, n * replicas]);
    expect("worker_spread", model.compute.worker_spread.len(), &[0, n * replicas]);
    expect("congestion", model.congestion.len(), &[0, steps]);
    for s in &model.compute.signatures {
        expect("a compute signature's ops", s.ops.len(), &[m]);
    }
    for v in model.step_work.iter().chain(&model.launch_delay) {
        expect("a step vector", v.values_s.len(), &[replicas, replicas * steps]);
    }
    for d in &model.implied {
        expect("an implied dependency", d.lag_s.len(), &[replicas * steps]);
    }
    for t in &model.transfers {
        let width = t.members.len().max(1);
        expect("a transfer's rows", t.rows_s.len() % width, &[0]);
        expect("a transfer's operations", t.ops.len() % width, &[0]);
        expect("a transfer's laws", t.laws.len(), &[0, t.members.len()]);
    }
    let finite = model.compute.observations_log_s.iter().all(|v| v.is_finite());
    if !finite {
        wrong.push("observations_log_s has a value that is not finite".to_owned());
    }
    if steps < 2 || replicas == 0 || n == 0 || m == 0 {
        wrong.push("steps, replicas, microbatches and signatures must not be empty".to_owned());
    }
    if wrong.is_empty() { Ok(()) } else { Err(CalibrateError::Inconsistent { wrong }) }
}
