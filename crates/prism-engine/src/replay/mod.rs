//! Exact evaluation of recorded steps, and what they would have been otherwise.
//!
//! A recorded operation's time is split into its own work, waiting, and launch delay
//! ([`Split`]); the graph evaluated with these reproduces the record. With other work
//! ([`Ideal`], [`replace`]) it says what the step would have taken. [`ReplayReport`] holds the
//! figures, [`choose_builder`] the graph that replays a trace best.
//!
//! Sections 5 to 8 of the straggler trace format's description.

mod choose;
mod ideal;
mod mixed;
mod report;
mod split;

pub use choose::{Choice, Replayed, choose_builder};
pub use ideal::{Ideal, replace};
pub use mixed::MixedWork;
pub use report::{Builder, ReplayComparison, ReplayError, ReplayReport, StepReplay};
pub use split::{CLAMP_S, Split, recorded_step_times};

use prism_graph::{ArrayDurations, GraphError, StepGraph, step_times};

/// Step times of the graph with the given work and launch delays, seconds, one a step.
///
/// `work` and `launch_delay` are flat `[operation][step][replica]` arrays, seconds.
///
/// # Errors
/// [`GraphError::Shape`] if an array has the wrong length.
pub fn simulate(
    graph: &StepGraph,
    steps: usize,
    work: &[f64],
    launch_delay: Option<&[f64]>,
) -> Result<Vec<f64>, GraphError> {
    Ok(step_times(graph, steps, &ArrayDurations::new(graph, steps, work, launch_delay)?))
}
