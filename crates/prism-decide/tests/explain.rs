//! Attribution against arithmetic, and on recorded jobs.

mod common;

use prism_decide::explain::{Breakdown, By, ExplainOptions, explain};
use prism_decide::paired::Statistic;
use prism_decide::scenario::{Donors, Job, Scenario, apply};
use prism_decide::select::Layout;
use prism_engine::calibrate::{CalibrateOptions, Selection, calibrate};
use prism_engine::replay::{Builder, Replayed};
use prism_engine::synth::{EffectSpec, SlowWorker, SynthSpec};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{Op, ReplicaSync, StepGraph, StepGraphBuilder};
use prism_model::{ComputeModel, ComputeSignature, DurationModel, OpKind, Signature, StepVector};
use prism_stats::{htest, stream};
use rand::RngExt;

fn layout(graph: &StepGraph) -> Layout {
    Layout {
        gpus_per_worker: 1,
        replicas: graph.replicas(),
        stages: graph.stages(),
        gpus_per_node: 8,
    }
}

fn quick() -> ExplainOptions {
    ExplainOptions { samples: 1_000, path_samples: 60, resamples: 40, ..ExplainOptions::default() }
}

fn breakdown(report: &[Breakdown], by: By) -> &Breakdown {
    report.iter().find(|b| b.by == by).unwrap()
}

/// Fully sharded data parallelism over one stage: a gather before each layer's forward and backward, a
/// reduce-scatter after its backward, all replicas waiting for each other each time. Compute varies by
/// 2 %; one collective in 25 takes up to ten times its usual time.
fn fsdp(layers: u32, replicas: u32) -> (StepGraph, DurationModel) {
    const STEPS: usize = 200;
    let mut b = StepGraphBuilder::new(1, replicas);
    let mut signatures = Vec::new();
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    let mut step_work = Vec::new();
    let mut before = None;
    let uniform = |what: &str, op: u32, t: usize| -> f64 {
        stream(11, what, &[u64::from(op), t as u64]).random_range(1e-9..1.0)
    };
    let mut collective = |b: &mut StepGraphBuilder, kind: OpKind, seq: u32, usual_s: f64| {
        let op = b.op(Op { kind, stage: 0, chunk: -1, microbatch: -1, seq });
        b.group(vec![op], ReplicaSync::All);
        let lane: Vec<f32> = (0..STEPS)
            .map(|t| {
                let slow = uniform("slow", op.0, t) < 0.04;
                let factor = if slow { 1.0 + 9.0 * uniform("tail", op.0, t) } else { 1.0 };
                (usual_s * factor) as f32
            })
            .collect();
        // The transfer of a collective is the same for all participants.
        let values_s = (0..replicas).flat_map(|_| lane.iter().copied()).collect();
        step_work.push(StepVector { op: op.0, values_s });
        op
    };
    let compute = |b: &mut StepGraphBuilder, kind: OpKind, seq: u32| {
        b.op(Op { kind, stage: 0, chunk: 0, microbatch: seq as i32, seq })
    };
    for l in 0..layers {
        let gather = collective(&mut b, OpKind::ParamsAllGather, l, 0.002);
        let f = compute(&mut b, OpKind::ForwardCompute, l);
        if let Some(last) = before {
            b.dep(last, gather);
        }
        b.dep(gather, f);
        forward.push(f.0);
        before = Some(f);
    }
    for l in 0..layers {
        let f = compute(&mut b, OpKind::BackwardCompute, l);
        let scatter = collective(&mut b, OpKind::GradsReduceScatter, l, 0.002);
        if let Some(last) = before {
            b.dep(last, f);
        }
        b.dep(f, scatter);
        backward.push(f.0);
        before = Some(scatter);
    }
    let optimizer =
        b.op(Op { kind: OpKind::Optimizer, stage: 0, chunk: -1, microbatch: -1, seq: 0 });
    b.dep(before.unwrap(), optimizer);
    b.sink(optimizer);
    step_work.push(StepVector { op: optimizer.0, values_s: vec![0.003; replicas as usize] });
    for (kind, ops, base) in
        [(OpKind::ForwardCompute, forward, 0.01_f64), (OpKind::BackwardCompute, backward, 0.02)]
    {
        signatures.push(ComputeSignature {
            signature: Signature { kind, stage: 0, chunk: 0 },
            ops,
            positions: Vec::new(),
            base_log_s: base.ln(),
            microbatch_load: 1.0,
            step_load: 1.0,
            microbatch_sd_log: 0.0,
            residual_sd_log: 0.02,
            residual_law: None,
        });
    }
    let rows = 500;
    let normal = |row: usize, c: usize| {
        let u: f64 = stream(12, "residual", &[row as u64, c as u64]).random_range(1e-9..1.0);
        (0.02 * htest::normal_quantile(u)) as f32
    };
    let vectors = (0..rows).flat_map(|row| (0..2).map(move |c| normal(row, c))).collect();
    let model = DurationModel {
        steps: (0..STEPS as i64).collect(),
        windows: vec![0; STEPS],
        replicas,
        microbatches: layers,
        compute: ComputeModel {
            signatures,
            microbatch_vectors_log: vectors,
            ..ComputeModel::default()
        },
        step_work,
        ..DurationModel::default()
    };
    (b.build().unwrap(), model)
}

