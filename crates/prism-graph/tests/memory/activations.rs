//! Activations.

use prism_graph::{
    MemoryKind, PassKind, PlannedShape, StageMemory, evaluate, layer_tensors, memory,
};
use prism_job::{AttentionKernel, Job, Precision, Recompute, ScheduleName};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::jobs::{GPTS, Gpt, deepseek, llama};

fn layer(job: &Job, layer: u32) -> f64 {
    layer_tensors(job, layer).iter().map(|t| t.bytes).sum()
}

/// All activations of a stage, as the papers count them: without working set and margins.
fn activations(stage: &StageMemory) -> f64 {
    let kinds =
        [MemoryKind::Activations, MemoryKind::Embedding, MemoryKind::Head, MemoryKind::Logits];
    kinds.iter().map(|&kind| stage.bytes(kind)).sum()
}

#[track_caller]
fn near(got: f64, expected: f64, relative: f64) {
    assert!((got / expected - 1.0).abs() <= relative, "{got} instead of {expected}");
}

/// Korthikanti et al. 2022 (arXiv 2205.05198), table 2.
#[test]
fn a_layer_stores_what_the_paper_says() {
    for gpt in &GPTS {
        let sbh = 2048.0 * f64::from(gpt.microbatch) * f64::from(gpt.hidden);
        let scores = 5.0 * f64::from(gpt.heads) * 2048.0 / f64::from(gpt.hidden);
        let of = |t, sp, recompute| layer(&gpt.job(t, sp, recompute), 0);
        let (none, selective, full) = (Recompute::None, Recompute::Selective, Recompute::Full);
        near(of(1, false, none), sbh * (34.0 + scores), 1e-12);
        for t in [2, 4, 8] {
            let r = f64::from(t);
            near(of(t, false, none), sbh * (10.0 + 24.0 / r + scores / r), 1e-12);
            near(of(t, true, none), sbh * (34.0 / r + scores / r), 1e-12);
            near(of(t, false, selective), sbh * (10.0 + 24.0 / r), 1e-12);
            near(of(t, true, selective), sbh * 34.0 / r, 1e-12);
            near(of(t, false, full), 2.0 * sbh, 1e-12);
            near(of(t, true, full), 2.0 * sbh / r, 1e-12);
        }
    }
}

/// The first stage holds as much as one GPU would for all layers, interleaving 1 + (p-1)/(pv) times
/// that; the model's ends add a mask, and norm, output layer and logits (same paper; Megatron-LM's
/// `theoretical_memory_usage.py` has all of these).
#[test]
fn the_first_stage_stores_what_the_paper_says() {
    for gpt in &GPTS {
        let job = gpt.job(8, true, Recompute::Selective);
        let stages = memory(&job).unwrap();
        let (p, v) = (f64::from(gpt.pipeline), f64::from(gpt.chunks));
        let sb = 2048.0 * f64::from(gpt.microbatch);
        let sbh = sb * f64::from(gpt.hidden);
        let interleaving = if gpt.chunks > 1 { 1.0 + (p - 1.0) / (p * v) } else { 1.0 };
        let layers = sbh * 34.0 / 8.0 * f64::from(gpt.layers) * interleaving;
        near(stages[0].bytes(MemoryKind::Activations), layers, 1e-12);
        let ends = if gpt.pipeline == 1 {
            4.0 * sbh / 8.0 * (1.0 + 51_200.0 / f64::from(gpt.hidden))
        } else {
            0.0
        };
        // One embedding mask for each of the p microbatches in flight; ids are beyond the paper.
        let in_flight = if gpt.chunks > 1 { f64::from(stages[0].in_flight[0]) } else { p };
        near(activations(&stages[0]), layers + ends + in_flight * (sbh / 8.0 + 8.0 * sb), 1e-12);
        // Megatron-LM's `compute_activation_memory` scales the embedding's by the factor too.
        let megatron = sbh * (18.0 + 16.0) * f64::from(gpt.layers) + (8.0 * sb + sbh) * p;
        let megatron = (megatron * interleaving) / 8.0 + ends;
        near(activations(&stages[0]), megatron, 0.05);
    }
}

