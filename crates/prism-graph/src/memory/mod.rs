//! Memory of a GPU, stage by stage.

mod in_flight;
mod tensors;

use std::ops::Range;

use prism_job::{Job, Precision, Recompute, ScheduleName, ZeroStage};

pub(crate) use in_flight::{Peak, Stored, peak};
pub use tensors::{StoredTensor, layer_tensors};

use crate::{GraphError, PlannedPass, PlannedShape};
use prism_job::cost::{Parameters, end_parameters, layer_parameters};
use tensors::{Sizes, total};

/// Share by which activations and buffers are taken to be larger for fragmentation: allocators that
/// map expandable segments lose a few percent.
pub const FRAGMENTATION: f64 = 0.05;

/// Memory of the CUDA context, the libraries' handles and NCCL's buffers, bytes.
pub const CONTEXT_BYTES: f64 = 1_073_741_824.0;

/// What memory is used for; [`memory()`] says how each is counted.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MemoryKind {
    /// Weights in 16 bits.
    Parameters,
    /// Their 8-bit copies.
    Fp8Weights,
    /// Gradients.
    Gradients,
    /// Optimizer state.
    OptimizerState,
    /// Buffers of gathered parameters and unreduced gradients.
    GatheredLayers,
    /// Activations of the layers.
    Activations,
    /// Activations of the embedding.
    Embedding,
    /// Activations of the last norm and the output layer.
    Head,
    /// Logits.
    Logits,
    /// What is alive only while one layer or the loss is computed.
    WorkingSet,
    /// Lost between allocations.
    Fragmentation,
    /// Context and communication buffers.
    Context,
}

impl MemoryKind {
    /// The name in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            MemoryKind::Parameters => "parameters",
            MemoryKind::Fp8Weights => "8-bit weights",
            MemoryKind::Gradients => "gradients",
            MemoryKind::OptimizerState => "optimizer state",
            MemoryKind::GatheredLayers => "gathered layers",
            MemoryKind::Activations => "activations",
            MemoryKind::Embedding => "embedding",
            MemoryKind::Head => "head",
            MemoryKind::Logits => "logits",
            MemoryKind::WorkingSet => "working set",
            MemoryKind::Fragmentation => "fragmentation",
            MemoryKind::Context => "context",
        }
    }
}

/// Memory of each GPU of a pipeline stage.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct StageMemory {
    /// Pipeline stage.
    pub stage: u16,
    /// Parameters that a GPU works with, before sharding.
    pub parameters: f64,
    /// Microbatches in flight on each of the stage's chunks, when it stores the most.
    pub in_flight: Vec<u32>,
    /// What is used, bytes; parts of 0 are left out.
    pub parts: Vec<(MemoryKind, f64)>,
    /// Memory of the GPU, bytes.
    pub gpu_bytes: f64,
}

impl StageMemory {
    /// All of it, bytes.
    pub fn total_bytes(&self) -> f64 {
        self.parts.iter().map(|(_, bytes)| bytes).sum()
    }

    /// One part, bytes.
    pub fn bytes(&self, kind: MemoryKind) -> f64 {
        self.parts.iter().filter(|(k, _)| *k == kind).map(|(_, bytes)| bytes).sum()
    }

    /// Whether it fits the GPU.
    pub fn fits(&self) -> bool {
        self.total_bytes() <= self.gpu_bytes
    }
}

/// Memory of every pipeline stage of a job, per GPU.
///
/// | part | bytes |
/// |---|---|
/// | parameters | 2 a parameter; `ZeRO` 3: sharded |
/// | 8-bit weights | 2 a parameter of the linear layers under FP8: a copy and its transpose |
/// | gradients | 4 a parameter where they are reduced in 4-byte floats, else 2; `ZeRO` 2 and 3: sharded |
/// | optimizer state | 12 a parameter (Adam: 4-byte weights, two moments); `ZeRO` 1 to 3: sharded |
/// | gathered layers | `ZeRO` 3: parameters of the layer in use and of those prefetched, or of the whole stage if they stay gathered after the forward; `ZeRO` 2 and 3: one layer's whole gradients |
/// | activations | [`layer_tensors`] of each layer, for every microbatch in flight |
/// | embedding, head | what the model's ends keep for every microbatch in flight |
/// | logits | 4 a token and word for every microbatch between its forward and its backward, 2 where only its weights' part is left |
/// | working set | the largest layer's recomputed tensors; on the last stage 2 a token and word for the logits before they are widened |
/// | fragmentation | [`FRAGMENTATION`] of activations, buffers and working set |
/// | context | [`CONTEXT_BYTES`] |
///
/// Microbatches in flight are counted along the schedule's own order ([`crate::PlannedShape`]), from
/// a forward to the end of its backward; where the weights' part runs apart, to the end of that,
/// which is an upper bound. Shards are over `data_parallel_shard` times context-parallel ranks; routed
/// experts' over as many divided by the expert-parallel ranks. Under `DualPipe` a stage holds two
/// pieces, so parameters, gradients and optimizer state count twice. Not counted: padding of the
/// vocabulary, norms' statistics, gradients of activations while a layer's backward runs.
///
/// # Errors
/// [`GraphError::Schedule`] if the schedule does not exist at the plan's size, [`GraphError::Plan`]
/// if a degree of parallelism is 0 or the chunks' layers are not the model's.
pub fn memory(job: &Job) -> Result<Vec<StageMemory>, GraphError> {
    let shape = PlannedShape::of_job(job, 1)?;
    check(job)?;
    let layers = job.plan.layers_of_chunks(job.model.layers);
    let mut pieces = Vec::with_capacity(layers.len());
    let mut first = 0;
    for count in layers {
        pieces.push(first..first + count);
        first += count;
    }
    (0..shape.stages)
        .map(|stage| Ok(of_stage(job, &shape, &pieces, stage, &shape.passes(stage)?)))
        .collect()
}

