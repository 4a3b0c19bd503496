//! A complete job file for a job.

use std::fmt::Write;

use serde::Serialize;

use super::quantity::{Bandwidth, Rate, Size, Time};
use crate::{
    AttentionKind, Cluster, Job, Model, Network, Plan, Positions, Training, Variability, ZeroStage,
};

/// A complete, commented job file that [`crate::parse_job`] reads back as the same job: every key is
/// written out, so that no preset's later change moves it.
///
/// [`Variability::preset`] must name a preset, and a job must break no rule, for the file to be read.
/// `plan.fsdp` is written with `ZeRO` stage 3 only, where it has a meaning; a file without it has a
/// prefetch of 1 and resharding.
pub fn to_toml(job: &Job) -> String {
    let mut out = Writer(String::new());
    out.key("schema", &text(super::JOB_SCHEMA), "");
    out.key("name", &text(&job.name), "");
    model(&mut out, &job.model);
    training(&mut out, &job.training);
    plan(&mut out, &job.plan);
    cluster(&mut out, &job.cluster);
    variability(&mut out, &job.variability);
    if let Some(plan) = &job.run {
        super::run::write_run(&mut out, plan);
    }
    out.0
}

/// TOML text in the making.
pub(super) struct Writer(String);

impl Writer {
    pub(super) fn section(&mut self, name: &str) {
        let _ = write!(self.0, "\n[{name}]\n");
    }

    /// An entry of an array of tables.
    pub(super) fn table(&mut self, name: &str) {
        let _ = write!(self.0, "\n[[{name}]]\n");
    }

    pub(super) fn key(&mut self, key: &str, value: &str, comment: &str) {
        let gap = if comment.is_empty() { "" } else { "  # " };
        let _ = writeln!(self.0, "{key} = {value}{gap}{comment}");
    }

    pub(super) fn int(&mut self, key: &str, value: impl Into<u64>, comment: &str) {
        self.key(key, &value.into().to_string(), comment);
    }

    pub(super) fn float(&mut self, key: &str, value: f64, comment: &str) {
        self.key(key, &float(value), comment);
    }

    pub(super) fn flag(&mut self, key: &str, value: bool, comment: &str) {
        self.key(key, if value { "true" } else { "false" }, comment);
    }

    pub(super) fn word(&mut self, key: &str, value: &impl Serialize, comment: &str) {
        let word = serde_json::to_value(value).ok();
        let word = word.as_ref().and_then(|w| w.as_str()).unwrap_or_default();
        self.key(key, &text(word), comment);
    }
}

/// A TOML string.
pub(crate) fn text(value: &str) -> String {
    toml::Value::String(value.replace('\r', "")).to_string()
}

/// A TOML float of the same bits.
fn float(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { format!("{value:?}") }
}

pub(super) fn quoted(quantity: impl std::fmt::Display) -> String {
    format!("\"{quantity}\"")
}

fn model(out: &mut Writer, m: &Model) {
    out.section("model");
    out.key("name", &text(&m.name), "");
    out.int("hidden_size", m.hidden_size, "width of the residual stream");
    out.int("num_hidden_layers", m.layers, "");
    out.int("intermediate_size", m.mlp.intermediate_size, "inner width of a dense block");
    out.int("num_attention_heads", m.attention.heads, "");
    out.int(
        "num_key_value_heads",
        m.attention.kv_heads,
        "fewer than heads: grouped-query attention",
    );
    out.int("head_dim", m.attention.head_dim, "");
    out.int("vocab_size", m.vocab_size, "before padding");
    out.int(
        "vocab_multiple",
        m.vocab_multiple,
        "padded to a multiple of this on each rank; 1: not padded",
    );
    out.flag("tie_word_embeddings", m.tied_embeddings, "");
    let positions = match m.positions {
        Positions::Learned => "learned",
        Positions::Rotary => "rotary",
        Positions::Bias => "bias",
    };
    out.key("position_embedding", &text(positions), "rotary, learned, bias (ALiBi)");
    out.flag("gated_mlp", m.mlp.gated, "SwiGLU: three matrices, not two");
    out.flag("bias", m.bias, "of linear layers");
    out.flag("dropout", m.dropout, "");
    if let AttentionKind::Latent { q_rank, kv_rank, nope_dim, rope_dim, v_dim } = m.attention.kind {
        out.int("q_lora_rank", q_rank.unwrap_or(0), "latent attention; 0: queries not compressed");
        out.int("kv_lora_rank", kv_rank, "");
        out.int("qk_nope_head_dim", nope_dim, "");
        out.int("qk_rope_head_dim", rope_dim, "");
        out.int("v_head_dim", v_dim, "");
    }
    if let Some(moe) = m.moe {
        out.int("num_experts", moe.experts, "routed");
        out.int("num_experts_per_tok", moe.top_k, "");
        out.int("num_shared_experts", moe.shared_experts, "visited by every token");
        out.int("moe_intermediate_size", moe.expert_intermediate_size, "an expert's inner width");
        out.int("first_k_dense_replace", moe.dense_layers, "leading dense layers");
        out.int("moe_layer_freq", moe.every, "of the others, every how many-th has experts");
    }
}

