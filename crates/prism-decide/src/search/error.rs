//! Why there is no search.

use prism_engine::planned::PlannedError;
use prism_graph::GraphError;

/// Why plans cannot be searched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// A setting out of range.
    #[error("{what} must be {rule}, not {got}")]
    Setting {
        /// Which.
        what: &'static str,
        /// Its range.
        rule: &'static str,
        /// What was given.
        got: String,
    },
    /// A checkpoint of another search.
    #[error("the checkpoint is of another question ({theirs}, not {ours})")]
    Question {
        /// Fingerprint of the question asked.
        ours: String,
        /// Fingerprint in the checkpoint.
        theirs: String,
    },
    /// A checkpoint that names plans that are not there.
    #[error("the checkpoint names plan {index} of {plans}")]
    Damaged {
        /// The plan's number.
        index: u32,
        /// Plans there are.
        plans: usize,
    },
    /// The caller asked to stop.
    #[error("the search was stopped")]
    Stopped,
    /// A plan that cannot be evaluated.
    #[error("plan {plan} cannot be evaluated")]
    Plan {
        /// The plan.
        plan: String,
        /// Why.
        source: Box<PlannedError>,
    },
}

impl SearchError {
    /// What the caller can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            SearchError::Question { .. } => {
                Some("name another checkpoint file, or remove this one to begin anew")
            }
            SearchError::Damaged { .. } => Some("remove the checkpoint and begin anew"),
            SearchError::Plan { source, .. } => Some(source.hint()),
            SearchError::Setting { .. } | SearchError::Stopped => None,
        }
    }

    pub(super) fn plan(plan: String, source: impl Into<PlannedError>) -> SearchError {
        SearchError::Plan { plan, source: Box::new(source.into()) }
    }
}

/// Whether a schedule's order does not exist at a plan's size, which makes the plan impossible.
pub(super) fn no_schedule(error: &GraphError) -> bool {
    matches!(error, GraphError::Schedule { .. })
}
