//! A job file as it is written: every key optional, nothing derived.

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::quantity::{Bandwidth, Rate, Size, Time};
use super::run::RawRun;
use crate::{AttentionKernel, Precision, Recompute, ScheduleName, ZeroStage};

/// A training job: model, training, parallelism, cluster, variability.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "job.toml")]
pub(crate) struct RawJob {
    /// Version of this format: `prism.job/1`.
    pub(crate) schema: Option<String>,
    /// Name for reports; the model's name if left out.
    pub(crate) name: Option<String>,
    /// The network.
    pub(crate) model: Option<RawModel>,
    /// Batch and sequence.
    pub(crate) training: Option<RawTraining>,
    /// How the job is spread over GPUs.
    pub(crate) parallelism: Option<RawParallelism>,
    /// The machines.
    pub(crate) cluster: Option<RawCluster>,
    /// What varies; the preset `dedicated` if left out.
    pub(crate) variability: Option<RawVariability>,
    /// The run, from its first step to its last.
    pub(crate) run: Option<RawRun>,
}

/// The network, with Hugging Face's names. A preset or a `config.json` gives what is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Model")]
pub(crate) struct RawModel {
    /// Preset that the other keys override, such as `llama-3.1-8b`.
    pub(crate) preset: Option<String>,
    /// A Hugging Face `config.json` that the other keys override; its path is relative to this file.
    pub(crate) config: Option<String>,
    /// Name for reports.
    pub(crate) name: Option<String>,
    /// Width of the residual stream.
    pub(crate) hidden_size: Option<u32>,
    /// Transformer layers.
    pub(crate) num_hidden_layers: Option<u32>,
    /// Inner width of a dense feed-forward block.
    pub(crate) intermediate_size: Option<u32>,
    /// Query heads.
    pub(crate) num_attention_heads: Option<u32>,
    /// Key and value heads; as many as query heads if left out.
    pub(crate) num_key_value_heads: Option<u32>,
    /// Width of a head; `hidden_size / num_attention_heads` if left out.
    pub(crate) head_dim: Option<u32>,
    /// Vocabulary before padding.
    pub(crate) vocab_size: Option<u32>,
    /// The vocabulary is padded to a multiple of this on each tensor-parallel rank; 1: it is not.
    pub(crate) vocab_multiple: Option<u32>,
    /// Whether the output layer shares the input embedding's weights; false if left out.
    pub(crate) tie_word_embeddings: Option<bool>,
    /// How positions enter; `rotary` if left out.
    pub(crate) position_embedding: Option<RawPositions>,
    /// Whether feed-forward blocks are gated (`SwiGLU`); true if left out.
    pub(crate) gated_mlp: Option<bool>,
    /// Whether linear layers have biases; false if left out.
    pub(crate) bias: Option<bool>,
    /// Whether blocks have dropout; false if left out.
    pub(crate) dropout: Option<bool>,
    /// Latent attention: rank of the compressed queries; 0 or left out where they are not.
    pub(crate) q_lora_rank: Option<u32>,
    /// Latent attention: rank of the compressed keys and values; 0 or left out for ordinary
    /// attention.
    pub(crate) kv_lora_rank: Option<u32>,
    /// Latent attention: part of a head without position.
    pub(crate) qk_nope_head_dim: Option<u32>,
    /// Latent attention: part of a head with rotary position.
    pub(crate) qk_rope_head_dim: Option<u32>,
    /// Latent attention: width of a value head.
    pub(crate) v_head_dim: Option<u32>,
    /// Routed experts of a layer; 0 or left out for a dense model.
    pub(crate) num_experts: Option<u32>,
    /// Routed experts that a token visits.
    pub(crate) num_experts_per_tok: Option<u32>,
    /// Experts that every token visits; 0 if left out.
    pub(crate) num_shared_experts: Option<u32>,
    /// Inner width of an expert; `intermediate_size` if left out.
    pub(crate) moe_intermediate_size: Option<u32>,
    /// Leading layers that stay dense; 0 if left out.
    pub(crate) first_k_dense_replace: Option<u32>,
    /// Every how many-th of the other layers has experts; 1 if left out.
    pub(crate) moe_layer_freq: Option<u32>,
}

