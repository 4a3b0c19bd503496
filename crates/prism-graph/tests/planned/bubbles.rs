//! Closed forms, inside their domains.

use prism_graph::{PassKind, PlannedGraph, PlannedOverlap, PlannedShape, Timeline, evaluate};
use prism_job::ScheduleName;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::orders::{orders, published};

/// Seconds of a microbatch on a stage, all its chunks together.
#[derive(Clone, Copy, Debug)]
struct Times {
    f: f64,
    /// Whole backward.
    b: f64,
    /// Its weights' part.
    w: f64,
    /// Overlapped forward and backward.
    fb: f64,
}

impl Times {
    /// Any times whose weights' part is at most the input part.
    fn draw(rng: &mut impl Rng) -> Times {
        let w = rng.random_range(0.0..1.0);
        let b = 2.0 * w + rng.random_range(0.0..1.0);
        Times { f: rng.random_range(0.2..2.0), b, w, fb: 0.0 }
    }
}

fn work(planned: &PlannedGraph, t: Times) -> Vec<f64> {
    let split = match planned.shape.schedule {
        ScheduleName::DualPipe => 1.0,
        _ => f64::from(planned.shape.chunks),
    };
    let each = planned.graph.iter().map(|(id, _)| match planned.pass(id) {
        None => 0.0,
        Some(pass) => match pass.kind {
            PassKind::Forward => t.f / split,
            PassKind::Backward if pass.paired => (t.fb - t.f) / split,
            PassKind::Backward => t.b / split,
            PassKind::BackwardInput => (t.b - t.w) / split,
            PassKind::BackwardWeight => t.w / split,
        },
    });
    each.flat_map(|w| std::iter::repeat_n(w, planned.shape.replicas as usize)).collect()
}

fn run(shape: &PlannedShape, t: Times) -> (PlannedGraph, Timeline) {
    let planned = shape.graph().unwrap();
    let timeline = evaluate(&planned.graph, 1, &work(&planned, t), None).unwrap();
    (planned, timeline)
}

/// Step time less the work of one stage.
#[track_caller]
fn assert_bubble(shape: &PlannedShape, t: Times, expected: f64) {
    let both = [true, false].map(|p2p| {
        let shape = PlannedShape { overlap: PlannedOverlap { p2p, ..shape.overlap }, ..*shape };
        let (planned, timeline) = run(&shape, t);
        timeline.step_times(&planned.graph)[0] - f64::from(shape.microbatches) * (t.f + t.b)
    });
    for got in both {
        assert!(
            (got - expected).abs() < 1e-9,
            "{shape:?} {t:?}: bubble {got} instead of {expected}"
        );
    }
}

#[test]
fn gpipe_and_1f1b() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for schedule in [ScheduleName::GPipe, ScheduleName::OneFOneB] {
        for stages in 1..8 {
            for microbatches in 1..17 {
                let t = Times::draw(&mut rng);
                let shape = PlannedShape::new(schedule, stages, microbatches);
                assert_bubble(&shape, t, f64::from(stages - 1) * (t.f + t.b));
            }
        }
    }
}

#[test]
fn interleaving_divides_the_bubble_by_the_chunks() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for stages in 1..7_u16 {
        for chunks in 1..6_u16 {
            for rounds in 1..5 {
                let t = Times::draw(&mut rng);
                let shape = PlannedShape {
                    chunks,
                    data_parallel: true,
                    replicas: 2,
                    norm_all_reduce: true,
                    tied_embedding: true,
                    ..PlannedShape::new(
                        ScheduleName::InterleavedOneFOneB,
                        stages,
                        rounds * u32::from(stages),
                    )
                };
                assert_bubble(&shape, t, f64::from(stages - 1) * (t.f + t.b) / f64::from(chunks));
            }
        }
    }
}

/// The formula needs a weights' part no longer than the input part, and no longer than a forward:
/// a first stage that stores `stages` microbatches has nothing to do before the first gradient comes
/// back, `stages - 1` input parts after its last forward, so the bubble is never below that.
#[test]
fn zb_h1_hides_two_weight_parts_a_stage() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut outside = 0;
    for stages in 1..9_u16 {
        for microbatches in u32::from(stages)..24 {
            let t = Times::draw(&mut rng);
            let shape = PlannedShape::new(ScheduleName::ZbH1, stages, microbatches);
            let least = t.b - t.w;
            outside += u32::from(t.w > t.f);
            let each = least.max(t.f + t.b - 2.0 * t.w);
            assert_bubble(&shape, t, f64::from(stages - 1) * each);
        }
    }
    assert!(outside > 10, "{outside}");
    let t = Times { f: 1.0, b: 2.0, w: 1.0, fb: 0.0 };
    assert_bubble(&PlannedShape::new(ScheduleName::ZbH1, 4, 8), t, 3.0);
    // Where the weights' part is longer than the input part, the formula promises too much.
    let t = Times { f: 1.0, b: 2.0, w: 1.2, fb: 0.0 };
    let (planned, timeline) = run(&PlannedShape::new(ScheduleName::ZbH1, 4, 8), t);
    assert!(timeline.step_times(&planned.graph)[0] > 24.0 + 3.0 * 0.6 + 1e-3);
}

