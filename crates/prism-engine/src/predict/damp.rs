//! Less of a source of variation, or none of it: what attribution and noise-free steps need.

use std::fmt;

use prism_graph::StepGraph;
use prism_model::{
    DurationModel, ImpliedDependency, KernelClass, LawChoice, Signature, TransferModel,
};
use prism_stats::Law;
use serde::{Deserialize, Serialize};

use super::adjust::{Adjustments, SpreadOf};
use super::effects::log_mean_exp;

/// A source of variation of step time.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Source {
    /// Persistent differences between the replicas of a stage.
    Worker,
    /// A whole step is faster or slower, on every worker.
    Step,
    /// One worker is faster or slower during one step, or a window of steps.
    StepWorker,
    /// One microbatch of one replica is larger or smaller.
    Microbatch,
    /// Independent noise of compute.
    Residual,
    /// A step's point-to-point transfers are faster or slower.
    Congestion,
    /// Independent noise of point-to-point transfers.
    Transfer,
    /// Transfers of collectives.
    Collective,
    /// Optimizer and host work.
    Optimizer,
    /// Launch delays.
    LaunchDelay,
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 10] = [
        Source::Worker,
        Source::Step,
        Source::StepWorker,
        Source::Microbatch,
        Source::Residual,
        Source::Congestion,
        Source::Transfer,
        Source::Collective,
        Source::Optimizer,
        Source::LaunchDelay,
    ];

    /// The name in files and in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Source::Worker => "worker",
            Source::Step => "step",
            Source::StepWorker => "step-worker",
            Source::Microbatch => "microbatch",
            Source::Residual => "residual",
            Source::Congestion => "congestion",
            Source::Transfer => "transfer",
            Source::Collective => "collective",
            Source::Optimizer => "optimizer",
            Source::LaunchDelay => "launch-delay",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A model with some of its variation taken away, for [`super::lower_adjusted`].
#[derive(Clone, Debug, PartialEq)]
pub struct Damped {
    /// The changed model: persistent differences, transfers, step-level values.
    pub model: DurationModel,
    /// Changed spreads of compute effects.
    pub adjust: Adjustments,
}

/// Multiplies every deviation by `k(source, signature, replica)`: 1 leaves a source alone, 0 removes it.
///
/// The mean of each operation's duration stays what it was: for worker differences over the replicas of
/// the stage, for everything else over what is drawn. Congestion is shared by all transfers and takes
/// the `k` of the first transfer. The program of the damped model has the form of the original's, so
/// that a tape can be rebound to it (observed vectors only).
pub fn damp(
    graph: &StepGraph,
    model: &DurationModel,
    k: impl Fn(Source, &Signature, usize) -> f64,
) -> Damped {
    let mut damped = Damped { model: model.clone(), adjust: Adjustments::default() };
    let replicas = model.replicas as usize;
    let signature = |c: usize| &model.compute.signatures[c].signature;
    for (of, source) in [
        (SpreadOf::Step, Source::Step),
        (SpreadOf::StepWorker, Source::StepWorker),
        (SpreadOf::Microbatch, Source::Microbatch),
        (SpreadOf::Residual, Source::Residual),
    ] {
        let n = model.compute.signatures.len();
        damped.adjust.scale_spread(of, n, replicas, |c, r| k(source, signature(c), r));
    }
    let fresh = &mut damped.model;
    if !fresh.compute.worker_log.is_empty() {
        for (c, lane) in fresh.compute.worker_log.chunks_mut(replicas).enumerate() {
            let before = log_mean_exp(lane.iter().copied());
            for (r, v) in lane.iter_mut().enumerate() {
                *v *= k(Source::Worker, signature(c), r);
            }
            let shift = before - log_mean_exp(lane.iter().copied());
            for v in lane {
                *v += shift;
            }
        }
    }
    damp_transfers(fresh, replicas, &k);
    damp_step_level(graph, fresh, &k);
    damped
}

