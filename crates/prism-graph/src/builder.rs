//! From operations, dependencies and groups to a checked graph.

use std::collections::HashMap;

use prism_model::OpKind;

use crate::order::{Wiring, levelise};
use crate::step_graph::key;
use crate::{GraphError, Group, GroupId, Op, OpId, ReplicaSync, StepGraph};

/// Collects operations, dependencies, groups and sinks; [`StepGraphBuilder::build`] checks them.
///
/// | method | kind |
/// |---|---|
/// | [`new`](Self::new), [`op`](Self::op), [`hint`](Self::hint), [`dep`](Self::dep), [`group`](Self::group), [`sink`](Self::sink) | builder |
/// | [`find`](Self::find) | accessor |
/// | [`build`](Self::build) | action |
///
/// ```
/// use prism_graph::{Op, ReplicaSync, StepGraphBuilder};
/// use prism_model::OpKind;
///
/// let op = |kind, seq| Op { kind, stage: 0, chunk: 0, microbatch: 0, seq };
/// let mut b = StepGraphBuilder::new(1, 8);
/// let forward = b.op(op(OpKind::ForwardCompute, 0));
/// let reduce = b.op(op(OpKind::GradsReduceScatter, 0));
/// b.dep(forward, reduce);
/// b.group(vec![reduce], ReplicaSync::All);
/// b.sink(reduce);
/// let graph = b.build().unwrap();
/// assert_eq!(graph.deps(reduce), [forward]);
/// assert_eq!(graph.order().len(), 3);
///
/// let mut b = StepGraphBuilder::new(1, 1);
/// let first = b.op(op(OpKind::ForwardCompute, 0));
/// let second = b.op(op(OpKind::ForwardCompute, 1));
/// b.dep(first, second);
/// b.dep(second, first);
/// assert_eq!(
///     b.build().unwrap_err().to_string(),
///     "operations wait for each other: forward-compute[0]@stage0 -> \
///      forward-compute[1]@stage0 -> forward-compute[0]@stage0",
/// );
/// ```
#[derive(Clone, Debug)]
pub struct StepGraphBuilder {
    ops: Vec<Op>,
    hints: Vec<f64>,
    deps: Vec<(OpId, OpId)>,
    groups: Vec<Group>,
    sinks: Vec<OpId>,
    index: HashMap<(u16, OpKind, u32), OpId>,
    stages: u16,
    replicas: u32,
}

impl StepGraphBuilder {
    /// A graph of `stages` pipeline stages, evaluated over `replicas` data-parallel replicas.
    pub fn new(stages: u16, replicas: u32) -> Self {
        StepGraphBuilder {
            ops: Vec::new(),
            hints: Vec::new(),
            deps: Vec::new(),
            groups: Vec::new(),
            sinks: Vec::new(),
            index: HashMap::new(),
            stages,
            replicas,
        }
    }

    /// Adds an operation.
    pub fn op(&mut self, op: Op) -> OpId {
        let id = OpId(self.ops.len() as u32);
        self.index.entry(key(&op)).or_insert(id);
        self.ops.push(op);
        self.hints.push(f64::NAN);
        id
    }

    /// States about when `op` starts, in seconds. Of the topological orders the graph gets the one
    /// that follows the hints, so that few operations are alive at once. Where hints are missing,
    /// all come from the longest path with typical durations.
    pub fn hint(&mut self, op: OpId, start_s: f64) {
        if let Some(hint) = self.hints.get_mut(op.0 as usize) {
            *hint = start_s;
        }
    }

    /// `after` may start once `before` has ended. Repeating a dependency changes nothing.
    pub fn dep(&mut self, before: OpId, after: OpId) {
        self.deps.push((before, after));
    }

    /// The members start together, at the latest ready time of any of them.
    pub fn group(&mut self, members: Vec<OpId>, sync: ReplicaSync) -> GroupId {
        let id = GroupId(self.groups.len() as u32);
        self.groups.push(Group { members, sync });
        id
    }

    /// The step ends no earlier than `op`.
    pub fn sink(&mut self, op: OpId) {
        self.sinks.push(op);
    }

    /// The operation of this kind, sequence number and stage, if it was added.
    pub fn find(&self, kind: OpKind, seq: u32, stage: u16) -> Option<OpId> {
        self.index.get(&(stage, kind, seq)).copied()
    }

