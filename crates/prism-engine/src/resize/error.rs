//! Why a job cannot be resized.

use prism_graph::GraphError;

/// Why a job cannot be resized.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// A size of zero.
    #[error("{what} must be positive")]
    Zero {
        /// Which size.
        what: &'static str,
    },
    /// Further from what was observed than is answered without being told to.
    #[error("{what} {from} to {to} is outside of the stated range, {lowest} to {highest}")]
    Range {
        /// Which size.
        what: &'static str,
        /// What was observed.
        from: u32,
        /// What was asked.
        to: u32,
        /// Least that is answered.
        lowest: u32,
        /// Most that is answered.
        highest: u32,
    },
    /// Something that the recorded job cannot tell.
    #[error("the recorded job does not tell {what}")]
    Unidentified {
        /// What.
        what: &'static str,
    },
    /// A limit that nothing lifts.
    #[error(
        "{replicas} replicas of {ops} operations are more than the {limit} operations that are \
         evaluated one by one"
    )]
    TooLarge {
        /// Replicas asked for.
        replicas: u32,
        /// Operations of a replica.
        ops: usize,
        /// Most operations over all replicas.
        limit: u64,
    },
    /// A pipeline that follows no known rules.
    #[error(
        "the recorded pipeline is neither 1F1B, GPipe nor interleaved 1F1B under known rules, so \
         that its graph cannot be built at another size"
    )]
    Pipeline,
    /// Operations that have nothing like them in the recorded job.
    #[error("nothing recorded is like {what} of the resized job")]
    NoTemplate {
        /// Which operation.
        what: String,
    },
    /// The resized graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl ResizeError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ResizeError::Range { .. } | ResizeError::Unidentified { .. } => {
                Some("`--extrapolate` answers all the same, with a warning")
            }
            ResizeError::TooLarge { .. } => Some("ask for fewer replicas or microbatches"),
            ResizeError::Pipeline | ResizeError::NoTemplate { .. } => {
                Some("the number of replicas (`--dp`) can still be changed")
            }
            ResizeError::Zero { .. } => None,
            ResizeError::Graph(e) => e.hint(),
        }
    }
}
