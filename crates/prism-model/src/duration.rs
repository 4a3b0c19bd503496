//! The calibrated duration model of a job.
//!
//! Operations are named by their index in the step graph that is stored beside the model. Arrays
//! are flat, row-major in the order their documentation gives; `c` is a compute signature, `r` a
//! replica, `t` an observed step, `m` a microbatch.

use prism_stats::Law;
use serde::{Deserialize, Serialize};

use crate::{Effect, Signature};

/// Durations of forward and backward compute of one signature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ComputeSignature {
    /// Kind, stage and chunk.
    pub signature: Signature,
    /// Graph operations by microbatch position: `ops[m]`, unless `positions` says otherwise.
    pub ops: Vec<u32>,
    /// Microbatch position of each of `ops`, where the signature does not have one for every
    /// microbatch, as in schedules that send them through the stages in two directions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<u32>,
    /// Mean of log duration (seconds).
    pub base_log_s: f64,
    /// Loading on the microbatch effect; their mean over signatures is 1.
    pub microbatch_load: f64,
    /// Loading on the step effect; their mean over signatures is 1.
    pub step_load: f64,
    /// S.d. of the microbatch effect times its loading, in log time.
    pub microbatch_sd_log: f64,
    /// S.d. of the residual, in log time.
    pub residual_sd_log: f64,
    /// Law of the residual factor `exp(residual)`, for parametric draws.
    pub residual_law: Option<LawChoice>,
}

impl ComputeSignature {
    /// Operations with their microbatch position.
    pub fn by_position(&self) -> impl Iterator<Item = (usize, u32)> {
        let at = |i: usize| self.positions.get(i).map_or(i, |&m| m as usize);
        self.ops.iter().enumerate().map(move |(i, &op)| (at(i), op))
    }
}

/// A law and what it was chosen over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LawChoice {
    /// The chosen law.
    pub law: Law,
    /// Values it was fitted to.
    pub n: usize,
    /// Kolmogorov–Smirnov distance to those values.
    pub ks: f64,
    /// The others, by rising KS distance.
    pub losers: Vec<LawCandidate>,
}

/// A family that was not chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LawCandidate {
    /// Family name.
    pub family: String,
    /// Kolmogorov–Smirnov distance, if it could be fitted.
    pub ks: Option<f64>,
    /// Akaike's criterion, if it has a density.
    pub aic: Option<f64>,
    /// Why it could not be fitted.
    pub error: Option<String>,
}

/// Durations of forward and backward compute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ComputeModel {
    /// Signatures.
    pub signatures: Vec<ComputeSignature>,
    /// Position effect in log time, `[c][m]`; empty if dropped.
    pub position_log: Vec<f32>,
    /// Worker effect in log time, `[c][r]`; empty if dropped.
    pub worker_log: Vec<f64>,
    /// Factor on microbatch and residual effects, `[c][r]`; empty if the spread is the same.
    pub worker_spread: Vec<f64>,
    /// Observed log durations (seconds), `[c][m][t][r]`; the vectors below follow from them.
    pub observations_log_s: Vec<f32>,
    /// Step plus step x worker effects in log time, `[c][r][t]`, shrunk to their estimated
    /// variance; empty if both are dropped. Not stored in files.
    #[serde(skip)]
    pub step_vectors_log: Vec<f32>,
    /// Observed microbatch plus residual effects in log time, one row a (microbatch, step,
    /// replica), `[row][c]`, divided by `worker_spread`. Not stored in files.
    #[serde(skip)]
    pub microbatch_vectors_log: Vec<f32>,
    /// Whether a row is drawn whole for a microbatch (microbatch effect kept), or every operation
    /// draws its own.
    pub microbatch_shared: bool,
    /// S.d. of the step effect in log time.
    pub step_sd_log: f64,
    /// S.d. of the step x worker effect in log time.
    pub step_worker_sd_log: f64,
    /// S.d. of the microbatch effect (loading 1) in log time.
    pub microbatch_sd_log: f64,
    /// S.d. of the worker effect over replicas, slow ones included, in log time.
    pub worker_sd_log: f64,
    /// Law of the step factor, for parametric draws.
    pub step_law: Option<LawChoice>,
    /// Law of the step x worker factor, for parametric draws.
    pub step_worker_law: Option<LawChoice>,
    /// Law of the microbatch factor, for parametric draws.
    pub microbatch_law: Option<LawChoice>,
}

