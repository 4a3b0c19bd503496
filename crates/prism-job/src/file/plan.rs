//! The section `[parallelism]`.

use super::raw::{RawFsdp, RawParallelism};
use super::resolve::Resolver;
use crate::{AttentionKernel, Fsdp, Overlap, Plan, Precision, Recompute, ScheduleName, ZeroStage};

const SHARD: &str = "parallelism.data_parallel_shard_degree";

/// The plan; `gpus` are the cluster's, where they are known.
pub(super) fn resolve(r: &mut Resolver, raw: &RawParallelism, gpus: Option<u64>) -> Plan {
    let tensor_parallel = raw.tensor_parallel_degree.unwrap_or(1);
    let pipeline_parallel = raw.pipeline_parallel_degree.unwrap_or(1);
    let (schedule, virtual_chunks) = schedule(raw);
    let zero = raw.zero_stage.unwrap_or(ZeroStage::Optimizer);
    let overlap = raw.overlap.clone().unwrap_or_default();
    let mut plan = Plan {
        data_parallel_shard: 1,
        data_parallel_replicate: raw.data_parallel_replicate_degree.unwrap_or(1),
        tensor_parallel,
        sequence_parallel: raw.sequence_parallel.unwrap_or(tensor_parallel > 1),
        context_parallel: raw.context_parallel_degree.unwrap_or(1),
        expert_parallel: raw.expert_parallel_degree.unwrap_or(1),
        pipeline_parallel,
        virtual_chunks,
        schedule,
        chunk_layers: raw.chunk_layers.clone().unwrap_or_default(),
        zero,
        fsdp: fsdp(r, raw.fsdp.as_ref(), zero, pipeline_parallel),
        recompute: raw.recompute.unwrap_or(Recompute::None),
        precision: raw.precision.unwrap_or(Precision::Bf16),
        grad_reduce_fp32: raw.grad_reduce_fp32.unwrap_or(true),
        attention_kernel: raw.attention_kernel.unwrap_or(AttentionKernel::Flash),
        overlap: Overlap {
            grad_reduce: overlap.grad_reduce.unwrap_or(true),
            param_gather: overlap.param_gather.unwrap_or(true),
            p2p: overlap.p2p.unwrap_or(true),
            tensor_parallel: overlap.tensor_parallel.unwrap_or(false),
        },
    };
    plan.data_parallel_shard = shard(r, raw.data_parallel_shard_degree, &plan, gpus);
    plan
}

/// The schedule and its chunks per stage. What is left out follows from the other.
fn schedule(raw: &RawParallelism) -> (ScheduleName, u32) {
    match (raw.pipeline_parallel_schedule, raw.virtual_pipeline_degree) {
        (None, None) => (ScheduleName::OneFOneB, 1),
        (None, Some(v)) if v > 1 => (ScheduleName::InterleavedOneFOneB, v),
        (None, Some(v)) => (ScheduleName::OneFOneB, v),
        (Some(s @ ScheduleName::ZbV), None) => (s, 2),
        (Some(s), v) => (s, v.unwrap_or(1)),
    }
}

fn fsdp(r: &mut Resolver, raw: Option<&RawFsdp>, zero: ZeroStage, stages: u32) -> Fsdp {
    if raw.is_some() && zero != ZeroStage::Parameters && !r.distrusts("parallelism.zero_stage") {
        let message = format!(
            "`parallelism.fsdp` gathers sharded parameters, and `zero_stage` {} keeps them whole",
            u8::from(zero)
        );
        let hint = Some("write `zero_stage = 3`, or leave `fsdp` out".to_owned());
        r.wrong("parallelism.fsdp", "fsdp-zero", message, hint);
    }
    let raw = raw.cloned().unwrap_or_default();
    Fsdp {
        prefetch: raw.prefetch.unwrap_or(1),
        // Without sharded parameters it means nothing, and is the same for every plan.
        reshard_after_forward: raw
            .reshard_after_forward
            .unwrap_or(stages <= 1 || zero != ZeroStage::Parameters),
    }
}

/// The sharding degree: as written, or what is left of the cluster's GPUs.
fn shard(r: &mut Resolver, raw: Option<i64>, plan: &Plan, gpus: Option<u64>) -> u32 {
    let rest = plan.gpus_per_replica().saturating_mul(plan.data_parallel_replicate.into());
    match (raw, gpus) {
        (Some(-1), None) => {
            let message =
                "-1 takes what is left of the cluster's GPUs, and their number is not given";
            let hint = Some("write `gpus` or `nodes` in [cluster]".to_owned());
            if !r.distrusts("cluster.gpus") && !r.distrusts("cluster.nodes") {
                r.wrong(SHARD, "shard-rest", message.to_owned(), hint);
            }
            r.distrust(SHARD);
            1
        }
        (None | Some(-1), Some(gpus)) => {
            let parts = [
                "tensor_parallel_degree",
                "context_parallel_degree",
                "pipeline_parallel_degree",
                "data_parallel_replicate_degree",
            ];
            let unsure = parts.iter().any(|p| r.distrusts(&format!("parallelism.{p}")));
            if unsure || rest == 0 {
                r.distrust(SHARD);
                return 1;
            }
            if gpus % rest != 0 || gpus == 0 {
                let message = format!("{gpus} GPUs do not split into replicas of {rest}");
                let down = gpus / rest * rest;
                let up = gpus.div_ceil(rest).saturating_mul(rest);
                let hint = if down == 0 || down == up {
                    format!("try {up} GPUs")
                } else {
                    format!("try {down} or {up} GPUs")
                };
                let key = if raw.is_some() { SHARD } else { "cluster.gpus" };
                r.wrong(key, "shard-rest", message, Some(hint));
                r.distrust(SHARD);
                return 1;
            }
            u32::try_from(gpus / rest).unwrap_or(u32::MAX)
        }
        (Some(degree), _) => u32::try_from(degree).unwrap_or_else(|_| {
            let message = format!("`data_parallel_shard_degree` cannot be {degree}");
            let hint = Some("write a number of ranks, or -1 for what is left".to_owned());
            r.wrong(SHARD, "shard-rest", message, hint);
            1
        }),
        (None, None) => 1,
    }
}
