//! The published rules of PRISM (Golden et al., arXiv 2510.15596), as the baseline to beat.
//!
//! Every operation is drawn independently from a pool of what was recorded under its signature. The
//! rules, and what was decided where the paper is silent:
//!
//! | operations | pool | drawn |
//! |---|---|---|
//! | compute, optimizer, markers | recorded durations by kind, stage and chunk, over replicas, steps and microbatches | per operation and replica |
//! | collectives | by kind, chunk and process group: one observation an instance, the *shortest* duration of its participants | once, shared by all participants |
//! | send, receive | by kind, stage and position in the step; split by a threshold, see below | per operation and replica |
//! | launch delays | by kind, stage and chunk, as the gaps between kernels | per operation and replica |
//!
//! - **Collectives.** A recorded duration contains the wait for the last participant. One draw for all
//!   participants needs one observation for all: that of the participant who came last and did not
//!   wait. Drawing raw durations would count every wait twice, since the graph makes it again (20 s
//!   a step on some traces); a graph-based transfer of each participant would be more than the paper
//!   has.
//! - **Bubbles.** A receive that is posted early records its wait. Otsu's threshold on the logarithm
//!   of the durations separates transfers from waits, over both ends of a link and direction (where
//!   one end always waits, only the other shows what a transfer is). A position none of whose
//!   durations exceeds it is *never-bubble* and has a pool of its own; every other one is
//!   *ever-bubble* and draws from the durations of its signature that do not exceed the threshold
//!   (from the other end's where there is none): its wait arises from the graph. Otsu's method always
//!   finds a threshold; as published, there is no test whether there are two classes.
//! - **Shared regime.** A sampled step's communication is drawn under the regime of one observed
//!   step, drawn uniformly: the factor by which that step's communication was slower than average,
//!   in the median over pools. Pools hold durations divided by their own step's factor.
//! - **Laws.** Normal, Gamma and `LogNormal`, fitted to each pool by maximum likelihood; the smallest
//!   KS distance wins, however large it is. A Normal is cut at 0. Launch delays have no law: they are
//!   0 for the most part, and drawn from their pools.
//! - **Graph.** That of the trace ([`crate::replay`]), without dependencies found by calibration.

mod lower;
mod p2p;
mod pool;
mod regime;

use prism_graph::StepGraph;
use prism_model::{OpKind, Signature};
use serde::{Deserialize, Serialize};

pub use lower::lower;
pub use pool::Pool;

use crate::calibrate::{CalibrateError, Selection};
use crate::predict::{Draws, LowerOptions, PredictError};
use crate::replay::Replayed;
use crate::sample::{Isa, Program, RunOptions};

/// How to calibrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IidOptions {
    /// Whether a step's communication shares a regime.
    pub shared_regime: bool,
}

impl Default for IidOptions {
    fn default() -> Self {
        IidOptions { shared_regime: true }
    }
}

/// Durations of one signature outside communication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KernelPool {
    /// Kind, stage and chunk.
    pub signature: Signature,
    /// Recorded durations.
    pub pool: Pool,
}

/// Durations of one collective over one process group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CollectivePool {
    /// Kind.
    pub kind: OpKind,
    /// Model chunk, -1 where there is none.
    pub chunk: i16,
    /// Stages of the participants, ascending.
    pub stages: Vec<u16>,
    /// Shortest duration of each instance, each divided by its step's regime.
    pub pool: Pool,
}

/// Durations of one never-bubble position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PositionPool {
    /// Position among the stage's operations of this kind and chunk, from 0.
    pub position: u32,
    /// Recorded durations, each divided by its step's regime.
    pub pool: Pool,
}

/// Sends or receives of one signature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TransferPools {
    /// Kind, stage and chunk.
    pub signature: Signature,
    /// Longer durations contain a wait, seconds; none if all durations of the link are equal.
    pub threshold_s: Option<f64>,
    /// Variance between the two classes as a share of the total; 0 without a threshold.
    pub separability: f64,
    /// Positions that have waited.
    pub ever_bubble: Vec<u32>,
    /// Positions that never have.
    pub never_bubble: Vec<PositionPool>,
    /// What ever-bubble positions, and positions never seen, draw from: durations up to the
    /// threshold, each divided by its step's regime.
    pub transfer: Pool,
}

/// Launch delays of one signature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GapPool {
    /// Kind, stage and chunk.
    pub signature: Signature,
    /// Launch delays, seconds.
    pub values_s: Vec<f32>,
}

/// The baseline's model of a step; lists are ascending by signature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct IidModel {
    /// Ids of the steps it was calibrated on.
    pub steps: Vec<i64>,
    /// Replicas.
    pub replicas: u32,
    /// Everything that is no communication.
    pub kernels: Vec<KernelPool>,
    /// Collectives.
    pub collectives: Vec<CollectivePool>,
    /// Sends and receives.
    pub transfers: Vec<TransferPools>,
    /// Factor on all communication of a step, one an observed step; empty if not shared.
    pub regime: Vec<f32>,
    /// Launch delays, where a signature has any.
    pub launch_delay: Vec<GapPool>,
}