fn training(out: &mut Writer, t: &Training) {
    out.section("training");
    out.int("seq_len", t.seq_len, "tokens");
    out.int("global_batch_size", t.global_batch_size, "sequences of a step, all replicas");
    out.int("micro_batch_size", t.micro_batch_size, "sequences of a microbatch, one replica");
    if let Some(s) = t.sequences {
        out.section("training.sequences");
        out.float("median", s.median, "tokens of a document");
        out.float("sigma", s.sigma, "s.d. of the log length");
        out.flag("packed", s.packed, "into sequences of seq_len");
    }
}

fn plan(out: &mut Writer, p: &Plan) {
    out.section("parallelism");
    out.int("tensor_parallel_degree", p.tensor_parallel, "");
    out.flag("sequence_parallel", p.sequence_parallel, "");
    out.int("context_parallel_degree", p.context_parallel, "");
    out.int("pipeline_parallel_degree", p.pipeline_parallel, "stages");
    out.int("virtual_pipeline_degree", p.virtual_chunks, "model chunks per stage");
    let schedules = "gpipe, 1f1b, interleaved-1f1b, zb-h1, zb-v, dualpipe";
    out.key("pipeline_parallel_schedule", &text(&p.schedule.to_string()), schedules);
    if !p.chunk_layers.is_empty() {
        out.key("chunk_layers", &format!("{:?}", p.chunk_layers), "layers of each chunk");
    }
    out.int("expert_parallel_degree", p.expert_parallel, "among data- and context-parallel ranks");
    out.int("data_parallel_shard_degree", p.data_parallel_shard, "-1: what is left of the GPUs");
    out.int("data_parallel_replicate_degree", p.data_parallel_replicate, "");
    out.int("zero_stage", u8::from(p.zero), "1 optimizer state, 2 gradients, 3 parameters (FSDP)");
    out.word("recompute", &p.recompute, "none, selective, full");
    out.word("precision", &p.precision, "bf16, fp8");
    out.flag("grad_reduce_fp32", p.grad_reduce_fp32, "reduce gradients in 4 bytes, not 2");
    out.word("attention_kernel", &p.attention_kernel, "flash, unfused");
    if p.zero == ZeroStage::Parameters {
        out.section("parallelism.fsdp");
        out.int("prefetch", p.fsdp.prefetch, "layers gathered ahead");
        out.flag("reshard_after_forward", p.fsdp.reshard_after_forward, "");
    }
    out.section("parallelism.overlap");
    out.flag("grad_reduce", p.overlap.grad_reduce, "");
    out.flag("param_gather", p.overlap.param_gather, "");
    out.flag("p2p", p.overlap.p2p, "");
    out.flag("tensor_parallel", p.overlap.tensor_parallel, "");
}

