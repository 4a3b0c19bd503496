//! Critical path and slack against evaluations of the same graph with other work.

use prism_decide::critical::{CriticalPath, Segment, SegmentKind, Slack, critical_path, slack};
use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{GraphError, Op, OpId, ReplicaSync, StepGraph, StepGraphBuilder, evaluate};
use prism_model::OpKind;
use proptest::prelude::*;

/// Durations are whole multiples of this many seconds, so that no sum has a rounding error.
const UNIT_S: f64 = 1.0 / 128.0;
const STEPS: usize = 2;
const LAYERS: usize = 4;
const WIDTH: usize = 3;
const OPS: usize = LAYERS * WIDTH;
const MOST: usize = OPS * STEPS * 4;

/// A graph in layers: dependencies lead to later layers, groups are within one.
#[derive(Clone, Debug)]
struct Case {
    replicas: u32,
    deps: Vec<bool>,
    groups: Vec<(u8, u8)>,
    sinks: Vec<usize>,
    work: Vec<i8>,
    delay: Vec<i8>,
}

fn case() -> impl Strategy<Value = Case> {
    (
        prop::sample::select(vec![1_u32, 2, 4]),
        prop::collection::vec(any::<bool>(), OPS * OPS),
        prop::collection::vec((0_u8..4, 0_u8..3), LAYERS),
        prop::collection::vec(0..OPS, 0..3),
        prop::collection::vec(-1_i8..9, MOST),
        prop::collection::vec(-1_i8..4, MOST),
    )
        .prop_map(|(replicas, deps, groups, sinks, work, delay)| Case {
            replicas,
            deps,
            groups,
            sinks,
            work,
            delay,
        })
}

impl Case {
    fn graph(&self) -> StepGraph {
        let mut b = StepGraphBuilder::new(1, self.replicas);
        let kind = OpKind::ForwardCompute;
        let op = |i: usize| Op { kind, stage: 0, chunk: 0, microbatch: i as i32, seq: i as u32 };
        let ids: Vec<OpId> = (0..OPS).map(|i| b.op(op(i))).collect();
        for before in 0..OPS {
            for after in (before / WIDTH + 1) * WIDTH..OPS {
                if self.deps[before * OPS + after] {
                    b.dep(ids[before], ids[after]);
                }
            }
        }
        for (layer, &(members, sync)) in self.groups.iter().enumerate() {
            let sync = match sync {
                0 => ReplicaSync::None,
                1 => ReplicaSync::All,
                _ => ReplicaSync::Blocks(self.replicas.min(2)),
            };
            if members > 0 {
                let first = layer * WIDTH;
                b.group(ids[first..first + members as usize].to_vec(), sync);
            }
        }
        for &sink in &self.sinks {
            b.sink(ids[sink]);
        }
        b.build().unwrap()
    }

    fn samples(&self) -> usize {
        STEPS * self.replicas as usize
    }

    fn seconds(&self, units: &[i8]) -> Vec<f64> {
        units[..OPS * self.samples()].iter().map(|&u| f64::from(u) * UNIT_S).collect()
    }
}