fn check(job: &Job) -> Result<(), GraphError> {
    let plan = &job.plan;
    let degrees = [
        plan.data_parallel_shard,
        plan.data_parallel_replicate,
        plan.tensor_parallel,
        plan.context_parallel,
        plan.expert_parallel,
        plan.pipeline_parallel,
        plan.virtual_chunks,
    ];
    let dual = plan.schedule == ScheduleName::DualPipe;
    let pieces = if dual { plan.pipeline_parallel } else { plan.chunks() };
    let layers = plan.layers_of_chunks(job.model.layers);
    let rules = [
        (
            !degrees.contains(&0),
            "every degree of parallelism must be positive",
            format!("{degrees:?}"),
        ),
        (
            layers.len() as u64 == u64::from(pieces),
            "`chunk_layers` must name one number a chunk",
            format!("{} for {pieces} chunks", layers.len()),
        ),
        (
            layers.iter().map(|&n| u64::from(n)).sum::<u64>() == u64::from(job.model.layers),
            "`chunk_layers` must sum to the model's layers",
            format!("{layers:?} of {} layers", job.model.layers),
        ),
    ];
    match rules.into_iter().find(|(holds, ..)| !holds) {
        None => Ok(()),
        Some((_, rule, got)) => Err(GraphError::Plan { rule, got }),
    }
}

/// One stage; `pieces` are the layers of each piece of the model.
fn of_stage(
    job: &Job,
    shape: &PlannedShape,
    pieces: &[Range<u32>],
    stage: u16,
    passes: &[PlannedPass],
) -> StageMemory {
    let last_piece = pieces.len() as u32 - 1;
    let held: Vec<u32> = (0..shape.chunks).map(|chunk| shape.piece(stage, chunk)).collect();
    let layers: Vec<u32> = held.iter().flat_map(|&piece| pieces[piece as usize].clone()).collect();
    let (first, last) = (held.contains(&0), held.contains(&last_piece));

    let mut weights = end_parameters(job, first, last, first);
    for &layer in &layers {
        weights += layer_parameters(job, layer);
    }
    let mut parts = state(job, &weights, &layers);

    let chunks: Vec<Chunk> =
        held.iter().map(|&piece| Chunk::new(job, pieces, piece, last_piece)).collect();
    let stored: Vec<Stored> = chunks.iter().map(Chunk::stored).collect();
    let Peak { live, .. } = peak(passes, &stored);
    let over = |of: &dyn Fn(&Chunk) -> [f64; 2]| -> f64 {
        let each = chunks.iter().zip(&live).map(|(chunk, [whole, waiting])| {
            let [until_input, until_weights] = of(chunk);
            f64::from(*whole) * until_input + f64::from(*waiting) * until_weights
        });
        each.sum()
    };
    parts.push((MemoryKind::Activations, over(&|c| [c.layers; 2])));
    parts.push((MemoryKind::Embedding, over(&|c| [c.embedding; 2])));
    parts.push((MemoryKind::Head, over(&|c| [c.head; 2])));
    parts.push((MemoryKind::Logits, over(&|c| c.logits)));
    parts.push((MemoryKind::WorkingSet, working_set(job, &layers, last)));
    let lasting = [
        MemoryKind::Parameters,
        MemoryKind::Gradients,
        MemoryKind::OptimizerState,
        MemoryKind::Fp8Weights,
    ];
    let moving: f64 =
        parts.iter().filter(|(kind, _)| !lasting.contains(kind)).map(|(_, bytes)| bytes).sum();
    parts.push((MemoryKind::Fragmentation, FRAGMENTATION * moving));
    parts.push((MemoryKind::Context, CONTEXT_BYTES));
    parts.retain(|(_, bytes)| *bytes > 0.0);
    StageMemory {
        stage,
        parameters: weights.dense() + weights.experts,
        in_flight: live.iter().map(|[whole, waiting]| whole + waiting).collect(),
        parts,
        gpu_bytes: job.cluster.gpu.memory_bytes,
    }
}

