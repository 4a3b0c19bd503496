//! A job's step: its graph with what every operation takes without noise.

use prism_job::Job;
use prism_job::cost::{ChunkCost, StepCosts};
use prism_model::OpKind;

use super::{PassKind, PlannedGraph, PlannedShape};
use crate::{GraphError, OpId};

/// A planned step without noise.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStep {
    /// Graph, shape and passes.
    pub planned: PlannedGraph,
    /// Time of every operation, seconds, by index in the graph.
    pub work_s: Vec<f64>,
}

impl PlannedStep {
    /// The step of a job, over `replicas` of its data-parallel replicas.
    ///
    /// # Errors
    /// [`GraphError::Schedule`] if the schedule does not exist at the job's size.
    pub fn new(job: &Job, costs: &StepCosts, replicas: u32) -> Result<PlannedStep, GraphError> {
        let planned = PlannedShape::of_job(job, replicas)?.graph()?;
        let mut step = PlannedStep { planned, work_s: Vec::new() };
        step.set_costs(costs)?;
        Ok(step)
    }

    /// Takes other costs for the same plan.
    ///
    /// # Errors
    /// [`GraphError::Schedule`] if they are of another number of pieces or stages.
    pub fn set_costs(&mut self, costs: &StepCosts) -> Result<(), GraphError> {
        let shape = &self.planned.shape;
        let stages = usize::from(shape.stages);
        if costs.chunks.len() != shape.pieces() as usize || costs.hop_s.len() != stages {
            let rule = "costs are of another plan";
            let got = format!("{} pieces, {} stages", costs.chunks.len(), costs.hop_s.len());
            return Err(GraphError::Schedule { rule, got });
        }
        let work: Vec<f64> =
            self.planned.graph.iter().map(|(id, _)| self.op_s(id, costs)).collect();
        self.work_s = work;
        for &(forward, backward) in &self.planned.pairs {
            let hidden = self.hidden_s(forward, backward, costs);
            let slot = &mut self.work_s[backward.0 as usize];
            *slot = (*slot - hidden).max(0.0);
        }
        Ok(())
    }

    /// Step time, seconds.
    ///
    /// # Errors
    /// As [`crate::evaluate()`].
    pub fn seconds(&self) -> Result<f64, GraphError> {
        let times = self.times()?;
        Ok(times.first().copied().unwrap_or(f64::NAN))
    }

    fn times(&self) -> Result<Vec<f64>, GraphError> {
        let replicas = self.planned.graph.replicas() as usize;
        let work: Vec<f64> =
            self.work_s.iter().flat_map(|&w| std::iter::repeat_n(w, replicas)).collect();
        Ok(crate::evaluate(&self.planned.graph, 1, &work, None)?.step_times(&self.planned.graph))
    }

    fn chunk<'a>(&self, op: OpId, costs: &'a StepCosts) -> Option<&'a ChunkCost> {
        costs.chunks.get(self.planned.piece(op)? as usize)
    }

    fn op_s(&self, id: OpId, costs: &StepCosts) -> f64 {
        let op = &self.planned.graph.ops()[id.0 as usize];
        let stage = usize::from(op.stage);
        let piece = |of: &[f64]| {
            self.planned.piece(id).and_then(|p| of.get(p as usize)).copied().unwrap_or(0.0)
        };
        match op.kind {
            OpKind::ForwardCompute | OpKind::BackwardCompute | OpKind::BackwardWeight => {
                let kind = self.planned.pass(id).map(|p| p.kind);
                self.chunk(id, costs).map_or(0.0, |c| match kind {
                    Some(PassKind::Forward) => c.forward.seconds(),
                    Some(PassKind::BackwardInput) => c.backward.seconds(),
                    Some(PassKind::BackwardWeight) => c.weight.seconds(),
                    _ => c.backward_s(),
                })
            }
            OpKind::ForwardSend
            | OpKind::ForwardRecv
            | OpKind::BackwardSend
            | OpKind::BackwardRecv => {
                let peer = self.planned.peer_stage(id).map_or(stage, usize::from);
                costs.between_s(stage, peer)
            }
            OpKind::ParamsAllGather => piece(&costs.gather_s),
            OpKind::GradsReduceScatter => piece(&costs.reduce_s),
            OpKind::LayernormGradsAllReduce => costs.layernorm_s[stage],
            OpKind::EmbeddingGradsAllReduce => costs.embedding_s,
            OpKind::OptimizerClipMainGrad => costs.grad_norm_s,
            OpKind::Optimizer => costs.optimizer_s[stage] + costs.step_s,
            _ => 0.0,
        }
    }

    /// What an overlapped forward and backward save: each hides the other's communication, as far as
    /// the other computes.
    fn hidden_s(&self, forward: OpId, backward: OpId, costs: &StepCosts) -> f64 {
        let (Some(f), Some(b)) = (self.chunk(forward, costs), self.chunk(backward, costs)) else {
            return 0.0;
        };
        let in_backward = b.backward.communication_s();
        let split = self.planned.pass(backward).is_some_and(|p| p.kind == PassKind::BackwardInput);
        let whole = if split { b.backward.seconds() } else { b.backward_s() };
        let by_backward = f.forward.communication_s().min(whole - in_backward);
        let by_forward = in_backward.min(f.forward.seconds() - f.forward.communication_s());
        by_backward + by_forward
    }
}
