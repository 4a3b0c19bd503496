//! A job without one of its replicas.

use prism_graph::{GraphFile, StepGraph};
use prism_model::DurationModel;

use super::PlaceError;
use super::nominal::Nominal;

/// The graph of a job with one replica fewer.
///
/// # Errors
/// [`PlaceError::Setting`] if it has one only, [`PlaceError::Graph`] if replicas wait in blocks that no
/// longer fit.
pub(super) fn smaller_graph(graph: &StepGraph) -> Result<StepGraph, PlaceError> {
    let mut file = GraphFile::from(graph);
    if file.replicas < 2 {
        let (what, rule) = ("replicas of a plan of which one is dropped", "at least 2");
        return Err(PlaceError::Setting { what, rule, got: file.replicas.to_string() });
    }
    file.replicas -= 1;
    Ok(StepGraph::try_from(&file)?)
}

impl Nominal<'_> {
    /// The same without one replica, on a graph that has one fewer.
    pub(super) fn without<'s>(&self, replica: usize, graph: &'s StepGraph) -> Nominal<'s> {
        let replicas = self.replicas();
        Nominal {
            graph,
            model: without(&self.model, replica),
            lowering: self.lowering,
            base_log: inner(&self.base_log, replicas, 1, replica),
        }
    }
}

/// Leaves out one replica of every per-replica array.
fn without(model: &DurationModel, replica: usize) -> DurationModel {
    let (r, t) = (model.replicas as usize, model.steps.len());
    let mut out = model.clone();
    out.replicas -= 1;
    let compute = &mut out.compute;
    compute.worker_log = inner(&compute.worker_log, r, 1, replica);
    compute.worker_spread = inner(&compute.worker_spread, r, 1, replica);
    compute.step_vectors_log = inner(&compute.step_vectors_log, r, t, replica);
    compute.observations_log_s = inner(&compute.observations_log_s, r, 1, replica);
    for vector in out.step_work.iter_mut().chain(&mut out.launch_delay) {
        let each = if vector.values_s.len() > r { t } else { 1 };
        vector.values_s = inner(&vector.values_s, r, each, replica);
    }
    for dependency in &mut out.implied {
        dependency.lag_s = inner(&dependency.lag_s, r, t, replica);
    }
    for transfer in out.transfers.iter_mut().filter(|x| x.by_replica) {
        let each = transfer.rows_s.len() / transfer.cells(r);
        transfer.rows_s = inner(&transfer.rows_s, r, each, replica);
    }
    out
}

/// `[outer][replica][each]` without one replica.
fn inner<T: Copy>(values: &[T], replicas: usize, each: usize, replica: usize) -> Vec<T> {
    let lanes = values.chunks(each).enumerate();
    lanes
        .filter(|(i, _)| i % replicas != replica)
        .flat_map(|(_, lane)| lane.iter().copied())
        .collect()
}