/// Parameters, gradients, optimizer state and the buffers of sharding.
fn state(job: &Job, weights: &Parameters, layers: &[u32]) -> Vec<(MemoryKind, f64)> {
    let plan = &job.plan;
    let ranks = f64::from(plan.data_parallel_shard) * f64::from(plan.context_parallel);
    let expert_ranks = (ranks / f64::from(plan.expert_parallel)).max(1.0);
    let (whole, shard) = (
        weights.dense() + weights.experts,
        weights.dense() / ranks + weights.experts / expert_ranks,
    );
    let from = |zero: ZeroStage| if plan.zero >= zero { shard } else { whole };
    // Gradients that are added up over microbatches are whole until the last has been reduced; where
    // layers are gathered one by one they are reduced for every microbatch.
    let layered = plan.zero == ZeroStage::Parameters && plan.pipeline_parallel == 1;
    let gradients =
        if layered || job.microbatches() <= 1 { from(ZeroStage::Gradients) } else { whole };
    let gradient = if plan.grad_reduce_fp32 { 4.0 } else { 2.0 };
    // Bytes of a parameter of a linear layer while it is whole.
    let eight_bit = if plan.precision == Precision::Fp8 { 2.0 } else { 0.0 };
    let linear = weights.linear + weights.experts;
    let sharded = plan.zero == ZeroStage::Parameters;
    let each: Vec<Parameters> = layers.iter().map(|&layer| layer_parameters(job, layer)).collect();
    let size = |p: &Parameters| 2.0 * (p.dense() + p.experts) + eight_bit * (p.linear + p.experts);
    let largest = each.iter().map(size).fold(0.0, f64::max);
    let mut gathered = 0.0;
    if sharded {
        gathered += if plan.fsdp.reshard_after_forward {
            (largest * (1.0 + f64::from(plan.fsdp.prefetch))).min(each.iter().map(size).sum())
        } else {
            2.0 * whole + eight_bit * linear
        };
    }
    if plan.zero >= ZeroStage::Gradients {
        gathered += gradient * each.iter().map(|p| p.dense() + p.experts).fold(0.0, f64::max);
    }
    vec![
        (MemoryKind::Parameters, 2.0 * from(ZeroStage::Parameters)),
        (MemoryKind::Fp8Weights, if sharded { 0.0 } else { eight_bit * linear }),
        (MemoryKind::Gradients, gradient * gradients),
        (MemoryKind::OptimizerState, 12.0 * from(ZeroStage::Optimizer)),
        (MemoryKind::GatheredLayers, gathered),
    ]
}

/// Bytes that one microbatch stores on one chunk.
struct Chunk {
    layers: f64,
    embedding: f64,
    head: f64,
    /// Until the backward's input part has run, and until its weights' part has.
    logits: [f64; 2],
}

impl Chunk {
    fn new(job: &Job, pieces: &[Range<u32>], piece: u32, last: u32) -> Chunk {
        let sizes = Sizes::new(job);
        let layers = pieces[piece as usize].clone();
        let at = |end: bool, bytes: f64| if end { bytes } else { 0.0 };
        Chunk {
            layers: layers.map(|layer| total(&layer_tensors(job, layer))).sum(),
            embedding: at(piece == 0, total(&sizes.embedding())),
            head: at(piece == last, total(&sizes.head())),
            logits: [4.0, 2.0].map(|bytes| at(piece == last, sizes.logits(bytes).bytes)),
        }
    }

    fn stored(&self) -> Stored {
        let rest = self.layers + self.embedding + self.head;
        Stored { until_input: rest + self.logits[0], until_weights: rest + self.logits[1] }
    }
}

/// What is alive only while one layer or the loss is computed.
fn working_set(job: &Job, layers: &[u32], last: bool) -> f64 {
    let sizes = Sizes::new(job);
    let again = layers
        .iter()
        .map(|&layer| {
            let tensors = sizes.layer(layer);
            match job.plan.recompute {
                Recompute::None => 0.0,
                Recompute::Selective => tensors.iter().filter(|t| t.core).map(|t| t.bytes).sum(),
                Recompute::Full => total(&tensors) - sizes.layer_input().bytes,
            }
        })
        .fold(0.0, f64::max);
    again.max(if last { sizes.logits(2.0).bytes } else { 0.0 })
}
