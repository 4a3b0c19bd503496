//! How a job is spread over GPUs.

/// The plan of parallelism. GPUs are ordered as Megatron orders them: tensor parallel innermost,
/// then context parallel, then data parallel, then pipeline stages.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Replicas over which optimizer state (and more, see `zero`) is sharded; the data-parallel size
    /// of Megatron.
    pub data_parallel_shard: u32,
    /// Further replicas that hold copies (HSDP).
    pub data_parallel_replicate: u32,
    /// Tensor-parallel ranks.
    pub tensor_parallel: u32,
    /// Whether activations between tensor-parallel regions are split along the sequence.
    pub sequence_parallel: bool,
    /// Context-parallel ranks (ring attention).
    pub context_parallel: u32,
    /// Expert-parallel ranks; they are among the data- and context-parallel ones.
    pub expert_parallel: u32,
    /// Pipeline stages.
    pub pipeline_parallel: u32,
    /// Model chunks per stage (virtual pipeline).
    pub virtual_chunks: u32,
    /// Pipeline schedule.
    pub schedule: ScheduleName,
    /// Layers of each chunk in model order (`pipeline_parallel x virtual_chunks` of them); empty for
    /// an even split.
    pub chunk_layers: Vec<u32>,
    /// What is sharded over `data_parallel_shard`.
    pub zero: ZeroStage,
    /// Per-layer gathers, where parameters are sharded.
    pub fsdp: Fsdp,
    /// Activation recomputation.
    pub recompute: Recompute,
    /// Arithmetic of the matrix products.
    pub precision: Precision,
    /// Whether gradients are reduced in 4-byte floats rather than 2.
    pub grad_reduce_fp32: bool,
    /// Attention's kernels.
    pub attention_kernel: AttentionKernel,
    /// What overlaps compute.
    pub overlap: Overlap,
}

/// Pipeline schedule.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[non_exhaustive]
pub enum ScheduleName {
    /// All forward passes, then all backward passes.
    #[serde(rename = "gpipe", alias = "GPipe")]
    GPipe,
    /// One forward, one backward.
    #[serde(rename = "1f1b", alias = "1F1B")]
    OneFOneB,
    /// The same over several chunks per stage.
    #[serde(rename = "interleaved-1f1b", alias = "Interleaved1F1B")]
    InterleavedOneFOneB,
    /// Zero bubble, 1F1B's memory.
    #[serde(rename = "zb-h1")]
    ZbH1,
    /// Zero bubble, two chunks per stage in a V.
    #[serde(rename = "zb-v", alias = "ZBVZeroBubble")]
    ZbV,
    /// Two directions (`DeepSeek`-V3).
    #[serde(rename = "dualpipe", alias = "DualPipe")]
    DualPipe,
}

impl std::fmt::Display for ScheduleName {
    /// The name in job files.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ScheduleName::GPipe => "gpipe",
            ScheduleName::OneFOneB => "1f1b",
            ScheduleName::InterleavedOneFOneB => "interleaved-1f1b",
            ScheduleName::ZbH1 => "zb-h1",
            ScheduleName::ZbV => "zb-v",
            ScheduleName::DualPipe => "dualpipe",
        })
    }
}

/// What is sharded over the data-parallel group (`ZeRO`).
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
#[serde(try_from = "u8", into = "u8")]
pub enum ZeroStage {
    /// Nothing: gradients are all-reduced.
    None = 0,
    /// Optimizer state (Megatron's distributed optimizer).
    Optimizer = 1,
    /// And gradients.
    Gradients = 2,
    /// And parameters (FSDP).
    Parameters = 3,
}

impl TryFrom<u8> for ZeroStage {
    type Error = String;
    fn try_from(stage: u8) -> Result<Self, Self::Error> {
        match stage {
            0 => Ok(ZeroStage::None),
            1 => Ok(ZeroStage::Optimizer),
            2 => Ok(ZeroStage::Gradients),
            3 => Ok(ZeroStage::Parameters),
            other => Err(format!("ZeRO stage {other} is none of 0, 1, 2, 3")),
        }
    }
}