/// How positions enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Positions")]
pub(crate) enum RawPositions {
    /// A table of learned vectors.
    Learned,
    /// Rotated queries and keys.
    Rotary,
    /// Added to attention scores (`ALiBi`), or none.
    Bias,
}

/// Batch and sequence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Training")]
pub(crate) struct RawTraining {
    /// Tokens of a sequence.
    pub(crate) seq_len: Option<u32>,
    /// Sequences of an optimizer step, over all replicas.
    pub(crate) global_batch_size: Option<u32>,
    /// Sequences of a microbatch of one replica; 1 if left out.
    pub(crate) micro_batch_size: Option<u32>,
    /// Lengths of the documents; every sequence is one document if left out.
    pub(crate) sequences: Option<RawSequences>,
}

/// Lengths of the documents: a log-normal law, cut at `seq_len`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Sequences")]
pub(crate) struct RawSequences {
    /// Median, tokens.
    pub(crate) median: Option<f64>,
    /// S.d. of the log length.
    pub(crate) sigma: Option<f64>,
    /// Whether documents are packed into sequences of `seq_len` tokens; true if left out.
    pub(crate) packed: Option<bool>,
}

/// How the job is spread over GPUs, with torchtitan's names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Parallelism")]
pub(crate) struct RawParallelism {
    /// Replicas over which state is sharded; -1 for what is left of the cluster's GPUs. Left out, it
    /// is -1 where the cluster's size is given and else 1.
    #[schemars(range(min = -1))]
    pub(crate) data_parallel_shard_degree: Option<i64>,
    /// Further replicas that hold copies; 1 if left out.
    pub(crate) data_parallel_replicate_degree: Option<u32>,
    /// Tensor-parallel ranks; 1 if left out.
    pub(crate) tensor_parallel_degree: Option<u32>,
    /// Whether activations between tensor-parallel regions are split along the sequence; true with
    /// more than one tensor-parallel rank if left out.
    pub(crate) sequence_parallel: Option<bool>,
    /// Context-parallel ranks; 1 if left out.
    pub(crate) context_parallel_degree: Option<u32>,
    /// Expert-parallel ranks, among the data- and context-parallel ones; 1 if left out.
    pub(crate) expert_parallel_degree: Option<u32>,
    /// Pipeline stages; 1 if left out.
    pub(crate) pipeline_parallel_degree: Option<u32>,
    /// Model chunks per stage; 1 if left out, 2 with the schedule `zb-v`.
    pub(crate) virtual_pipeline_degree: Option<u32>,
    /// Schedule; `1f1b` if left out, or `interleaved-1f1b` with several chunks per stage.
    pub(crate) pipeline_parallel_schedule: Option<ScheduleName>,
    /// Layers of each chunk in model order; an even split if left out.
    pub(crate) chunk_layers: Option<Vec<u32>>,
    /// What is sharded: 0 nothing, 1 optimizer state, 2 and gradients, 3 and parameters; 1 if left
    /// out.
    #[schemars(with = "Option<u8>", range(max = 3))]
    pub(crate) zero_stage: Option<ZeroStage>,
    /// Gathers of sharded parameters; only with `zero_stage = 3`.
    pub(crate) fsdp: Option<RawFsdp>,
    /// Activation recomputation; `none` if left out.
    pub(crate) recompute: Option<Recompute>,
    /// Arithmetic of the matrix products; `bf16` if left out.
    pub(crate) precision: Option<Precision>,
    /// Whether gradients are reduced in 4-byte floats; true if left out.
    pub(crate) grad_reduce_fp32: Option<bool>,
    /// Attention's kernels; `flash` if left out.
    pub(crate) attention_kernel: Option<AttentionKernel>,
    /// What overlaps compute.
    pub(crate) overlap: Option<RawOverlap>,
}

/// Gathers of sharded parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Fsdp")]
pub(crate) struct RawFsdp {
    /// Layers that may be gathered ahead; 1 if left out.
    pub(crate) prefetch: Option<u32>,
    /// Whether parameters are freed after the forward pass; true without pipeline stages if left
    /// out, and false with them (as torchtitan's default).
    pub(crate) reshard_after_forward: Option<bool>,
}

