//! What a profile leaves out.

use prism_model::DurationModel;

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
    let cube = Cube::of_model(model, &rows);
    let (fresh, _) = compute_model(cube, &model.windows, 0.5, Some(kept));
    model.compute.step_vectors_log = fresh.step_vectors_log;
    model.compute.microbatch_vectors_log = fresh.microbatch_vectors_log;
    Ok(())
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
        let cells = t.cells(replicas);
        expect("a transfer's rows", t.rows_s.len() % (width * cells), &[0]);
        let empty = usize::from(t.rows_s.is_empty());
        expect("a transfer's missing rows", empty, &[0]);
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
