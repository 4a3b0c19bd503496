//! What can go wrong in making a synthetic trace.

use prism_graph::GraphError;
use prism_model::OpKind;
use prism_stats::StatsError;

/// Why a synthetic trace cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// Settings that are out of range; all of them.
    #[error("the specification breaks {} rule(s): {}", wrong.len(), wrong.join("; "))]
    Spec {
        /// Each broken rule: key, rule, and what was given.
        wrong: Vec<String>,
    },
    /// Step ids that are not ascending.
    #[error("step ids must ascend, but {after} follows {before}")]
    Steps {
        /// An id.
        before: i64,
        /// The id after it.
        after: i64,
    },
    /// A model that does not belong to its graph.
    #[error("the model does not fit its graph: {what}")]
    Model {
        /// What does not fit.
        what: String,
    },
    /// An operation that no trace can hold.
    #[error("a trace has no name for {kind}: its format knows whole backward passes only")]
    Kind {
        /// Its kind.
        kind: OpKind,
    },
    /// Microbatches that pass a stage in both directions.
    #[error(
        "half of the microbatches pass each stage in the other direction, so that operations are \
             not of every microbatch"
    )]
    BothWays,
    /// The graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A law.
    #[error(transparent)]
    Stats(#[from] StatsError),
}

impl SynthError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            SynthError::Spec { .. } => Some("s.d.s are in log time: 0.02 is about 2 %"),
            SynthError::Steps { .. } => Some("give every step id once, in order"),
            SynthError::Model { .. } => Some("calibrate the trace again"),
            SynthError::Kind { .. } => {
                Some("take a schedule that does not split them: gpipe, 1f1b or interleaved-1f1b")
            }
            SynthError::BothWays => Some(
                "take a schedule of one direction, or compare what `prism predict` says of both",
            ),
            SynthError::Graph(e) => e.hint(),
            SynthError::Stats(_) => None,
        }
    }
}