    /// Checks and freezes the graph.
    ///
    /// Without a sink, every operation that nothing depends on is one.
    ///
    /// # Errors
    /// [`GraphError`] if an id is dangling, a key occurs twice, an operation is in two groups or
    /// depends on itself, a group is empty, replica blocks do not divide the replicas, or
    /// operations wait for each other in a circle.
    pub fn build(mut self) -> Result<StepGraph, GraphError> {
        self.check_ids()?;
        self.check_ops()?;
        let group_of = self.check_groups()?;
        let (dep_offsets, deps) = self.dependencies()?;
        let wiring = Wiring {
            ops: &self.ops,
            dep_offsets: &dep_offsets,
            deps: &deps,
            groups: &self.groups,
            group_of: &group_of,
        };
        let order = levelise(&wiring, &self.hints)?;
        self.finish_sinks(&deps);
        let mut by_key: Vec<OpId> = (0..self.ops.len() as u32).map(OpId).collect();
        by_key.sort_by_key(|id| key(&self.ops[id.0 as usize]));
        Ok(StepGraph {
            ops: self.ops,
            dep_offsets,
            deps,
            groups: self.groups,
            group_of,
            order,
            sinks: self.sinks,
            replicas: self.replicas,
            stages: self.stages,
            by_key,
        })
    }

    fn check_ids(&self) -> Result<(), GraphError> {
        let ops = self.ops.len();
        let check = |what: &'static str, id: OpId| {
            if (id.0 as usize) < ops {
                Ok(())
            } else {
                Err(GraphError::Dangling { what, id: id.0, ops })
            }
        };
        for &(before, after) in &self.deps {
            check("a dependency", before)?;
            check("a dependency", after)?;
        }
        for &id in self.groups.iter().flat_map(|g| &g.members) {
            check("a group", id)?;
        }
        self.sinks.iter().try_for_each(|&id| check("a sink", id))
    }

    fn check_ops(&self) -> Result<(), GraphError> {
        if self.replicas == 0 {
            return Err(GraphError::NoReplicas);
        }
        for (i, op) in self.ops.iter().enumerate() {
            if op.stage >= self.stages {
                return Err(GraphError::StageRange { op: op.clone(), stages: self.stages });
            }
            if self.index.get(&key(op)) != Some(&OpId(i as u32)) {
                return Err(GraphError::Duplicate { op: op.clone() });
            }
        }
        Ok(())
    }

    fn check_groups(&mut self) -> Result<Vec<Option<GroupId>>, GraphError> {
        let mut group_of = vec![None; self.ops.len()];
        for (g, group) in self.groups.iter_mut().enumerate() {
            let id = GroupId(g as u32);
            if group.members.is_empty() {
                return Err(GraphError::EmptyGroup { group: id.0 });
            }
            if let ReplicaSync::Blocks(block) = group.sync
                && (block == 0 || !self.replicas.is_multiple_of(block))
            {
                return Err(GraphError::Blocks { block, replicas: self.replicas });
            }
            group.members.sort_unstable();
            for &op in &group.members {
                if group_of[op.0 as usize].replace(id).is_some() {
                    return Err(GraphError::TwoGroups { op: self.ops[op.0 as usize].clone() });
                }
            }
        }
        Ok(group_of)
    }

    /// Dependencies by operation: offsets into the list, and the list.
    fn dependencies(&mut self) -> Result<(Vec<u32>, Vec<OpId>), GraphError> {
        self.deps.sort_unstable_by_key(|&(before, after)| (after, before));
        self.deps.dedup();
        let mut offsets = vec![0_u32; self.ops.len() + 1];
        for &(before, after) in &self.deps {
            if before == after {
                return Err(GraphError::SelfDependency { op: self.ops[after.0 as usize].clone() });
            }
            offsets[after.0 as usize + 1] += 1;
        }
        for i in 1..offsets.len() {
            offsets[i] += offsets[i - 1];
        }
        Ok((offsets, self.deps.iter().map(|&(before, _)| before).collect()))
    }

    fn finish_sinks(&mut self, deps: &[OpId]) {
        if self.sinks.is_empty() {
            let mut last = vec![true; self.ops.len()];
            for before in deps {
                last[before.0 as usize] = false;
            }
            self.sinks =
                (0..self.ops.len() as u32).map(OpId).filter(|id| last[id.0 as usize]).collect();
        }
        self.sinks.sort_unstable();
        self.sinks.dedup();
    }
}
