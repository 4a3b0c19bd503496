//! Which worker should be which (replica, stage) cell.
//!
//! Workers differ in speed for good, and a pipeline feels a slow one more in some stages than in
//! others; a data-parallel step waits for its slowest replica, so that slow workers cost less
//! together than apart. [`place`] looks for the order of workers with the lowest p95 (mean, `CVaR`) of
//! step time:
//!
//! 1. Steps are sampled once, at factor 1 of every worker, and taken apart. Under other workers a
//!    replica's step time is convex and piecewise linear in its stages' factors; its longest paths (cuts)
//!    bound it from below and are exact where they were found.
//! 2. Where there are at most [`PlaceOptions::exhaustive_limit`] distinct orders, all are computed. Else
//!    swaps are searched from several starts: the given order, slow workers in the same replica, slow
//!    workers in the stage that matters least; swaps start from the cells on longest paths of the slow
//!    samples. A swap is bounded by cuts and computed only if the bound promises a gain.
//! 3. On small plans a searched result is compared with random orders, and improved by swaps, by the Monte Carlo
//!    kernel on the whole graph: what couples replicas before the end is not in the cuts.
//! 4. The result is checked by the Monte Carlo kernel on other samples than those searched on. If that
//!    does not show a gain over the given order, the given order is the result.
//!
//! All comparisons use common random numbers, and everything is the same on any number of threads.

mod dropped;
mod error;
mod evaluate;
mod exhaustive;
mod keep;
mod layout;
mod local;
mod moves;
mod nominal;
mod objective;
mod output;
mod refine;
mod region;
mod sampled;
mod search;
mod sensitivity;
mod solve;
#[cfg(test)]
mod tests;
mod workers;

use prism_engine::predict::LowerOptions;
use prism_graph::StepGraph;
use prism_model::DurationModel;

pub use error::PlaceError;
pub use keep::{Advice, KeepOrDrop, Spare};
pub use objective::{Objective, Ratio};
pub use output::{Cell, Gains, Method, Move, Placement, RandomOrders};
pub use sensitivity::{Sensitivity, SensitivityOptions, StageSensitivity, sensitivity};
pub use workers::{GpuSpeed, Worker, Workers};

use nominal::{Nominal, Origin};
use solve::Problem;

/// How to place.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceOptions {
    /// What is minimised.
    pub objective: Objective,
    /// Samples of the check, from which all shown numbers come.
    pub samples: usize,
    /// Samples of the search, other ones; fewer on plans so large that they would not fit in memory.
    pub search_samples: usize,
    /// Random orders to compare with.
    pub random_orders: usize,
    /// Most distinct orders that are all computed.
    pub exhaustive_limit: u64,
    /// Name of the label that a replica's workers must share.
    pub same: Option<String>,
    /// Whether to ask what to do about the slowest worker.
    pub keep_or_drop: bool,
    /// Confidence of intervals.
    pub confidence: f64,
    /// Seed.
    pub seed: u64,
    /// Threads; 0 for all.
    pub threads: usize,
    /// Whether launch delays are there.
    pub launch_delays: bool,
}

impl Default for PlaceOptions {
    fn default() -> Self {
        PlaceOptions {
            objective: Objective::P95,
            samples: 4_000,
            search_samples: 512,
            random_orders: 20,
            exhaustive_limit: 50_000,
            same: None,
            keep_or_drop: false,
            confidence: 0.95,
            seed: 1,
            threads: 0,
            launch_delays: true,
        }
    }
}

/// Places workers on a calibrated job: measured ones, whose factors replace the model's own worker
/// effects, or without any the model's own, by cell.
///
/// # Errors
/// [`PlaceError`].
pub fn place(
    graph: &StepGraph,
    model: &DurationModel,
    workers: Option<&Workers>,
    options: &PlaceOptions,
) -> Result<Placement, PlaceError> {
    if options.samples < 100 {
        let (what, rule) = ("the number of samples", "at least 100");
        return Err(PlaceError::Setting { what, rule, got: options.samples.to_string() });
    }
    let origin = if workers.is_some() { Origin::Measured } else { Origin::Model };
    let lowering = LowerOptions { launch_delays: options.launch_delays, ..LowerOptions::default() };
    let (nominal, own) = Nominal::new(graph, model, origin, lowering)?;
    let (replicas, stages) = (nominal.replicas(), nominal.stages());
    let cells = replicas * stages;
    let own = Workers::of_factors(&own, stages, cells);
    let workers = workers.unwrap_or(&own);
    if workers.list.len() < cells {
        let workers = workers.list.len();
        return Err(PlaceError::TooFewWorkers { workers, cells, replicas, stages });
    }
    let problem = Problem {
        nominal: &nominal,
        factors: workers.factors(),
        types: workers.types(),
        labels: workers.labels(options.same.as_deref(), stages, cells)?,
        given: (0..workers.list.len() as u32).collect(),
    };
    let solved = problem.solve(options)?;
    output::output(&problem, &solved, workers, options)
}
