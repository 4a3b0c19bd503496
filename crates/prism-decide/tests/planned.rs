//! Decisions on planned jobs, against recomputed costs and enumeration.

use prism_decide::compare::{CompareOptions, compare};
use prism_decide::explain::{By, ExplainOptions, explain};
use prism_decide::paired::Statistic;
use prism_decide::place::{Objective, PlaceOptions, Workers, place};
use prism_decide::scenario::{Donors, Job, Scenario, apply};
use prism_decide::select::Layout;
use prism_decide::timeline::{mean_step, peer_stage, send_recv_pairs};
use prism_engine::planned::{ModelOptions, PlannedJob, duration_model, planned_profile, record};
use prism_engine::predict::{LowerOptions, PredictError, lower, means};
use prism_engine::sample::RunOptions;
use prism_graph::{PlannedShape, PlannedStep, evaluate};
use prism_job::cost::costs;
use prism_job::{ReadOptions, ScheduleName, parse_job};

fn job(schedule: &str, variability: &str, more: &[(&str, &str)]) -> prism_job::Job {
    let text = format!(
        r#"
schema = "prism.job/1"
[model]
preset = "llama-3.1-8b"
[training]
seq_len = 4096
global_batch_size = 16
micro_batch_size = 1
[parallelism]
tensor_parallel_degree = 2
pipeline_parallel_degree = 4
data_parallel_shard_degree = 2
pipeline_parallel_schedule = "{schedule}"
zero_stage = 1
[cluster]
preset = "h100-dgx"
gpus = 16
[variability]
preset = "{variability}"
"#
    );
    let set = more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let read = parse_job(&text, &ReadOptions { set, ..ReadOptions::default() });
    read.unwrap_or_else(|e| panic!("{e}")).job
}

fn model(job: &prism_job::Job) -> PlannedJob {
    duration_model(job, &ModelOptions::default()).unwrap()
}

fn asked(planned: &PlannedJob) -> Job<'_> {
    let layout = Layout {
        gpus_per_worker: 2,
        replicas: planned.graph.replicas(),
        stages: planned.graph.stages(),
        gpus_per_node: 8,
    };
    Job { graph: &planned.graph, model: &planned.model, layout }
}

fn close(a: f64, b: f64, within: f64) {
    assert!((a / b - 1.0).abs() < within, "{a} {b}");
}

/// Scaled compute of one stage, under a scenario and as a recomputed plan.
#[test]
fn a_scaled_stage_is_a_recomputed_plan() {
    for schedule in ["1f1b", "zb-h1", "zb-v", "dualpipe"] {
        let job = job(schedule, "none", &[]);
        let planned = model(&job);
        let scenario: Scenario = "scale x1.2 kind=compute stage=3".parse().unwrap();
        let options = CompareOptions {
            samples: 100,
            repetitions: 0,
            resamples: 20,
            statistics: vec![Statistic::Mean],
            ..CompareOptions::default()
        };
        let report = compare(&asked(&planned), &[scenario], &Donors::new(), &options).unwrap();
        let difference = &report.comparisons[0].differences[0];
        let mut step = PlannedStep::new(&job, &costs(&job), 1).unwrap();
        close(difference.base_s, step.seconds().unwrap(), 2e-6);
        for (id, op) in step.planned.graph.iter() {
            if op.kind.is_microbatch_compute() && op.stage == 3 {
                step.work_s[id.0 as usize] *= 1.2;
            }
        }
        close(difference.changed_s, step.seconds().unwrap(), 2e-6);
        assert!(difference.changed_s > 1.02 * difference.base_s, "{schedule}");
    }
}

