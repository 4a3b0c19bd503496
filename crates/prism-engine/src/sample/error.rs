//! What can be wrong with a program, its data or a run.

use thiserror::Error;

use super::simd::Isa;

/// Why a program could not be compiled, changed or run.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A program over no replicas.
    #[error("a program needs at least one replica")]
    NoReplicas,
    /// A program without outputs.
    #[error("a program without outputs computes nothing")]
    NoOutputs,
    /// Two outputs of one name.
    #[error("two outputs are named `{name}`")]
    DuplicateOutput {
        /// The name.
        name: String,
    },
    /// A handle of another program, or of none.
    #[error("node {node} refers to {kind} {id}, of which the program has {count}")]
    Unknown {
        /// Node that refers to it; the number of nodes where an output does.
        node: usize,
        /// What it refers to.
        kind: &'static str,
        /// The handle's number.
        id: usize,
        /// How many there are.
        count: usize,
    },
    /// An index used as a number, or the reverse.
    #[error("node {node} takes node {id} as {expected}, which it is not")]
    WrongKind {
        /// Node that uses it.
        node: usize,
        /// Node used.
        id: usize,
        /// What was expected.
        expected: &'static str,
    },
    /// A constant that is no number.
    #[error("constant of node {node} is not finite")]
    NotFinite {
        /// The constant's node.
        node: usize,
    },
    /// A list with one entry per replica has another length.
    #[error("node {node} has {found} entries for {replicas} replicas")]
    ReplicaCount {
        /// The node.
        node: usize,
        /// Entries given.
        found: usize,
        /// Replicas of the program.
        replicas: usize,
    },
    /// An index over no rows, or weights that are not a law over at most 2³¹ rows.
    #[error("index of node {node} has no valid law over its rows")]
    BadRows {
        /// The node.
        node: usize,
    },
    /// A gather that could read beyond its pool.
    #[error("node {node} can read entry {last} of pool {pool}, which has {len}")]
    OutOfPool {
        /// The gather's node.
        node: usize,
        /// The pool.
        pool: usize,
        /// Highest entry it can reach.
        last: u64,
        /// Entries of the pool.
        len: usize,
    },
    /// A row map shorter than the rows of the index it maps.
    #[error("map of node {node} has {found} entries for an index of {rows} rows")]
    ShortMap {
        /// The map's node.
        node: usize,
        /// Entries given.
        found: usize,
        /// Rows of the mapped index.
        rows: u32,
    },
    /// Synchronisation over blocks that do not divide the replicas.
    #[error("node {node} synchronises blocks of {block} of {replicas} replicas")]
    BadBlocks {
        /// The node.
        node: usize,
        /// Block size.
        block: u32,
        /// Replicas of the program.
        replicas: u32,
    },
    /// A change to a constant that the tape does not have.
    #[error("node {node} is not a {expected} of the program")]
    NotSettable {
        /// The node.
        node: usize,
        /// What was expected.
        expected: &'static str,
    },
    /// A program too large for 32-bit operands.
    #[error("the program needs {slots} slots or entries, more than the engine numbers")]
    TooLarge {
        /// Slots, or entries of lists per replica, needed.
        slots: usize,
    },
    /// An instruction set this processor lacks.
    #[error("this processor cannot run the {isa} path")]
    IsaUnavailable {
        /// The one asked for.
        isa: Isa,
    },
    /// A sample range beyond 2⁶⁴, or more samples than memory can address.
    #[error("samples {first} to {first} + {count} exceed what can be numbered or stored")]
    TooManySamples {
        /// First sample.
        first: u64,
        /// Number of samples.
        count: usize,
    },
}

impl SampleError {
    /// What the caller can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoReplicas => "use `Program::new(1)` where there is no replica axis",
            Self::NoOutputs => "name what you want with `Program::output`",
            Self::DuplicateOutput { .. } => "give every output its own name",
            Self::Unknown { .. } | Self::WrongKind { .. } => {
                "use only handles that this program's own methods returned"
            }
            Self::NotFinite { .. } => "check the duration model for missing or infinite values",
            Self::ReplicaCount { .. } => "give one entry per replica",
            Self::BadRows { .. } => {
                "an index needs at least one row, and weights that are finite, not negative and \
                 not all zero"
            }
            Self::OutOfPool { .. } => {
                "the pool must hold offset + (rows - 1) * stride + 1 entries for every replica"
            }
            Self::ShortMap { .. } => "give one target row per row of the mapped index",
            Self::BadBlocks { .. } => "the block size must divide the number of replicas",
            Self::NotSettable { .. } => "change only nodes made by the method of the same name",
            Self::TooLarge { .. } => "split the program, or lower the number of replicas",
            Self::IsaUnavailable { .. } => "use `IsaChoice::Auto`; every path gives the same bits",
            Self::TooManySamples { .. } => "split the run; samples are numbered globally",
        }
    }
}
