//! Jobs to weigh.

use prism_job::{
    Attention, AttentionKernel, AttentionKind, Cluster, Efficiency, Fsdp, Gpu, Hang, Job, Laggards,
    MicrobatchSpread, Mlp, Model, Moe, Network, Overlap, Plan, Positions, Precision, Recompute,
    ScheduleName, Training, Variability, ZeroStage,
};

const GIB: f64 = 1_073_741_824.0;

fn cluster() -> Cluster {
    let link = Network { bandwidth: 25e9, latency_s: 1e-6, in_network_reduction: false };
    Cluster {
        name: "test".into(),
        gpus: None,
        gpu: Gpu {
            name: "A100".into(),
            memory_bytes: 80.0 * GIB,
            memory_bandwidth: 2e12,
            bf16_flops: 312e12,
            fp8_flops: None,
            sms: 108,
            source: "test".into(),
        },
        gpus_per_node: 8,
        nvlink_domain: 8,
        nvlink: link,
        network: link,
        tiers: Vec::new(),
        efficiency: Efficiency {
            gemm: 0.7,
            gemm_fp8: 0.6,
            gemm_half_k: 100.0,
            attention: 0.5,
            memory: 0.8,
            kernel_s: 1e-6,
            launch_s: 1e-6,
            microbatch_host_s: 0.0,
            nvlink: 0.8,
            network: 0.8,
            collective_s: 0.0,
            step_s: 0.0,
        },
    }
}

fn variability() -> Variability {
    Variability {
        preset: "none".into(),
        gpu_compute_sd: 0.0,
        gpu_memory_sd: 0.0,
        laggards: Laggards { share: 0.0, factor: 1.0 },
        step_sd: 0.0,
        step_worker_sd: 0.0,
        microbatch: MicrobatchSpread { sd: 0.0, skew: 0.0 },
        residual_sd: 0.0,
        transfer_sd: 0.0,
        congestion_sd: 0.0,
        overhead_sd_s: 0.0,
        burst_probability: 0.0,
        burst_factor: 1.0,
        expert_imbalance_sd: 0.0,
        diurnal_amplitude: 0.0,
        hang: Hang { probability: 0.0, factor: 1.0 },
    }
}

fn plan() -> Plan {
    Plan {
        data_parallel_shard: 1,
        data_parallel_replicate: 1,
        tensor_parallel: 1,
        sequence_parallel: false,
        context_parallel: 1,
        expert_parallel: 1,
        pipeline_parallel: 1,
        virtual_chunks: 1,
        schedule: ScheduleName::OneFOneB,
        chunk_layers: Vec::new(),
        zero: ZeroStage::None,
        fsdp: Fsdp { prefetch: 1, reshard_after_forward: true },
        recompute: Recompute::None,
        precision: Precision::Bf16,
        grad_reduce_fp32: true,
        attention_kernel: AttentionKernel::Unfused,
        overlap: Overlap {
            grad_reduce: true,
            param_gather: true,
            p2p: true,
            tensor_parallel: true,
        },
    }
}

/// A job of one GPU, which the tests spread.
fn job(model: Model, seq_len: u32) -> Job {
    let training =
        Training { seq_len, global_batch_size: 64, micro_batch_size: 1, sequences: None };
    let name = model.name.clone();
    Job {
        name,
        model,
        training,
        plan: plan(),
        cluster: cluster(),
        variability: variability(),
        run: None,
    }
}

/// A GPT of Korthikanti et al. (arXiv 2205.05198, table 3), spread as there.
pub(crate) struct Gpt {
    pub(crate) name: &'static str,
    pub(crate) heads: u32,
    pub(crate) hidden: u32,
    pub(crate) layers: u32,
    pub(crate) pipeline: u32,
    pub(crate) chunks: u32,
    pub(crate) batch: u32,
    pub(crate) microbatch: u32,
}

