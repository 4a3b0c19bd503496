//! What a job's operations cost without noise: seconds, FLOP and bytes on one GPU.
//!
//! [`costs`] turns a [`Job`] into [`StepCosts`]: passes of every model chunk, point-to-point hops,
//! collectives of the data-parallel and embedding groups, optimizer, fixed overhead. Kernels follow a
//! roofline with tiles and waves ([`Gemm::seconds`]), collectives α–β by algorithm and tier
//! ([`collective()`]); the share of the data sheet that is reached is [`crate::Efficiency`].

mod collective;
mod edges;
mod kernel;
mod layer;
mod parameters;
mod pass;

pub use collective::{Algorithm, CollectiveKind, Group, Transfer, collective, send_s};
pub use kernel::{Gemm, fused_attention_s, stream_s};
pub use parameters::{Parameters, end_parameters, layer_parameters};
pub use pass::Pass;

use crate::{Job, ScheduleName, ZeroStage};
use layer::Context;
use pass::Passes;

/// One model chunk for one microbatch on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChunkCost {
    /// Layers.
    pub layers: u32,
    /// Forward pass.
    pub forward: Pass,
    /// Backward pass but for weight gradients; with what is computed again.
    pub backward: Pass,
    /// Weight gradients.
    pub weight: Pass,
    /// Of `backward`, what is computed again.
    pub recompute_s: f64,
    /// Parameters on one GPU that are shared by the data-parallel group.
    pub parameters: f64,
    /// Parameters of experts on one GPU.
    pub expert_parameters: f64,
}

impl ChunkCost {
    /// The whole backward pass, seconds.
    pub fn backward_s(&self) -> f64 {
        self.backward.seconds() + self.weight.seconds()
    }
}

/// A step's costs without noise.
#[derive(Clone, Debug, PartialEq)]
pub struct StepCosts {
    /// Chunks in model order: `pipeline_parallel x virtual_chunks`.
    pub chunks: Vec<ChunkCost>,
    /// Activations from a stage to the next, by sending stage; the last sends to the first. Seconds.
    pub hop_s: Vec<f64>,
    /// Gather of a chunk's parameters, seconds; 0 where nothing is gathered.
    pub gather_s: Vec<f64>,
    /// Reduction of a chunk's gradients, seconds; 0 where there is one replica.
    pub reduce_s: Vec<f64>,
    /// Sum of replicated parameters' gradients over the tensor-parallel group (sequence parallelism),
    /// seconds, by stage.
    pub layernorm_s: Vec<f64>,
    /// Sum of tied embedding gradients between the first and the last stage, seconds.
    pub embedding_s: f64,
    /// Gradient norm over all GPUs, seconds.
    pub grad_norm_s: f64,
    /// Optimizer update, seconds, by stage.
    pub optimizer_s: Vec<f64>,
    /// Fixed overhead of a step, seconds.
    pub step_s: f64,
    /// FLOP of a step that the model needs (no recomputation; attention counted causal).
    pub model_flops: f64,
    /// The same with attention counted over the whole square, as Megatron and most reports do.
    pub model_flops_full_attention: f64,
    /// Share of `model_flops` that is attention's scores and weighted values.
    pub attention_share: f64,
}

impl StepCosts {
    /// Seconds of a transfer between two stages: the hop of the earlier one; between the last and the
    /// first, the last's.
    pub fn between_s(&self, a: usize, b: usize) -> f64 {
        let (low, high) = (a.min(b), a.max(b));
        let wraps = low == 0 && high + 1 == self.hop_s.len() && high > 1;
        self.hop_s.get(if wraps { high } else { low }).copied().unwrap_or(0.0)
    }
}

/// Costs of a job's operations. The plan is taken as possible ([`Job::check`] says whether it is).
pub fn costs(job: &Job) -> StepCosts {
    let context = Context::new(job);
    let plan = &job.plan;
    let layers = plan.layers_of_chunks(job.model.layers);
    let last = layers.len().saturating_sub(1);
    let one_stage = plan.pipeline_parallel == 1 || plan.schedule == ScheduleName::ZbV;
    let mut first_layer = 0;
    let mut chunks = Vec::with_capacity(layers.len());
    let mut known: Vec<(bool, Passes)> = Vec::new();
    for (c, &n) in layers.iter().enumerate() {
        let mut passes = Passes::default();
        let mut chunk = ChunkCost { layers: n, ..ChunkCost::default() };
        for layer in first_layer..first_layer + n {
            let moe = job.model.is_moe_layer(layer);
            let one = if let Some((_, one)) = known.iter().find(|(m, _)| *m == moe) {
                *one
            } else {
                let one = context.layer(layer);
                known.push((moe, one));
                one
            };
            passes.add(&one);
            let parameters = layer_parameters(job, layer);
            chunk.parameters += parameters.dense();
            chunk.expert_parameters += parameters.experts;
        }
        first_layer += n;
        if c == 0 {
            context.embedding(&mut passes);
        }
        if c == last {
            context.head(&mut passes);
        }
        chunk.parameters += end_parameters(job, c == 0, c == last, one_stage).dense();
        let launch = job.cluster.efficiency.launch_s;
        let host = job.cluster.efficiency.microbatch_host_s;
        let with_host = |mut pass: Pass| {
            pass.host_s += host;
            pass
        };
        chunk.forward = with_host(passes.forward.paced(launch));
        chunk.recompute_s = passes.recompute.paced(launch).seconds();
        let mut whole = passes.backward;
        whole.add(&passes.weight);
        // Backward passes are launched from compiled code: at half the cost.
        let held = whole.paced(launch / 2.0).host_s;
        chunk.backward = passes.backward;
        chunk.backward.host_s += held;
        chunk.backward.add(&passes.recompute.paced(launch));
        chunk.backward = with_host(chunk.backward);
        chunk.weight = passes.weight;
        chunks.push(chunk);
    }
    edges::step(job, &context, chunks)
}

/// Pieces of the model (chunks in model order) that each stage holds, in the order of its chunks.
///
/// Under ZB-V a stage holds two that lie mirrored; under `DualPipe` every piece has two copies, on
/// mirrored stages.
pub fn pieces_of_stages(job: &Job) -> Vec<Vec<usize>> {
    let p = job.plan.pipeline_parallel.max(1) as usize;
    let v = job.plan.virtual_chunks.max(1) as usize;
    (0..p)
        .map(|s| match job.plan.schedule {
            ScheduleName::ZbV => vec![s, 2 * p - 1 - s],
            ScheduleName::DualPipe => vec![s, p - 1 - s],
            _ => (0..v).map(|c| c * p + s).collect(),
        })
        .collect()
}

/// Whether parameters are gathered at the beginning of a step.
pub(crate) fn gathers(job: &Job) -> bool {
    job.plan.zero >= ZeroStage::Optimizer
}
