//! Operations, dependencies, groups and the replica axis.

use std::fmt;

use prism_model::{OpKind, Signature};

/// Index of an operation in [`StepGraph::ops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u32);

/// Index of a group in [`StepGraph::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u32);

/// One operation of one replica's step.
///
/// `(kind, seq, stage)` is unique within a graph and names the operation across replicas, steps
/// and graphs: random numbers are keyed by it, never by an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// What the operation does.
    pub kind: OpKind,
    /// Pipeline stage: the worker within the replica.
    pub stage: u16,
    /// Model chunk within the stage, -1 where there is none.
    pub chunk: i16,
    /// Microbatch, -1 where there is none.
    pub microbatch: i32,
    /// Order among the stage's operations of this kind.
    pub seq: u32,
}

impl Op {
    /// The key under which this operation's durations are comparable.
    pub fn signature(&self) -> Signature {
        Signature { kind: self.kind, stage: self.stage, chunk: self.chunk }
    }
}

impl fmt::Display for Op {
    /// `forward-send[3]@stage1`: kind, sequence number, stage.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]@stage{}", self.kind, self.seq, self.stage)
    }
}

/// Over which part of the replica axis a group waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaSync {
    /// Each replica for itself.
    None,
    /// All replicas together.
    All,
    /// Consecutive blocks of this many replicas.
    Blocks(u32),
}

/// Operations that start together, at the latest ready time of any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The operations, ascending.
    pub members: Vec<OpId>,
    /// Whether they also wait for other replicas.
    pub sync: ReplicaSync,
}

/// One entry of a topological order of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The operation becomes ready: the latest end of its dependencies plus its launch delay. An
    /// operation in no group also runs and ends here.
    Start(OpId),
    /// Every member of the group is ready: all start at the latest ready time, and end.
    Group(GroupId),
}

/// One replica's training step; the replicas are an axis of the evaluation, not copies.
///
/// Evaluation visits [`StepGraph::order`]: `start = max(end of deps) + launch delay`; an operation
/// in no group ends at `start + work`; a grouped one at
/// `max(start over the group, and over the synchronised replicas) + own transfer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepGraph {
    pub(crate) ops: Vec<Op>,
    pub(crate) dep_offsets: Vec<u32>,
    pub(crate) deps: Vec<OpId>,
    pub(crate) groups: Vec<Group>,
    pub(crate) group_of: Vec<Option<GroupId>>,
    pub(crate) order: Vec<Event>,
    pub(crate) sinks: Vec<OpId>,
    pub(crate) replicas: u32,
    pub(crate) stages: u16,
    /// All operations, ascending by [`key`]: the index of [`StepGraph::find`].
    pub(crate) by_key: Vec<OpId>,
}

/// What an operation is looked up by; also the order of a table's rows within one rank.
pub(crate) fn key(op: &Op) -> (u16, OpKind, u32) {
    (op.stage, op.kind, op.seq)
}

impl StepGraph {
    /// Operations; an [`OpId`] is an index into this.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Operations that must end before `op` may start, ascending.
    pub fn deps(&self, op: OpId) -> &[OpId] {
        let i = op.0 as usize;
        &self.deps[self.dep_offsets[i] as usize..self.dep_offsets[i + 1] as usize]
    }

    /// Number of dependencies.
    pub fn dep_count(&self) -> usize {
        self.deps.len()
    }

    /// The operation of this kind, sequence number and stage.
    pub fn find(&self, kind: OpKind, seq: u32, stage: u16) -> Option<OpId> {
        let at = self
            .by_key
            .binary_search_by_key(&(stage, kind, seq), |&id| key(&self.ops[id.0 as usize]))
            .ok()?;
        Some(self.by_key[at])
    }

    /// All ids with their operations, in order of id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (OpId, &Op)> {
        self.ops.iter().enumerate().map(|(i, op)| (OpId(i as u32), op))
    }

    /// Groups; a [`GroupId`] is an index into this.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group that `op` belongs to.
    pub fn group_of(&self, op: OpId) -> Option<GroupId> {
        self.group_of[op.0 as usize]
    }

    /// A topological order: every operation's start once, every group once, each after what it
    /// waits for.
    pub fn order(&self) -> &[Event] {
        &self.order
    }

    /// Operations whose latest end is the step's end.
    pub fn sinks(&self) -> &[OpId] {
        &self.sinks
    }

    /// Data-parallel replicas.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Pipeline stages.
    pub fn stages(&self) -> u16 {
        self.stages
    }

    /// The stage that activations of `stage` go to; the first after the last.
    pub fn stage_after(&self, stage: u16) -> u16 {
        if stage.saturating_add(1) >= self.stages { 0 } else { stage + 1 }
    }

    /// The stage that gradients of `stage` go to; the last before the first.
    pub fn stage_before(&self, stage: u16) -> u16 {
        stage.checked_sub(1).unwrap_or(self.stages.saturating_sub(1))
    }
}