pub(crate) const GPTS: [Gpt; 4] = [
    Gpt {
        name: "22B",
        heads: 64,
        hidden: 6144,
        layers: 48,
        pipeline: 1,
        chunks: 1,
        batch: 4,
        microbatch: 4,
    },
    Gpt {
        name: "175B",
        heads: 96,
        hidden: 12_288,
        layers: 96,
        pipeline: 8,
        chunks: 3,
        batch: 64,
        microbatch: 1,
    },
    Gpt {
        name: "530B",
        heads: 128,
        hidden: 20_480,
        layers: 105,
        pipeline: 35,
        chunks: 3,
        batch: 280,
        microbatch: 1,
    },
    Gpt {
        name: "1T",
        heads: 160,
        hidden: 25_600,
        layers: 128,
        pipeline: 64,
        chunks: 1,
        batch: 512,
        microbatch: 1,
    },
];

impl Gpt {
    pub(crate) fn job(&self, tensor: u32, sequence: bool, recompute: Recompute) -> Job {
        let model = Model {
            name: self.name.into(),
            hidden_size: self.hidden,
            layers: self.layers,
            attention: Attention {
                heads: self.heads,
                kv_heads: self.heads,
                head_dim: self.hidden / self.heads,
                kind: AttentionKind::Standard,
            },
            mlp: Mlp { intermediate_size: 4 * self.hidden, gated: false },
            moe: None,
            vocab_size: 51_200,
            vocab_multiple: 1,
            tied_embeddings: true,
            positions: Positions::Learned,
            bias: true,
            dropout: true,
        };
        let mut job = job(model, 2048);
        job.training.global_batch_size = self.batch;
        job.training.micro_batch_size = self.microbatch;
        job.plan.tensor_parallel = tensor;
        job.plan.sequence_parallel = sequence;
        job.plan.recompute = recompute;
        job.plan.pipeline_parallel = self.pipeline;
        job.plan.virtual_chunks = self.chunks;
        if self.chunks > 1 {
            job.plan.schedule = ScheduleName::InterleavedOneFOneB;
        }
        job
    }
}

/// Llama-3.1 405B (arXiv 2407.21783, table 3).
pub(crate) fn llama() -> Job {
    let model = Model {
        name: "Llama-3.1 405B".into(),
        hidden_size: 16_384,
        layers: 126,
        attention: Attention {
            heads: 128,
            kv_heads: 8,
            head_dim: 128,
            kind: AttentionKind::Standard,
        },
        mlp: Mlp { intermediate_size: 53_248, gated: true },
        moe: None,
        vocab_size: 128_256,
        vocab_multiple: 1,
        tied_embeddings: false,
        positions: Positions::Rotary,
        bias: false,
        dropout: false,
    };
    let mut job = job(model, 8192);
    job.plan.attention_kernel = AttentionKernel::Flash;
    job
}

/// `DeepSeek`-V3 (arXiv 2412.19437, section 4.2).
pub(crate) fn deepseek() -> Job {
    let model = Model {
        name: "DeepSeek-V3".into(),
        hidden_size: 7168,
        layers: 61,
        attention: Attention {
            heads: 128,
            kv_heads: 128,
            head_dim: 128,
            kind: AttentionKind::Latent {
                q_rank: Some(1536),
                kv_rank: 512,
                nope_dim: 128,
                rope_dim: 64,
                v_dim: 128,
            },
        },
        mlp: Mlp { intermediate_size: 18_432, gated: true },
        moe: Some(Moe {
            experts: 256,
            top_k: 8,
            shared_experts: 1,
            expert_intermediate_size: 2048,
            dense_layers: 3,
            every: 1,
        }),
        vocab_size: 129_280,
        vocab_multiple: 1,
        tied_embeddings: false,
        positions: Positions::Rotary,
        bias: false,
        dropout: false,
    };
    let mut job = job(model, 4096);
    job.plan.attention_kernel = AttentionKernel::Flash;
    job
}
