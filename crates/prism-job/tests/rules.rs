//! Rules of possible plans, against plans built to keep or to break them.

use prism_job::{
    Job, Plan, Precision, ReadOptions, ScheduleName, ZeroStage, nearest_plans, parse_job,
};
use proptest::prelude::*;

fn base(model: &str) -> Job {
    let text = format!(
        "[model]\npreset = \"{model}\"\n[training]\nseq_len = 4096\nglobal_batch_size = 512\n\
         [cluster]\npreset = \"h100-dgx\"\n"
    );
    parse_job(&text, &ReadOptions::default()).unwrap().job
}

fn codes(job: &Job) -> Vec<&'static str> {
    job.check().iter().map(|b| b.rule).collect()
}

const SCHEDULES: [ScheduleName; 6] = [
    ScheduleName::GPipe,
    ScheduleName::OneFOneB,
    ScheduleName::InterleavedOneFOneB,
    ScheduleName::ZbH1,
    ScheduleName::ZbV,
    ScheduleName::DualPipe,
];

#[test]
fn each_rule_alone() {
    let broken = |change: &dyn Fn(&mut Job)| {
        let mut job = base("llama-3.1-8b");
        change(&mut job);
        codes(&job)
    };
    assert!(broken(&|_| ()).is_empty());
    assert_eq!(
        broken(&|j| j.plan.tensor_parallel = 3),
        ["tp-heads", "tp-kv-heads", "tp-hidden", "tp-ffn"]
    );
    assert_eq!(broken(&|j| j.plan.sequence_parallel = true), ["sp-without-tp"]);
    assert_eq!(broken(&|j| j.plan.context_parallel = 3), ["cp-seq"]);
    assert_eq!(broken(&|j| j.plan.data_parallel_shard = 3), ["batch"]);
    assert_eq!(broken(&|j| j.plan.pipeline_parallel = 3), ["pp-layers"]);
    assert_eq!(broken(&|j| j.plan.virtual_chunks = 2), ["vpp-schedule"]);
    assert_eq!(broken(&|j| j.plan.expert_parallel = 2), ["ep-dense"]);
    assert_eq!(broken(&|j| j.plan.chunk_layers = vec![31]), ["chunk-sum"]);
    assert_eq!(broken(&|j| j.plan.chunk_layers = vec![16, 16]), ["chunk-count"]);
    assert_eq!(broken(&|j| j.cluster.gpus = Some(2)), ["gpus"]);
    assert_eq!(broken(&|j| j.cluster.nvlink_domain = 5), ["nvlink-domain"]);
    assert_eq!(broken(&|j| j.training.micro_batch_size = 0), ["positive"]);
    assert_eq!(
        broken(&|j| (j.plan.precision, j.cluster.gpu.fp8_flops) = (Precision::Fp8, None)),
        ["fp8-gpu"]
    );
    assert_eq!(
        broken(&|j| {
            j.plan.pipeline_parallel = 4;
            j.plan.virtual_chunks = 2;
            j.plan.schedule = ScheduleName::InterleavedOneFOneB;
            j.training.global_batch_size = 510;
        }),
        ["interleaved-microbatches"]
    );
}

/// Uneven stages, expert parallelism across context-parallel ranks, sharded parameters under a pipeline, shared
/// key heads and FP8 are possible.
#[test]
fn unusual_plans_are_possible() {
    let mut job = base("mixtral-8x7b");
    job.plan.pipeline_parallel = 3;
    job.plan.chunk_layers = vec![10, 11, 11];
    job.plan.context_parallel = 2;
    job.plan.data_parallel_shard = 4;
    job.plan.expert_parallel = 8;
    job.plan.zero = ZeroStage::Parameters;
    job.plan.precision = Precision::Fp8;
    assert_eq!(codes(&job), [""; 0]);
    let mut job = base("llama-3.1-8b");
    job.plan.tensor_parallel = 16;
    job.plan.sequence_parallel = true;
    assert_eq!(codes(&job), [""; 0]);
    let warned: Vec<_> = job.warnings().iter().map(|w| w.rule).collect();
    assert_eq!(warned, ["tp-nvlink", "vocab-pad"]);
}

fn any_job() -> impl Strategy<Value = Job> {
    let model = prop::sample::select(vec!["llama-3.1-8b", "mixtral-8x7b", "gpt3-175b"]);
    let degrees = (1u32..20, 1u32..12, 1u32..5, 1u32..5, 1u32..20, 1u32..3, 1u32..5);
    let rest = (0usize..6, any::<bool>(), 1u32..600, 1u32..4, prop::option::of(1u64..600));
    (model, degrees, rest).prop_map(
        |(model, (tp, pp, v, cp, dp, rep, ep), (s, sp, batch, micro, gpus))| {
            let mut job = base(model);
            job.plan = Plan {
                tensor_parallel: tp,
                pipeline_parallel: pp,
                virtual_chunks: v,
                context_parallel: cp,
                data_parallel_shard: dp,
                data_parallel_replicate: rep,
                expert_parallel: ep,
                schedule: SCHEDULES[s],
                sequence_parallel: sp,
                ..job.plan
            };
            job.training.global_batch_size = batch;
            job.training.micro_batch_size = micro;
            job.cluster.gpus = gpus;
            job
        },
    )
}