/// Operations of one communication group that are drawn together: whole rows of transfer times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TransferModel {
    /// Kind and stage of each member.
    pub members: Vec<Signature>,
    /// Graph operations of each instance, `[instance][member]`.
    pub ops: Vec<u32>,
    /// Whether instances (positions in the step) differ: each draws from its own rows.
    pub by_instance: bool,
    /// Whether replicas differ: each draws from its own rows.
    pub by_replica: bool,
    /// Observed transfers, seconds, `[instance][replica][row][member]`, each divided by its step's
    /// congestion factor; the first two axes have length 1 where they make no difference.
    pub rows_s: Vec<f32>,
    /// Law of each member's transfer, for parametric draws; none where nothing varies.
    pub laws: Vec<Option<LawChoice>>,
}

impl TransferModel {
    /// Number of separate pools: instances and replicas where those differ.
    pub fn cells(&self, replicas: usize) -> usize {
        let instances = self.ops.len() / self.members.len().max(1);
        let apart = |yes: bool, n: usize| if yes { n.max(1) } else { 1 };
        apart(self.by_instance, instances) * apart(self.by_replica, replicas)
    }
}

/// An operation whose value is drawn with the step: `values_s[r][t]`, seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepVector {
    /// Graph operation.
    pub op: u32,
    /// Values `[r][t]`; one per replica if they are constant over steps.
    pub values_s: Vec<f32>,
}

/// A dependency found in the data: `start(op) >= end(on) + lag`, on the replicas where it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ImpliedDependency {
    /// The waiting operation.
    pub op: u32,
    /// What it waits for.
    pub on: u32,
    /// Lag, seconds, `[r][t]`; [`ImpliedDependency::INACTIVE_S`] where the replica does not wait.
    pub lag_s: Vec<f32>,
}

impl ImpliedDependency {
    /// Stands for "does not wait": earlier than any time.
    pub const INACTIVE_S: f32 = -1e30;
}

/// Steps that differ from the rest; they are kept, and drawn as often as they were seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Regime {
    /// What sets them apart.
    pub kind: RegimeKind,
    /// Step ids.
    pub steps: Vec<i64>,
    /// Their zero-delay step time relative to the others' median, minus 1.
    pub excess: f64,
    /// In words.
    pub note: String,
}

/// What sets a regime's steps apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RegimeKind {
    /// Isolated slow steps.
    Outlier,
    /// The first window of recorded steps differs from the later ones.
    EarlyWindow,
}

/// Everything that is random about a job's step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DurationModel {
    /// Observed step ids, ascending; `t` indexes these.
    pub steps: Vec<i64>,
    /// Window of each step: runs of nearby step ids.
    pub windows: Vec<u32>,
    /// Replicas.
    pub replicas: u32,
    /// Microbatches per step and replica.
    pub microbatches: u32,
    /// Which effects there are.
    pub effects: Vec<Effect>,
    /// Forward and backward compute.
    pub compute: ComputeModel,
    /// Point-to-point transfers.
    pub transfers: Vec<TransferModel>,
    /// Factor on the point-to-point transfers of each observed step; empty if dropped.
    pub congestion: Vec<f32>,
    /// Work of the other operations (collectives, optimizer, markers).
    pub step_work: Vec<StepVector>,
    /// Launch delays; operations without one have none to speak of.
    pub launch_delay: Vec<StepVector>,
    /// Dependencies found in the data.
    pub implied: Vec<ImpliedDependency>,
    /// Steps that differ from the rest.
    pub regimes: Vec<Regime>,
}
