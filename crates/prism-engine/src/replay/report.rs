//! The figures of a replay.

use std::fmt;

use prism_graph::{GraphError, Observed, StepGraph};
use serde::{Deserialize, Serialize};

use super::ideal::mean;
use super::{Ideal, Split, recorded_step_times, simulate};

/// How a trace becomes a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Builder {
    /// The trace format's own rules: [`prism_graph::build_reference`].
    Reference,
    /// Blocking, batched sends and receives: [`prism_graph::build_program_order`].
    ProgramOrder,
    /// Not from a trace: from a plan ([`prism_graph::PlannedShape::graph`]).
    Planned,
}

impl fmt::Display for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Builder::Reference => "reference",
            Builder::ProgramOrder => "program-order",
            Builder::Planned => "planned",
        })
    }
}

/// One step, recorded and replayed. Seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepReplay {
    /// Training step id.
    pub step: i64,
    /// Recorded: latest end less earliest start (`T_base`).
    pub base_s: f64,
    /// Replayed without launch delays (`T_nd`).
    pub no_delay_s: f64,
    /// Replayed with launch delays.
    pub with_delay_s: f64,
    /// With each kind's ideal work and no launch delays (`T_id`).
    pub ideal_s: f64,
    /// `no_delay_s / ideal_s`.
    pub slowdown: f64,
    /// `base_s / no_delay_s`.
    pub launch_slowdown: f64,
}

/// How far replayed step times are from the recorded ones, in percent of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReplayError {
    /// Mean replayed step time against mean recorded step time.
    pub mean_percent: f64,
    /// Root mean square over the steps.
    pub rms_percent: f64,
}

impl ReplayError {
    fn new(replayed: &[f64], recorded: &[f64]) -> ReplayError {
        let squares: Vec<f64> =
            replayed.iter().zip(recorded).map(|(a, b)| (a / b - 1.0).powi(2)).collect();
        ReplayError {
            mean_percent: 100.0 * (mean(replayed) / mean(recorded) - 1.0),
            rms_percent: 100.0 * mean(&squares).sqrt(),
        }
    }
}

/// All steps of a trace, recorded and replayed on one graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReplayReport {
    /// How the graph was built.
    pub builder: Builder,
    /// Operations of one replica's step.
    pub operations: usize,
    /// Dependencies between them.
    pub dependencies: usize,
    /// Groups of operations that start together.
    pub groups: usize,
    /// Data-parallel replicas.
    pub replicas: u32,
    /// Pipeline stages.
    pub stages: u16,
    /// Mean recorded step time, seconds.
    pub mean_base_s: f64,
    /// Mean step time without launch delays, seconds.
    pub mean_no_delay_s: f64,
    /// Mean ideal step time, seconds.
    pub mean_ideal_s: f64,
    /// `S = mean_no_delay_s / mean_ideal_s`.
    pub slowdown: f64,
    /// `mean_base_s / mean_no_delay_s`.
    pub launch_slowdown: f64,
    /// Without launch delays, against the record.
    pub zero_delay_error: ReplayError,
    /// With launch delays, against the record: rounding and clock errors.
    pub with_delay_error: ReplayError,
    /// Negative transfers that were set to 0.
    pub clamped_transfers: usize,
    /// Negative launch delays that were set to 0.
    pub clamped_delays: usize,
    /// Ideal work by kind, seconds.
    pub ideal: Ideal,
    /// Each step.
    pub steps: Vec<StepReplay>,
}

impl ReplayReport {
    /// Replays `observed`, which `split` was made from.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if graph, observations and split do not belong together.
    pub fn new(
        builder: Builder,
        graph: &StepGraph,
        observed: &Observed,
        split: &Split,
    ) -> Result<ReplayReport, GraphError> {
        let n = observed.steps().len();
        let ideal = Ideal::new(graph, split);
        let base = recorded_step_times(graph, observed);
        let no_delay = simulate(graph, n, &split.work, None)?;
        let with_delay = simulate(graph, n, &split.work, Some(&split.launch_delay))?;
        let ideal_times = simulate(graph, n, &ideal.work(graph, observed.samples()), None)?;
        let steps = (0..n)
            .map(|i| StepReplay {
                step: observed.steps()[i],
                base_s: base[i],
                no_delay_s: no_delay[i],
                with_delay_s: with_delay[i],
                ideal_s: ideal_times[i],
                slowdown: no_delay[i] / ideal_times[i],
                launch_slowdown: base[i] / no_delay[i],
            })
            .collect();
        Ok(ReplayReport {
            builder,
            operations: graph.ops().len(),
            dependencies: graph.dep_count(),
            groups: graph.groups().len(),
            replicas: graph.replicas(),
            stages: graph.stages(),
            mean_base_s: mean(&base),
            mean_no_delay_s: mean(&no_delay),
            mean_ideal_s: mean(&ideal_times),
            slowdown: mean(&no_delay) / mean(&ideal_times),
            launch_slowdown: mean(&base) / mean(&no_delay),
            zero_delay_error: ReplayError::new(&no_delay, &base),
            with_delay_error: ReplayError::new(&with_delay, &base),
            clamped_transfers: split.clamped_transfers,
            clamped_delays: split.clamped_delays,
            ideal,
            steps,
        })
    }
}

/// Both builders' replays of one trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReplayComparison {
    /// The builder with the smaller root mean square zero-delay error; the reference on a tie.
    pub chosen: Builder,
    /// The reference builder's replay.
    pub reference: ReplayReport,
    /// The program-order builder's replay.
    pub program_order: Option<ReplayReport>,
    /// Why there is no program-order replay.
    pub program_order_error: Option<String>,
}