/// A stage is not idle between its first pass and its last; the stages' spans are shifted by one
/// chunk's forward each, as the paper's figures are (its optimizer steps are not synchronised).
#[test]
fn zb_v_has_no_idle_time() {
    for stages in 1..10_u16 {
        let enough = 2 * u32::from(stages) - 1;
        for microbatches in enough..enough + 9 {
            let shape = PlannedShape::new(ScheduleName::ZbV, stages, microbatches);
            let t = Times { f: 1.4, b: 2.8, w: 1.4, fb: 0.0 };
            let (planned, timeline) = run(&shape, t);
            for stage in 0..stages {
                let busy = planned
                    .graph
                    .iter()
                    .filter(|(id, op)| op.stage == stage && planned.pass(*id).is_some());
                let (first, last) =
                    busy.fold((f64::INFINITY, 0.0_f64), |(first, last), (id, _)| {
                        (first.min(timeline.start(id)[0]), last.max(timeline.end(id)[0]))
                    });
                assert!((first - 0.7 * f64::from(stage)).abs() < 1e-9, "{shape:?}");
                let idle = last - first - f64::from(microbatches) * (t.f + t.b);
                assert!(idle.abs() < 1e-9, "{shape:?}: stage {stage} idle for {idle}");
                assert_eq!(shape.stored(stage).unwrap().iter().sum::<u32>(), 2 * u32::from(stages));
            }
            assert_bubble(&shape, t, f64::from(stages - 1) * 0.7);
        }
    }
}

/// The formula counts the idle time of a middle stage, which has the fewest overlapped blocks, and
/// holds where a forward takes as long as an input part and at least as long as a weights' part:
/// the two ramps are then of forwards and of input parts alike.
#[test]
fn dual_pipe_has_its_authors_bubble() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for half in 1..6_u16 {
        let stages = 2 * half;
        for extra in [0, 2, 4, 10, 30] {
            let microbatches = 2 * u32::from(stages) + extra;
            let f: f64 = rng.random_range(0.5..2.0);
            let w = f * rng.random_range(0.0..1.0);
            let b = f + w;
            let fb = rng.random_range(b..f + b);
            let t = Times { f, b, w, fb };
            let shape = PlannedShape::new(ScheduleName::DualPipe, stages, microbatches);
            let (planned, timeline) = run(&shape, t);
            let times = work(&planned, t);
            let own: f64 = planned
                .graph
                .iter()
                .filter(|(_, op)| op.stage == half)
                .map(|(id, _)| times[id.0 as usize])
                .sum();
            let got = timeline.step_times(&planned.graph)[0] - own;
            let expected = f64::from(half - 1) * (fb + b - 3.0 * w);
            assert!((got - expected).abs() < 1e-9, "{shape:?} {t:?}: {got} for {expected}");
            let middle = planned.pairs.iter();
            let stage = |op: prism_graph::OpId| planned.graph.ops()[op.0 as usize].stage;
            let pairs = middle.filter(|(f, _)| stage(*f) == half).count() as u32;
            assert_eq!(pairs, microbatches - u32::from(stages) - 1);
            for stage in 0..stages {
                let stored: u32 = shape.stored(stage).unwrap().iter().sum();
                assert_eq!(stored, u32::from(stages) + 1);
            }
        }
    }
}

/// Orders as their sources state them. ZB-H1's is found by a greedy search under its limit of
/// memory, with passes of equal time.
#[test]
fn orders_are_those_of_their_sources() {
    let mut shapes = Vec::new();
    for stages in 1..7_u16 {
        for microbatches in 1..26 {
            for schedule in [
                ScheduleName::GPipe,
                ScheduleName::OneFOneB,
                ScheduleName::ZbH1,
                ScheduleName::DualPipe,
            ] {
                shapes.push(PlannedShape::new(schedule, stages, microbatches));
            }
            for chunks in 1..5 {
                let schedule = ScheduleName::InterleavedOneFOneB;
                let shape = PlannedShape::new(schedule, stages, microbatches);
                shapes.push(PlannedShape { chunks, ..shape });
            }
        }
    }
    let mut compared = 0;
    for shape in shapes.iter().filter(|shape| shape.validate().is_ok()) {
        if shape.schedule == ScheduleName::ZbH1 && shape.microbatches < u32::from(shape.stages) {
            continue;
        }
        for (stage, expected) in (0..shape.stages).zip(orders(shape)) {
            assert_eq!(published(shape, stage), expected, "stage {stage} of {shape:?}");
            compared += 1;
        }
    }
    assert!(compared > 2_000, "{compared}");
}

#[test]
fn stored_microbatches_are_as_each_schedule_promises() {
    let stored = |shape: &PlannedShape, stage| shape.stored(stage).unwrap().iter().sum::<u32>();
    let p = 4_u16;
    for (stage, left) in (0..p).zip((1..=u32::from(p)).rev()) {
        for m in [2, 4, 12] {
            let new = |schedule| PlannedShape::new(schedule, p, m);
            assert_eq!(stored(&new(ScheduleName::GPipe), stage), m);
            assert_eq!(stored(&new(ScheduleName::OneFOneB), stage), left.min(m));
            assert_eq!(stored(&new(ScheduleName::ZbH1), stage), u32::from(p).min(m));
        }
        // Narayanan et al.: the first stage holds 1 + (p - 1)/(p v) times what 1F1B holds.
        for v in 2..5_u16 {
            let shape = PlannedShape::new(ScheduleName::InterleavedOneFOneB, p, 16);
            let shape = PlannedShape { chunks: v, ..shape };
            let expected = 2 * (left - 1) + u32::from(v - 1) * u32::from(p) + 1;
            assert_eq!(stored(&shape, stage), expected);
            if stage == 0 {
                let (p, v) = (f64::from(p), f64::from(v));
                let factor = 1.0 + (p - 1.0) / (p * v);
                assert!((f64::from(expected) / v - p * factor).abs() < 1e-12);
            }
        }
    }
}