/// The paper's abstract: its two techniques, sequence parallelism and selective recomputation, reduce
/// "activation memory by 5x" against tensor parallelism alone, which lets its models train on GPUs of
/// 80 GB without recomputing whole layers.
#[test]
fn sequence_parallelism_and_selective_recomputation_make_the_models_fit() {
    let mut ratios = Vec::new();
    for gpt in &GPTS {
        let of = |sp, recompute| memory(&gpt.job(8, sp, recompute)).unwrap();
        let before = of(false, Recompute::None);
        let after = of(true, Recompute::Selective);
        ratios.push(activations(&before[0]) / activations(&after[0]));
        assert!(!before[0].fits(), "{} fits in {}", gpt.name, before[0].total_bytes());
        for stage in &after {
            assert!(stage.fits(), "{} takes {}", gpt.name, stage.total_bytes());
        }
    }
    let mean = ratios.iter().sum::<f64>() / 4.0;
    assert!(ratios.iter().all(|r| (4.5..6.5).contains(r)), "{ratios:?}");
    near(mean, 5.0, 0.10);
}

/// In flight by order is in flight by the clock: intervals from the start of a forward to the end of
/// its backward, with random times.
#[test]
fn microbatches_in_flight_are_those_alive_at_one_time() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let schedules = [
        (ScheduleName::GPipe, 1),
        (ScheduleName::OneFOneB, 1),
        (ScheduleName::InterleavedOneFOneB, 3),
        (ScheduleName::ZbH1, 1),
        (ScheduleName::ZbV, 2),
        (ScheduleName::DualPipe, 1),
    ];
    for (schedule, cuts) in schedules {
        for (p, m) in [(2, 4), (4, 8), (4, 12), (6, 24)] {
            let mut job = GPTS[1].job(8, true, Recompute::Full);
            job.plan.schedule = schedule;
            job.plan.pipeline_parallel = p;
            job.plan.virtual_chunks = cuts;
            job.training.global_batch_size = m;
            let stages = memory(&job).unwrap();
            let shape = PlannedShape::of_job(&job, 1).unwrap();
            let planned = shape.graph().unwrap();
            let work: Vec<f64> = planned
                .graph
                .iter()
                .map(|(id, _)| planned.pass(id).map_or(0.0, |_| rng.random_range(0.5..1.5)))
                .collect();
            let timeline = evaluate(&planned.graph, 1, &work, None).unwrap();
            for stage in &stages {
                let mut alive: Vec<(f64, i32)> = Vec::new();
                for (id, _) in planned.graph.iter().filter(|(_, op)| op.stage == stage.stage) {
                    let Some(pass) = planned.pass(id) else { continue };
                    match pass.kind {
                        PassKind::Forward => alive.push((timeline.start(id)[0], 1)),
                        PassKind::BackwardInput => {}
                        _ => alive.push((timeline.end(id)[0], -1)),
                    }
                }
                alive.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                let mut count = 0;
                let most = alive
                    .iter()
                    .map(|(_, d)| {
                        count += d;
                        count
                    })
                    .max()
                    .unwrap();
                let weights = stage.in_flight.iter().sum::<u32>();
                assert_eq!(weights as i32, most, "{schedule:?} {p} {m} stage {}", stage.stage);
            }
        }
    }
}

