//! Graph against event simulator: any size, any durations.

use prism_graph::{PlannedGraph, PlannedOverlap, PlannedShape, evaluate};
use prism_job::ScheduleName;
use prism_model::OpKind;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::orders::{orders, paths, published};
use crate::simulator::{Pipeline, What};

/// Durations as a function of a name: a well-mixed number in [0, 1).
fn mixed(seed: u64, name: [u64; 4]) -> f64 {
    let mut x = seed ^ 0x9E37_79B9_7F4A_7C15;
    for part in name {
        x = (x ^ part).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 29;
        x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^= x >> 32;
    }
    (x >> 11) as f64 / (1_u64 << 53) as f64
}

#[derive(Clone, Copy)]
struct Durations {
    seed: u64,
    /// Longest transfer, in units of a long pass; 0 for none.
    transfer: f64,
}

impl Durations {
    fn pass(self, what: What, stage: u16, chunk: u16, mb: u32) -> f64 {
        let name = [u64::from(u32::from(what)), stage.into(), chunk.into(), mb.into()];
        0.05 + mixed(self.seed, name)
    }

    fn transfer(self, direction: What, stage: u16, chunk: u16, mb: u32) -> f64 {
        let name = [7 * u64::from(u32::from(direction)), stage.into(), chunk.into(), mb.into()];
        self.transfer * mixed(self.seed, name)
    }

    /// The same by operation: both ends of a hop take the sender's time.
    fn work(self, planned: &PlannedGraph) -> Vec<f64> {
        let ops = planned.graph.ops();
        let of = |(id, op): (prism_graph::OpId, &prism_graph::Op)| {
            let (chunk, mb) = (op.chunk as u16, op.microbatch as u32);
            match op.kind {
                OpKind::ForwardCompute => self.pass('F', op.stage, chunk, mb),
                OpKind::BackwardWeight => self.pass('W', op.stage, chunk, mb),
                OpKind::BackwardCompute => {
                    let split = planned.graph.find(OpKind::BackwardWeight, op.seq, op.stage);
                    let what = if split.is_some() { 'I' } else { 'B' };
                    self.pass(what, op.stage, chunk, mb)
                }
                kind if kind.is_p2p() => {
                    let group = planned.graph.group_of(id).unwrap();
                    let members = &planned.graph.groups()[group.0 as usize].members;
                    let sender = members.iter().map(|m| &ops[m.0 as usize]);
                    let sender = sender.clone().find(|op| op.kind.is_send()).unwrap();
                    let direction = if sender.kind == OpKind::ForwardSend { 'F' } else { 'B' };
                    self.transfer(direction, sender.stage, sender.chunk as u16, mb)
                }
                _ => 0.0,
            }
        };
        planned.graph.iter().map(of).collect()
    }
}

fn random_shape(rng: &mut impl Rng) -> PlannedShape {
    let schedules = [
        ScheduleName::GPipe,
        ScheduleName::OneFOneB,
        ScheduleName::InterleavedOneFOneB,
        ScheduleName::InterleavedOneFOneB,
        ScheduleName::ZbH1,
        ScheduleName::ZbV,
        ScheduleName::DualPipe,
    ];
    loop {
        let schedule = schedules[rng.random_range(0..schedules.len())];
        let stages = rng.random_range(1..9);
        let mut shape = PlannedShape::new(schedule, stages, rng.random_range(1..30));
        if schedule == ScheduleName::InterleavedOneFOneB {
            shape.chunks = rng.random_range(1..6);
        }
        shape.overlap.p2p = rng.random_bool(0.5);
        if shape.validate().is_ok() {
            return shape;
        }
    }
}