/// Every edit that a job has a place for applies on every schedule, whatever varies.
#[test]
fn edits_apply_whatever_varies() {
    let edits = [
        "slow-node x1.2 dp=0 stage=last",
        "slow-link x3 stage=0",
        "congestion x3 p=0.05",
        "freeze",
        "ideal",
        "spread x2 effect=step",
        "delay x0; scale x1.1 microbatch=1",
        "set 1ms kind=optimizer",
        "rebalance",
    ];
    let options =
        CompareOptions { samples: 100, repetitions: 0, resamples: 20, ..CompareOptions::default() };
    for schedule in ["1f1b", "zb-h1", "zb-v", "dualpipe"] {
        for variability in ["none", "dedicated", "shared-roce"] {
            let planned = model(&job(schedule, variability, &[]));
            for edit in edits {
                let scenario: Scenario = edit.parse().unwrap();
                if edit == "delay x0; scale x1.1 microbatch=1" {
                    assert!(apply(&asked(&planned), &scenario, &Donors::new()).is_ok());
                }
                let report = compare(&asked(&planned), &[scenario], &Donors::new(), &options);
                let report =
                    report.unwrap_or_else(|e| panic!("{schedule} {variability} {edit}: {e}"));
                assert!(report.comparisons[0].differences[0].changed_s.is_finite());
            }
            let repack: Scenario = "repack over=step".parse().unwrap();
            let repacked = compare(&asked(&planned), &[repack], &Donors::new(), &options);
            assert_eq!(repacked.is_ok(), variability != "none");
        }
    }
}

/// Calibration error is that of an estimate; a job's laws are given.
#[test]
fn there_is_nothing_to_resample() {
    let planned = model(&job("1f1b", "dedicated", &[]));
    let options = CompareOptions { samples: 100, repetitions: 10, ..CompareOptions::default() };
    let scenario: Scenario = "scale x1.2".parse().unwrap();
    let error = compare(&asked(&planned), &[scenario], &Donors::new(), &options).unwrap_err();
    assert!(error.to_string().contains("no recorded steps to resample"), "{error}");
    let settings = prism_engine::predict::PredictOptions {
        samples: 100,
        ..prism_engine::predict::PredictOptions::default()
    };
    let error = prism_engine::predict::predict(&planned.graph, &planned.model, &settings);
    assert!(matches!(error, Err(PredictError::NotEstimated)));
}

fn quick() -> ExplainOptions {
    ExplainOptions { samples: 1_000, path_samples: 40, resamples: 20, ..ExplainOptions::default() }
}

/// Shapley values add up to the penalty; where only microbatches vary, theirs is all of it.
#[test]
fn attribution_adds_up() {
    for variability in ["dedicated", "sequence-imbalance", "shared-roce"] {
        let planned = model(&job("1f1b", variability, &[]));
        let report = explain(&asked(&planned), &quick()).unwrap();
        for b in &report.breakdowns {
            for (k, whole) in b.statistics.iter().enumerate() {
                let sum: f64 = b.parts.iter().map(|p| p.at[k].shapley_s.value).sum();
                assert!((sum - whole.whole_s.value).abs() < 1e-9 * whole.with_s, "{variability}");
            }
        }
    }
    let only = job("1f1b", "none", &[("variability.microbatch.sd", "0.05")]);
    let planned = model(&only);
    let report = explain(&asked(&planned), &quick()).unwrap();
    let effects = report.breakdowns.iter().find(|b| b.by == By::Effect).unwrap();
    let names: Vec<&str> = effects.parts.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["microbatch"]);
    let (part, whole) = (&effects.parts[0].at[0], &effects.statistics[0]);
    assert!(whole.whole_s.value > 0.0);
    assert!((part.shapley_s.value - whole.whole_s.value).abs() < 1e-9);
    // Without any variation there is nothing to explain, and nothing to fall over.
    let still = model(&job("zb-h1", "none", &[]));
    assert!(explain(&asked(&still), &quick()).is_ok());
}

/// One slow worker among eight: the step time of every order, enumerated, has no lower one than that of
/// the placement.
#[test]
fn a_slow_worker_is_placed_as_enumeration_says() {
    let planned = model(&job("1f1b", "none", &[]));
    let mut factors = vec![1.0; 8];
    factors[2] = 1.3;
    let workers = Workers::of_factors(&factors, 4, 8);
    let options = PlaceOptions {
        objective: Objective::Mean,
        samples: 100,
        search_samples: 100,
        random_orders: 3,
        ..PlaceOptions::default()
    };
    let placed = place(&planned.graph, &planned.model, Some(&workers), &options).unwrap();
    let at = placed.cells.iter().find(|c| c.factor > 1.2).unwrap();
    let time = |replica: usize, stage: u16| {
        let mut slowed = planned.model.clone();
        let replicas = slowed.replicas as usize;
        let n = slowed.compute.signatures.len();
        slowed.compute.worker_log = vec![0.0; n * replicas];
        for (c, s) in slowed.compute.signatures.iter().enumerate() {
            if s.signature.stage == stage {
                slowed.compute.worker_log[c * replicas + replica] = 1.3_f64.ln();
            }
        }
        let work = means(&planned.graph, &slowed).work_s;
        evaluate(&planned.graph, 1, &work, None).unwrap().step_times(&planned.graph)[0]
    };
    let all: Vec<f64> =
        (0..2).flat_map(|r| (0..4).map(move |s| (r, s))).map(|(r, s)| time(r, s)).collect();
    let best = all.iter().copied().fold(f64::INFINITY, f64::min);
    let worst = all.iter().copied().fold(0.0, f64::max);
    close(time(at.replica as usize, at.stage as u16), best, 1e-9);
    close(placed.gains.placed.value, best, 2e-6);
    close(placed.gains.given.value, time(0, 2), 2e-6);
    assert!(worst > 1.005 * best, "the stage makes a difference: {all:?}");
}

