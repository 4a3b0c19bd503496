//! Parameters, gradients and optimizer state.

use prism_graph::{CONTEXT_BYTES, FRAGMENTATION, GraphError, MemoryKind, StageMemory, memory};
use prism_job::{Job, Precision, Recompute, ScheduleName, ZeroStage};

use crate::jobs::{GPTS, deepseek, llama};

#[track_caller]
fn near(got: f64, expected: f64, relative: f64) {
    assert!((got - expected).abs() <= relative * expected.abs(), "{got} instead of {expected}");
}

fn parameters(job: &Job) -> f64 {
    memory(job).unwrap().iter().map(|stage| stage.parameters).sum()
}

fn pipeline(mut job: Job, schedule: ScheduleName, p: u32, cuts: u32) -> Job {
    job.plan.schedule = schedule;
    job.plan.pipeline_parallel = p;
    job.plan.virtual_chunks = cuts;
    job
}

#[test]
fn stages_share_the_models_parameters() {
    let h = 12_288.0;
    let gpt = || GPTS[1].job(1, false, Recompute::Full);
    let whole = gpt().model.parameters(2048);
    let words = h * 51_200.0;
    // Apart, the first and the last stage hold the tied embedding twice; together, once.
    near(parameters(&pipeline(gpt(), ScheduleName::OneFOneB, 1, 1)), whole, 1e-12);
    near(parameters(&pipeline(gpt(), ScheduleName::OneFOneB, 8, 1)), whole + words, 1e-12);
    near(parameters(&pipeline(gpt(), ScheduleName::ZbV, 8, 2)), whole, 1e-12);
    // Two copies of everything, the ends of which meet on two stages.
    near(parameters(&pipeline(gpt(), ScheduleName::DualPipe, 8, 1)), 2.0 * whole, 1e-12);
    for job in [llama(), deepseek()] {
        let whole = job.model.parameters(job.training.seq_len);
        let chunked = pipeline(job.clone(), ScheduleName::InterleavedOneFOneB, 4, 3);
        near(parameters(&chunked), whole, 1e-12);
    }
    near(deepseek().model.parameters(4096), 671e9, 0.01);
}

/// Tensor parallelism splits matrices and words; norms, routers and compressions stay whole.
#[test]
fn ranks_share_a_stages_parameters() {
    let mut job = llama();
    let whole = parameters(&job);
    let norms = 126.0 * 2.0 * 16_384.0 + 16_384.0;
    job.plan.tensor_parallel = 8;
    near(parameters(&job), (whole - norms) / 8.0 + norms, 1e-12);
    job.plan.tensor_parallel = 16;
    let copied = 126.0 * 2.0 * 16_384.0 * 128.0 * 8.0;
    near(parameters(&job), (whole - norms + copied) / 16.0 + norms, 1e-12);

    let mut job = deepseek();
    let whole = parameters(&job);
    let experts = 58.0 * 256.0 * 3.0 * 7168.0 * 2048.0;
    job.plan.expert_parallel = 64;
    job.plan.data_parallel_shard = 64;
    near(parameters(&job), whole - experts + experts / 64.0, 1e-12);
}

fn bytes(stage: &StageMemory) -> [f64; 3] {
    [MemoryKind::Parameters, MemoryKind::Gradients, MemoryKind::OptimizerState]
        .map(|kind| stage.bytes(kind) / stage.parameters)
}

/// Megatron-LM's 18 bytes a parameter, or 6 + 12/dp with its distributed optimizer.
#[test]
fn zero_shards_stage_by_stage() {
    let mut job = llama();
    job.plan.data_parallel_shard = 4;
    job.plan.data_parallel_replicate = 2;
    job.plan.context_parallel = 2;
    job.training.global_batch_size = 8 * job.training.micro_batch_size;
    let expected = [
        (ZeroStage::None, [2.0, 4.0, 12.0]),
        (ZeroStage::Optimizer, [2.0, 4.0, 1.5]),
        (ZeroStage::Gradients, [2.0, 0.5, 1.5]),
        (ZeroStage::Parameters, [0.25, 0.5, 1.5]),
    ];
    for (zero, each) in expected {
        job.plan.zero = zero;
        let stage = &memory(&job).unwrap()[0];
        for (got, expected) in bytes(stage).into_iter().zip(each) {
            near(got, expected, 1e-12);
        }
    }
    job.plan.grad_reduce_fp32 = false;
    near(bytes(&memory(&job).unwrap()[0])[1], 0.25, 1e-12);
    // Added up over microbatches they stay whole, unless every microbatch's are reduced.
    job.training.global_batch_size *= 2;
    near(bytes(&memory(&job).unwrap()[0])[1], 0.25, 1e-12);
    job.plan.zero = ZeroStage::Gradients;
    near(bytes(&memory(&job).unwrap()[0])[1], 2.0, 1e-12);
}

