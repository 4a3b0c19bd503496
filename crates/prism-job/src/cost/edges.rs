//! What is not a layer: embedding, output layer and loss, collectives of a step, optimizer.

use super::collective::{CollectiveKind, Group, collective, send_s};
use super::kernel::{Gemm, stream_s};
use super::layer::Context;
use super::parameters::padded_vocabulary;
use super::pass::Passes;
use super::{ChunkCost, StepCosts, gathers, pieces_of_stages};
use crate::{AttentionKind, Job, ZeroStage};

impl Context<'_> {
    /// Input embedding, on the first stage.
    pub(super) fn embedding(&self, passes: &mut Passes) {
        let cluster = &self.job.cluster;
        let elements = self.tokens * f64::from(self.job.model.hidden_size);
        let mut kernel = |bytes: f64, forward: bool| {
            let pass = if forward { &mut passes.forward } else { &mut passes.backward };
            pass.memory_s += stream_s(bytes, cluster);
            pass.kernels += 1.0;
        };
        // Look up, add positions, drop out; backward, rows are added up.
        kernel(4.0 * elements, true);
        kernel(6.0 * elements, true);
        kernel(10.0 * elements, false);
        if self.t > 1.0 {
            let kind = if self.job.plan.sequence_parallel {
                CollectiveKind::ReduceScatter
            } else {
                CollectiveKind::AllReduce
            };
            let group = Group { ranks: self.t as u64, stride: 1 };
            passes.forward.tensor_parallel_s +=
                collective(kind, 2.0 * elements, group, cluster).seconds;
            if self.job.plan.sequence_parallel {
                passes.backward.tensor_parallel_s +=
                    collective(CollectiveKind::AllGather, 2.0 * elements, group, cluster).seconds;
            }
        }
    }

    /// Last norm, output layer and loss, on the last stage.
    pub(super) fn head(&self, passes: &mut Passes) {
        let (job, cluster) = (self.job, &self.job.cluster);
        let h = f64::from(job.model.hidden_size);
        let columns = padded_vocabulary(job) / self.t;
        let logits = Gemm::new(self.tokens, columns, h);
        let precision = crate::Precision::Bf16;
        for (pass, gemm) in [
            (&mut passes.forward, logits),
            (&mut passes.backward, logits.input_gradient()),
            (&mut passes.weight, logits.weight_gradient()),
        ] {
            pass.compute_s += gemm.seconds(cluster, precision);
            pass.flops += gemm.flops();
            pass.kernels += 1.0;
        }
        // To 4-byte floats (read 2, write 4), maximum (read 4), exponentials and their sum in place
        // (6 on average); backward, the difference to the target and back to 2 bytes.
        let elements = self.tokens * columns;
        for bytes in [6.0, 4.0, 6.0] {
            passes.forward.memory_s += stream_s(bytes * elements, cluster);
            passes.forward.kernels += 1.0;
        }
        passes.backward.memory_s += 2.0 * stream_s(4.0 * elements, cluster);
        passes.backward.kernels += 2.0;
        if self.t > 1.0 {
            let group = Group { ranks: self.t as u64, stride: 1 };
            let of = |kind, bytes| collective(kind, bytes, group, cluster).seconds;
            let words = 4.0 * self.tokens;
            passes.forward.tensor_parallel_s += 3.0 * of(CollectiveKind::AllReduce, words);
            let whole = 2.0 * self.tokens * h;
            let weight = logits.weight_gradient().seconds(cluster, precision);
            let kind = if job.plan.sequence_parallel {
                passes.forward.tensor_parallel_s += of(CollectiveKind::AllGather, whole);
                CollectiveKind::ReduceScatter
            } else {
                CollectiveKind::AllReduce
            };
            passes.backward.tensor_parallel_s += (of(kind, whole) - weight).max(0.0);
        }
    }
}

