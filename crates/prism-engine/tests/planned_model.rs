//! A planned job's model against the law that its laws compose to, and against its costs.

use prism_engine::planned::{
    JobOptions, ModelOptions, PlannedError, PlannedJob, duration_model, noise_free_s, predict_job,
};
use prism_engine::predict::{Draws, PredictOptions, means, noise_free_step, predict};
use prism_graph::{ReplicaSync, evaluate};
use prism_job::{Job, ReadOptions, parse_job};
use prism_stats::quantile_type7;

const SCHEDULES: [(&str, u32); 6] = [
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved-1f1b", 2),
    ("zb-h1", 1),
    ("zb-v", 2),
    ("dualpipe", 1),
];

fn job(schedule: &str, chunks: u32, variability: &str, more: &[(&str, &str)]) -> Job {
    // Only interleaved schedules say how many.
    let virtuals = match schedule {
        "interleaved-1f1b" => format!("virtual_pipeline_degree = {chunks}"),
        _ => String::new(),
    };
    let text = format!(
        r#"
schema = "prism.job/1"
[model]
preset = "llama-3.1-8b"
[training]
seq_len = 4096
global_batch_size = 32
micro_batch_size = 1
[parallelism]
tensor_parallel_degree = 2
pipeline_parallel_degree = 4
data_parallel_shard_degree = 4
pipeline_parallel_schedule = "{schedule}"
{virtuals}
zero_stage = 1
[cluster]
preset = "h100-dgx"
gpus = 32
[variability]
preset = "{variability}"
"#
    );
    let set = more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let read = parse_job(&text, &ReadOptions { set, ..ReadOptions::default() });
    read.unwrap_or_else(|e| panic!("{e}")).job
}

fn model(job: &Job) -> PlannedJob {
    duration_model(job, &ModelOptions::default()).unwrap()
}

/// Without persistent differences, every operation's mean is its cost, and the noise-free step is that
/// of the costs: exactly by means, and to single precision by the kernel.
#[test]
fn means_are_costs() {
    for (schedule, chunks) in SCHEDULES {
        let job = job(
            schedule,
            chunks,
            "dedicated",
            &[("variability.gpu_compute_sd", "0.0"), ("variability.gpu_memory_sd", "0.0")],
        );
        let planned = model(&job);
        let expected = noise_free_s(&job).unwrap();
        let work = means(&planned.graph, &planned.model).work_s;
        let exact = evaluate(&planned.graph, 1, &work, None).unwrap().step_times(&planned.graph)[0];
        assert!((exact / expected - 1.0).abs() < 1e-6, "{schedule}: {exact} {expected}");
        for draws in [Draws::Empirical, Draws::Parametric] {
            let options = PredictOptions { draws, ..PredictOptions::default() };
            let quiet = noise_free_step(&planned.graph, &planned.model, &options).unwrap();
            assert!((quiet / expected - 1.0).abs() < 2e-6, "{schedule}: {quiet} {expected}");
        }
    }
}

/// Uneven experts and bursts cost on average; the model's means hold it.
#[test]
fn what_always_costs_is_in_the_means() {
    let quiet = [("variability.gpu_compute_sd", "0.0"), ("variability.gpu_memory_sd", "0.0")];
    let job = job("1f1b", 1, "shared-roce", &quiet);
    let planned = model(&job);
    let calm = model(&self::job("1f1b", 1, "none", &[]));
    let (with, without) = (means(&planned.graph, &planned.model), means(&calm.graph, &calm.model));
    for (id, op) in planned.graph.iter() {
        let at = id.0 as usize * 4;
        let communicates =
            op.kind.is_p2p() || op.kind.class() == prism_model::KernelClass::Collective;
        let factor = if communicates { 1.0 + 0.1 * 2.0 } else { 1.0 };
        let wanted = without.work_s[at] * factor;
        assert!((with.work_s[at] - wanted).abs() <= 1e-6 * wanted, "{op}");
    }
}

struct Pair {
    name: String,
    samples: Vec<f64>,
    law: prism_engine::planned::JobDistribution,
    samples_law: f64,
}

/// 4 standard errors of the difference: both samples, and the values that steps share.
fn tolerance(pair: &Pair, p: f64) -> f64 {
    let at = |p: f64| quantile_type7(&pair.samples, p).unwrap();
    let (low, high) = ((p - 0.02).max(0.001), (p + 0.02).min(0.999));
    let per_probability = (at(high) - at(low)) / (high - low);
    let n = 1.0 / pair.samples.len() as f64 + 1.0 / pair.samples_law + 1.0 / 1_024.0;
    4.0 * (p * (1.0 - p) * n).sqrt() * per_probability
}

fn pair(name: &str, job: &Job, draws: Draws) -> Pair {
    let options = JobOptions {
        samples: 1 << 15,
        brute_force: true,
        quantiles: vec![0.5, 0.95],
        ..JobOptions::default()
    };
    let law = predict_job(job, &options).unwrap().steps;
    let planned = model(job);
    let settings = PredictOptions {
        draws,
        samples: 8_192,
        repetitions: 0,
        seed: 7,
        ..PredictOptions::default()
    };
    let drawn = predict(&planned.graph, &planned.model, &settings).unwrap();
    let mut samples: Vec<f64> = drawn.samples_s.iter().map(|v| f64::from(*v)).collect();
    samples.sort_by(f64::total_cmp);
    Pair { name: format!("{name} {draws:?}"), samples, law, samples_law: 8_192.0 }
}