fn damp_transfers(
    model: &mut DurationModel,
    replicas: usize,
    k: &impl Fn(Source, &Signature, usize) -> f64,
) {
    let first = model.transfers.iter().find_map(|t| t.members.first()).copied();
    if let Some(first) = first {
        let factor = k(Source::Congestion, &first, 0);
        if factor != 1.0 {
            shrink(&mut model.congestion, factor);
        }
    }
    for transfer in &mut model.transfers {
        let factors: Vec<Vec<f64>> = transfer
            .members
            .iter()
            .map(|s| (0..replicas).map(|r| k(Source::Transfer, s, r)).collect())
            .collect();
        let same = factors.iter().all(|f| f.iter().all(|v| *v == f[0]));
        if !same && !transfer.by_replica {
            split_by_replica(transfer, replicas);
        }
        let width = transfer.members.len();
        let cells = transfer.cells(replicas);
        let cell = transfer.rows_s.len() / cells.max(1);
        for (i, rows) in transfer.rows_s.chunks_mut(cell.max(1)).enumerate() {
            let replica = if transfer.by_replica { i % replicas } else { 0 };
            for (member, of_member) in factors.iter().enumerate() {
                let factor = of_member[replica];
                if factor == 1.0 {
                    continue;
                }
                let mut lane: Vec<f32> = rows.iter().skip(member).step_by(width).copied().collect();
                shrink(&mut lane, factor);
                if let Some(law) = transfer.laws.get_mut(member) {
                    *law = damped_law(&lane, factor);
                }
                for (to, from) in rows.iter_mut().skip(member).step_by(width).zip(lane) {
                    *to = from;
                }
            }
        }
    }
}

/// What parametric draws use for damped transfers: their mean if nothing is left, else the damped values
/// themselves.
fn damped_law(values: &[f32], k: f64) -> Option<LawChoice> {
    if k == 0.0 {
        return None;
    }
    let law = Law::empirical(values.iter().map(|v| f64::from(*v)).collect()).ok()?;
    Some(LawChoice { law, n: values.len(), ks: 0.0, losers: Vec::new() })
}

/// Gives each replica its own copy of the rows; which row is drawn stays the same.
fn split_by_replica(transfer: &mut TransferModel, replicas: usize) {
    let cell = transfer.rows_s.len() / transfer.cells(replicas).max(1);
    transfer.rows_s = transfer
        .rows_s
        .chunks(cell.max(1))
        .flat_map(|rows| std::iter::repeat_n(rows, replicas))
        .flatten()
        .copied()
        .collect();
    transfer.by_replica = true;
}

fn damp_step_level(
    graph: &StepGraph,
    model: &mut DurationModel,
    k: &impl Fn(Source, &Signature, usize) -> f64,
) {
    let (replicas, steps) = (model.replicas as usize, model.steps.len());
    let signature = |op: u32| graph.ops().get(op as usize).map(prism_graph::Op::signature);
    for vector in &mut model.step_work {
        let Some(signature) = signature(vector.op) else { continue };
        let source = match signature.kind.class() {
            KernelClass::Collective => Source::Collective,
            KernelClass::PointToPoint => Source::Transfer,
            _ => Source::Optimizer,
        };
        damp_lanes(&mut vector.values_s, replicas, steps, |r| k(source, &signature, r));
    }
    for vector in &mut model.launch_delay {
        let Some(signature) = signature(vector.op) else { continue };
        damp_lanes(&mut vector.values_s, replicas, steps, |r| {
            k(Source::LaunchDelay, &signature, r)
        });
    }
    for dependency in &mut model.implied {
        let Some(signature) = signature(dependency.op) else { continue };
        damp_lags(dependency, steps, |r| k(Source::LaunchDelay, &signature, r));
    }
}

fn damp_lanes(values: &mut [f32], replicas: usize, steps: usize, k: impl Fn(usize) -> f64) {
    if values.len() <= replicas {
        return;
    }
    for (r, lane) in values.chunks_mut(steps).enumerate() {
        let factor = k(r);
        if factor != 1.0 {
            shrink(lane, factor);
        }
    }
}

/// Lags of the steps in which the replica waits; in the others it goes on not waiting.
fn damp_lags(dependency: &mut ImpliedDependency, steps: usize, k: impl Fn(usize) -> f64) {
    for (r, lane) in dependency.lag_s.chunks_mut(steps.max(1)).enumerate() {
        let factor = k(r);
        if factor == 1.0 {
            continue;
        }
        let waits = |v: f32| v > 0.5 * ImpliedDependency::INACTIVE_S;
        let mut active: Vec<f32> = lane.iter().copied().filter(|v| waits(*v)).collect();
        shrink_signed(&mut active, factor);
        let mut fresh = active.into_iter();
        for v in lane.iter_mut().filter(|v| waits(**v)) {
            *v = fresh.next().unwrap_or(*v);
        }
    }
}

/// Deviations from the mean times `k`. Where that would make a time negative it is 0, so that widening
/// a spread beyond the mean raises the mean.
fn shrink(values: &mut [f32], k: f64) {
    shrink_signed(values, k);
    for v in values {
        *v = v.max(0.0);
    }
}

fn shrink_signed(values: &mut [f32], k: f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
    for v in values {
        *v = (mean + k * (f64::from(*v) - mean)) as f32;
    }
}