/// The rest of a step around its chunks.
pub(super) fn step(job: &Job, context: &Context<'_>, chunks: Vec<ChunkCost>) -> StepCosts {
    let (plan, cluster) = (&job.plan, &job.cluster);
    let p = plan.pipeline_parallel.max(1) as usize;
    let hop_s = (0..p).map(|stage| hop_s(job, context, stage)).collect();
    let gather_s = chunks.iter().map(|c| gather_s(job, c)).collect();
    let reduce_s = chunks.iter().map(|c| reduce_s(job, c)).collect();
    let mut stage_parameters = vec![(0.0, 0.0); p];
    let mut replicated = vec![0.0; p];
    for (stage, pieces) in pieces_of_stages(job).into_iter().enumerate() {
        for chunk in pieces.into_iter().filter_map(|c| chunks.get(c)) {
            stage_parameters[stage].0 += chunk.parameters;
            stage_parameters[stage].1 += chunk.expert_parameters;
            replicated[stage] += f64::from(chunk.layers) * job.model.norm_parameters();
        }
    }
    let tensor = Group { ranks: u64::from(plan.tensor_parallel), stride: 1 };
    let layernorm_s = replicated
        .iter()
        .map(|&n| {
            let words = if plan.sequence_parallel { grad_bytes(job) * n } else { 0.0 };
            collective(CollectiveKind::AllReduce, words, tensor, cluster).seconds
        })
        .collect();
    let optimizer_s = stage_parameters.iter().map(|&n| optimizer_s(job, n)).collect();
    let all = Group { ranks: job.gpus(), stride: 1 };
    let grad_norm_s = collective(CollectiveKind::AllReduce, 4.0, all, cluster).seconds;
    let (model_flops, model_flops_full_attention, attention_share) = model_flops(job, context);
    StepCosts {
        hop_s,
        gather_s,
        reduce_s,
        layernorm_s,
        embedding_s: embedding_s(job),
        grad_norm_s,
        optimizer_s,
        step_s: cluster.efficiency.step_s,
        model_flops,
        model_flops_full_attention,
        attention_share,
        chunks,
    }
}

/// From a stage to the next: each tensor-parallel rank sends its part of the sequence; without
/// sequence parallelism the parts are gathered again on arrival.
fn hop_s(job: &Job, context: &Context<'_>, stage: usize) -> f64 {
    let (plan, cluster) = (&job.plan, &job.cluster);
    let p = plan.pipeline_parallel.max(1) as usize;
    if p == 1 {
        return 0.0;
    }
    let bytes = 2.0 * context.tokens * f64::from(job.model.hidden_size);
    let stride = job.gpus() / p as u64;
    let domain = u64::from(cluster.nvlink_domain.max(1));
    let (from, to) = (stage as u64 * stride, ((stage + 1) % p) as u64 * stride);
    let span =
        if from / domain == to / domain { domain } else { from.abs_diff(to).max(domain) + 1 };
    let send = send_s(bytes / context.t, span, cluster);
    let gather = if plan.sequence_parallel {
        0.0
    } else {
        let group = Group { ranks: u64::from(plan.tensor_parallel), stride: 1 };
        collective(CollectiveKind::AllGather, bytes, group, cluster).seconds
    };
    send + gather
}

/// The group over which a parameter's gradients are summed, and the one that shards it.
fn data_groups(job: &Job, experts: bool) -> (Group, Group) {
    let plan = &job.plan;
    let (t, cp) = (u64::from(plan.tensor_parallel), u64::from(plan.context_parallel));
    let shard = u64::from(plan.data_parallel_shard) * cp;
    let replicate = u64::from(plan.data_parallel_replicate);
    let ep = if experts { u64::from(plan.expert_parallel).max(1) } else { 1 };
    let inner = Group { ranks: (shard / ep).max(1), stride: t * ep };
    let outer = Group { ranks: replicate, stride: t * shard };
    (inner, outer)
}

fn grad_bytes(job: &Job) -> f64 {
    if job.plan.grad_reduce_fp32 { 4.0 } else { 2.0 }
}

