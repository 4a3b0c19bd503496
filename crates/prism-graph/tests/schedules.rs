//! Schedules against textbook bubbles, and against their own traces.

mod common;

use common::{meta_of, random_schedule, random_work, structure};
use prism_graph::schedule::{Pass, Schedule, ScheduleKind};
use prism_graph::{GraphError, Observed, StepGraph, build_reference, evaluate, to_op_table};
use prism_model::{Direction, OpKind};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const F: f64 = 1.0;
const B: f64 = 2.3;

/// Step time less the work of one stage, with nothing but compute taking time.
fn bubble(shape: &Schedule) -> f64 {
    let graph = shape.graph().unwrap();
    let chunks = f64::from(shape.chunks);
    let work: Vec<f64> = graph
        .ops()
        .iter()
        .map(|op| match op.kind {
            OpKind::ForwardCompute => F / chunks,
            OpKind::BackwardCompute => B / chunks,
            _ => 0.0,
        })
        .flat_map(|w| std::iter::repeat_n(w, shape.replicas as usize))
        .collect();
    let time = evaluate(&graph, 1, &work, None).unwrap().step_times(&graph)[0];
    time - f64::from(shape.microbatches) * (F + B)
}

#[track_caller]
fn assert_bubble(shape: &Schedule, expected: f64) {
    let got = bubble(shape);
    assert!((got - expected).abs() < 1e-9, "{shape:?}: bubble {got} instead of {expected}");
}

#[test]
fn gpipe_and_1f1b_have_the_textbook_bubble() {
    for kind in [ScheduleKind::GPipe, ScheduleKind::OneFOneB] {
        for stages in 1..9 {
            for microbatches in 1..20 {
                let shape = Schedule::new(kind, stages, microbatches);
                assert_bubble(&shape, f64::from(stages - 1) * (F + B));
            }
        }
    }
}

#[test]
fn interleaving_divides_the_bubble_by_the_chunks() {
    for stages in 1..7_u16 {
        for chunks in 1..6_u16 {
            for rounds in 1..5 {
                let shape = Schedule {
                    chunks,
                    replicas: 2,
                    ..Schedule::new(
                        ScheduleKind::InterleavedOneFOneB,
                        stages,
                        rounds * u32::from(stages),
                    )
                };
                assert_bubble(&shape, f64::from(stages - 1) * (F + B) / f64::from(chunks));
            }
        }
    }
}

/// The live activations of a stage are what its schedule is chosen for.
#[test]
fn activations_in_flight_are_as_each_schedule_promises() {
    let in_flight = |shape: &Schedule, stage: u16| {
        let mut live = 0_i64;
        let mut peak = 0;
        for pass in shape.passes(stage).unwrap() {
            live += if pass.direction == Direction::Forward { 1 } else { -1 };
            peak = peak.max(live);
        }
        assert_eq!(live, 0);
        peak
    };
    let (stages, microbatches) = (4_u16, 8);
    for stage in 0..stages {
        let gpipe = Schedule::new(ScheduleKind::GPipe, stages, microbatches);
        assert_eq!(in_flight(&gpipe, stage), 8);
        let one = Schedule::new(ScheduleKind::OneFOneB, stages, microbatches);
        assert_eq!(in_flight(&one, stage), i64::from(stages - stage));
        let kind = ScheduleKind::InterleavedOneFOneB;
        let two = Schedule { chunks: 2, ..Schedule::new(kind, stages, microbatches) };
        assert_eq!(in_flight(&two, stage), i64::from(2 * (stages - 1 - stage) + stages + 1));
    }
}

#[test]
fn interleaved_passes_are_megatrons() {
    // 2 stages, 2 chunks, 2 microbatches, last stage: two forward passes of chunk 0 warm up.
    let kind = ScheduleKind::InterleavedOneFOneB;
    let shape = Schedule { chunks: 2, ..Schedule::new(kind, 2, 2) };
    let pass = |d: char, chunk, microbatch| Pass {
        direction: if d == 'F' { Direction::Forward } else { Direction::Backward },
        chunk,
        microbatch,
    };
    let expected = [
        pass('F', 0, 0),
        pass('F', 0, 1),
        pass('F', 1, 0),
        pass('B', 1, 0),
        pass('F', 1, 1),
        pass('B', 1, 1),
        pass('B', 0, 0),
        pass('B', 0, 1),
    ];
    assert_eq!(shape.passes(1).unwrap(), expected);
}

