//! What a planned job is, in a few words and numbers.

use prism_job::cost::StepCosts;
use prism_job::{Job, Plan, Precision, ScheduleName, presets};
use serde::{Deserialize, Serialize};

use crate::number::{GIB, big, count, percent};

/// A planned job. Sizes are sequences, tokens and parameters; times seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobSummary {
    /// The job's name.
    pub name: String,
    /// The model's name.
    pub model: String,
    /// Parameters of the model.
    pub parameters: f64,
    /// Parameters that a token uses.
    pub active_parameters: f64,
    /// GPUs.
    pub gpus: u64,
    /// The GPU.
    pub gpu: String,
    /// The cluster.
    pub cluster: String,
    /// The plan's degrees, such as `TP8 x PP16 x DP1024`.
    pub plan: String,
    /// Pipeline schedule.
    pub schedule: ScheduleName,
    /// Pipeline stages.
    pub stages: u32,
    /// Data-parallel replicas.
    pub replicas: u32,
    /// Microbatches of a replica and step.
    pub microbatches: u32,
    /// Sequences of a step.
    pub global_batch_size: u32,
    /// Tokens of a sequence.
    pub seq_len: u32,
    /// Tokens of a step.
    pub tokens: f64,
    /// What `ZeRO` shards, 0 to 3.
    pub zero_stage: u8,
    /// Arithmetic of the matrix products.
    pub precision: Precision,
    /// Variability's preset.
    pub variability: String,
}

impl JobSummary {
    /// Of a job.
    pub fn new(job: &Job) -> JobSummary {
        let (parameters, active_parameters) = parameters(job);
        JobSummary {
            name: job.name.clone(),
            model: job.model.name.clone(),
            parameters,
            active_parameters,
            gpus: job.gpus(),
            gpu: job.cluster.gpu.name.clone(),
            cluster: job.cluster.name.clone(),
            plan: plan_name(&job.plan),
            schedule: job.plan.schedule,
            stages: job.plan.pipeline_parallel,
            replicas: job.plan.data_parallel(),
            microbatches: job.microbatches(),
            global_batch_size: job.training.global_batch_size,
            seq_len: job.training.seq_len,
            tokens: job.tokens(),
            zero_stage: job.plan.zero.into(),
            precision: job.plan.precision,
            variability: job.variability.preset.clone(),
        }
    }

    /// Model, GPUs, plan, schedule: half a sentence.
    pub(crate) fn in_words(&self) -> String {
        let s = |n: u64| if n == 1 { "" } else { "s" };
        let schedule = if self.stages > 1 { format!("{}, ", self.schedule) } else { String::new() };
        format!(
            "{} on {} {}{}: {}, ZeRO {}, {schedule}{} microbatch{}",
            self.model,
            count(self.gpus as usize),
            self.gpu,
            if self.gpus == 1 { "" } else { " GPUs" },
            self.plan,
            self.zero_stage,
            count(self.microbatches as usize),
            if self.microbatches == 1 { "" } else { "es" },
        ) + &format!(" of {} token{}", count(self.seq_len as usize), s(self.seq_len.into()))
    }
}

/// All parameters of a job's model, and those that a token uses.
fn parameters(job: &Job) -> (f64, f64) {
    let all = job.model.parameters(job.training.seq_len);
    let idle: f64 = (0..job.model.layers)
        .map(|l| job.model.layer_parameters(l))
        .map(|(layer, active)| layer - active)
        .sum();
    (all, all - idle)
}