fn latest_sink(graph: &StepGraph, work: &[f64], delay: &[f64], step: usize) -> f64 {
    let timeline = evaluate(graph, STEPS, work, Some(delay)).unwrap();
    let replicas = graph.replicas() as usize;
    let ends =
        graph.sinks().iter().flat_map(|&op| &timeline.end(op)[step * replicas..][..replicas]);
    ends.copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Of the launch delay or of the work, whichever the segment is.
fn slack_of(slack: &Slack, segment: &Segment) -> f64 {
    match segment.kind {
        SegmentKind::Work => slack.of(segment.op, segment.replica),
        _ => slack.of_ready(segment.op, segment.replica),
    }
}

#[track_caller]
fn assert_tiles(path: &CriticalPath) {
    assert_eq!(path.segments.first().unwrap().start_s, 0.0);
    assert_eq!(path.segments.last().unwrap().end_s, path.end_s);
    for pair in path.segments.windows(2) {
        assert_eq!(pair[0].end_s.to_bits(), pair[1].start_s.to_bits());
    }
}

proptest! {
    #[test]
    fn the_path_tiles_the_step_with_work_and_launch_delays(case in case()) {
        let graph = case.graph();
        let (work, delay) = (case.seconds(&case.work), case.seconds(&case.delay));
        let timeline = evaluate(&graph, STEPS, &work, Some(&delay)).unwrap();
        for step in 0..STEPS {
            let path = critical_path(&graph, &timeline, step).unwrap();
            assert_tiles(&path);
            prop_assert_eq!(path.end_s, latest_sink(&graph, &work, &delay, step));
            let replicas = case.replicas as usize;
            for s in &path.segments {
                let at = s.op.0 as usize * case.samples() + step * replicas + s.replica as usize;
                let source = if s.kind == SegmentKind::Work { &work } else { &delay };
                prop_assert_eq!(s.duration_s(), source[at]);
            }
            let total: f64 = path.by_kind_and_stage(&graph).values().sum();
            prop_assert_eq!(total, path.end_s);
        }
    }

    #[test]
    fn slack_is_what_an_operation_can_grow_by_and_no_more(case in case()) {
        let graph = case.graph();
        let (work, delay) = (case.seconds(&case.work), case.seconds(&case.delay));
        let timeline = evaluate(&graph, STEPS, &work, Some(&delay)).unwrap();
        let step = STEPS - 1;
        let before = latest_sink(&graph, &work, &delay, step);
        let path = critical_path(&graph, &timeline, step).unwrap();
        let slack = slack(&graph, &timeline, step).unwrap();
        for s in &path.segments {
            prop_assert_eq!(slack_of(&slack, s), 0.0);
        }
        for (id, _) in graph.iter() {
            for replica in 0..case.replicas {
                let replicas = case.replicas as usize;
                let at = id.0 as usize * case.samples() + step * replicas + replica as usize;
                let end_with = |grown: f64, in_delay: bool| {
                    let (mut work, mut delay) = (work.clone(), delay.clone());
                    if in_delay { delay[at] += grown } else { work[at] += grown }
                    latest_sink(&graph, &work, &delay, step)
                };
                let both = [(slack.of(id, replica), false), (slack.of_ready(id, replica), true)];
                for (most, in_delay) in both {
                    prop_assert!(most >= 0.0);
                    if most.is_infinite() {
                        prop_assert_eq!(end_with(1000.0, in_delay), before);
                        continue;
                    }
                    prop_assert_eq!(end_with(most, in_delay), before);
                    let over = UNIT_S / 2.0;
                    prop_assert_eq!(end_with(most + over, in_delay), before + over);
                }
            }
        }
    }
}

#[test]
fn a_straggler_in_another_replica_is_found_behind_the_collective() {
    // Both replicas: forward, then a collective over both; replica 1 is slow.
    let op = |kind| Op { kind, stage: 0, chunk: 0, microbatch: 0, seq: 0 };
    let mut b = StepGraphBuilder::new(1, 2);
    let forward = b.op(op(OpKind::ForwardCompute));
    let reduce = b.op(op(OpKind::GradsReduceScatter));
    b.dep(forward, reduce);
    b.group(vec![reduce], ReplicaSync::All);
    let graph = b.build().unwrap();
    // The collective takes longest on replica 0, which therefore ends the step.
    let timeline = evaluate(&graph, 1, &[1.0, 5.0, 2.0, 1.0], None).unwrap();
    let path = critical_path(&graph, &timeline, 0).unwrap();
    let on: Vec<_> = path.segments.iter().map(|s| (s.op, s.replica, s.start_s, s.end_s)).collect();
    assert_eq!(on, [(forward, 1, 0.0, 5.0), (reduce, 0, 5.0, 7.0)]);
    assert!(path.contains(forward, 1) && !path.contains(forward, 0));
    let slack = slack(&graph, &timeline, 0).unwrap();
    assert_eq!((slack.of(forward, 0), slack.of(reduce, 1)), (4.0, 1.0));
}

#[test]
fn rounding_does_not_lift_a_schedules_path_off_zero() {
    let graph = Schedule::new(ScheduleKind::OneFOneB, 4, 8).graph().unwrap();
    let work: Vec<f64> =
        graph
            .iter()
            .map(|(id, op)| {
                if op.kind.is_microbatch_compute() { 0.1 + 1e-3 * f64::from(id.0 % 7) } else { 0.0 }
            })
            .collect();
    let timeline = evaluate(&graph, 1, &work, None).unwrap();
    let path = critical_path(&graph, &timeline, 0).unwrap();
    assert_tiles(&path);
    assert_eq!(path.end_s, timeline.step_times(&graph)[0]);
    let slack = slack(&graph, &timeline, 0).unwrap();
    assert!(path.segments.len() > 10);
    assert!(path.segments.iter().all(|s| slack_of(&slack, s) == 0.0));
    assert!(graph.iter().any(|(id, _)| slack.of(id, 0) > 0.01));
}

#[test]
fn a_timeline_of_another_graph_or_without_the_step_is_refused() {
    let graph = Schedule::new(ScheduleKind::OneFOneB, 2, 2).graph().unwrap();
    let other = Schedule::new(ScheduleKind::OneFOneB, 2, 3).graph().unwrap();
    let timeline = evaluate(&other, 1, &vec![1.0; other.ops().len()], None).unwrap();
    let refused = |e: GraphError| matches!(e, GraphError::Shape { .. });
    assert!(refused(critical_path(&graph, &timeline, 0).unwrap_err()));
    assert!(refused(slack(&other, &timeline, 1).unwrap_err()));
    assert!(refused(critical_path(&other, &timeline, usize::MAX).unwrap_err()));
}
