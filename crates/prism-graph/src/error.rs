//! What can be wrong with a graph or with the table it is built from.

use std::fmt::Write as _;

use prism_model::OpKind;

use crate::Op;

/// A graph that cannot be built, evaluated, or aligned with observations.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The table has no operation.
    #[error("the table has no operations")]
    Empty,
    /// A dependency, group or sink names an operation that was never added.
    #[error("{what} refers to operation {id}, but the graph has {ops} operations")]
    Dangling {
        /// What refers to the operation.
        what: &'static str,
        /// Index that is out of range.
        id: u32,
        /// Number of operations.
        ops: usize,
    },
    /// Two operations have the same kind, sequence number and stage.
    #[error("`{op}` occurs twice in one step of one replica")]
    Duplicate {
        /// The operation.
        op: Op,
    },
    /// An operation depends on itself.
    #[error("`{op}` depends on itself")]
    SelfDependency {
        /// The operation.
        op: Op,
    },
    /// An operation is a member of two groups, or twice of one.
    #[error("`{op}` is in two groups")]
    TwoGroups {
        /// The operation.
        op: Op,
    },
    /// A group has no member.
    #[error("group {group} has no members")]
    EmptyGroup {
        /// Index of the group.
        group: u32,
    },
    /// An operation is on a stage that the graph does not have.
    #[error("`{op}` is on a stage beyond the last of {stages}")]
    StageRange {
        /// The operation.
        op: Op,
        /// Number of stages.
        stages: u16,
    },
    /// A graph needs at least one replica.
    #[error("a graph needs at least one replica")]
    NoReplicas,
    /// Replica blocks do not tile the replica axis.
    #[error("blocks of {block} do not divide {replicas} replicas")]
    Blocks {
        /// Replicas in a block.
        block: u32,
        /// Replicas of the graph.
        replicas: u32,
    },
    /// Operations wait for each other in a circle.
    #[error("operations wait for each other: {}", chain(.ops))]
    Cycle {
        /// The operations of one such circle, in order.
        ops: Vec<Op>,
    },
    /// A stage has no forward or backward compute.
    #[error("stage {stage} has no {kind} in step {step}, replica 0")]
    NoCompute {
        /// The stage.
        stage: u16,
        /// The kind that is missing.
        kind: OpKind,
        /// The step that the graph is built from.
        step: i64,
    },
    /// The number of sends or receives does not fit the number of computes.
    #[error("stage {stage} has {p2p} {kind} for {computes} computes of that direction")]
    P2pCount {
        /// The kind of send or receive.
        kind: OpKind,
        /// The stage.
        stage: u16,
        /// Sends or receives that are not no-ops.
        p2p: usize,
        /// Computes of the same direction.
        computes: usize,
    },
    /// A send has no receive, or the other way round.
    #[error("`{op}` has no matching {peer} on stage {peer_stage}")]
    Unmatched {
        /// The operation without a peer.
        op: Op,
        /// Kind of the missing peer.
        peer: OpKind,
        /// Stage of the missing peer.
        peer_stage: u16,
    },
    /// An operation of the graph was not observed in some step of some replica.
    #[error("`{op}` is missing in step {step}, replica {replica}")]
    Missing {
        /// The operation.
        op: Op,
        /// The step id.
        step: i64,
        /// The data-parallel replica.
        replica: u32,
    },
    /// An operation was observed that the graph does not have.
    #[error("`{op}` in step {step}, replica {replica} is not in the graph")]
    Unknown {
        /// The operation.
        op: Op,
        /// The step id.
        step: i64,
        /// The data-parallel replica.
        replica: u32,
    },
    /// An operation was observed twice in one step of one replica.
    #[error("`{op}` occurs twice in step {step}, replica {replica}")]
    Repeated {
        /// The operation.
        op: Op,
        /// The step id.
        step: i64,
        /// The data-parallel replica.
        replica: u32,
    },
    /// An array does not have one value for each operation, step and replica.
    #[error("`{what}` has {got} values, expected {expected} (operations x steps x replicas)")]
    Shape {
        /// Which array.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length it should have.
        expected: usize,
    },
    /// A schedule's shape is impossible.
    #[error("impossible schedule: {rule} (got {got})")]
    Schedule {
        /// The rule that is broken.
        rule: &'static str,
        /// The offending values.
        got: String,
    },
    /// A plan cannot be spread over its GPUs.
    #[error("impossible plan: {rule} (got {got})")]
    Plan {
        /// The rule that is broken.
        rule: &'static str,
        /// The offending values.
        got: String,
    },
    /// The plan in the metadata disagrees with the graph.
    #[error("metadata has {what} {meta}, the graph {graph}")]
    Meta {
        /// Which part of the plan.
        what: &'static str,
        /// Value in the metadata.
        meta: u32,
        /// Value in the graph.
        graph: u32,
    },
}

impl GraphError {
    /// What to do about it, where there is something to do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            GraphError::Empty => Some("check that no filter has dropped every step"),
            GraphError::Cycle { .. } => Some(
                "the recorded order of operations cannot be executed; check that all ranks' \
                 clocks are aligned",
            ),
            GraphError::Missing { .. } | GraphError::Unknown { .. } => {
                Some("drop incomplete steps with `--allow-incomplete`")
            }
            GraphError::Duplicate { .. } | GraphError::Repeated { .. } => {
                Some("record one rank for each replica and stage")
            }
            GraphError::P2pCount { .. } | GraphError::Unmatched { .. } => {
                Some("check that the first step of replica 0 is recorded completely on all stages")
            }
            GraphError::NoCompute { .. } => {
                Some("check that every stage from 0 to the last one is recorded")
            }
            GraphError::Plan { .. } => Some(
                "degrees of parallelism that are left out are 1, and an empty `chunk_layers` splits \
                 the layers evenly",
            ),
            _ => None,
        }
    }
}

/// `a -> b -> c -> a`.
fn chain(ops: &[Op]) -> String {
    let mut text = String::new();
    for op in ops {
        // Writing to a string cannot fail.
        let _ = write!(text, "{op} -> ");
    }
    if let Some(first) = ops.first() {
        let _ = write!(text, "{first}");
    }
    text
}
