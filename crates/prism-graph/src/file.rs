//! A graph as it is written to files.

use prism_model::OpKind;
use serde::{Deserialize, Serialize};

use crate::{GraphError, Op, OpId, ReplicaSync, StepGraph, StepGraphBuilder};

/// One operation of a [`GraphFile`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OpFile {
    /// What it does.
    pub kind: OpKind,
    /// Pipeline stage.
    pub stage: u16,
    /// Model chunk, -1 where there is none.
    pub chunk: i16,
    /// Microbatch, -1 where there is none.
    pub microbatch: i32,
    /// Order among the stage's operations of this kind.
    pub seq: u32,
    /// Operations that must end before it starts.
    pub after: Vec<u32>,
}

/// One group of a [`GraphFile`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GroupFile {
    /// Operations that start together.
    pub members: Vec<u32>,
    /// Replicas that wait for each other: 1 for none, 0 for all, else blocks of this many.
    pub replicas: u32,
}

/// A [`StepGraph`] in plain types: what a profile stores. Operations are named by index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GraphFile {
    /// Pipeline stages.
    pub stages: u16,
    /// Data-parallel replicas.
    pub replicas: u32,
    /// Operations, in a topological order close to time.
    pub ops: Vec<OpFile>,
    /// Communication groups and barriers.
    pub groups: Vec<GroupFile>,
    /// Operations whose latest end is the step's end.
    pub sinks: Vec<u32>,
}

impl From<&StepGraph> for GraphFile {
    fn from(graph: &StepGraph) -> Self {
        let ids = |list: &[OpId]| list.iter().map(|id| id.0).collect::<Vec<u32>>();
        GraphFile {
            stages: graph.stages(),
            replicas: graph.replicas(),
            ops: graph
                .iter()
                .map(|(id, op)| OpFile {
                    kind: op.kind,
                    stage: op.stage,
                    chunk: op.chunk,
                    microbatch: op.microbatch,
                    seq: op.seq,
                    after: ids(graph.deps(id)),
                })
                .collect(),
            groups: graph
                .groups()
                .iter()
                .map(|group| GroupFile {
                    members: ids(&group.members),
                    replicas: match group.sync {
                        ReplicaSync::None => 1,
                        ReplicaSync::All => 0,
                        ReplicaSync::Blocks(block) => block,
                    },
                })
                .collect(),
            sinks: ids(graph.sinks()),
        }
    }
}

impl TryFrom<&GraphFile> for StepGraph {
    type Error = GraphError;

    fn try_from(file: &GraphFile) -> Result<Self, GraphError> {
        let mut builder = StepGraphBuilder::new(file.stages, file.replicas);
        for op in &file.ops {
            builder.op(Op {
                kind: op.kind,
                stage: op.stage,
                chunk: op.chunk,
                microbatch: op.microbatch,
                seq: op.seq,
            });
        }
        for (i, op) in file.ops.iter().enumerate() {
            op.after.iter().for_each(|&before| builder.dep(OpId(before), OpId(i as u32)));
        }
        for group in &file.groups {
            let sync = match group.replicas {
                1 => ReplicaSync::None,
                0 => ReplicaSync::All,
                block => ReplicaSync::Blocks(block),
            };
            builder.group(group.members.iter().map(|&m| OpId(m)).collect(), sync);
        }
        file.sinks.iter().for_each(|&sink| builder.sink(OpId(sink)));
        builder.build()
    }
}
