//! `check` against closed forms and against the prediction.

use prism_decide::check::{Communication as C, JobCheck, check};
use prism_engine::planned::{JobOptions, predict_job};
use prism_job::cost::{ChunkCost, costs};
use prism_job::{Job, ReadOptions, parse_job};

fn job(plan: &str) -> Job {
    let text = format!(
        "[model]\npreset = 'megatron-22b'\n[training]\nseq_len = 2048\nglobal_batch_size = 64\n\
         [cluster]\npreset = 'a100-dgx'\n[variability]\npreset = 'none'\n[parallelism]\n{plan}"
    );
    parse_job(&text, &ReadOptions::default()).unwrap().job
}

/// Rounding of sums of a few hundred terms.
const TINY: f64 = 1e-9;

fn exposed(check: &JobCheck, kind: C) -> f64 {
    check.exposed.iter().find(|e| e.kind == kind).map_or(0.0, |e| e.exposed_s)
}

/// The parts add up by definition; what they are is tested below.
fn assert_sum(check: &JobCheck) {
    let sum = check.work.total_s() + check.bubble_s + check.communication_s;
    assert!((sum / check.step_s - 1.0).abs() < TINY, "{sum} {}", check.step_s);
}

#[test]
fn one_gpu_has_neither_bubble_nor_communication() {
    let job = job("recompute = 'full'\n");
    let checked = check(&job).unwrap();
    assert_sum(&checked);
    assert!(checked.bubble_s.abs() < TINY * checked.step_s, "{}", checked.bubble_s);
    assert!(checked.communication_s.abs() < TINY * checked.step_s);
    assert!(checked.exposed.is_empty(), "{:?}", checked.exposed);
    assert!(checked.stages[0].idle.abs() < TINY);
    let c = &checked.costs.chunks[0];
    let m = f64::from(job.microbatches());
    let pure = c.forward.compute_s + c.backward.compute_s + c.weight.compute_s;
    assert!((checked.work.compute_s / (m * pure) - 1.0).abs() < TINY);
    assert!((checked.work.recompute_s / (m * c.recompute_s) - 1.0).abs() < TINY);
    // 22B parameters with their optimizer state are more than a GPU holds.
    assert!(!checked.fits());
}

/// Time of a chunk for a microbatch without communication, seconds.
fn pure_s(c: &ChunkCost) -> f64 {
    c.forward.seconds() + c.backward_s()
        - c.forward.communication_s()
        - c.backward.communication_s()
        - c.weight.communication_s()
}

/// 1F1B whose last stage is the slowest: its first forward waits for one forward of every stage
/// before, and its last backward is followed by one backward of each.
#[test]
fn the_bubble_of_1f1b_is_one_microbatch_of_the_other_stages() {
    let job = job(
        "tensor_parallel_degree = 8\npipeline_parallel_degree = 4\ndata_parallel_shard_degree = 2\n",
    );
    let checked = check(&job).unwrap();
    assert_sum(&checked);
    let costs = costs(&job);
    let (last, others) = costs.chunks.split_last().unwrap();
    assert!(others.iter().all(|c| pure_s(c) < pure_s(last)));
    assert_eq!(checked.work.stage, 3);
    let slowest = costs.optimizer_s.iter().copied().fold(0.0, f64::max);
    let expected: f64 = others.iter().map(pure_s).sum::<f64>() + slowest - costs.optimizer_s[3];
    assert!((checked.bubble_s / expected - 1.0).abs() < TINY, "{} {expected}", checked.bubble_s);
}

#[test]
fn every_kind_of_communication_is_named_where_it_is_and_only_there() {
    let plan = "tensor_parallel_degree = 8\npipeline_parallel_degree = 4\n\
                data_parallel_shard_degree = 2\n";
    let checked = check(&job(plan)).unwrap();
    let found: Vec<C> = checked.exposed.iter().map(|e| e.kind).collect();
    let expected = [
        C::PointToPoint,
        C::TensorParallel,
        C::ParameterGather,
        C::GradientReduce,
        C::Embedding,
        C::GradientNorm,
    ];
    assert_eq!(found, expected);
    for e in &checked.exposed {
        assert!(e.exposed_s <= checked.communication_s * (1.0 + TINY), "{e:?}");
    }
    // The norm is the one that nothing runs beside.
    let norm = exposed(&checked, C::GradientNorm);
    assert!((norm / checked.costs.grad_norm_s - 1.0).abs() < 1e-6, "{norm}");

    // Without overlap the reduction is exposed whole; with it, less of it is.
    let serial = "[parallelism.overlap]\ngrad_reduce = false\nparam_gather = false\n";
    let bare = check(&job(&format!("data_parallel_shard_degree = 8\n{serial}"))).unwrap();
    let reduce = exposed(&bare, C::GradientReduce);
    let whole: f64 = bare.costs.reduce_s.iter().sum();
    assert!((reduce / whole - 1.0).abs() < TINY, "{reduce} {whole}");
    let gather: f64 = bare.costs.gather_s.iter().sum();
    assert!((exposed(&bare, C::ParameterGather) / gather - 1.0).abs() < TINY);
}

#[test]
fn idle_is_what_a_stage_is_not_busy() {
    let plan = "tensor_parallel_degree = 8\npipeline_parallel_degree = 4\n\
                data_parallel_shard_degree = 2\n";
    let checked = check(&job(plan)).unwrap();
    assert_eq!(checked.stages.len(), 4);
    for stage in &checked.stages {
        let sum = stage.busy_s / checked.step_s + stage.idle;
        assert!((sum - 1.0).abs() < TINY && stage.idle > 0.0, "{stage:?}");
    }
    assert!(checked.fits());
}

/// The noise-free step is the one that penalties are measured from, pipelined or fully sharded.
#[test]
fn the_prediction_starts_from_the_same_noise_free_step() {
    let options = JobOptions { samples: 1000, ..JobOptions::default() };
    for plan in [
        "tensor_parallel_degree = 8\npipeline_parallel_degree = 2\ndata_parallel_shard_degree = 2\n",
        "tensor_parallel_degree = 4\ndata_parallel_shard_degree = 16\nzero_stage = 3\n",
        "data_parallel_shard_degree = 64\nzero_stage = 3\n[parallelism.fsdp]\nprefetch = 0\n",
    ] {
        let job = job(plan);
        let checked = check(&job).unwrap();
        let predicted = predict_job(&job, &options).unwrap();
        assert!((checked.step_s / predicted.noise_free_s - 1.0).abs() < TINY, "{plan}");
        assert_sum(&checked);
    }
}