/// What overlaps compute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Overlap")]
pub(crate) struct RawOverlap {
    /// Gradients are reduced while backward passes still run; true if left out.
    pub(crate) grad_reduce: Option<bool>,
    /// Parameters are gathered while the first forward passes run; true if left out.
    pub(crate) param_gather: Option<bool>,
    /// Point-to-point transfers run beside compute; true if left out.
    pub(crate) p2p: Option<bool>,
    /// Tensor-parallel collectives run beside the matrix products they feed; false if left out.
    pub(crate) tensor_parallel: Option<bool>,
}

/// The machines. A preset gives what is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Cluster")]
pub(crate) struct RawCluster {
    /// Preset that the other keys override, such as `h100-dgx`.
    pub(crate) preset: Option<String>,
    /// Name for reports.
    pub(crate) name: Option<String>,
    /// The GPU: a preset's name such as `H100-SXM`, or a table.
    pub(crate) gpu: Option<RawGpuChoice>,
    /// GPUs there are; as many as the plan takes if neither this nor `nodes` is given.
    pub(crate) gpus: Option<u64>,
    /// Nodes there are.
    pub(crate) nodes: Option<u64>,
    /// GPUs of a node; 8 if left out and not in the preset.
    pub(crate) gpus_per_node: Option<u32>,
    /// GPUs joined by `NVLink`; a node's if left out and not in the preset.
    pub(crate) nvlink_domain: Option<u32>,
    /// Links inside the `NVLink` domain; the GPU's own if left out.
    pub(crate) nvlink: Option<RawNetwork>,
    /// Links between nodes.
    pub(crate) network: Option<RawNetwork>,
    /// Levels of the network above the node, inner first.
    pub(crate) tiers: Option<Vec<RawTier>>,
    /// How much of the hardware's figures is reached; the GPU's own figures if left out.
    pub(crate) efficiency: Option<RawEfficiency>,
}

/// A preset's name, or a table.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "GpuChoice")]
pub(crate) enum RawGpuChoice {
    /// A preset's name.
    Name(String),
    /// A data sheet.
    Sheet(Box<RawGpu>),
}

/// A GPU's data sheet. Rates are dense (without sparsity).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Gpu")]
pub(crate) struct RawGpu {
    /// Preset that the other keys override.
    pub(crate) preset: Option<String>,
    /// Name.
    pub(crate) name: Option<String>,
    /// Memory.
    pub(crate) memory: Option<Size>,
    /// Memory bandwidth.
    pub(crate) memory_bandwidth: Option<Bandwidth>,
    /// 16-bit tensor-core rate.
    pub(crate) bf16: Option<Rate>,
    /// 8-bit tensor-core rate; left out where there is none.
    pub(crate) fp8: Option<Rate>,
    /// Streaming multiprocessors.
    pub(crate) sms: Option<u32>,
    /// Where the figures come from.
    pub(crate) source: Option<String>,
}

/// A kind of link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Network")]
pub(crate) struct RawNetwork {
    /// Bandwidth of one GPU in one direction.
    pub(crate) bandwidth: Option<Bandwidth>,
    /// Latency of one message.
    pub(crate) latency: Option<Time>,
    /// Whether collectives may reduce in the switch; false if left out.
    pub(crate) in_network_reduction: Option<bool>,
}

/// A level of the network above the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Tier")]
pub(crate) struct RawTier {
    /// GPUs inside it.
    pub(crate) gpus: Option<u64>,
    /// Latency added to a message that stays inside it.
    pub(crate) latency: Option<Time>,
    /// Factor by which a GPU's bandwidth is divided at this level; 1 if left out.
    pub(crate) oversubscription: Option<f64>,
}

