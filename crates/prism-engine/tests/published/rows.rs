//! Published step times, with the plans they were measured on.

use std::path::PathBuf;

use prism_engine::planned::{CollectivePoint, StepPoint};
use prism_job::cost::{CollectiveKind, Group, costs};
use prism_job::{
    AttentionKernel, Cluster, Fsdp, Job, Overlap, Plan, Precision, Recompute, ScheduleName,
    Training, ZeroStage, presets,
};

/// A measured row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) job: Job,
    pub(crate) seconds: f64,
}

impl Row {
    pub(crate) fn point(&self, weight: f64) -> StepPoint {
        StepPoint { job: self.job.clone(), seconds: self.seconds, weight }
    }
}

pub(crate) struct Shape {
    pub(crate) t: u32,
    pub(crate) p: u32,
    pub(crate) v: u32,
    pub(crate) d: u32,
    pub(crate) seq: u32,
    pub(crate) global: u32,
    pub(crate) micro: u32,
}

fn no_overlap() -> Overlap {
    Overlap { grad_reduce: false, param_gather: false, p2p: false, tensor_parallel: false }
}

fn job(name: &str, model: prism_job::Model, shape: &Shape, cluster: Cluster) -> Job {
    Job {
        name: name.to_owned(),
        model,
        training: Training {
            seq_len: shape.seq,
            global_batch_size: shape.global,
            micro_batch_size: shape.micro,
            sequences: None,
        },
        plan: Plan {
            data_parallel_shard: shape.d,
            data_parallel_replicate: 1,
            tensor_parallel: shape.t,
            sequence_parallel: false,
            context_parallel: 1,
            expert_parallel: 1,
            pipeline_parallel: shape.p,
            virtual_chunks: shape.v,
            schedule: if shape.v > 1 {
                ScheduleName::InterleavedOneFOneB
            } else {
                ScheduleName::OneFOneB
            },
            chunk_layers: Vec::new(),
            zero: ZeroStage::None,
            fsdp: Fsdp { prefetch: 1, reshard_after_forward: true },
            recompute: Recompute::None,
            precision: Precision::Bf16,
            grad_reduce_fp32: false,
            attention_kernel: AttentionKernel::Unfused,
            overlap: no_overlap(),
        },
        cluster,
        variability: presets::variability("none").unwrap(),
        run: None,
    }
}

/// Korthikanti et al. 2022 (arXiv 2205.05198), tables 3 and 5: seconds of an iteration with full
/// recomputation, and with sequence parallelism and selective recomputation; sequence 2,048.
pub(crate) fn korthikanti() -> Vec<Row> {
    let sizes = [
        ("megatron-22b", 4, 4, 1, 1, 1.42, 1.10),
        ("megatron-175b", 64, 1, 8, 3, 18.13, 13.75),
        ("megatron-530b", 280, 1, 35, 3, 49.05, 37.83),
        ("megatron-1t", 512, 1, 64, 1, 94.42, 71.49),
    ];
    let mut rows = Vec::new();
    for (name, global, micro, p, v, full, selective) in sizes {
        for (recompute, seconds) in [(Recompute::Full, full), (Recompute::Selective, selective)] {
            let mut model =
                presets::model(if name == "megatron-175b" { "gpt3-175b" } else { name })
                    .unwrap_or_else(|| panic!("no preset {name}"));
            // All four train with dropout and the vocabulary of Megatron.
            model.dropout = true;
            model.vocab_size = 51_200;
            let cluster = presets::cluster("a100-dgx").unwrap();
            let shape = Shape { t: 8, p, v, d: 1, seq: 2048, global, micro };
            let mut job = job(name, model, &shape, cluster);
            job.plan.recompute = recompute;
            job.plan.sequence_parallel = recompute == Recompute::Selective;
            rows.push(Row { name: format!("{name} {recompute:?}"), job, seconds });
        }
    }
    rows
}

/// Where the measured data are; none where they are missing.
pub(crate) fn data(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PRISM_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let file = root.join(path);
    if file.exists() {
        return Some(file);
    }
    eprintln!("skipped: {} is missing (set PRISM_DATA)", file.display());
    None
}

/// vTrain's single-node rows (Bang et al., arXiv 2312.12391): Megatron on 2 to 8 A100-40GB.
///
/// Assumed, as the file does not say: no recomputation, input-gradient reductions beside the weight
/// gradients (Megatron's default), no overlap of the gradient all-reduce, a vocabulary of 50,257 that is
/// padded to a multiple of 128 a rank under tensor parallelism and not padded without it.
pub(crate) fn vtrain() -> Option<Vec<Row>> {
    let text = std::fs::read_to_string(data("vtrain/ground_truth_single.csv")?).unwrap();
    let rows = text.lines().skip(1).map(|line| {
        let f: Vec<f64> = line.split(',').map(|x| x.trim().parse().unwrap()).collect();
        let u = |i: usize| f[i] as u32;
        let mut model = presets::model("megatron-22b").unwrap();
        model.hidden_size = u(3);
        model.layers = u(5);
        model.attention.heads = u(4);
        model.attention.kv_heads = u(4);
        model.attention.head_dim = u(3) / u(4);
        model.mlp.intermediate_size = 4 * u(3);
        model.vocab_size = 50_257;
        let shape = Shape { t: u(7), p: u(9), v: 1, d: u(8), seq: u(6), global: u(1), micro: u(2) };
        if shape.t == 1 {
            model.vocab_multiple = 1;
        }
        let mut cluster = presets::cluster("a100-dgx").unwrap();
        cluster.gpu = presets::gpu("A100-SXM-40GB").unwrap().gpu;
        // Iterations there are sums of operations: nothing around them.
        "vtrain".clone_into(&mut cluster.name);
        cluster.efficiency.step_s = 1e-4;
        let name = line.to_owned();
        Row { job: job("vtrain", model, &shape, cluster), name, seconds: f[10] / 1e3 }
    });
    Some(rows.collect())
}