/// A gated block without biases and dropout, fused attention, grouped keys and values: by hand.
#[test]
fn a_llama_layer_by_hand() {
    let mut job = llama();
    let (tokens, h, f, kv) = (8192.0, 16_384.0, 53_248.0, 1024.0);
    // Norm inputs and outputs; queries, output, keys, values; gate, up, product; log-sum-exp.
    let width = 2.0 * 4.0 * h + 2.0 * (2.0 * h + 2.0 * kv) + 2.0 * 3.0 * f + 4.0 * 128.0;
    near(layer(&job, 0), tokens * width, 1e-12);
    job.plan.context_parallel = 4;
    near(layer(&job, 0), tokens / 4.0 * width, 1e-12);
    job.plan.tensor_parallel = 16;
    job.plan.sequence_parallel = true;
    // Eight key and value heads are on sixteen ranks twice.
    near(layer(&job, 0), tokens / 4.0 * (width + 2.0 * 2.0 * kv) / 16.0, 1e-12);
    job.plan.precision = Precision::Fp8;
    // Inputs of the projections and the block, and of the second matrix, are 8-bit; the output of
    // attention is kept twice.
    let saved = 2.0 * h + f - h;
    near(layer(&job, 0), tokens / 4.0 * (width + 4.0 * kv - saved) / 16.0, 1e-12);
    job.plan.attention_kernel = AttentionKernel::Unfused;
    let scores = layer_tensors(&job, 0);
    let softmax = scores.iter().find(|t| t.name == "softmax").unwrap();
    near(softmax.bytes, 2.0 * tokens / 4.0 * 8192.0 * 128.0 / 16.0, 1e-12);
}

#[test]
fn a_deepseek_layer_by_hand() {
    let mut job = deepseek();
    let (tokens, h) = (4096.0, 7168.0);
    let attention = 2.0 * 2.0 * h
        + 2.0 * 2.0 * (1536.0 + 512.0)
        + 2.0 * 128.0 * (192.0 + 192.0 + 128.0 + 128.0)
        + 4.0 * 128.0;
    let dense = 2.0 * 2.0 * h + 2.0 * 3.0 * 18_432.0;
    let experts =
        2.0 * 2.0 * h + 4.0 * 256.0 + 2.0 * 2.0 * 8.0 * h + 2.0 * 3.0 * 2048.0 * (8.0 + 1.0);
    near(layer(&job, 0), tokens * (attention + dense), 1e-12);
    near(layer(&job, 3), tokens * (attention + experts), 1e-12);
    job.plan.recompute = Recompute::Full;
    near(layer(&job, 3), tokens * 2.0 * h, 1e-12);
}

/// What recomputation drops comes back for one layer at a time.
#[test]
fn recomputation_has_a_working_set() {
    let of = |recompute| memory(&GPTS[2].job(8, true, recompute)).unwrap()[1].clone();
    let whole = layer(&GPTS[2].job(8, true, Recompute::None), 0);
    let selective = layer(&GPTS[2].job(8, true, Recompute::Selective), 0);
    let input = layer(&GPTS[2].job(8, true, Recompute::Full), 0);
    assert_eq!(of(Recompute::None).bytes(MemoryKind::WorkingSet), 0.0);
    near(of(Recompute::Selective).bytes(MemoryKind::WorkingSet), whole - selective, 1e-12);
    near(of(Recompute::Full).bytes(MemoryKind::WorkingSet), whole - input, 1e-12);
}

/// Logits wait for their weights' part in 16 bits.
#[test]
fn logits_are_counted_on_the_last_stage() {
    let mut job = GPTS[3].job(8, true, Recompute::Selective);
    job.plan.pipeline_parallel = 4;
    job.training.global_batch_size = 16;
    let words = 2048.0 * 51_200.0 / 8.0;
    let logits = |job: &Job| -> Vec<f64> {
        memory(job).unwrap().iter().map(|s| s.bytes(MemoryKind::Logits) / words).collect()
    };
    assert_eq!(logits(&job), [0.0, 0.0, 0.0, 4.0]);
    job.plan.schedule = ScheduleName::GPipe;
    assert_eq!(logits(&job), [0.0, 0.0, 0.0, 64.0]);
    // The last stage of ZB-H1 has one microbatch before its backward, three before weights' parts.
    job.plan.schedule = ScheduleName::ZbH1;
    assert_eq!(logits(&job), [0.0, 0.0, 0.0, 4.0 + 3.0 * 2.0]);
}

#[test]
fn the_papers_models_are_as_large_as_their_names_say() {
    // Their names say how large they are.
    let sizes: Vec<f64> = GPTS
        .iter()
        .map(|gpt: &Gpt| gpt.job(1, false, Recompute::None).model.parameters(2048) / 1e9)
        .collect();
    for (got, expected) in sizes.iter().zip([22.0, 175.0, 530.0, 1000.0]) {
        near(*got, expected, 0.02);
    }
}
