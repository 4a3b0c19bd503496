//! What an operation does.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What an operation of a training step does.
///
/// Names are those of the straggler trace format, kebab case. Two kinds never occur in a trace:
/// `Barrier`, which a graph builder adds where ranks wait for each other without a recorded
/// operation, and `BackwardWeight`, which only planned schedules have.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OpKind {
    /// Forward pass of one microbatch through one model chunk.
    ForwardCompute,
    /// Backward pass of one microbatch through one model chunk: the whole of it, or in a schedule
    /// that splits it (see `BackwardWeight`) the part that gives the input's gradient.
    BackwardCompute,
    /// Optimizer update.
    Optimizer,
    /// Garbage collection, or a zero-length marker of it.
    Gc,
    /// Send activations to the next stage.
    ForwardSend,
    /// Receive activations from the previous stage.
    ForwardRecv,
    /// Send gradients to the previous stage.
    BackwardSend,
    /// Receive gradients from the next stage.
    BackwardRecv,
    /// All-gather of parameters over the data-parallel group.
    ParamsAllGather,
    /// Reduce-scatter of gradients over the data-parallel group.
    GradsReduceScatter,
    /// All-reduce of separately kept gradients (overlapped gradient reduction).
    SeparateGradsAllReduce,
    /// All-reduce of layer-norm gradients over the tensor-parallel group.
    LayernormGradsAllReduce,
    /// All-reduce of tied embedding gradients between the first and the last stage.
    EmbeddingGradsAllReduce,
    /// Gradient norm and clipping, over all stages and replicas.
    OptimizerClipMainGrad,
    /// Waiting without a recorded operation; takes no time itself.
    Barrier,
    /// The part of a backward pass that gives the weights' gradients, where a schedule runs it apart
    /// from the rest. The last, so that the order of recorded kinds is that of the trace format.
    BackwardWeight,
}

/// Which pass a compute or point-to-point operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Activations flow to later stages.
    Forward,
    /// Gradients flow to earlier stages.
    Backward,
}

/// The hardware limit that an operation's duration follows.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum KernelClass {
    /// Bound by arithmetic: follows the GPU's clock.
    Compute,
    /// Bound by memory bandwidth.
    Memory,
    /// Bound by a point-to-point link.
    PointToPoint,
    /// A collective over a process group.
    Collective,
    /// Host-side work or a marker.
    Host,
}

impl OpKind {
    /// All kinds that can occur in a trace, in declaration order.
    pub const RECORDED: [OpKind; 14] = [
        OpKind::ForwardCompute,
        OpKind::BackwardCompute,
        OpKind::Optimizer,
        OpKind::Gc,
        OpKind::ForwardSend,
        OpKind::ForwardRecv,
        OpKind::BackwardSend,
        OpKind::BackwardRecv,
        OpKind::ParamsAllGather,
        OpKind::GradsReduceScatter,
        OpKind::SeparateGradsAllReduce,
        OpKind::LayernormGradsAllReduce,
        OpKind::EmbeddingGradsAllReduce,
        OpKind::OptimizerClipMainGrad,
    ];

    /// All kinds that can take time: those of a trace, and those of planned schedules.
    pub const TIMED: [OpKind; 15] = {
        let mut kinds = [OpKind::BackwardWeight; 15];
        let mut i = 0;
        while i < OpKind::RECORDED.len() {
            kinds[i] = OpKind::RECORDED[i];
            i += 1;
        }
        kinds
    };

    /// The name in files and in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            OpKind::ForwardCompute => "forward-compute",
            OpKind::BackwardCompute => "backward-compute",
            OpKind::Optimizer => "optimizer",
            OpKind::Gc => "gc",
            OpKind::ForwardSend => "forward-send",
            OpKind::ForwardRecv => "forward-recv",
            OpKind::BackwardSend => "backward-send",
            OpKind::BackwardRecv => "backward-recv",
            OpKind::ParamsAllGather => "params-all-gather",
            OpKind::GradsReduceScatter => "grads-reduce-scatter",
            OpKind::SeparateGradsAllReduce => "separate-grads-all-reduce",
            OpKind::LayernormGradsAllReduce => "layernorm-grads-all-reduce",
            OpKind::EmbeddingGradsAllReduce => "embedding-grads-all-reduce",
            OpKind::OptimizerClipMainGrad => "optimizer-clip-main-grad",
            OpKind::Barrier => "barrier",
            OpKind::BackwardWeight => "backward-weight",
        }
    }

    /// The hardware limit this kind follows.
    pub const fn class(self) -> KernelClass {
        match self {
            OpKind::ForwardCompute | OpKind::BackwardCompute | OpKind::BackwardWeight => {
                KernelClass::Compute
            }
            OpKind::Optimizer => KernelClass::Memory,
            OpKind::ForwardSend
            | OpKind::ForwardRecv
            | OpKind::BackwardSend
            | OpKind::BackwardRecv => KernelClass::PointToPoint,
            OpKind::ParamsAllGather
            | OpKind::GradsReduceScatter
            | OpKind::SeparateGradsAllReduce
            | OpKind::LayernormGradsAllReduce
            | OpKind::EmbeddingGradsAllReduce
            | OpKind::OptimizerClipMainGrad => KernelClass::Collective,
            OpKind::Gc | OpKind::Barrier => KernelClass::Host,
        }
    }

    /// Forward or backward pass, for compute and point-to-point operations.
    pub const fn direction(self) -> Option<Direction> {
        match self {
            OpKind::ForwardCompute | OpKind::ForwardSend | OpKind::ForwardRecv => {
                Some(Direction::Forward)
            }
            OpKind::BackwardCompute
            | OpKind::BackwardWeight
            | OpKind::BackwardSend
            | OpKind::BackwardRecv => Some(Direction::Backward),
            _ => None,
        }
    }

    /// Forward or backward compute of a microbatch.
    pub const fn is_microbatch_compute(self) -> bool {
        matches!(self, OpKind::ForwardCompute | OpKind::BackwardCompute | OpKind::BackwardWeight)
    }

    /// A point-to-point send or receive between stages.
    pub const fn is_p2p(self) -> bool {
        matches!(self.class(), KernelClass::PointToPoint)
    }

    /// A point-to-point send.
    pub const fn is_send(self) -> bool {
        matches!(self, OpKind::ForwardSend | OpKind::BackwardSend)
    }

    /// A point-to-point receive.
    pub const fn is_recv(self) -> bool {
        matches!(self, OpKind::ForwardRecv | OpKind::BackwardRecv)
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An operation kind that is not one of [`OpKind::RECORDED`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown op kind `{0}`")]
pub struct UnknownOpKind(pub String);

impl FromStr for OpKind {
    type Err = UnknownOpKind;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        OpKind::RECORDED
            .into_iter()
            .find(|k| k.as_str() == s)
            .ok_or_else(|| UnknownOpKind(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace cannot hold a weight part of its own: readers refuse the name, as they do `barrier`.
    #[test]
    fn kinds_of_planned_schedules_are_no_names_in_a_trace() {
        for kind in [OpKind::BackwardWeight, OpKind::Barrier] {
            assert!(!OpKind::RECORDED.contains(&kind));
            assert_eq!(kind.as_str().parse::<OpKind>(), Err(UnknownOpKind(kind.to_string())));
        }
        for kind in OpKind::RECORDED {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert!(OpKind::TIMED.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