fn gather_s(job: &Job, chunk: &ChunkCost) -> f64 {
    if !gathers(job) {
        return 0.0;
    }
    [(chunk.parameters, false), (chunk.expert_parameters, true)]
        .into_iter()
        .map(|(n, experts)| {
            let (inner, _) = data_groups(job, experts);
            collective(CollectiveKind::AllGather, 2.0 * n, inner, &job.cluster).seconds
        })
        .sum()
}

fn reduce_s(job: &Job, chunk: &ChunkCost) -> f64 {
    let one = |n: f64, experts: bool| {
        let (inner, outer) = data_groups(job, experts);
        let bytes = grad_bytes(job) * n;
        if job.plan.zero == ZeroStage::None {
            let all = Group { ranks: inner.ranks * outer.ranks, stride: inner.stride };
            return collective(CollectiveKind::AllReduce, bytes, all, &job.cluster).seconds;
        }
        let share = bytes / inner.ranks as f64;
        collective(CollectiveKind::ReduceScatter, bytes, inner, &job.cluster).seconds
            + collective(CollectiveKind::AllReduce, share, outer, &job.cluster).seconds
    };
    one(chunk.parameters, false) + one(chunk.expert_parameters, true)
}

fn embedding_s(job: &Job) -> f64 {
    let p = u64::from(job.plan.pipeline_parallel);
    if !job.model.tied_embeddings || p < 2 {
        return 0.0;
    }
    let h = f64::from(job.model.hidden_size);
    let table = padded_vocabulary(job) / f64::from(job.plan.tensor_parallel.max(1)) * h;
    let group = Group { ranks: 2, stride: job.gpus() / p * (p - 1) };
    collective(CollectiveKind::AllReduce, grad_bytes(job) * table, group, &job.cluster).seconds
}

/// Zeroing gradients, their norm, Adam on 4-byte copies.
fn optimizer_s(job: &Job, (shared, experts): (f64, f64)) -> f64 {
    let sharded = |n: f64, experts: bool| {
        let (inner, _) = data_groups(job, experts);
        if job.plan.zero >= ZeroStage::Optimizer { n / inner.ranks as f64 } else { n }
    };
    let own = sharded(shared, false) + sharded(experts, true);
    let zeroing = 4.0 * (shared + experts);
    // Norm: read 4. Adam: read gradient, copy and two moments, write three of them and the parameter.
    stream_s(zeroing, &job.cluster)
        + stream_s(4.0 * own, &job.cluster)
        + stream_s(30.0 * own, &job.cluster)
}

/// FLOP of a step over all GPUs, with causal attention and with attention over the whole square;
/// attention's share of the former.
fn model_flops(job: &Job, context: &Context<'_>) -> (f64, f64, f64) {
    let model = &job.model;
    let h = f64::from(model.hidden_size);
    let tokens = job.tokens();
    let linear: f64 = (0..model.layers)
        .map(|l| {
            let active = model.layer_parameters(l).1 - model.norm_parameters();
            active - if model.bias { biases(job) } else { 0.0 }
        })
        .sum();
    let vocabulary = h * f64::from(model.vocab_size);
    let heads = f64::from(model.attention.heads);
    let widths = match model.attention.kind {
        AttentionKind::Standard => 2.0 * f64::from(model.attention.head_dim),
        AttentionKind::Latent { nope_dim, rope_dim, v_dim, .. } => {
            f64::from(nope_dim) + f64::from(rope_dim) + f64::from(v_dim)
        }
    };
    let square = 2.0 * f64::from(job.training.seq_len) * heads * widths * f64::from(model.layers);
    let dense = 2.0 * (linear + vocabulary);
    let seen = square * context.visible;
    (3.0 * tokens * (dense + seen), 3.0 * tokens * (dense + square), seen / (dense + seen))
}

fn biases(job: &Job) -> f64 {
    let model = &job.model;
    let a = &model.attention;
    let h = f64::from(model.hidden_size);
    let qkv = f64::from(a.heads + 2 * a.kv_heads) * f64::from(a.head_dim);
    qkv + h + f64::from(model.mlp.intermediate_size) + h
}