#[test]
fn graphs_run_as_the_simulator_does() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..2_000 {
        let shape = random_shape(&mut rng);
        let transfer = if rng.random_bool(0.3) { 0.0 } else { rng.random_range(0.01..2.0) };
        let durations = Durations { seed: rng.random(), transfer };
        let few = shape.microbatches < u32::from(shape.stages);
        let stated = if shape.schedule == ScheduleName::ZbH1 && few {
            (0..shape.stages).map(|stage| published(&shape, stage)).collect()
        } else {
            orders(&shape)
        };
        let spans = Pipeline {
            orders: stated,
            paths: paths(&shape),
            blocking: !shape.overlap.p2p,
            pass: &|what, stage, chunk, mb| durations.pass(what, stage, chunk, mb),
            transfer: &|what, stage, chunk, mb| durations.transfer(what, stage, chunk, mb),
        }
        .run();
        let planned = shape.graph().unwrap();
        let timeline = evaluate(&planned.graph, 1, &durations.work(&planned), None).unwrap();
        for (stage, (_, end)) in (0..shape.stages).zip(&spans) {
            let of_stage = planned
                .graph
                .iter()
                .filter(|(id, op)| op.stage == stage && planned.pass(*id).is_some());
            let got = of_stage.map(|(id, _)| timeline.end(id)[0]).fold(0.0, f64::max);
            assert!((got - end).abs() < 1e-9, "{shape:?}: stage {stage} ends at {got}, not {end}");
        }
        let key = (format!("{:?}", shape.schedule), shape.overlap.p2p);
        *seen.entry(key).or_insert(0) += 1;
        if shape.schedule == ScheduleName::InterleavedOneFOneB
            && shape.chunks > 1
            && !shape.microbatches.is_multiple_of(u32::from(shape.stages))
        {
            *seen.entry(("ragged".to_owned(), true)).or_insert(0) += 1;
        }
    }
    assert!(seen.len() == 13 && seen.values().all(|&n| n >= 10), "{seen:?}");
}

/// Every hop between stages has a send and a receive that start together; the V's turn has none.
#[test]
fn every_hop_is_a_transfer() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    for _ in 0..200 {
        let shape = random_shape(&mut rng);
        let planned = shape.graph().unwrap();
        let hops = paths(&shape)
            .iter()
            .flat_map(|path| path.windows(2))
            .filter(|pair| pair[0].0 != pair[1].0)
            .count() as u32;
        let ways = if shape.schedule == ScheduleName::DualPipe { 2 } else { 1 };
        let count = |kind| planned.graph.ops().iter().filter(|op| op.kind == kind).count() as u32;
        for kind in
            [OpKind::ForwardSend, OpKind::ForwardRecv, OpKind::BackwardSend, OpKind::BackwardRecv]
        {
            assert_eq!(count(kind), hops * shape.microbatches / ways, "{shape:?}");
        }
        for (id, op) in planned.graph.iter() {
            assert_eq!(planned.peer_stage(id).is_some(), op.kind.is_p2p());
            if !op.kind.is_p2p() {
                continue;
            }
            let group = planned.graph.group_of(id).unwrap();
            let members = &planned.graph.groups()[group.0 as usize].members;
            assert_eq!(members.len(), 2);
            let other = members[usize::from(members[0] == id)];
            let peer = &planned.graph.ops()[other.0 as usize];
            assert_eq!(planned.peer_stage(id), Some(peer.stage));
            assert_eq!(peer.microbatch, op.microbatch);
            let (from, to) = if op.kind.is_send() { (id, other) } else { (other, id) };
            let piece = |id| i64::from(planned.piece(id).unwrap());
            let step =
                if op.kind.direction() == Some(prism_model::Direction::Forward) { 1 } else { -1 };
            assert_eq!(piece(to) - piece(from), step);
        }
    }
}

/// Names survive more stages and more microbatches: what is drawn by name stays.
#[test]
fn names_do_not_move_when_microbatches_are_added() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..50 {
        let shape = random_shape(&mut rng);
        let p = u32::from(shape.stages);
        let more = PlannedShape { microbatches: shape.microbatches + 2 * p, ..shape };
        let (small, large) = (shape.graph().unwrap(), more.graph().unwrap());
        for op in small.graph.ops() {
            let Some(id) = large.graph.find(op.kind, op.seq, op.stage) else {
                // A backward may be split in one and whole in the other.
                assert_eq!(op.kind, OpKind::BackwardWeight);
                continue;
            };
            assert_eq!(large.graph.ops()[id.0 as usize], *op);
        }
    }
}

fn with_data_parallel(
    schedule: ScheduleName,
    grad_reduce: bool,
    param_gather: bool,
) -> PlannedShape {
    PlannedShape {
        overlap: PlannedOverlap { grad_reduce, param_gather, p2p: true },
        data_parallel: true,
        replicas: 2,
        tied_embedding: true,
        ..PlannedShape::new(schedule, 4, 8)
    }
}

