//! What an operation does.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What an operation of a training step does.
///
/// Names are those of the straggler trace format, kebab case. `Barrier` never occurs in a file:
/// a graph builder adds it where ranks wait for each other without a recorded operation.
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
    /// Whole backward pass of one microbatch through one model chunk.
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
    /// All kinds that can occur in a file, in declaration order.
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
        }
    }

    /// The hardware limit this kind follows.
    pub const fn class(self) -> KernelClass {
        match self {
            OpKind::ForwardCompute | OpKind::BackwardCompute => KernelClass::Compute,
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
            OpKind::BackwardCompute | OpKind::BackwardSend | OpKind::BackwardRecv => {
                Some(Direction::Backward)
            }
            _ => None,
        }
    }

    /// Forward or backward compute of a microbatch.
    pub const fn is_microbatch_compute(self) -> bool {
        matches!(self, OpKind::ForwardCompute | OpKind::BackwardCompute)
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