/// The same distribution on the same cluster, whichever way it is drawn.
#[test]
fn the_distribution_is_that_of_the_laws() {
    let moe = [("model.preset", "mixtral-8x7b"), ("parallelism.expert_parallel_degree", "2")];
    let cases = [
        ("1f1b", job("1f1b", 1, "dedicated", &[]), Draws::Empirical),
        ("1f1b", job("1f1b", 1, "dedicated", &[]), Draws::Parametric),
        ("interleaved", job("interleaved-1f1b", 2, "power-limited", &[]), Draws::Empirical),
        ("zb-h1", job("zb-h1", 1, "lemon", &[]), Draws::Empirical),
        ("dualpipe", job("dualpipe", 1, "dedicated", &[]), Draws::Empirical),
        ("zb-v", job("zb-v", 2, "diurnal", &[]), Draws::Empirical),
        ("moe", job("1f1b", 1, "moe", &moe), Draws::Empirical),
        ("sequence-imbalance", job("1f1b", 1, "sequence-imbalance", &[]), Draws::Empirical),
        ("sequence-imbalance", job("1f1b", 1, "sequence-imbalance", &[]), Draws::Parametric),
        ("shared-roce", job("1f1b", 1, "shared-roce", &[]), Draws::Empirical),
    ];
    for (name, job, draws) in cases {
        let pair = pair(name, &job, draws);
        let n = pair.samples.len() as f64;
        let mean = pair.samples.iter().sum::<f64>() / n;
        let sd = (pair.samples.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
        let of_mean = 4.0 * sd * (1.0 / n + 1.0 / pair.samples_law + 1.0 / 1_024.0).sqrt();
        println!(
            "{:32} mean {:.5} {:+.5} (±{:.5}) sd {:.5} {:+.5}",
            pair.name,
            mean,
            mean - pair.law.mean_s,
            of_mean,
            sd,
            sd - pair.law.sd_s
        );
        assert!((mean - pair.law.mean_s).abs() < of_mean, "{}: {mean}", pair.name);
        for q in &pair.law.quantiles {
            let (got, wanted) = (quantile_type7(&pair.samples, q.p).unwrap(), q.value_s.unwrap());
            let within = tolerance(&pair, q.p);
            println!(
                "{:32} p{:.0} {:.5} {:+.5} (±{:.5})",
                pair.name,
                100.0 * q.p,
                got,
                got - wanted,
                within
            );
            assert!((got - wanted).abs() < within, "{} p{}: {got} {wanted}", pair.name, q.p);
        }
    }
}

/// Persistent factors are those of the middle cluster; step effects are shared by all replicas, and
/// collectives over replicas take as long for each.
#[test]
fn what_is_shared_is_shared() {
    let planned = model(&job("1f1b", 1, "power-limited", &[]));
    let (graph, model) = (&planned.graph, &planned.model);
    let t = model.steps.len();
    for vector in &model.step_work {
        let Some(group) = graph.group_of(prism_graph::OpId(vector.op)) else { continue };
        if graph.groups()[group.0 as usize].sync == ReplicaSync::All && vector.values_s.len() > 4 {
            assert!(vector.values_s.chunks(t).all(|lane| *lane == vector.values_s[..t]));
        }
    }
    // Forward and backward of a cell have one persistent factor.
    let signatures = &model.compute.signatures;
    for (c, s) in signatures.iter().enumerate() {
        for (d, other) in signatures.iter().enumerate() {
            if s.signature.stage == other.signature.stage {
                let lane = |c: usize| &model.compute.worker_log[c * 4..][..4];
                assert_eq!(lane(c), lane(d));
            }
        }
    }
    assert!(planned.notes[0].contains("middle one of 32 clusters"), "{:?}", planned.notes);
}

#[test]
fn what_cannot_be_modelled_is_refused() {
    let wide = job("1f1b", 1, "dedicated", &[]);
    let ask =
        |replicas| duration_model(&wide, &ModelOptions { replicas, ..ModelOptions::default() });
    for replicas in [0, 5] {
        let error = ask(Some(replicas)).unwrap_err();
        assert!(error.to_string().starts_with("replicas must be between 1 and"), "{error}");
    }
    let some = ask(Some(2)).unwrap();
    assert_eq!(some.graph.replicas(), 2);
    assert!(some.notes.iter().any(|n| n.starts_with("2 of 4 replicas")), "{:?}", some.notes);
    let huge = job(
        "1f1b",
        1,
        "dedicated",
        &[
            ("cluster.gpus", "131072"),
            ("parallelism.data_parallel_shard_degree", "16384"),
            ("training.global_batch_size", "1048576"),
        ],
    );
    let error = duration_model(&huge, &ModelOptions::default()).unwrap_err();
    assert!(matches!(error, PlannedError::TooLarge { replicas: 16_384, .. }), "{error}");
    assert!(error.hint().contains("--replicas"));
    let sharded = job(
        "1f1b",
        1,
        "dedicated",
        &[
            ("parallelism.pipeline_parallel_degree", "1"),
            ("parallelism.data_parallel_shard_degree", "16"),
            ("parallelism.zero_stage", "3"),
        ],
    );
    let error = duration_model(&sharded, &ModelOptions::default()).unwrap_err();
    assert!(matches!(error, PlannedError::Layered), "{error}");
}
