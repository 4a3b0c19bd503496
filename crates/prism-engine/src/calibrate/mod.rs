//! Calibration: recorded operations become a duration model.
//!
//! The model is `log d = base + worker + position + step + step x worker + microbatch·load +
//! residual` for compute (every effect tested, and dropped if it is not there), whole observed rows
//! for point-to-point transfers, and whole observed steps for collectives and launch delays.
//! Recorded step totals are never an input.

mod compute;
mod cube;
mod effects;
mod error;
mod factor;
mod implied;
mod laws;
mod rebuild;
mod regimes;
mod repeat;
mod shrink;
mod spread;
mod step_level;
mod transfers;

use prism_graph::StepGraph;
use prism_model::DurationModel;

pub use compute::Kept;
pub use error::CalibrateError;
pub use implied::with_dependencies;
pub(crate) use rebuild::check_job;
pub use rebuild::rebuild;
pub use repeat::Resampler;
pub(crate) use transfers::transfer_stride;
pub use transfers::{RowPlace, row_places};

use crate::replay::{Replayed, simulate};
pub use cube::windows;

use cube::Cube;

/// How to calibrate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CalibrateOptions {
    /// Level at which an effect is kept.
    pub alpha: f64,
    /// Whether parametric laws are fitted too.
    pub laws: bool,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        CalibrateOptions { alpha: 0.01, laws: true }
    }
}

/// Which steps and replicas of a trace are used, by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Indices into the observed steps, ascending.
    pub steps: Vec<usize>,
    /// Replicas, ascending.
    pub replicas: Vec<usize>,
    /// Replicas in the trace.
    pub all_replicas: usize,
}

impl Selection {
    /// All steps and replicas.
    pub fn all(replayed: &Replayed) -> Selection {
        Selection::steps(replayed, (0..replayed.observed.steps().len()).collect())
    }

    /// Some steps of all replicas.
    pub fn steps(replayed: &Replayed, steps: Vec<usize>) -> Selection {
        let all_replicas = replayed.observed.replicas() as usize;
        Selection { steps, replicas: (0..all_replicas).collect(), all_replicas }
    }
}

/// A calibrated model and the graph its operations belong to.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrated {
    /// The graph, implied dependencies included, over the selected replicas.
    pub graph: StepGraph,
    /// The model.
    pub model: DurationModel,
    /// Effects that the compute model has.
    pub kept: Kept,
}

/// Calibrates on the selected steps and replicas of a replayed trace.
///
/// # Errors
/// If fewer than two steps are selected, there is no compute, or a compute duration is not
/// positive.
pub fn calibrate(
    replayed: &Replayed,
    selection: &Selection,
    options: &CalibrateOptions,
) -> Result<Calibrated, CalibrateError> {
    let (graph, observed, split) = (&replayed.graph, &replayed.observed, &replayed.split);
    if selection.steps.len() < 2 {
        return Err(CalibrateError::TooFewSteps { steps: selection.steps.len() });
    }
    let ids: Vec<i64> = selection.steps.iter().map(|&t| observed.steps()[t]).collect();
    let windows = windows(&ids);
    let cube = Cube::collect(graph, observed, &selection.steps, &selection.replicas)?;
    let microbatches = cube.microbatches as u32;
    let (mut compute, mut effects) = compute::compute_model(cube, &windows, options.alpha, None);
    let (mut transfers, congestion, effect) =
        transfers::transfers(graph, split, selection, options.alpha);
    effects.push(effect);
    if options.laws {
        laws::fit_compute(&mut compute, selection.steps.len(), selection.replicas.len());
        laws::fit_transfers(&mut transfers);
    }
    let times_s = step_times(replayed, selection)?;
    let step_s = effects::mean(&times_s);
    let implied = implied::implied_dependencies(graph, observed, split, selection, step_s);
    let launch_delay = step_level::launch_delays(graph, split, selection, &implied, step_s);
    let graph = with_dependencies(graph, &implied, selection.replicas.len() as u32)?;
    let kept = Kept::of(&effects);
    let model = DurationModel {
        regimes: regimes::regimes(&ids, &windows, &times_s, options.alpha),
        steps: ids,
        windows,
        replicas: selection.replicas.len() as u32,
        microbatches,
        effects,
        compute,
        transfers,
        congestion,
        step_work: step_level::step_work(&replayed.graph, split, selection),
        launch_delay,
        implied,
    };
    Ok(Calibrated { graph, model, kept })
}

/// Zero-delay step times of the selected steps, composed from all replicas' operations.
fn step_times(replayed: &Replayed, selection: &Selection) -> Result<Vec<f64>, CalibrateError> {
    let steps = replayed.observed.steps().len();
    let all = simulate(&replayed.graph, steps, &replayed.split.work, None)?;
    Ok(selection.steps.iter().map(|&t| all[t]).collect())
}
