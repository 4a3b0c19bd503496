//! Replay of synthetic traces, whose work and launch delays are known.

use prism_engine::replay::{
    Builder, CLAMP_S, Ideal, ReplayComparison, Replayed, Split, choose_builder,
    recorded_step_times, replace, simulate,
};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{GraphError, Observed, StepGraph, build_program_order, to_op_table};
use prism_io::{JobMeta, OpTable};
use prism_model::OpKind;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const STEPS: [i64; 3] = [10, 11, 40];

fn schedules() -> Vec<Schedule> {
    let base = Schedule { replicas: 3, ..Schedule::new(ScheduleKind::OneFOneB, 4, 8) };
    let interleaved = ScheduleKind::InterleavedOneFOneB;
    vec![
        base,
        Schedule { replicas: 1, stages: 1, ..base },
        Schedule { kind: ScheduleKind::GPipe, microbatches: 5, ..base },
        Schedule { kind: interleaved, chunks: 3, ..base },
        Schedule { kind: interleaved, chunks: 2, overlap_grad_reduce: true, ..base },
    ]
}

fn draw(graph: &StepGraph, rng: &mut impl Rng) -> (Vec<f64>, Vec<f64>) {
    let samples = STEPS.len() * graph.replicas() as usize;
    let (mut work, mut delay) = (Vec::new(), Vec::new());
    for op in graph.ops() {
        let range = if op.kind.is_microbatch_compute() { 0.5..1.5 } else { 0.01..0.3 };
        work.extend((0..samples).map(|_| rng.random_range(range.clone())));
        delay.extend((0..samples).map(|_| rng.random_range(0.0..0.1)));
    }
    (work, delay)
}

fn record(shape: &Schedule, graph: &StepGraph, work: &[f64], delay: Option<&[f64]>) -> OpTable {
    let (dp, pp) = (shape.replicas, u32::from(shape.stages));
    let meta = JobMeta {
        trial_name: "synthetic".into(),
        run_id: 0,
        dp_size: dp,
        dsp_size: 1,
        pp_size: pp,
        tp_size: 1,
        vpp_size: u32::from(shape.chunks),
        world_size: dp * pp,
    };
    to_op_table(graph, &STEPS, work, delay, &meta).unwrap()
}

#[track_caller]
fn assert_close(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (g, e) in got.iter().zip(expected) {
        assert!((g - e).abs() < 1e-9, "{g} instead of {e}");
    }
}

/// `expected`, laid out by `graph`, in the layout of `other`.
fn relaid(graph: &StepGraph, other: &StepGraph, expected: &[f64]) -> Vec<f64> {
    let samples = STEPS.len() * graph.replicas() as usize;
    let mut out = vec![f64::NAN; expected.len()];
    for (id, op) in graph.iter() {
        let to = other.find(op.kind, op.seq, op.stage).unwrap().0 as usize * samples;
        let from = id.0 as usize * samples;
        out[to..to + samples].copy_from_slice(&expected[from..from + samples]);
    }
    out
}

#[test]
fn a_trace_without_delays_gives_back_the_drawn_work() {
    let mut rng = ChaCha8Rng::seed_from_u64(41);
    for shape in schedules() {
        let graph = shape.graph().unwrap();
        let (work, _) = draw(&graph, &mut rng);
        let table = record(&shape, &graph, &work, None);
        let replayed = Replayed::new(Builder::Reference, &table).unwrap();
        assert_close(&replayed.split.work, &relaid(&graph, &replayed.graph, &work));
        assert_close(&replayed.split.launch_delay, &vec![0.0; work.len()]);
        let report = &replayed.report;
        for s in &report.steps {
            assert_close(&[s.no_delay_s, s.with_delay_s], &[s.base_s, s.base_s]);
        }
        assert!((report.launch_slowdown - 1.0).abs() < 1e-12);
        assert!(report.zero_delay_error.rms_percent < 1e-9);
    }
}

