//! Why there is no placement.

use prism_engine::predict::PredictError;
use prism_engine::sample::SampleError;
use prism_graph::GraphError;
use prism_stats::StatsError;

/// Why workers cannot be placed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// Fewer workers than the plan has cells.
    #[error("{workers} workers for {cells} cells ({replicas} replicas x {stages} stages)")]
    TooFewWorkers {
        /// Workers given.
        workers: usize,
        /// Cells to fill.
        cells: usize,
        /// Replicas of the plan.
        replicas: usize,
        /// Stages of the plan.
        stages: usize,
    },
    /// A speed that is no positive finite number.
    #[error("worker `{worker}`: a time of {time} is not positive and finite")]
    Time {
        /// Whose.
        worker: String,
        /// The time.
        time: f64,
    },
    /// Two workers of one name.
    #[error("worker `{worker}` is there twice")]
    Twice {
        /// Its name.
        worker: String,
    },
    /// Tensor-parallel groups need to know the nodes.
    #[error("tensor-parallel groups of {tp} stay inside a node, but GPU `{gpu}` names no node")]
    NoNode {
        /// A GPU without a node.
        gpu: String,
        /// GPUs of a group.
        tp: usize,
    },
    /// A constraint on a label that workers do not have.
    #[error("worker `{worker}` has no `{label}`, by which replicas are held together")]
    NoLabel {
        /// Worker without the label.
        worker: String,
        /// Name of the label.
        label: String,
    },
    /// GPUs of one tensor-parallel group with different labels.
    #[error("node `{node}`: the GPUs of one tensor-parallel group differ in `{label}`")]
    LabelInGroup {
        /// The node.
        node: String,
        /// Name of the label.
        label: String,
    },
    /// The order as given breaks the constraint.
    #[error(
        "in the order as given, replica {replica} has stages on `{label}` {first} (worker `{worker}`) \
         and {second} (worker `{other}`)",
        first = values[0], second = values[1], worker = workers[0], other = workers[1]
    )]
    GivenOrder {
        /// The replica.
        replica: usize,
        /// Name of the label.
        label: String,
        /// Two of its values.
        values: Box<[String; 2]>,
        /// A worker of each.
        workers: Box<[String; 2]>,
    },
    /// Replicas that meet between computes.
    #[error(
        "placement needs replicas that meet only before the first and after the last compute of a \
         step; {op} waits for other replicas in between"
    )]
    Coupled {
        /// An operation between meetings.
        op: String,
    },
    /// A worker that is slower or faster than can be.
    #[error("`{worker}` takes {factor:e} times as long as the median worker; 0.001 to 1000 can be")]
    Factor {
        /// The worker.
        worker: String,
        /// Its factor.
        factor: f64,
    },
    /// A setting out of range.
    #[error("{what} must be {rule}, not {got}")]
    Setting {
        /// Which.
        what: &'static str,
        /// What holds of legal values.
        rule: &'static str,
        /// What was given.
        got: String,
    },
    /// The step times.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// The graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A statistic.
    #[error(transparent)]
    Stats(#[from] StatsError),
}

impl From<SampleError> for PlaceError {
    fn from(source: SampleError) -> Self {
        PlaceError::Predict(source.into())
    }
}

impl PlaceError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            PlaceError::TooFewWorkers { .. } => {
                Some("one row a GPU, or `--tp N` where a worker is a group of N GPUs")
            }
            PlaceError::Time { .. } => Some("remove the row, or measure the GPU again"),
            PlaceError::Twice { .. } => Some("give each worker a name of its own"),
            PlaceError::NoNode { .. } => Some("add a column `node`, or name it by `--node-column`"),
            PlaceError::NoLabel { .. } => Some("fill the column, or leave out `--same`"),
            PlaceError::LabelInGroup { .. } => {
                Some("give all GPUs of a node one value, or leave out `--same`")
            }
            PlaceError::GivenOrder { .. } => {
                Some("order the rows so that every replica's workers agree, replica by replica")
            }
            PlaceError::Coupled { .. } => Some(
                "compare orders one by one with `prism place INPUT --slow`, which needs no search",
            ),
            PlaceError::Factor { .. } => Some("correct its time, or leave the row out"),
            PlaceError::Setting { .. } => None,
            PlaceError::Predict(e) => e.hint(),
            PlaceError::Graph(e) => e.hint(),
            PlaceError::Stats(e) => Some(e.hint()),
        }
    }
}