/// A timeline's step is the plan's; sends lead where the plan sends.
#[test]
fn timelines_follow_the_plan() {
    for schedule in ["1f1b", "zb-v", "dualpipe"] {
        let job = job(schedule, "none", &[]);
        let planned = model(&job);
        let timeline = mean_step(&planned.graph, &planned.model).unwrap();
        let step = PlannedStep::new(&job, &costs(&job), 1).unwrap();
        close(timeline.step_s, step.seconds().unwrap(), 1e-6);
        let mut sends = 0;
        for (id, op) in planned.graph.iter().filter(|(_, op)| op.kind.is_p2p()) {
            assert_eq!(peer_stage(&planned.graph, id), step.planned.peer_stage(id), "{op}");
            sends += usize::from(op.kind.is_send());
        }
        let pairs = send_recv_pairs(&planned.graph);
        assert_eq!(pairs.len(), sends);
        for (send, recv) in pairs {
            let stage = planned.graph.ops()[recv.0 as usize].stage;
            assert_eq!(peer_stage(&planned.graph, send), Some(stage));
            assert_ne!(stage, planned.graph.ops()[send.0 as usize].stage);
        }
    }
    // The reference order of stages is not that of a V: the turn stays on the last stage.
    let v = PlannedShape::new(ScheduleName::ZbV, 4, 8).graph().unwrap();
    let back = v.graph.iter().filter(|(_, op)| op.kind.is_send() && op.chunk == 1);
    let upwards = back.filter(|(id, op)| peer_stage(&v.graph, *id) < Some(op.stage)).count();
    assert!(upwards > 0);
}

/// Jobs recorded under one seed share their noise: what is alike is equal, what is not differs by what
/// was changed.
#[test]
fn recorded_jobs_differ_by_what_was_changed() {
    use prism_decide::diff::{DiffOptions, diff};
    let recorded = |more: &[(&str, &str)]| {
        let job = job("1f1b", "dedicated", more);
        let options = ModelOptions { steps: 32, ..ModelOptions::default() };
        let planned = duration_model(&job, &options).unwrap();
        let mut profile = planned_profile(&job, &planned.graph, planned.model, Vec::new());
        record(&mut profile, &planned.graph, 1).unwrap();
        profile
    };
    let options = DiffOptions { samples: 500, repetitions: 0, ..DiffOptions::default() };
    let (a, again) = (recorded(&[]), recorded(&[]));
    let same = diff(&a, &again, &options).unwrap();
    assert!(same.findings().is_empty());
    let b = recorded(&[("training.seq_len", "4608")]);
    let longer = diff(&a, &b, &options).unwrap();
    assert!(!longer.findings().is_empty());
    let (mean_a, mean_b) = (mean(&a.recorded_step_s), mean(&b.recorded_step_s));
    assert!(mean_b > 1.05 * mean_a);
    // A recorded step is a step of the model: means agree within 4 standard errors.
    let tape = lower(&again.step_graph().unwrap(), &a.model, &LowerOptions::default()).unwrap();
    let run = RunOptions { samples: 4_000, ..RunOptions::default() };
    let out = tape.compile().unwrap().run(&run).unwrap();
    let drawn: Vec<f64> = out.get("step").unwrap().row(0).iter().map(|v| f64::from(*v)).collect();
    let spread = (drawn.iter().map(|v| (v - mean(&drawn)).powi(2)).sum::<f64>() / 4e3).sqrt();
    assert!((mean(&drawn) - mean_a).abs() < 4.0 * spread / 32_f64.sqrt());
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
