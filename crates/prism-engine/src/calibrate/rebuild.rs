//! What a profile leaves out.

use prism_graph::StepGraph;
use prism_model::{DurationModel, ImpliedDependency, Signature};

use super::compute::compute_model;
use super::cube::Cube;
use super::{CalibrateError, Kept};

/// Computes what is not stored in files from what is.
///
/// # Errors
/// [`CalibrateError::Inconsistent`] if array lengths do not fit the model's plan, or there is nothing to
/// compute it from.
pub fn rebuild(model: &mut DurationModel) -> Result<(), CalibrateError> {
    check_model(model)?;
    if model.compute.observations_log_s.is_empty() {
        let wrong = vec!["observations_log_s is empty".to_owned()];
        return Err(CalibrateError::Inconsistent { wrong });
    }
    if let Some(s) = model.compute.signatures.iter().find(|s| !s.positions.is_empty()) {
        let wrong = vec![format!("{} does not have every microbatch", s.signature)];
        return Err(CalibrateError::Inconsistent { wrong });
    }
    let rows: Vec<usize> = (0..model.steps.len()).collect();
    let kept = Kept::of(&model.effects);
    let cube = Cube::of_model(model, &rows);
    let (fresh, _) = compute_model(cube, &model.windows, 0.5, Some(kept));
    model.compute.step_vectors_log = fresh.step_vectors_log;
    model.compute.microbatch_vectors_log = fresh.microbatch_vectors_log;
    Ok(())
}

/// Checks that a stored model is consistent and belongs to a graph.
///
/// # Errors
/// [`CalibrateError::Inconsistent`] with everything that is wrong.
pub(crate) fn check_job(graph: &StepGraph, model: &DurationModel) -> Result<(), CalibrateError> {
    check_model(model)?;
    let mut wrong = Vec::new();
    let ops = graph.ops().len() as u32;
    if model.replicas != graph.replicas() {
        let (ours, theirs) = (model.replicas, graph.replicas());
        wrong.push(format!("{ours} replicas in the model, {theirs} in the graph"));
    }
    let highest = graph.ops().iter().map(|op| op.stage).max();
    if highest.is_none_or(|s| s + 1 != graph.stages()) {
        wrong.push(format!("{} stages, but not as many have operations", graph.stages()));
    }
    let named = model
        .compute
        .signatures
        .iter()
        .flat_map(|s| s.ops.iter())
        .chain(model.transfers.iter().flat_map(|t| t.ops.iter()))
        .chain(model.step_work.iter().chain(&model.launch_delay).map(|v| &v.op))
        .chain(model.implied.iter().flat_map(|d| [&d.op, &d.on]));
    if let Some(op) = named.into_iter().find(|op| **op >= ops) {
        wrong.push(format!("it names operation {op} of {ops}"));
    }
    let is = |op: u32, signature: &Signature| {
        graph.ops().get(op as usize).is_none_or(|o| o.signature() == *signature)
    };
    for s in &model.compute.signatures {
        if let Some(op) = s.ops.iter().find(|op| !is(**op, &s.signature)) {
            wrong.push(format!("operation {op} is no {}", s.signature));
        }
    }
    for t in &model.transfers {
        let members = t.ops.iter().zip(t.members.iter().cycle());
        if let Some((op, member)) = members.into_iter().find(|(op, m)| !is(**op, m)) {
            wrong.push(format!("operation {op} is no {member}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(CalibrateError::Inconsistent { wrong }) }
}

/// Largest log of a duration or factor that makes sense: e^40 s is longer than the universe is old.
const MOST_LOG: f64 = 40.0;
/// Longest time that makes sense, seconds: thirty years.
const MOST_S: f32 = 1e9;

/// Numbers that no recording can have led to.
fn values_out_of_range(model: &DurationModel) -> Vec<String> {
    let compute = &model.compute;
    let mut wrong = Vec::new();
    let mut expect = |what: &str, holds: bool| {
        if !holds {
            wrong.push(format!("{what} has a value out of range"));
        }
    };
    let log = |v: f64| v.abs() <= MOST_LOG;
    let sd = |v: f64| (0.0..=MOST_LOG).contains(&v);
    expect("observations_log_s", compute.observations_log_s.iter().all(|v| log(f64::from(*v))));
    expect("position_log", compute.position_log.iter().all(|v| log(f64::from(*v))));
    expect("worker_log", compute.worker_log.iter().all(|v| log(*v)));
    expect("worker_spread", compute.worker_spread.iter().all(|v| sd(*v)));
    for s in &compute.signatures {
        let sds = [s.microbatch_sd_log, s.residual_sd_log];
        expect("a compute signature", log(s.base_log_s) && sds.into_iter().all(sd));
        expect("a load", log(s.microbatch_load) && log(s.step_load));
    }
    let sds = [compute.step_sd_log, compute.step_worker_sd_log, compute.microbatch_sd_log];
    expect("an effect's s.d.", sds.into_iter().chain([compute.worker_sd_log]).all(sd));
    expect("congestion", model.congestion.iter().all(|v| (0.0..=MOST_S).contains(v)));
    let time = |v: &f32| v.abs() <= MOST_S;
    for t in &model.transfers {
        expect("a transfer", t.rows_s.iter().all(time));
    }
    for v in model.step_work.iter().chain(&model.launch_delay) {
        expect("a step vector", v.values_s.iter().all(time));
    }
    let lag = |v: &f32| time(v) || *v == ImpliedDependency::INACTIVE_S;
    for d in &model.implied {
        expect("an implied dependency", d.lag_s.iter().all(lag));
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

/// Checks that the arrays of a stored model have the lengths its plan implies.
fn check_model(model: &DurationModel) -> Result<(), CalibrateError> {
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
    // A planned job's model comes from its laws, without observations.
    expect("observations_log_s", model.compute.observations_log_s.len(), &[0, observations]);
    expect("position_log", model.compute.position_log.len(), &[0, n * m]);
    expect("worker_log", model.compute.worker_log.len(), &[0, n * replicas]);
    expect("worker_spread", model.compute.worker_spread.len(), &[0, n * replicas]);
    expect("congestion", model.congestion.len(), &[0, steps]);
    for s in &model.compute.signatures {
        let own = s.positions.len();
        expect("a compute signature's ops", s.ops.len(), &[if own > 0 { own } else { m }]);
        let outside = s.positions.iter().filter(|&&at| at as usize >= m).count();
        expect("a compute signature's positions outside the step", outside, &[0]);
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
    wrong.extend(values_out_of_range(model));
    if steps < 2 || replicas == 0 || n == 0 || m == 0 {
        wrong.push("steps, replicas, microbatches and signatures must not be empty".to_owned());
    }
    if wrong.is_empty() { Ok(()) } else { Err(CalibrateError::Inconsistent { wrong }) }
}