/// Every fifth row, more or less, by a hash of its place.
pub(crate) fn is_fitted(row: usize) -> bool {
    let hash = (row as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & 0xffff;
    hash < 0xffff / 5 - 300
}

/// All-reduces over 8 A100 of the same study, sizes a factor of 1.5 apart.
#[allow(dead_code)]
pub(crate) fn all_reduces(weight: f64) -> Option<Vec<CollectivePoint>> {
    let text = std::fs::read_to_string(data("vtrain/AR_GPU8_1M_1024M_LUT")?).unwrap();
    let mut cluster = presets::cluster("a100-dgx").unwrap();
    cluster.gpu = presets::gpu("A100-SXM-40GB").unwrap().gpu;
    "vtrain".clone_into(&mut cluster.name);
    let mut next = 1e6;
    let points = text.lines().skip(1).filter_map(|line| {
        let f: Vec<&str> = line.split(',').collect();
        let bytes: f64 = f[0].parse().unwrap();
        (bytes >= next).then(|| {
            next = bytes * 1.5;
            CollectivePoint {
                cluster: cluster.clone(),
                kind: CollectiveKind::AllReduce,
                bytes,
                group: Group { ranks: 8, stride: 1 },
                seconds: f[3].parse::<f64>().unwrap() * 1e-9,
                weight,
            }
        })
    });
    Some(points.collect())
}

/// GPT-3 175B of `MLPerf` Training on Eos (v3.1, plan of the submitted configurations): median step over
/// three runs without the first ten steps and those after an evaluation, seconds.
pub(crate) fn mlperf_gpt3() -> Vec<Row> {
    let rows = [
        ("n64", 128, 16, 11.0530),
        ("n96", 128, 24, 11.0762),
        ("n512", 16, 128, 1.6090),
        ("n768", 16, 192, 1.6159),
        ("n1024", 16, 256, 1.6200),
        ("n1280", 8, 320, 0.9258),
    ];
    rows.into_iter()
        .map(|(name, m, d, seconds)| {
            let mut model = presets::model("gpt3-175b").unwrap();
            model.vocab_size = 51_200;
            let shape = Shape { t: 4, p: 8, v: 12, d, seq: 2048, global: m * d, micro: 1 };
            let mut job = job("gpt3", model, &shape, presets::cluster("eos").unwrap());
            let plan = &mut job.plan;
            plan.sequence_parallel = true;
            plan.zero = ZeroStage::Optimizer;
            plan.precision = Precision::Fp8;
            plan.attention_kernel = AttentionKernel::Flash;
            plan.overlap =
                Overlap { grad_reduce: true, param_gather: true, p2p: true, tensor_parallel: true };
            Row { name: name.to_owned(), job, seconds }
        })
        .collect()
}

/// Llama 3 405B (arXiv 2407.21783, table 4): BF16 TFLOP/s per GPU on 8,192 and 16,384 GPUs and with
/// context parallelism 16 at sequence 131,072. Virtual chunks are declared here: 8 per stage, one layer
/// each, the first and the last chunk without one (126 layers). FLOP are counted with causal attention.
pub(crate) fn llama_405b() -> Vec<(Row, f64)> {
    let rows = [
        ("8192", 8192, 2048, 64, 1, 430.0),
        ("16384", 8192, 2048, 128, 1, 400.0),
        ("cp16", 131_072, 128, 8, 16, 380.0),
    ];
    rows.into_iter()
        .map(|(name, seq, global, d, cp, tflops)| {
            let model = presets::model("llama-3.1-405b").unwrap();
            let shape = Shape { t: 8, p: 16, v: 8, d, seq, global, micro: 1 };
            let mut job = job("llama", model, &shape, presets::cluster("llama3-roce").unwrap());
            let plan = &mut job.plan;
            plan.chunk_layers = vec![1; 128];
            plan.chunk_layers[0] = 0;
            plan.chunk_layers[127] = 0;
            plan.context_parallel = cp;
            plan.sequence_parallel = true;
            plan.zero = ZeroStage::Gradients;
            plan.attention_kernel = AttentionKernel::Flash;
            plan.grad_reduce_fp32 = true;
            plan.overlap = Overlap {
                grad_reduce: true,
                param_gather: true,
                p2p: true,
                tensor_parallel: false,
            };
            let flops = costs(&job).model_flops;
            let seconds = flops / job.gpus() as f64 / (tflops * 1e12);
            (Row { name: name.to_owned(), job, seconds }, tflops)
        })
        .collect()
}