#[test]
fn drawn_launch_delays_are_found_again() {
    let mut rng = ChaCha8Rng::seed_from_u64(43);
    for shape in schedules() {
        let graph = shape.graph().unwrap();
        let (work, mut delay) = draw(&graph, &mut rng);
        // Starts are relative to the step's earliest: one operation must start it without delay.
        let samples = STEPS.len() * graph.replicas() as usize;
        let first = graph.iter().find(|(id, _)| graph.deps(*id).is_empty()).unwrap().0;
        delay[first.0 as usize * samples..][..samples].fill(0.0);
        let table = record(&shape, &graph, &work, Some(&delay));
        let replayed = Replayed::new(Builder::Reference, &table).unwrap();
        assert_close(&replayed.split.work, &relaid(&graph, &replayed.graph, &work));
        assert_close(&replayed.split.launch_delay, &relaid(&graph, &replayed.graph, &delay));
        let base = simulate(&graph, STEPS.len(), &work, Some(&delay)).unwrap();
        assert_close(&recorded_step_times(&replayed.graph, &replayed.observed), &base);
        let steps: Vec<f64> = replayed.report.steps.iter().map(|s| s.with_delay_s).collect();
        assert_close(&steps, &base);
        let free = simulate(&graph, STEPS.len(), &work, None).unwrap();
        let steps: Vec<f64> = replayed.report.steps.iter().map(|s| s.no_delay_s).collect();
        assert_close(&steps, &free);
        assert!(replayed.report.launch_slowdown > 1.01);
    }
}

#[test]
fn ideals_are_means_of_computes_and_medians_of_transfers() {
    let shape = schedules()[0];
    let graph = shape.graph().unwrap();
    let (work, _) = draw(&graph, &mut ChaCha8Rng::seed_from_u64(47));
    let table = record(&shape, &graph, &work, None);
    let replayed = Replayed::new(Builder::Reference, &table).unwrap();
    let samples = replayed.observed.samples();
    let ideal = Ideal::new(&replayed.graph, &replayed.split);
    let averaged = [OpKind::ForwardCompute, OpKind::BackwardCompute, OpKind::Gc, OpKind::Optimizer];
    for (&kind, &got) in &ideal.work_s {
        let mut drawn: Vec<f64> = graph
            .iter()
            .filter(|(_, op)| op.kind == kind)
            .flat_map(|(id, _)| work[id.0 as usize * samples..][..samples].to_vec())
            .collect();
        drawn.sort_by(f64::total_cmp);
        let n = drawn.len();
        let expected = if averaged.contains(&kind) {
            drawn.iter().sum::<f64>() / n as f64
        } else {
            f64::midpoint(drawn[(n - 1) / 2], drawn[n / 2])
        };
        assert_close(&[got], &[expected]);
    }
    assert_eq!(ideal.work_s.len(), 13);
    let flat = ideal.work(&replayed.graph, samples);
    let times = simulate(&replayed.graph, STEPS.len(), &flat, None).unwrap();
    assert!(times.iter().all(|t| *t == times[0] && *t == replayed.report.mean_ideal_s));
}

#[test]
fn replacing_everything_is_taking_the_other() {
    let shape = schedules()[0];
    let graph = shape.graph().unwrap();
    let (work, delay) = draw(&graph, &mut ChaCha8Rng::seed_from_u64(53));
    let all = replace(&graph, 3, &work, &delay, |_, _, _| true).unwrap();
    assert_eq!(all, delay);
    let one = replace(&graph, 3, &work, &delay, |op, step, replica| {
        op.kind == OpKind::Gc && op.stage == 2 && step == 1 && replica == 2
    })
    .unwrap();
    let gc = graph.find(OpKind::Gc, 0, 2).unwrap().0 as usize;
    let changed: Vec<usize> = (0..work.len()).filter(|&i| one[i] != work[i]).collect();
    assert_eq!(changed, [gc * 9 + 3 + 2]);
    let error = replace(&graph, 3, &work, &delay[1..], |_, _, _| true).unwrap_err();
    assert!(matches!(error, GraphError::Shape { what: "other", .. }));
}

/// Clocks that disagree: a little is kept, a lot becomes zero and is counted.
#[test]
fn negative_transfers_and_delays_beyond_the_tolerance_are_clamped() {
    let shape = Schedule { replicas: 2, ..Schedule::new(ScheduleKind::OneFOneB, 2, 2) };
    let graph = shape.graph().unwrap();
    let (work, _) = draw(&graph, &mut ChaCha8Rng::seed_from_u64(59));
    let mut table = record(&shape, &graph, &work, None);
    // Shift one replica's last stage: its optimizer, and its receive's end before the send began.
    for i in 0..table.len() {
        if table.dp[i] == 1 && table.step[i] == 10 && table.stage[i] == 1 {
            let by = match table.kind[i] {
                OpKind::Optimizer => CLAMP_S / 2.0,
                OpKind::LayernormGradsAllReduce => 2.0 * CLAMP_S,
                _ => 0.0,
            };
            table.start_s[i] -= by;
            table.end_s[i] -= by;
        }
    }
    let receive = (0..table.len())
        .find(|&i| table.kind[i] == OpKind::ForwardRecv && table.dp[i] == 0 && table.step[i] == 11)
        .unwrap();
    table.end_s[receive] = table.start_s[receive] - 5.0 * CLAMP_S;
    let replayed = Replayed::new(Builder::Reference, &table).unwrap();
    let (graph, split) = (&replayed.graph, &replayed.split);
    assert_eq!((split.clamped_delays, split.clamped_transfers), (1, 1));
    let of = |kind| graph.find(kind, 0, 1).unwrap();
    let kept = split.launch_delay_of(of(OpKind::Optimizer))[1];
    assert!((kept + CLAMP_S / 2.0).abs() < 1e-9, "{kept}");
    assert_eq!(split.launch_delay_of(of(OpKind::LayernormGradsAllReduce))[1], 0.0);
    assert_eq!(split.work_of(of(OpKind::ForwardRecv))[2], 0.0);
}

