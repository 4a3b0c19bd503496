//! Costs against closed forms.

use prism_job::cost::{
    Algorithm, CollectiveKind, Gemm, Group, collective, costs, layer_parameters, send_s,
};
use prism_job::{
    Cluster, Job, Precision, ReadOptions, SequenceLengths, Tier, ZeroStage, parse_job, presets,
};

fn job(text: &str) -> Job {
    match parse_job(text, &ReadOptions::default()) {
        Ok(read) => read.job,
        Err(error) => panic!("{error}\n{text}"),
    }
}

fn gpt3(parallelism: &str) -> Job {
    job(&format!(
        "[model]\npreset = \"gpt3-175b\"\n[training]\nseq_len = 2048\nglobal_batch_size = 64\n\
         micro_batch_size = 1\n[parallelism]\n{parallelism}\n[cluster]\npreset = \"a100-dgx\"\n"
    ))
}

fn near(a: f64, b: f64, relative: f64) {
    assert!((a / b - 1.0).abs() < relative, "{a} {b}");
}

/// A100 with 108 multiprocessors, nothing lost but what a test sets.
fn bare() -> Cluster {
    let mut cluster = presets::cluster("a100-dgx").unwrap();
    let e = &mut cluster.efficiency;
    (e.gemm, e.gemm_half_k, e.memory, e.kernel_s) = (1.0, 0.0, 1.0, 0.0);
    (e.nvlink, e.network, e.collective_s) = (1.0, 1.0, 0.0);
    cluster.nvlink.in_network_reduction = false;
    cluster
}

/// 108 tiles of 256 x 128 fill the GPU once; one more makes a second wave.
#[test]
fn products_run_in_waves_of_tiles() {
    let cluster = bare();
    let full = Gemm::new(256.0 * 12.0, 128.0 * 9.0, 4096.0);
    near(full.seconds(&cluster, Precision::Bf16), full.flops() / 312e12, 1e-9);
    let more = Gemm { m: full.m + 1.0, ..full };
    assert!(
        more.seconds(&cluster, Precision::Bf16) > 1.15 * full.seconds(&cluster, Precision::Bf16)
    );
    // Few rows move the weights once and are bound by that.
    let thin = Gemm::new(8.0, 108.0 * 64.0, 8192.0);
    near(
        thin.seconds(&cluster, Precision::Bf16),
        thin.bytes() / cluster.gpu.memory_bandwidth,
        1e-9,
    );
    // An inner dimension as long as the prologue's takes twice its time.
    let mut slow = cluster.clone();
    slow.efficiency.gemm_half_k = 4096.0;
    near(slow_over(&full, &slow, &cluster), 2.0, 1e-9);
    // A width of an odd number of elements is off the tensor cores' path.
    let odd = Gemm { n: full.n - 1.0, ..full };
    assert!(odd.seconds(&cluster, Precision::Bf16) > 2.0 * full.seconds(&cluster, Precision::Bf16));
}

fn slow_over(gemm: &Gemm, slow: &Cluster, fast: &Cluster) -> f64 {
    gemm.seconds(slow, Precision::Bf16) / gemm.seconds(fast, Precision::Bf16)
}

#[test]
fn gradients_of_a_product_are_products_of_the_same_work() {
    let gemm = Gemm::new(2048.0, 3072.0, 1024.0);
    assert_eq!(gemm.input_gradient().flops(), gemm.flops());
    assert_eq!(gemm.weight_gradient().flops(), gemm.flops());
    // Weights' gradients are added to 4-byte sums: 8 bytes an element more than nothing, 6 than 2.
    let elements = 1024.0 * 3072.0;
    let plain = Gemm { result_bytes: 2.0, ..gemm.weight_gradient() };
    near(gemm.weight_gradient().bytes() - plain.bytes(), 6.0 * elements, 1e-12);
}

#[test]
fn rings_pass_all_parts_but_one() {
    let cluster = bare();
    let (bytes, latency, link) = (1e9, cluster.nvlink.latency_s, cluster.nvlink.bandwidth);
    let group = Group { ranks: 8, stride: 1 };
    let once = 7.0 / 8.0 * bytes / link + 7.0 * latency;
    for (kind, passes) in [
        (CollectiveKind::AllGather, 1.0),
        (CollectiveKind::ReduceScatter, 1.0),
        (CollectiveKind::AllReduce, 2.0),
    ] {
        let transfer = collective(kind, bytes, group, &cluster);
        near(transfer.seconds, passes * once, 1e-12);
        assert_eq!(transfer.algorithm, Algorithm::Ring);
    }
    assert_eq!(
        collective(CollectiveKind::AllReduce, bytes, Group { ranks: 1, stride: 8 }, &cluster)
            .seconds,
        0.0
    );
}

/// Between nodes the eight members of a node share its eight interfaces.
#[test]
fn a_nodes_members_share_its_interfaces() {
    let mut cluster = bare();
    cluster.tiers.clear();
    (cluster.network.latency_s, cluster.nvlink.latency_s) = (0.0, 0.0);
    let (bytes, nic) = (8e9, cluster.network.bandwidth);
    let of = |ranks, stride| {
        collective(CollectiveKind::AllGather, bytes, Group { ranks, stride }, &cluster).seconds
    };
    // One member a node: its own interface; eight: all of them, as far as NVLink carries it.
    near(of(16, 8), 15.0 / 16.0 * bytes / nic, 1e-12);
    near(of(128, 1), 127.0 / 128.0 * bytes / (8.0 * nic), 1e-12);
    // Small all-reduces over many nodes go through trees.
    cluster.network.latency_s = 5e-6;
    let small =
        collective(CollectiveKind::AllReduce, 4.0, Group { ranks: 1024, stride: 8 }, &cluster);
    assert_eq!(small.algorithm, Algorithm::Tree);
    near(small.seconds, 2.0 * 10.0 * 5e-6, 1e-3);
}