/// How much of the data sheet is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Efficiency")]
pub(crate) struct RawEfficiency {
    /// Share of the tensor-core rate that large matrix products reach, in (0, 1].
    pub(crate) gemm: Option<f64>,
    /// Share of the 8-bit tensor-core rate that large matrix products reach.
    pub(crate) gemm_fp8: Option<f64>,
    /// Inner dimension at which a product's prologue takes as long as its work, elements.
    pub(crate) gemm_half_k: Option<f64>,
    /// Share of the tensor-core rate that fused attention reaches, in (0, 1].
    pub(crate) attention: Option<f64>,
    /// Share of memory bandwidth that elementwise kernels reach, in (0, 1].
    pub(crate) memory: Option<f64>,
    /// Least time of a kernel, seconds.
    pub(crate) kernel_s: Option<f64>,
    /// Host time of a kernel launch, seconds.
    pub(crate) launch_s: Option<f64>,
    /// Host time of a microbatch, seconds.
    pub(crate) microbatch_host_s: Option<f64>,
    /// Share of the `NVLink` bandwidth that collectives reach, in (0, 1].
    pub(crate) nvlink: Option<f64>,
    /// Share of the network's bandwidth that collectives reach, in (0, 1].
    pub(crate) network: Option<f64>,
    /// Fixed time of a collective, seconds.
    pub(crate) collective_s: Option<f64>,
    /// Fixed time of a step, seconds.
    pub(crate) step_s: Option<f64>,
}

/// What varies. Standard deviations of log time unless said otherwise; a preset gives what is left
/// out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Variability")]
pub(crate) struct RawVariability {
    /// Preset that the other keys override; `dedicated` if left out.
    pub(crate) preset: Option<String>,
    /// Between GPUs, arithmetic-bound kernels (persistent).
    pub(crate) gpu_compute_sd: Option<f64>,
    /// Between GPUs, memory-bound kernels (persistent).
    pub(crate) gpu_memory_sd: Option<f64>,
    /// Slow machines.
    pub(crate) laggards: Option<RawLaggards>,
    /// A whole step, all workers.
    pub(crate) step_sd: Option<f64>,
    /// One worker during one step.
    pub(crate) step_worker_sd: Option<f64>,
    /// One microbatch of one replica.
    pub(crate) microbatch: Option<RawMicrobatch>,
    /// Every compute operation for itself.
    pub(crate) residual_sd: Option<f64>,
    /// Every collective and transfer for itself.
    pub(crate) transfer_sd: Option<f64>,
    /// A whole step's communication.
    pub(crate) congestion_sd: Option<f64>,
    /// Share of steps with a congestion burst, 0 to 1.
    pub(crate) burst_probability: Option<f64>,
    /// Factor on communication in such a step, at least 1.
    pub(crate) burst_factor: Option<f64>,
    /// S.d. of a step's fixed overhead, seconds.
    pub(crate) overhead_sd_s: Option<f64>,
    /// Load of the busiest expert-parallel rank over the mean, less 1, as a s.d. over microbatches.
    pub(crate) expert_imbalance_sd: Option<f64>,
    /// Amplitude of the daily swing of all compute, a share.
    pub(crate) diurnal_amplitude: Option<f64>,
    /// Rare long stalls of one operation.
    pub(crate) hang: Option<RawHang>,
}

/// Slow machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Laggards")]
pub(crate) struct RawLaggards {
    /// Share of nodes, 0 to 1.
    pub(crate) share: Option<f64>,
    /// Factor on their compute times, at least 1.
    pub(crate) factor: Option<f64>,
}

/// Spread between microbatches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Microbatch")]
pub(crate) struct RawMicrobatch {
    /// S.d. of the log factor.
    pub(crate) sd: Option<f64>,
    /// Skewness of the log factor.
    pub(crate) skew: Option<f64>,
}

/// Rare long stalls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Hang")]
pub(crate) struct RawHang {
    /// Probability per compute operation, 0 to 1.
    pub(crate) probability: Option<f64>,
    /// Factor on its time, at least 1.
    pub(crate) factor: Option<f64>,
}

struct GpuChoiceVisitor;

impl<'de> de::Visitor<'de> for GpuChoiceVisitor {
    type Value = RawGpuChoice;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a GPU's name such as \"H100-SXM\", or a table")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<RawGpuChoice, E> {
        Ok(RawGpuChoice::Name(name.to_owned()))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RawGpuChoice, A::Error> {
        RawGpu::deserialize(MapAccessDeserializer::new(map))
            .map(|gpu| RawGpuChoice::Sheet(Box::new(gpu)))
    }
}

impl<'de> Deserialize<'de> for RawGpuChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GpuChoiceVisitor)
    }
}