/// A barrier has no times of its own: it ends when the slowest replica's dependencies do.
#[test]
fn a_barrier_ends_with_the_slowest_replica() {
    let shape = Schedule { replicas: 2, ..Schedule::new(ScheduleKind::OneFOneB, 2, 3) };
    let graph = shape.graph().unwrap();
    let (work, mut delay) = draw(&graph, &mut ChaCha8Rng::seed_from_u64(61));
    // No rank starts its layer-norm reduction until all replicas are done: a late launch.
    let samples = STEPS.len() * 2;
    let layernorm = graph.find(OpKind::LayernormGradsAllReduce, 0, 1).unwrap();
    delay[layernorm.0 as usize * samples..][..samples].fill(20.0);
    let table = record(&shape, &graph, &work, Some(&delay));
    let program = build_program_order(&table).unwrap();
    let barrier = program.find(OpKind::Barrier, 0, 1).unwrap();
    let observed = Observed::align(&program, &table).unwrap();
    assert_eq!(observed.end(barrier), None);
    let split = Split::new(&program, &observed).unwrap();
    assert_eq!(split.work_of(barrier), vec![0.0; samples]);
    assert_eq!(split.launch_delay_of(barrier), vec![0.0; samples]);
    let [backward] = program.deps(barrier) else { panic!("one dependency") };
    let ends = observed.end(*backward).unwrap();
    let layernorm = program.find(OpKind::LayernormGradsAllReduce, 0, 1).unwrap();
    let starts = observed.start(layernorm).unwrap();
    let gc = observed.end(program.find(OpKind::Gc, 0, 1).unwrap()).unwrap();
    let sent = observed.end(program.find(OpKind::BackwardSend, 2, 1).unwrap()).unwrap();
    for i in 0..samples {
        let slowest = ends[i / 2 * 2].max(ends[i / 2 * 2 + 1]);
        let expected = starts[i] - slowest.max(gc[i]).max(sent[i]);
        assert!((split.launch_delay_of(layernorm)[i] - expected).abs() < 1e-9);
    }
}

#[test]
fn the_reference_is_taken_for_transfers_that_run_beside_compute() {
    let shape = schedules()[0];
    let graph = shape.graph().unwrap();
    let (work, _) = draw(&graph, &mut ChaCha8Rng::seed_from_u64(67));
    let table = record(&shape, &graph, &work, None);
    let choice = choose_builder(&table).unwrap();
    assert_eq!(choice.comparison.chosen, Builder::Reference);
    assert_eq!(choice.chosen.report, choice.comparison.reference);
    let other = &choice.comparison;
    assert_ne!(other.program_order.is_some(), other.program_order_error.is_some());
    let text = serde_json::to_string(other).unwrap();
    assert_eq!(*other, serde_json::from_str(&text).unwrap());
    let schema = serde_json::to_value(schemars::schema_for!(ReplayComparison)).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    for field in written.as_object().unwrap().keys() {
        assert!(schema["properties"].get(field).is_some(), "{field} is not in the schema");
    }
}

#[test]
fn observations_of_another_graph_are_refused() {
    let [a, b] = [2, 3].map(|m| Schedule::new(ScheduleKind::GPipe, 2, m));
    let (graph, other) = (a.graph().unwrap(), b.graph().unwrap());
    let (work, _) = draw(&graph, &mut ChaCha8Rng::seed_from_u64(71));
    let observed = Observed::align(&graph, &record(&a, &graph, &work, None)).unwrap();
    let error = Split::new(&other, &observed).unwrap_err();
    assert!(matches!(error, GraphError::Shape { what: "observed", .. }));
}