fn cluster(out: &mut Writer, c: &Cluster) {
    out.section("cluster");
    out.key("name", &text(&c.name), "");
    if let Some(gpus) = c.gpus {
        out.int("gpus", gpus, "");
    }
    out.int("gpus_per_node", c.gpus_per_node, "");
    out.int("nvlink_domain", c.nvlink_domain, "GPUs joined by NVLink");
    out.section("cluster.gpu");
    out.key("name", &text(&c.gpu.name), "");
    out.key("memory", &quoted(Size::new(c.gpu.memory_bytes)), "");
    out.key("memory_bandwidth", &quoted(Bandwidth::new(c.gpu.memory_bandwidth)), "");
    out.key("bf16", &quoted(Rate::new(c.gpu.bf16_flops)), "dense");
    if let Some(fp8) = c.gpu.fp8_flops {
        out.key("fp8", &quoted(Rate::new(fp8)), "dense");
    }
    out.int("sms", c.gpu.sms, "");
    out.key("source", &text(&c.gpu.source), "");
    network(out, "cluster.nvlink", &c.nvlink);
    network(out, "cluster.network", &c.network);
    for tier in &c.tiers {
        out.table("cluster.tiers");
        out.int("gpus", tier.gpus, "inside this level of the network");
        out.key("latency", &quoted(Time::new(tier.latency_s)), "added");
        out.float("oversubscription", tier.oversubscription, "");
    }
    let e = &c.efficiency;
    out.section("cluster.efficiency");
    out.float("gemm", e.gemm, "share of the tensor cores that large products reach");
    out.float("gemm_fp8", e.gemm_fp8, "the same with 8-bit floats");
    out.float("gemm_half_k", e.gemm_half_k, "inner dimension that takes twice its time");
    out.float("attention", e.attention, "share that fused attention reaches");
    out.float("memory", e.memory, "share of memory bandwidth");
    out.float("kernel_s", e.kernel_s, "least time of a kernel, seconds");
    out.float("launch_s", e.launch_s, "host time of a launch, seconds");
    out.float("microbatch_host_s", e.microbatch_host_s, "host time of a microbatch, seconds");
    out.float("nvlink", e.nvlink, "share of NVLink that collectives reach");
    out.float("network", e.network, "share of the network that collectives reach");
    out.float("collective_s", e.collective_s, "fixed time of a collective, seconds");
    out.float("step_s", e.step_s, "fixed time of a step, seconds");
}

fn network(out: &mut Writer, section: &str, n: &Network) {
    out.section(section);
    let bandwidth = quoted(Bandwidth::new(n.bandwidth));
    out.key("bandwidth", &bandwidth, "of one GPU in one direction");
    out.key("latency", &quoted(Time::new(n.latency_s)), "of a message");
    out.flag("in_network_reduction", n.in_network_reduction, "NVLS, SHARP");
}

fn variability(out: &mut Writer, v: &Variability) {
    out.section("variability");
    out.key("preset", &text(&v.preset), "every number below replaces the preset's");
    out.float("gpu_compute_sd", v.gpu_compute_sd, "s.d. of log time: between GPUs, arithmetic");
    out.float("gpu_memory_sd", v.gpu_memory_sd, "between GPUs, memory");
    out.float("step_sd", v.step_sd, "a step, all workers");
    out.float("step_worker_sd", v.step_worker_sd, "a worker during a step");
    out.float("residual_sd", v.residual_sd, "every compute operation");
    out.float("transfer_sd", v.transfer_sd, "every collective and transfer");
    out.float("congestion_sd", v.congestion_sd, "a step's communication");
    out.float("burst_probability", v.burst_probability, "share of steps with congestion");
    out.float("burst_factor", v.burst_factor, "on communication in such a step");
    out.float("overhead_sd_s", v.overhead_sd_s, "fixed overhead of a step, seconds");
    out.float("expert_imbalance_sd", v.expert_imbalance_sd, "busiest expert-parallel rank");
    out.float("diurnal_amplitude", v.diurnal_amplitude, "daily swing of compute, a share");
    out.section("variability.laggards");
    out.float("share", v.laggards.share, "of nodes that are slow");
    out.float("factor", v.laggards.factor, "on their compute times");
    out.section("variability.microbatch");
    out.float("sd", v.microbatch.sd, "between microbatches of a replica");
    out.float("skew", v.microbatch.skew, "");
    out.section("variability.hang");
    out.float("probability", v.hang.probability, "of a stall, per compute operation");
    out.float("factor", v.hang.factor, "on its time");
}