/// Collectives with tenfold tails lead the ranking of kinds; parts do not add up, and the report says
/// by how much; Shapley values do.
#[test]
fn heavy_collectives_come_first() {
    let (graph, model) = fsdp(6, 8);
    let job = Job { graph: &graph, model: &model, layout: layout(&graph) };
    let report = explain(&job, &quick()).unwrap();
    let kinds = breakdown(&report.breakdowns, By::Kind);
    let first: Vec<&str> = kinds.parts.iter().take(2).map(|p| p.name.as_str()).collect();
    assert!(
        first.contains(&"params-all-gather") && first.contains(&"grads-reduce-scatter"),
        "{:?}",
        kinds.parts
    );
    let tail = &kinds.statistics[1];
    assert_eq!(tail.statistic, Statistic::Quantile(0.95));
    assert!(tail.whole_s.sampling.lower > 0.0);
    let off = tail.sum_alone_s.value - tail.whole_s.value;
    assert!(off.abs() > 0.03 * tail.whole_s.value, "alone they do not add up: {tail:?}");
    for b in &report.breakdowns {
        for (k, whole) in b.statistics.iter().enumerate() {
            let sum: f64 = b.parts.iter().map(|p| p.at[k].shapley_s.value).sum();
            assert!((sum - whole.whole_s.value).abs() < 1e-9 * whole.with_s, "{:?} {k}", b.by);
            let bounds = &whole.whole_s.sampling;
            assert!(bounds.lower <= sum && sum <= bounds.upper);
        }
    }
    let first = &report.fixes[0];
    assert!(first.what.contains("collectives"), "{}", first.what);
    assert!(report.fixes.windows(2).all(|f| {
        let gain = |f: &prism_decide::explain::Fix| f.comparison.differences[1].difference_s.value;
        gain(&f[0]) <= gain(&f[1])
    }));
}