/// Gathers of 1 s and reductions of 1 s around passes of 1 s.
#[test]
fn gathers_and_reductions_overlap_if_asked() {
    let time = |shape: PlannedShape| {
        let planned = shape.graph().unwrap();
        let work: Vec<f64> = planned
            .graph
            .iter()
            .flat_map(|(id, op)| {
                let collective =
                    matches!(op.kind, OpKind::ParamsAllGather | OpKind::GradsReduceScatter);
                [f64::from(u8::from(collective || planned.pass(id).is_some())); 2]
            })
            .collect();
        evaluate(&planned.graph, 1, &work, None).unwrap().step_times(&planned.graph)[0]
    };
    let interleaved = |grad_reduce, param_gather| {
        let shape =
            with_data_parallel(ScheduleName::InterleavedOneFOneB, grad_reduce, param_gather);
        time(PlannedShape { chunks: 2, ..shape })
    };
    // 8 microbatches, 2 chunks, 2 passes and a bubble of 3 x 2 = 38 s; two gathers, two reductions.
    assert_eq!(interleaved(false, false), 38.0 + 4.0);
    assert_eq!(interleaved(false, true), 38.0 + 3.0);
    assert_eq!(interleaved(true, false), 38.0 + 3.0);
    assert_eq!(interleaved(true, true), 38.0 + 2.0);
    let all_reduce = PlannedShape {
        all_reduce_grads: true,
        ..with_data_parallel(ScheduleName::OneFOneB, false, false)
    };
    assert_eq!(time(all_reduce), 22.0 + 1.0);
    let single = PlannedShape { data_parallel: false, ..all_reduce };
    assert_eq!(time(single), 22.0);
}

#[test]
fn copies_of_a_piece_reduce_together() {
    let shape = with_data_parallel(ScheduleName::DualPipe, true, true);
    for shape in [shape, PlannedShape { data_parallel: false, replicas: 1, ..shape }] {
        let graph = shape.graph().unwrap().graph;
        let of = |seq, stage| {
            let id = graph.find(OpKind::GradsReduceScatter, seq, stage).unwrap();
            graph.group_of(id).unwrap()
        };
        for stage in 0..4 {
            assert_eq!(of(0, stage), of(1, 3 - stage));
        }
        let gathers = graph.ops().iter().filter(|op| op.kind == OpKind::ParamsAllGather).count();
        assert_eq!(gathers, if shape.data_parallel { 8 } else { 0 });
    }
}

#[test]
fn the_embedding_is_reduced_between_the_models_ends() {
    for (schedule, stages) in [
        (ScheduleName::OneFOneB, vec![0, 3]),
        (ScheduleName::DualPipe, vec![0, 3]),
        // Both ends are on the first stage.
        (ScheduleName::ZbV, vec![]),
    ] {
        let graph = with_data_parallel(schedule, true, true).graph().unwrap().graph;
        let found: Vec<u16> = (0..4)
            .filter(|&stage| graph.find(OpKind::EmbeddingGradsAllReduce, 0, stage).is_some())
            .collect();
        assert_eq!(found, stages);
    }
}

#[test]
fn impossible_shapes_are_refused() {
    let new = PlannedShape::new;
    let broken = [
        (new(ScheduleName::OneFOneB, 0, 4), "stages must be positive"),
        (new(ScheduleName::OneFOneB, 4, 0), "microbatches must be positive"),
        (PlannedShape { replicas: 0, ..new(ScheduleName::OneFOneB, 4, 4) }, "replicas"),
        (PlannedShape { chunks: 2, ..new(ScheduleName::ZbH1, 4, 4) }, "only interleaved"),
        (PlannedShape { chunks: 1, ..new(ScheduleName::ZbV, 4, 4) }, "two chunks"),
        (
            PlannedShape { chunks: 2, ..new(ScheduleName::InterleavedOneFOneB, 4, 3) },
            "at least `stages`",
        ),
        (new(ScheduleName::DualPipe, 3, 12), "even number of stages"),
        (new(ScheduleName::DualPipe, 4, 6), "at least twice"),
        (new(ScheduleName::DualPipe, 4, 9), "even number of microbatches"),
        (new(ScheduleName::GPipe, 40_000, 40_000), "2^26"),
    ];
    for (shape, words) in broken {
        let error = shape.graph().unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(shape.passes(0).unwrap_err(), error);
    }
    assert!(new(ScheduleName::OneFOneB, 4, 4).passes(4).is_err());
}
