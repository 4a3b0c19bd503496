//! A planned job as a graph with a duration model: what decisions work on.
//!
//! Commands that decide draw whole observed vectors. A planned job has none, so its laws give them:
//! "observed" steps and rows are equally likely values in random order ([`super::lanes`]), so that
//! means and spreads are those of the laws and nothing depends on chance but which values meet. The
//! laws themselves are in the model too, for parametric draws.

use prism_graph::{PlannedStep, StepGraph};
use prism_job::Job;
use prism_job::cost::costs;
use prism_model::DurationModel;

use super::assemble::Assembly;
use super::fleet::Cells;
use super::laws::{CellLaw, Temporal};
use super::{PlannedError, fsdp, lanes};

/// Most operations of all replicas together that are simulated one by one.
pub const MOST_OPERATIONS: usize = 1 << 18;

/// How a planned job becomes a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelOptions {
    /// Seed of the cluster and of the order of values.
    pub seed: u64,
    /// Clusters drawn; the model is of the middle one, as that of [`super::predict_job`].
    pub clusters: u32,
    /// Replicas to model; all of the plan if not given. Fewer wait for each other less.
    pub replicas: Option<u32>,
    /// Steps whose values are drawn together; 0 for as many as memory allows, at most 1,024.
    pub steps: usize,
}

impl Default for ModelOptions {
    fn default() -> Self {
        ModelOptions { seed: 1, clusters: 32, replicas: None, steps: 0 }
    }
}

/// A planned job's graph and what is random about it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedJob {
    /// One replica's step, over the modelled replicas.
    pub graph: StepGraph,
    /// Its durations.
    pub model: DurationModel,
    /// What the reader must know.
    pub notes: Vec<String>,
}

/// The graph and the duration model of a planned job.
///
/// Every operation's mean is its cost times the persistent factor of its cell on the middle one of the
/// clusters drawn; where uneven expert load or bursts of congestion always cost, times what they cost on
/// average. All replicas are modelled, since a maximum over fewer is another one.
///
/// # Errors
/// [`PlannedError::Layered`] if replicas wait for each other at every layer, which no step graph holds;
/// [`PlannedError::TooLarge`] beyond [`MOST_OPERATIONS`]; [`PlannedError::Setting`];
/// [`PlannedError::Graph`] if the schedule does not exist at this size.
pub fn duration_model(job: &Job, options: &ModelOptions) -> Result<PlannedJob, PlannedError> {
    let all = job.plan.data_parallel();
    let replicas = check(options, all)?;
    if fsdp::is_layered(job) {
        return Err(PlannedError::Layered);
    }
    let costs = costs(job);
    let step = PlannedStep::new(job, &costs, replicas)?;
    let ops = step.planned.graph.ops().len();
    if ops.saturating_mul(replicas as usize) > MOST_OPERATIONS {
        return Err(PlannedError::TooLarge { replicas, ops });
    }
    let (cell, temporal) = (CellLaw::of(job, &costs), Temporal::of(job, &costs));
    let mut notes = Vec::new();
    let cells = if cell.is_constant() {
        None
    } else {
        if options.clusters > 1 {
            let n = options.clusters;
            notes.push(format!(
                "persistent speeds are those of the middle one of {n} clusters drawn"
            ));
        }
        Some(Cells::middle(&step, &cell, replicas, options.seed, options.clusters)?)
    };
    if replicas < all {
        notes.push(format!(
            "{replicas} of {all} replicas are modelled: a step waits for the slowest of fewer, and is \
             faster than that of the whole job"
        ));
    }
    let assembly = Assembly::new(&step, &temporal, cells.as_ref(), options);
    if let Some(missed) = assembly.missed_hangs() {
        notes.push(missed);
    }
    let model = assembly.model()?;
    Ok(PlannedJob { graph: step.planned.graph, model, notes })
}

fn check(options: &ModelOptions, all: u32) -> Result<u32, PlannedError> {
    let bad =
        |what, rule, got: u64| Err(PlannedError::Setting { what, rule, got: got.to_string() });
    if options.clusters == 0 {
        return bad("clusters", "at least 1", 0);
    }
    if options.steps == 1 {
        return bad("steps", "at least 2", 1);
    }
    match options.replicas {
        Some(n) if n == 0 || n > all => {
            bad("replicas", "between 1 and the plan's data-parallel replicas", u64::from(n))
        }
        Some(n) => Ok(n),
        None => Ok(all),
    }
}

/// Values of a factor that all of `n` draws share alike.
pub(super) fn strata(n: usize, sd: f64) -> Result<Vec<f64>, PlannedError> {
    if sd > 0.0 { lanes::log_normal(n, sd) } else { Ok(vec![0.0; n]) }
}
