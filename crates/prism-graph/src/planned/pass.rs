//! One entry of a stage's order.

use prism_model::OpKind;

/// What a pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PassKind {
    /// Forward.
    Forward,
    /// Whole backward: gradients of the input and of the weights.
    Backward,
    /// The part of a backward that gives the input's gradient.
    BackwardInput,
    /// The part of a backward that gives the weights' gradients, apart from the rest.
    BackwardWeight,
}

impl PassKind {
    /// Kind of the operation that runs it.
    pub const fn op_kind(self) -> OpKind {
        match self {
            PassKind::Forward => OpKind::ForwardCompute,
            PassKind::Backward | PassKind::BackwardInput => OpKind::BackwardCompute,
            PassKind::BackwardWeight => OpKind::BackwardWeight,
        }
    }
}

/// One pass of one microbatch through one chunk of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlannedPass {
    /// What it computes.
    pub kind: PassKind,
    /// Chunk within the stage.
    pub chunk: u16,
    /// Microbatch.
    pub microbatch: u32,
    /// Whether this forward and the backward that follows it, or this backward and the forward
    /// before it, run as one overlapped block (`DualPipe`).
    pub paired: bool,
}

impl PlannedPass {
    /// A pass that runs alone.
    pub const fn alone(kind: PassKind, chunk: u16, microbatch: u32) -> PlannedPass {
        PlannedPass { kind, chunk, microbatch, paired: false }
    }
}