/// A ring enters a pod once, whatever its members there; a lone message has its share of the uplink.
#[test]
fn oversubscription_slows_messages_and_sparse_rings() {
    let mut cluster = bare();
    cluster.tiers = [(64, 1.0), (4096, 7.0)]
        .map(|(gpus, oversubscription)| Tier { gpus, latency_s: 0.0, oversubscription })
        .into();
    (cluster.network.latency_s, cluster.nvlink.latency_s) = (0.0, 0.0);
    let nic = cluster.network.bandwidth;
    let of = |ranks, stride| {
        collective(CollectiveKind::AllGather, 1e9, Group { ranks, stride }, &cluster).seconds
    };
    // Eight members a pod: more than seven, no loss. Two members a pod: 2/7 of the bandwidth.
    near(of(256, 8), 255.0 / 256.0 * 1e9 / nic, 1e-12);
    near(of(64, 32), 63.0 / 64.0 * 1e9 / (nic * 2.0 / 7.0), 1e-12);
    near(send_s(1e9, 2048, &cluster), 1e9 / (nic / 7.0), 1e-9);
}

/// Narayanan et al. 2021 (arXiv 2104.04473, equation 3) without recomputation:
/// 72·B·s·l·h²·(1 + s/6h + V/12lh).
#[test]
fn model_flops_are_those_of_megatron() {
    let job = gpt3("tensor_parallel_degree = 8\npipeline_parallel_degree = 8");
    let (batch, s, l, h) = (64.0, 2048.0, 96.0, 12288.0);
    let v = f64::from(job.model.vocab_size);
    let expected = 72.0 * batch * s * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * l * h));
    near(costs(&job).model_flops_full_attention, expected, 1e-9);
    // Causal attention is half of the square.
    let causal = 72.0 * batch * s * l * h * h * (1.0 + s / (12.0 * h) + v / (12.0 * l * h));
    near(costs(&job).model_flops, causal, 1e-9);
}

/// What a GPU does is what the model needs, over the GPUs, where nothing is computed twice.
#[test]
fn passes_do_the_models_work() {
    for plan in [
        "tensor_parallel_degree = 8\npipeline_parallel_degree = 8",
        "tensor_parallel_degree = 2\npipeline_parallel_degree = 4\nsequence_parallel = false",
    ] {
        let mut job = gpt3(plan);
        job.model.vocab_multiple = 1;
        job.model.vocab_size = 51_200;
        job.plan.attention_kernel = prism_job::AttentionKernel::Unfused;
        let all = costs(&job);
        let passes: f64 =
            all.chunks.iter().map(|c| c.forward.flops + c.backward.flops + c.weight.flops).sum();
        let step = passes
            * f64::from(job.microbatches())
            * f64::from(job.plan.tensor_parallel)
            * f64::from(job.plan.data_parallel());
        near(step, all.model_flops_full_attention, 1e-9);
    }
}

/// Shards inside, copies across: a reduce-scatter over the shard group, an all-reduce of each share.
#[test]
fn hybrid_sharding_reduces_twice() {
    let plan = |shard, replicate| {
        let mut job = gpt3(&format!(
            "tensor_parallel_degree = 8\npipeline_parallel_degree = 2\n\
             data_parallel_shard_degree = {shard}\ndata_parallel_replicate_degree = {replicate}"
        ));
        job.plan.zero = ZeroStage::Parameters;
        job
    };
    let (flat, hybrid) = (plan(8, 1), plan(4, 2));
    let bytes = 4.0 * costs(&hybrid).chunks[0].parameters;
    let inner = Group { ranks: 4, stride: 8 };
    let outer = Group { ranks: 2, stride: 32 };
    let expected = collective(CollectiveKind::ReduceScatter, bytes, inner, &hybrid.cluster).seconds
        + collective(CollectiveKind::AllReduce, bytes / 4.0, outer, &hybrid.cluster).seconds;
    near(costs(&hybrid).reduce_s[0], expected, 1e-12);
    // Gathers stay inside the shard group, and take less.
    assert!(costs(&hybrid).gather_s[0] < costs(&flat).gather_s[0]);
}

/// A tensor-parallel rank's parameters add up to the layer's, but for what every rank holds.
#[test]
fn parameters_are_split() {
    let mut job = gpt3("tensor_parallel_degree = 8\npipeline_parallel_degree = 8");
    job.model.bias = false;
    let one = layer_parameters(&job, 0).dense();
    let norms = job.model.norm_parameters();
    near(8.0 * (one - norms) + norms, job.model.layer_parameters(0).0, 1e-12);
}

/// Packed documents see only themselves: less attention, the same linear work.
#[test]
fn packed_documents_attend_less() {
    let mut job = gpt3("tensor_parallel_degree = 8\npipeline_parallel_degree = 8");
    let whole = costs(&job);
    job.training.sequences = Some(SequenceLengths { median: 256.0, sigma: 0.0, packed: true });
    let packed = costs(&job);
    // Documents of 256 in sequences of 2,048: an eighth of the causal half.
    let attention = |c: &prism_job::cost::StepCosts| c.attention_share * c.model_flops;
    near(attention(&packed), attention(&whole) / 8.0, 1e-9);
    near(packed.model_flops - attention(&packed), whole.model_flops - attention(&whole), 1e-9);
}