/// Routed experts are sharded over the data-parallel ranks of their own rank only.
#[test]
fn experts_have_fewer_ranks_to_share_with() {
    let mut job = deepseek();
    job.plan.data_parallel_shard = 64;
    job.plan.expert_parallel = 32;
    job.plan.zero = ZeroStage::Optimizer;
    let stage = &memory(&job).unwrap()[0];
    let experts = 58.0 * 256.0 * 3.0 * 7168.0 * 2048.0 / 32.0;
    let dense = stage.parameters - experts;
    let expected = 12.0 * (dense / 64.0 + experts / 2.0);
    near(stage.bytes(MemoryKind::OptimizerState), expected, 1e-12);
}

#[test]
fn sharded_parameters_are_gathered_layer_by_layer() {
    let mut job = llama();
    job.plan.data_parallel_shard = 64;
    job.plan.zero = ZeroStage::Parameters;
    let layer = job.model.layer_parameters(0).0;
    let gathered = |job: &Job| memory(job).unwrap()[0].bytes(MemoryKind::GatheredLayers);
    for prefetch in [0, 1, 3] {
        job.plan.fsdp.prefetch = prefetch;
        near(gathered(&job), layer * (2.0 * (1.0 + f64::from(prefetch)) + 4.0), 1e-12);
    }
    job.plan.fsdp.reshard_after_forward = false;
    near(gathered(&job), 2.0 * job.model.parameters(8192) + 4.0 * layer, 1e-12);
    job.plan.zero = ZeroStage::Optimizer;
    assert_eq!(gathered(&job), 0.0);
}

#[test]
fn eight_bit_weights_are_copies() {
    let mut job = llama();
    job.plan.precision = Precision::Fp8;
    let stage = &memory(&job).unwrap()[0];
    let outside = 2.0 * 16_384.0 * 128_256.0 + 126.0 * 2.0 * 16_384.0 + 16_384.0;
    near(stage.bytes(MemoryKind::Fp8Weights), 2.0 * (stage.parameters - outside), 1e-12);
}

#[test]
fn parts_add_up_with_their_margins() {
    let stage = &memory(&GPTS[0].job(8, true, Recompute::Selective)).unwrap()[0];
    let part = |kind| stage.bytes(kind);
    let moving = part(MemoryKind::Activations)
        + part(MemoryKind::Embedding)
        + part(MemoryKind::Head)
        + part(MemoryKind::Logits)
        + part(MemoryKind::WorkingSet);
    near(part(MemoryKind::Fragmentation), FRAGMENTATION * moving, 1e-12);
    assert_eq!(part(MemoryKind::Context), CONTEXT_BYTES);
    let expected = stage.parameters * 18.0 + moving * (1.0 + FRAGMENTATION) + CONTEXT_BYTES;
    near(stage.total_bytes(), expected, 1e-12);
    assert_eq!(stage.fits(), expected <= 80.0 * 1_073_741_824.0);
    assert!(stage.parts.iter().all(|(kind, bytes)| *bytes > 0.0 && !kind.as_str().is_empty()));
}

#[test]
fn impossible_plans_are_refused() {
    let gpt = || GPTS[1].job(8, true, Recompute::Full);
    let mut zero = gpt();
    zero.plan.context_parallel = 0;
    let mut few = gpt();
    few.plan.chunk_layers = vec![4; 23];
    let mut short = gpt();
    short.plan.chunk_layers = vec![3; 24];
    for (job, words) in [(zero, "positive"), (few, "one number a chunk"), (short, "sum to")] {
        let error = memory(&job).unwrap_err();
        assert!(matches!(error, GraphError::Plan { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let wrong = pipeline(gpt(), ScheduleName::ZbV, 8, 1);
    assert!(memory(&wrong).unwrap_err().to_string().contains("2 under ZB-V"));
    let twice = pipeline(gpt(), ScheduleName::DualPipe, 8, 2);
    assert!(memory(&twice).unwrap_err().to_string().contains("1 otherwise"));
    let odd = pipeline(gpt(), ScheduleName::DualPipe, 5, 1);
    assert!(matches!(memory(&odd), Err(GraphError::Schedule { .. })));
    let mut uneven = gpt();
    uneven.plan.chunk_layers = (0..24)
        .map(|i| {
            if i == 0 {
                2
            } else if i == 23 {
                6
            } else {
                4
            }
        })
        .collect();
    let (even, uneven) = (memory(&gpt()).unwrap(), memory(&uneven).unwrap());
    assert!(uneven[0].parameters < even[0].parameters);
    assert!(uneven[7].parameters > even[7].parameters);
}