/// Calibrates the baseline on the selected steps and replicas of a replayed trace.
///
/// # Errors
/// [`CalibrateError`] if fewer than two steps or no replica is selected, or the selection is not of
/// this trace.
pub fn calibrate(
    replayed: &Replayed,
    selection: &Selection,
    options: &IidOptions,
) -> Result<IidModel, CalibrateError> {
    check(replayed, selection)?;
    let graph = &replayed.graph;
    let kernels = pool::kernels(replayed, selection)?;
    let mut collectives = pool::collectives(graph, &replayed.observed, selection);
    let mut transfers = p2p::transfers(graph, &replayed.observed, selection)?;
    let mut regime = Vec::new();
    if options.shared_regime {
        let lists = collectives.values().chain(transfers.iter().flat_map(p2p::Split::lists));
        regime = regime::factors(lists, selection.steps.len());
        let lists =
            collectives.values_mut().chain(transfers.iter_mut().flat_map(p2p::Split::lists_mut));
        regime::remove(lists, &regime);
    }
    Ok(IidModel {
        steps: selection.steps.iter().map(|&t| replayed.observed.steps()[t]).collect(),
        replicas: selection.replicas.len() as u32,
        kernels,
        collectives: collectives
            .into_iter()
            .map(|(key, list)| {
                let pool = Pool::of(list.into_iter().map(|v| v.1))?;
                Ok(CollectivePool { kind: key.kind, chunk: key.chunk, stages: key.stages, pool })
            })
            .collect::<Result<_, CalibrateError>>()?,
        transfers: transfers.into_iter().map(p2p::Split::pools).collect::<Result<_, _>>()?,
        regime: regime.into_iter().map(|f| f as f32).collect(),
        launch_delay: pool::gaps(graph, &replayed.split, selection),
    })
}

/// Checks that a selection is one of this trace.
fn check(replayed: &Replayed, selection: &Selection) -> Result<(), CalibrateError> {
    let (steps, replicas) =
        (replayed.observed.steps().len(), replayed.observed.replicas() as usize);
    if selection.steps.len() < 2 {
        return Err(CalibrateError::TooFewSteps { steps: selection.steps.len() });
    }
    let fits = selection.all_replicas == replicas
        && !selection.replicas.is_empty()
        && selection.replicas.iter().all(|&r| r < replicas)
        && selection.steps.iter().all(|&t| t < steps);
    if fits { Ok(()) } else { Err(CalibrateError::Selection { steps, replicas }) }
}

impl IidModel {
    /// Lowers a graph to a program whose output `step` is the step time, seconds, drawn from fitted
    /// laws as published. [`lower`] has more options.
    ///
    /// # Errors
    /// [`PredictError`] if the model does not fit the graph, or a law cannot be tabulated.
    pub fn lower(&self, graph: &StepGraph) -> Result<Program, PredictError> {
        let options = LowerOptions { draws: Draws::Parametric, ..LowerOptions::default() };
        lower(graph, self, &options)
    }
}

/// How to predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IidPredictOptions {
    /// Fitted laws, or the recorded durations themselves.
    pub draws: Draws,
    /// Samples.
    pub samples: usize,
    /// Seed.
    pub seed: u64,
    /// Threads; 0 for all.
    pub threads: usize,
    /// Instruction set; `None` for the fastest.
    pub isa: Option<Isa>,
}

impl Default for IidPredictOptions {
    /// As published: 1,000 draws from fitted laws.
    fn default() -> Self {
        IidPredictOptions {
            draws: Draws::Parametric,
            samples: 1_000,
            seed: 1,
            threads: 0,
            isa: None,
        }
    }
}

/// Samples of the step time, seconds, in the order of the samples.
///
/// # Errors
/// [`PredictError`] if the model does not fit the graph, or there is nothing to draw.
pub fn predict(
    graph: &StepGraph,
    model: &IidModel,
    options: &IidPredictOptions,
) -> Result<Vec<f32>, PredictError> {
    if options.samples == 0 {
        return Err(PredictError::TooSmall { what: "samples", least: 1, got: 0 });
    }
    let lowering = LowerOptions { draws: options.draws, ..LowerOptions::default() };
    let tape = lower(graph, model, &lowering)?.compile()?;
    let run = RunOptions {
        seed: options.seed,
        samples: options.samples,
        threads: options.threads,
        isa: options.isa,
        ..RunOptions::default()
    };
    Ok(tape.run(&run)?.get("step").map_or_else(Vec::new, |o| o.row(0).to_vec()))
}

#[cfg(test)]
mod tests;