fn durations_match(graph: &StepGraph, observed: &Observed, work: &[f64]) {
    let samples = observed.samples();
    for (id, op) in graph.iter().filter(|(id, _)| graph.group_of(*id).is_none()) {
        let drawn = &work[id.0 as usize * samples..][..samples];
        for (got, expected) in observed.duration(id).unwrap().iter().zip(drawn) {
            assert!((got - expected).abs() < 1e-9, "{op}: {got} instead of {expected}");
        }
    }
}

#[test]
fn the_trace_of_a_schedule_is_rebuilt_into_the_schedule() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut seen = [0; 3];
    for _ in 0..300 {
        let shape = random_schedule(&mut rng);
        let graph = shape.graph().unwrap();
        let steps = [3, 5];
        let work = random_work(&graph, steps.len() * shape.replicas as usize, &mut rng);
        let table = to_op_table(&graph, &steps, &work, None, &meta_of(&shape)).unwrap();
        let rebuilt = build_reference(&table).unwrap();
        assert_eq!(structure(&rebuilt), structure(&graph), "{shape:?}");
        let observed = Observed::align(&graph, &table).unwrap();
        assert_eq!(observed.steps(), steps);
        durations_match(&graph, &observed, &work);
        seen[0] += usize::from(shape.chunks > 1);
        seen[1] += usize::from(shape.overlap_grad_reduce && shape.replicas > 1);
        seen[2] += usize::from(shape.replicas == 1);
    }
    assert!(seen.iter().all(|&n| n > 20), "{seen:?}");
}

#[test]
fn every_step_starts_at_zero_in_its_table() {
    let shape = Schedule { replicas: 2, ..Schedule::new(ScheduleKind::OneFOneB, 3, 4) };
    let graph = shape.graph().unwrap();
    let work = random_work(&graph, 4, &mut ChaCha8Rng::seed_from_u64(2));
    let delay = vec![0.125; work.len()];
    let table = to_op_table(&graph, &[7, 9], &work, Some(&delay), &meta_of(&shape)).unwrap();
    for step in [7, 9] {
        let starts = table.rows().filter(|r| r.step == step).map(|r| r.start_s);
        assert_eq!(starts.fold(f64::INFINITY, f64::min), 0.0);
    }
    assert!(table.rows().all(|r| (r.end_s - r.start_s - r.duration_s).abs() < 1e-12));
    let ranks: std::collections::BTreeSet<u32> = table.rank.iter().copied().collect();
    assert_eq!(ranks.into_iter().collect::<Vec<_>>(), [0, 2, 4, 6, 8, 10]);
}

#[test]
fn impossible_shapes_are_refused() {
    let valid = Schedule::new(ScheduleKind::InterleavedOneFOneB, 4, 8);
    assert_eq!(valid.validate(), Ok(()));
    let broken = [
        (Schedule { replicas: 0, ..valid }, "replicas"),
        (Schedule { stages: 0, ..valid }, "stages"),
        (Schedule { chunks: 0, ..valid }, "chunks"),
        (Schedule { microbatches: 0, ..valid }, "microbatches"),
        (Schedule { chunks: 2, microbatches: 6, ..valid }, "multiple of `stages`"),
        (Schedule { chunks: 2, kind: ScheduleKind::OneFOneB, ..valid }, "more than one chunk"),
        (Schedule { chunks: 40_000, ..valid }, "32767"),
        (Schedule { microbatches: 1 << 30, ..valid }, "2^26"),
    ];
    for (shape, word) in broken {
        let error = shape.graph().unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(valid.passes(4).is_err());
}

#[test]
fn metadata_of_another_job_is_refused() {
    let shape = Schedule { replicas: 2, ..Schedule::new(ScheduleKind::GPipe, 2, 2) };
    let graph = shape.graph().unwrap();
    let work = vec![1.0; graph.ops().len() * 2];
    let wrong = Schedule { replicas: 4, ..shape };
    let error = to_op_table(&graph, &[0], &work, None, &meta_of(&wrong)).unwrap_err();
    let expected = GraphError::Meta { what: "data-parallel size", meta: 4, graph: 2 };
    assert_eq!(error, expected);
}
