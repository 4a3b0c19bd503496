//! What a search says.

use prism_job::{Job, Plan, Recompute, ScheduleName};
use serde::{Deserialize, Serialize};

use super::space::plan_line;
use super::{PlanObjective, Predicted};

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[allow(clippy::struct_excessive_bools)]
pub struct PlanFile {
    /// In one line.
    pub name: String,
    /// GPUs.
    pub gpus: u64,
    /// Tensor-parallel ranks.
    pub tensor_parallel: u32,
    /// Whether activations between tensor-parallel regions are split along the sequence.
    pub sequence_parallel: bool,
    /// Context-parallel ranks.
    pub context_parallel: u32,
    /// Expert-parallel ranks.
    pub expert_parallel: u32,
    /// Pipeline stages.
    pub pipeline_parallel: u32,
    /// Chunks a stage.
    pub virtual_chunks: u32,
    /// Layers of the chunks; empty where they are even.
    pub chunk_layers: Vec<u32>,
    /// Schedule.
    pub schedule: ScheduleName,
    /// Replicas over which state is sharded.
    pub data_parallel_shard: u32,
    /// Groups of them that hold copies.
    pub data_parallel_replicate: u32,
    /// What `ZeRO` shards, 0 to 3.
    pub zero_stage: u8,
    /// Recomputation.
    pub recompute: Recompute,
    /// Sequences of a microbatch.
    pub micro_batch_size: u32,
    /// Microbatches of a replica and step.
    pub microbatches: u32,
}

impl PlanFile {
    /// Of a job.
    pub fn new(job: &Job) -> PlanFile {
        let plan: &Plan = &job.plan;
        PlanFile {
            name: plan_line(plan, job.training.micro_batch_size),
            gpus: job.gpus(),
            tensor_parallel: plan.tensor_parallel,
            sequence_parallel: plan.sequence_parallel,
            context_parallel: plan.context_parallel,
            expert_parallel: plan.expert_parallel,
            pipeline_parallel: plan.pipeline_parallel,
            virtual_chunks: plan.virtual_chunks,
            chunk_layers: plan.chunk_layers.clone(),
            schedule: plan.schedule,
            data_parallel_shard: plan.data_parallel_shard,
            data_parallel_replicate: plan.data_parallel_replicate,
            zero_stage: plan.zero.into(),
            recompute: plan.recompute,
            micro_batch_size: job.training.micro_batch_size,
            microbatches: job.microbatches(),
        }
    }
}

/// A plan whose distribution was predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RankedPlan {
    /// Place by the objective, from 1.
    pub rank: u32,
    /// The plan.
    pub plan: PlanFile,
    /// Lower bound of the noise-free step, seconds.
    pub bound_s: f64,
    /// Step without noise, seconds.
    pub noise_free_s: f64,
    /// Its distribution.
    #[serde(flatten)]
    pub predicted: Predicted,
    /// Whether its interval overlaps the next plan's, so that the order of the two is not known.
    pub tied_with_next: bool,
    /// Whether no other plan has both a lower mean and a lower p95.
    pub pareto: bool,
    /// Memory that the fullest stage leaves free, bytes.
    pub headroom_bytes: f64,
    /// Model FLOP per second without noise over the GPUs' 16-bit rate; attention counted causal.
    pub mfu: f64,
    /// Share of the noise-free step in which a stage does not compute, mean over stages.
    pub bubble: f64,
}

/// What became of the plans.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct PlanCounts {
    /// Plans in the range that use all GPUs.
    pub considered: usize,
    /// Of those, impossible ones.
    pub illegal: usize,
    /// Possible ones that do not fit into memory.
    pub too_large: usize,
    /// Plans that fit, whose noise-free step need not be computed: its lower bound is too high.
    pub bounded_out: usize,
    /// Plans whose noise-free step was computed.
    pub noise_free: usize,
    /// Of those, plans whose distribution was predicted.
    pub predicted: usize,
    /// Plans without a prediction whose noise-free step (or its bound) is below the winner's objective:
    /// noise would have to favour them more than it does the winner for them to win.
    pub undecided: usize,
}

/// How far the noise-free step times were needed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cutoff {
    /// What noise adds to the objective of the plan with the shortest noise-free step, as a share of it.
    pub penalty: f64,
    /// Share by which a noise-free step may exceed that of the last plan shown and still be looked at.
    pub margin: f64,
}

/// A plan near a range without any that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NearestPlan {
    /// The plan.
    pub plan: PlanFile,
    /// Memory that the fullest stage leaves free, bytes; negative where it does not fit.
    pub headroom_bytes: f64,
}

/// Work of a search, for speeds. Times are seconds of wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StageTime {
    /// Plans.
    pub plans: usize,
    /// Time.
    pub seconds: f64,
}

impl StageTime {
    /// Plans a second; 0 if there were none.
    pub fn per_second(&self) -> f64 {
        if self.plans == 0 { 0.0 } else { self.plans as f64 / self.seconds.max(1e-9) }
    }
}

/// Work of a search by stage. It differs from run to run, so it is no part of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SearchTimes {
    /// Rules.
    pub rules: StageTime,
    /// Memory.
    pub memory: StageTime,
    /// Lower bounds.
    pub bound: StageTime,
    /// Noise-free steps.
    pub noise_free: StageTime,
    /// Distributions.
    pub distribution: StageTime,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResult {
    /// What was minimised.
    pub objective: PlanObjective,
    /// Plans by the objective, the best first.
    pub plans: Vec<RankedPlan>,
    /// What became of all plans.
    pub counts: PlanCounts,
    /// How far the noise-free steps were needed; none where no plan fits.
    pub cutoff: Option<Cutoff>,
    /// Where no plan fits: the nearest ones.
    pub nearest: Vec<NearestPlan>,
    /// Median over evaluated plans of lower bound over noise-free step; none without plans.
    pub bound_ratio: Option<f64>,
    /// The winner as a job.
    pub best: Option<Job>,
    /// Work by stage.
    pub times: SearchTimes,
}
