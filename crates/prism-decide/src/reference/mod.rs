//! The reference what-if analysis of a recorded trace, exactly replayed.
//!
//! What would the recorded steps have taken if some operations had not varied? Every operation's
//! work is either the recorded one or its kind's ideal, without launch delays, and the graph says
//! the rest: scenarios and metrics of the straggler trace format's description, sections 7 and 8
//! (Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis",
//! arXiv 2505.05713). On the graph of [`prism_graph::build_reference`] the figures are the
//! published analysis' own; on another graph they are that graph's.
//!
//! [`analyse`] gives all figures, [`WhatIf`] those of any other set of operations. The intervals
//! are about the recorded steps as a sample of more like them: jackknife intervals for ratios of
//! means over steps, which treat steps as independent and the ideal work as known.

mod analyse;
mod report;
mod what_if;

pub use analyse::analyse;
pub use report::{
    Decomposition, Estimate, Explained, PartSlowdown, ReferenceReport, WorkerSlowdown,
};
pub use what_if::{Selection, Side, WhatIf};

use prism_graph::GraphError;
use prism_model::{Direction, OpKind};

/// Slowdowns below this are not decomposed, as in the published analysis: there is too little to
/// explain.
pub const LEAST_SLOWDOWN: f64 = 1.03;

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Share of the workers, in percent, that the metric `M_W` calls slowest; rounded up.
pub const SLOWEST_PERCENT: usize = 3;

/// Why a trace has no what-if analysis.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// Graph and recorded times do not belong together.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Nothing takes time.
    #[error("the ideal step takes {ideal_s} s, so nothing can be compared with it")]
    NoIdeal {
        /// Ideal step time, seconds.
        ideal_s: f64,
    },
    /// A worker without a rank.
    #[error("no rank is known of replica {dp}, stage {stage}")]
    NoRank {
        /// Data-parallel replica.
        dp: u32,
        /// Pipeline stage.
        stage: u16,
    },
}

impl ReferenceError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ReferenceError::Graph(e) => e.hint(),
            ReferenceError::NoIdeal { .. } => {
                Some("the trace's durations are all 0: check their unit and the recording")
            }
            ReferenceError::NoRank { .. } => Some("give the rank of every replica and stage"),
        }
    }
}

/// The operation type that the metric `S_t` counts a kind under: sends and receives of one
/// direction are one.
///
/// ```
/// use prism_decide::reference::op_type;
/// use prism_model::OpKind;
///
/// assert_eq!(op_type(OpKind::ForwardSend), "forward-pp-comm");
/// assert_eq!(op_type(OpKind::Optimizer), "optimizer");
/// ```
pub fn op_type(kind: OpKind) -> &'static str {
    match kind.direction() {
        Some(Direction::Forward) if kind.is_p2p() => "forward-pp-comm",
        Some(Direction::Backward) if kind.is_p2p() => "backward-pp-comm",
        _ => kind.as_str(),
    }
}