/// Sets the key of a rule to a value, where it has a number.
fn set(job: &mut Job, key: &str, value: u64) -> bool {
    let value = u32::try_from(value).unwrap();
    let p = &mut job.plan;
    match key {
        "parallelism.tensor_parallel_degree" => p.tensor_parallel = value,
        "parallelism.pipeline_parallel_degree" => p.pipeline_parallel = value,
        "parallelism.context_parallel_degree" => p.context_parallel = value,
        "parallelism.expert_parallel_degree" => p.expert_parallel = value,
        "parallelism.virtual_pipeline_degree" => p.virtual_chunks = value,
        "training.global_batch_size" => job.training.global_batch_size = value,
        "training.seq_len" => job.training.seq_len = value,
        "cluster.gpus" => job.cluster.gpus = Some(value.into()),
        _ => return false,
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_short_check_agrees_with_the_long_one(job in any_job()) {
        prop_assert_eq!(job.is_possible(), job.check().is_empty());
    }

    /// Every nearest value keeps the rule that named it.
    #[test]
    fn nearest_values_keep_their_rule(job in any_job()) {
        for broken in job.check() {
            for &value in &broken.nearest {
                let mut fixed = job.clone();
                if set(&mut fixed, broken.key, value) {
                    let still = fixed.check().iter().any(|b| b.rule == broken.rule);
                    prop_assert!(!still, "{} = {value} still breaks {}", broken.key, broken.rule);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nearest_plans_are_possible_and_of_the_size_asked_for(job in any_job(), gpus in 1u64..600) {
        let mut trial = job.clone();
        trial.cluster.gpus = Some(gpus);
        let plans = nearest_plans(&job, gpus);
        prop_assert!(plans.len() <= 3);
        if trial.is_possible() {
            // What is possible is nearest to itself.
            prop_assert_eq!(plans.first(), Some(&job.plan));
        }
        for plan in plans {
            prop_assert_eq!(plan.gpus(), gpus);
            trial.plan = plan;
            prop_assert!(trial.is_possible(), "{:?}", trial.check());
        }
    }
}

/// The distance that `nearest_plans` documents.
fn distance(asked: &Plan, plan: &Plan) -> f64 {
    let degrees = [
        (asked.tensor_parallel, plan.tensor_parallel),
        (asked.pipeline_parallel, plan.pipeline_parallel),
        (asked.context_parallel, plan.context_parallel),
        (asked.expert_parallel, plan.expert_parallel),
    ];
    let changed = degrees.iter().filter(|(a, b)| a != b);
    let degrees: f64 =
        changed.map(|&(a, b)| 1.0 + (f64::from(a) / f64::from(b)).log2().abs()).sum();
    let schedule = (asked.schedule, asked.virtual_chunks) != (plan.schedule, plan.virtual_chunks);
    let replicas = asked.data_parallel_replicate != plan.data_parallel_replicate;
    degrees + 2.0 * f64::from(u8::from(schedule)) + 2.0 * f64::from(u8::from(replicas))
}

/// The distance of the nearest of all plans.
fn brute_force(job: &Job, gpus: u32) -> Option<f64> {
    let divisors: Vec<u32> = (1..=gpus).filter(|&d| gpus.is_multiple_of(d)).collect();
    let mut trial = job.clone();
    trial.cluster.gpus = Some(gpus.into());
    let mut best: Option<f64> = None;
    for &tp in &divisors {
        for &pp in divisors.iter().filter(|&d| gpus.is_multiple_of(tp * d)) {
            for &cp in divisors.iter().filter(|&d| gpus.is_multiple_of(tp * pp * d)) {
                for replicate in [job.plan.data_parallel_replicate, 1] {
                    if !gpus.is_multiple_of(tp * pp * cp * replicate) {
                        continue;
                    }
                    for (ep, schedule, v) in other_choices(job) {
                        trial.plan = Plan {
                            tensor_parallel: tp,
                            pipeline_parallel: pp,
                            context_parallel: cp,
                            expert_parallel: ep,
                            data_parallel_replicate: replicate,
                            data_parallel_shard: gpus / (tp * pp * cp * replicate),
                            sequence_parallel: job.plan.sequence_parallel && tp > 1,
                            schedule,
                            virtual_chunks: v,
                            ..job.plan.clone()
                        };
                        if trial.is_possible() {
                            let found = distance(&job.plan, &trial.plan);
                            best = Some(best.map_or(found, |b| b.min(found)));
                        }
                    }
                }
            }
        }
    }
    best
}

/// Every expert-parallel degree, schedule and number of chunks up to 4.
fn other_choices(job: &Job) -> Vec<(u32, ScheduleName, u32)> {
    let experts = job.model.moe.map_or(1, |m| m.experts);
    let mut all = Vec::new();
    for ep in 1..=experts.max(job.plan.expert_parallel) {
        for schedule in SCHEDULES {
            all.extend((1..=4).map(|v| (ep, schedule, v)));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_nearest_plan_is_the_nearest_of_all(job in any_job(), gpus in 1u32..49) {
        let found = nearest_plans(&job, gpus.into());
        let nearest = found.first().map(|plan| distance(&job.plan, plan));
        match (nearest, brute_force(&job, gpus)) {
            // Distances are compared in thousandths, of each of four degrees.
            (Some(ours), Some(best)) => prop_assert!((ours - best).abs() < 0.005, "{ours}, not {best}"),
            (ours, best) => prop_assert_eq!(ours, best),
        }
    }
}

#[test]
fn nearest_plans_change_little() {
    let mut job = base("gpt3-175b");
    job.plan.tensor_parallel = 7;
    job.plan.sequence_parallel = true;
    job.plan.pipeline_parallel = 8;
    job.plan.data_parallel_shard = 8;
    let plans = nearest_plans(&job, 512);
    let shapes: Vec<_> = plans
        .iter()
        .map(|p| (p.tensor_parallel, p.pipeline_parallel, p.data_parallel_shard))
        .collect();
    assert_eq!(shapes[0], (8, 8, 8));
    assert_eq!(plans.len(), 3);
}