/// A plan's degrees: `TP8 x PP16 x DP1024`; those of 1 are left out.
///
/// ```
/// let read = prism_job::parse_job(
///     "[model]\npreset = 'mixtral-8x7b'\n[training]\nseq_len = 4096\nglobal_batch_size = 256\n\
///      [parallelism]\ntensor_parallel_degree = 2\nexpert_parallel_degree = 8\n\
///      data_parallel_shard_degree = 32\n[cluster]\npreset = 'h100-dgx'\n",
///     &prism_job::ReadOptions::default(),
/// )?;
/// assert_eq!(prism_report::plan_name(&read.job.plan), "TP2 x DP32 (EP8)");
/// # Ok::<(), prism_job::JobFileError>(())
/// ```
pub fn plan_name(plan: &Plan) -> String {
    let mut parts = Vec::new();
    let mut add = |name: &str, degree: u32| {
        if degree > 1 {
            parts.push(format!("{name}{degree}"));
        }
    };
    add("TP", plan.tensor_parallel);
    add("CP", plan.context_parallel);
    add("PP", plan.pipeline_parallel);
    if plan.virtual_chunks > 1 && plan.schedule == ScheduleName::InterleavedOneFOneB {
        add("VPP", plan.virtual_chunks);
    }
    add("DP", plan.data_parallel());
    let mut text = if parts.is_empty() { "one GPU".to_owned() } else { parts.join(" x ") };
    let mut notes = Vec::new();
    if plan.data_parallel_replicate > 1 {
        notes.push(format!(
            "{} groups of {}",
            plan.data_parallel_replicate, plan.data_parallel_shard
        ));
    }
    if plan.expert_parallel > 1 {
        notes.push(format!("EP{}", plan.expert_parallel));
    }
    if !notes.is_empty() {
        text = format!("{text} ({})", notes.join(", "));
    }
    text
}

/// What a step time means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Throughput {
    /// Step time, seconds.
    pub step_s: f64,
    /// Tokens per second.
    pub tokens_per_s: f64,
    /// FLOP that the model needs per GPU and second, attention counted causal.
    pub flops_per_gpu: f64,
    /// The same over the GPU's dense rate at the linear layers' precision.
    pub mfu: f64,
    /// The same with attention counted over the whole square, as Megatron and most reports do.
    pub mfu_full_attention: f64,
    /// The rate that utilisation refers to, FLOP per second.
    pub peak_flops: f64,
}

impl Throughput {
    /// At a step time of a job.
    pub fn new(job: &Job, costs: &StepCosts, step_s: f64) -> Throughput {
        let gpu = &job.cluster.gpu;
        let peak_flops = match job.plan.precision {
            Precision::Fp8 => gpu.fp8_flops.unwrap_or(gpu.bf16_flops),
            Precision::Bf16 => gpu.bf16_flops,
        };
        let per_gpu = |flops: f64| flops / (step_s * job.gpus() as f64);
        Throughput {
            step_s,
            tokens_per_s: job.tokens() / step_s,
            flops_per_gpu: per_gpu(costs.model_flops),
            mfu: per_gpu(costs.model_flops) / peak_flops,
            mfu_full_attention: per_gpu(costs.model_flops_full_attention) / peak_flops,
            peak_flops,
        }
    }

    /// In one line.
    pub(crate) fn in_words(&self) -> String {
        format!(
            "{} tokens/s, {:.1} TFLOP/s per GPU, MFU {} of {:.0} TFLOP/s (attention counted causal; \
             {} with the whole square)",
            big(self.tokens_per_s),
            self.flops_per_gpu / 1e12,
            percent(self.mfu),
            self.peak_flops / 1e12,
            percent(self.mfu_full_attention)
        )
    }
}

/// What a job's costs take for granted.
pub fn cost_assumption(job: &Job) -> Option<String> {
    let gpu = &job.cluster.gpu.name;
    let preset = presets::gpu(gpu).is_some_and(|p| p.efficiency == job.cluster.efficiency);
    preset.then(|| {
        format!(
            "efficiencies are the preset's of {gpu}, not fitted to this cluster: step time is an \
             estimate"
        )
    })
}

/// Whether a job's fullest stage lacks memory, in words.
pub fn memory_warning(job: &Job) -> Option<String> {
    let stages = prism_graph::memory(job).ok()?;
    let over = stages.iter().filter(|s| !s.fits());
    let worst = over.max_by(|a, b| a.total_bytes().total_cmp(&b.total_bytes()))?;
    Some(format!(
        "it does not fit: stage {} takes {:.1} of {:.1} GiB, see `prism check`",
        worst.stage,
        worst.total_bytes() / GIB,
        worst.gpu_bytes / GIB
    ))
}

/// What a job's spreads take for granted.
pub fn variability_assumption(job: &Job) -> Option<String> {
    let v = &job.variability;
    let preset = v.preset != "none" && presets::variability(&v.preset).is_some_and(|p| p == *v);
    preset
        .then(|| format!("variability is the preset `{}`, not measured on this cluster", v.preset))
}