impl From<ZeroStage> for u8 {
    fn from(stage: ZeroStage) -> u8 {
        stage as u8
    }
}

/// Per-layer gathers of sharded parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsdp {
    /// Layers that may be gathered ahead; 0: every layer waits for its own gather.
    pub prefetch: u32,
    /// Whether parameters are freed after the forward pass and gathered again for the backward.
    pub reshard_after_forward: bool,
}

/// Activation recomputation.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Recompute {
    /// All activations are kept.
    None,
    /// The attention core (scores, softmax) is computed again.
    Selective,
    /// Every layer is computed again from its input.
    Full,
}

/// Arithmetic of the matrix products.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 16-bit floats.
    Bf16,
    /// Linear layers in 8-bit floats, the rest in 16-bit ones.
    Fp8,
}

/// Attention's kernels.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKernel {
    /// One fused kernel; scores never reach memory.
    Flash,
    /// Products of matrices with a fused softmax between them; scores are stored.
    Unfused,
}

/// What overlaps compute.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Gradients are reduced while backward passes still run.
    pub grad_reduce: bool,
    /// Parameters are gathered while the first forward passes run.
    pub param_gather: bool,
    /// Point-to-point transfers run beside compute.
    pub p2p: bool,
    /// Tensor-parallel collectives run in pieces beside the matrix products they feed (user buffers).
    /// The reduction of input gradients runs beside the weight gradients in any case, as Megatron does.
    pub tensor_parallel: bool,
}

impl std::fmt::Display for Plan {
    /// Degrees and schedule in one line; degrees of 1 are left out, except the data-parallel one.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let degrees = [
            ("TP", self.tensor_parallel),
            ("CP", self.context_parallel),
            ("EP", self.expert_parallel),
            ("PP", self.pipeline_parallel),
        ];
        for (name, degree) in degrees.into_iter().filter(|d| d.1 > 1) {
            write!(f, "{name} {degree}, ")?;
        }
        if self.pipeline_parallel > 1 || self.virtual_chunks > 1 {
            write!(f, "{}", self.schedule)?;
            if self.virtual_chunks > 1 {
                write!(f, " with {} chunks a stage", self.virtual_chunks)?;
            }
            f.write_str(", ")?;
        }
        write!(f, "DP {}", self.data_parallel_shard)?;
        if self.data_parallel_replicate > 1 {
            write!(f, " x {}", self.data_parallel_replicate)?;
        }
        if self.precision == Precision::Fp8 {
            f.write_str(", FP8")?;
        }
        Ok(())
    }
}

impl Plan {
    /// Data-parallel replicas: sharded and replicated.
    pub fn data_parallel(&self) -> u32 {
        self.data_parallel_shard.saturating_mul(self.data_parallel_replicate)
    }

    /// GPUs of one replica: a pipeline of tensor- and context-parallel groups.
    pub fn gpus_per_replica(&self) -> u64 {
        u64::from(self.tensor_parallel)
            .saturating_mul(u64::from(self.context_parallel))
            .saturating_mul(u64::from(self.pipeline_parallel))
    }

    /// All GPUs.
    pub fn gpus(&self) -> u64 {
        self.gpus_per_replica().saturating_mul(u64::from(self.data_parallel()))
    }

    /// Model chunks: stages times virtual chunks.
    pub fn chunks(&self) -> u32 {
        self.pipeline_parallel.saturating_mul(self.virtual_chunks)
    }

    /// Layers of each chunk in model order; the first chunks get one more where they do not divide.
    pub fn layers_of_chunks(&self, layers: u32) -> Vec<u32> {
        if !self.chunk_layers.is_empty() {
            return self.chunk_layers.clone();
        }
        let chunks = self.chunks().max(1);
        (0..chunks).map(|c| layers / chunks + u32::from(c < layers % chunks)).collect()
    }
}
