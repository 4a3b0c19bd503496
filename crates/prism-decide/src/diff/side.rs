//! One of the two jobs, with its operations by signature.

use std::collections::{BTreeMap, BTreeSet};

use prism_engine::profile::Profile;
use prism_graph::{OpId, StepGraph};
use prism_model::{DurationModel, ImpliedDependency, Signature, StepVector};

use super::DiffError;

/// What an operation is called in any graph: signature, microbatch, order.
pub(super) type OpName = (Signature, i32, u32);

/// A profile taken apart.
pub(super) struct Side<'a> {
    pub(super) profile: &'a Profile,
    pub(super) model: &'a DurationModel,
    pub(super) graph: StepGraph,
    /// Graph operations of each signature, ascending.
    pub(super) ops: BTreeMap<Signature, Vec<OpId>>,
}

impl<'a> Side<'a> {
    pub(super) fn new(profile: &'a Profile) -> Result<Side<'a>, DiffError> {
        let graph = profile.step_graph()?;
        let model = &profile.model;
        let (named, there) = (model.replicas, graph.replicas());
        if named != there {
            return Err(DiffError::Replicas { model: named, graph: there });
        }
        let mut ops: BTreeMap<Signature, Vec<OpId>> = BTreeMap::new();
        for (id, op) in graph.iter() {
            ops.entry(op.signature()).or_default().push(id);
        }
        Ok(Side { profile, model, graph, ops })
    }

    pub(super) fn steps(&self) -> usize {
        self.model.steps.len()
    }

    pub(super) fn replicas(&self) -> usize {
        self.model.replicas as usize
    }

    /// Mean recorded step time, seconds.
    pub(super) fn mean_step_s(&self) -> f64 {
        let times = &self.profile.recorded_step_s;
        times.iter().sum::<f64>() / times.len().max(1) as f64
    }

    pub(super) fn name(&self, op: OpId) -> OpName {
        let o = &self.graph.ops()[op.0 as usize];
        (o.signature(), o.microbatch, o.seq)
    }

    /// Value of a step vector, seconds.
    pub(super) fn value(&self, vector: &StepVector, replica: usize, step: usize) -> f64 {
        let constant = vector.values_s.len() == self.replicas();
        let at = if constant { replica } else { replica * self.steps() + step };
        f64::from(vector.values_s[at])
    }

    /// Operations that wait for another one by a dependency found in the data, each with the replicas
    /// that do in all steps; `None` for an operation that waits in some steps only, or for several.
    pub(super) fn implied(&self) -> BTreeMap<OpName, Option<BTreeSet<usize>>> {
        let steps = self.steps();
        let mut out = BTreeMap::new();
        for d in &self.model.implied {
            let mut replicas = BTreeSet::new();
            let mut whole = true;
            for (r, lane) in d.lag_s.chunks(steps.max(1)).enumerate() {
                let waits = lane.iter().filter(|&&l| l > ImpliedDependency::INACTIVE_S).count();
                whole &= waits == 0 || waits == steps;
                if waits == steps {
                    replicas.insert(r);
                }
            }
            let entry = whole.then_some(replicas);
            out.entry(self.name(OpId(d.op))).and_modify(|e| *e = None).or_insert(entry);
        }
        out
    }
}