/// The critical path adds up to the step; a slow worker carries it; the fixes name the worker.
#[test]
fn the_path_goes_through_the_slow_worker() {
    let plan = Schedule { replicas: 3, ..Schedule::new(ScheduleKind::OneFOneB, 3, 6) };
    let mut spec = SynthSpec::new(plan, 40);
    spec.effects.microbatch = EffectSpec::normal(0.05);
    spec.effects.step = EffectSpec::normal(0.01);
    spec.slow_worker = Some(SlowWorker { replica: 1, stage: 2, factor: 1.5 });
    let replayed = Replayed::new(Builder::Reference, &spec.generate().unwrap().table).unwrap();
    let c = calibrate(&replayed, &Selection::all(&replayed), &CalibrateOptions::default()).unwrap();
    let job = Job { graph: &c.graph, model: &c.model, layout: layout(&c.graph) };
    let report = explain(&job, &quick()).unwrap();
    let path = &report.path;
    for total in [
        path.kinds.iter().map(|k| k.time_s.value).sum::<f64>(),
        path.stages.iter().map(|k| k.time_s.value).sum(),
        path.workers.iter().map(|k| k.time_s.value).sum(),
    ] {
        assert!((total / path.mean_step_s - 1.0).abs() < 1e-6, "{total}");
    }
    let most =
        path.workers.iter().max_by(|a, b| a.time_s.value.total_cmp(&b.time_s.value)).unwrap();
    assert_eq!((most.part.dp, most.part.stage, most.part.rank), (1, 2, 7));
    let slow = path.slack.iter().find(|s| s.worker == most.part).unwrap();
    assert!(slow.slack_s.value.abs() < 1e-6, "the slow worker has no slack");
    let other = path.slack.iter().find(|s| s.worker.dp == 0 && s.worker.stage == 2).unwrap();
    assert!(other.slack_s.value > 0.1, "{other:?}");
    for typical in &path.typical {
        let last = typical.lines.last().unwrap();
        assert!((last.arrival_s / typical.step_s - 1.0).abs() < 1e-6);
        let mut at = 0.0;
        for line in &typical.lines {
            assert!((line.arrival_s - line.delay_s - at).abs() < 1e-9);
            at = line.arrival_s;
        }
    }
    let effects = breakdown(&report.breakdowns, By::Effect);
    assert_eq!(effects.parts[0].name, "worker");
    assert!(effects.parts[0].at[0].share.unwrap() > 0.8);
    assert!(report.fixes[..3].iter().any(|f| f.what.starts_with("rank 7 (dp 1, stage 2)")));
}

/// Same bits on any number of threads.
#[test]
fn threads_change_no_bit() {
    let (graph, model) = fsdp(3, 4);
    let job = Job { graph: &graph, model: &model, layout: layout(&graph) };
    let with = |threads| explain(&job, &ExplainOptions { threads, ..quick() }).unwrap();
    assert_eq!(with(1), with(3));
}

/// Recorded jobs: compute carries the spread of steps, once the stalls of one collective (2 of 44 steps
/// on AR, 2 of 32 on ST) are set aside as the core spread does; AR with its slow worker healed.
#[test]
fn compute_carries_the_core_spread_of_recorded_jobs() {
    for (name, heal) in [("AR", Some("heal dp=0 stage=0")), ("ST", None)] {
        let Some(recorded) = common::Job::recorded(name).unwrap() else { continue };
        let replayed = recorded.replayed;
        let options = CalibrateOptions { laws: false, ..CalibrateOptions::default() };
        let c = calibrate(&replayed, &Selection::all(&replayed), &options).unwrap();
        let mut model = c.model.clone();
        let job = Job { graph: &c.graph, model: &c.model, layout: layout(&c.graph) };
        if let Some(text) = heal {
            let scenario: Scenario = text.parse().unwrap();
            model = apply(&job, &scenario, &Donors::new()).unwrap().model;
        }
        let job = Job { model: &model, ..job };
        let report = explain(&job, &quick()).unwrap();
        let classes = breakdown(&report.breakdowns, By::Class);
        let compute = classes.parts.iter().find(|p| p.name == "compute").unwrap();
        for (whole, a) in classes.statistics.iter().zip(&compute.at) {
            println!(
                "{name}: {} whole {:.4} s, compute alone {:.4}, removed {:.4}, Shapley {:.4}",
                whole.statistic,
                whole.whole_s.value,
                a.alone_s.value,
                a.removed_s.value,
                a.shapley_s.value
            );
        }
        let core = classes.statistics.iter().position(|w| w.statistic == Statistic::CoreSpread);
        let (whole, a) = (&classes.statistics[core.unwrap()], &compute.at[core.unwrap()]);
        assert!(a.alone_s.value >= 0.8 * whole.whole_s.value, "{name}: {a:?} of {whole:?}");
        assert!(a.share.unwrap() >= 0.8, "{name}: {a:?}");
    }
}
