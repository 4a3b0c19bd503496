//! What the builder refuses, and the order it gives.

mod common;

use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{Event, GraphError, GroupId, Op, OpId, ReplicaSync, StepGraph, StepGraphBuilder};
use prism_model::OpKind;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn op(kind: OpKind, seq: u32, stage: u16) -> Op {
    Op { kind, stage, chunk: 0, microbatch: 0, seq }
}

/// Three forward passes on one stage, two replicas.
fn three() -> (StepGraphBuilder, [OpId; 3]) {
    let mut b = StepGraphBuilder::new(1, 2);
    let ids = [0, 1, 2].map(|seq| b.op(op(OpKind::ForwardCompute, seq, 0)));
    (b, ids)
}

#[test]
fn dangling_ids_are_refused() {
    let dangling = |what| GraphError::Dangling { what, id: 9, ops: 3 };
    let (mut b, [x, ..]) = three();
    b.dep(x, OpId(9));
    assert_eq!(b.build().unwrap_err(), dangling("a dependency"));
    let (mut b, [x, ..]) = three();
    b.group(vec![x, OpId(9)], ReplicaSync::None);
    assert_eq!(b.build().unwrap_err(), dangling("a group"));
    let (mut b, _) = three();
    b.sink(OpId(9));
    assert_eq!(b.build().unwrap_err(), dangling("a sink"));
}

#[test]
fn impossible_operations_and_groups_are_refused() {
    let error = |change: &dyn Fn(&mut StepGraphBuilder, [OpId; 3])| {
        let (mut b, ids) = three();
        change(&mut b, ids);
        b.build().unwrap_err().to_string()
    };
    let name = "`forward-compute[0]@stage0`";
    assert_eq!(
        error(&|b, _| {
            b.op(op(OpKind::ForwardCompute, 0, 0));
        }),
        format!("{name} occurs twice in one step of one replica")
    );
    assert_eq!(error(&|b, [x, ..]| b.dep(x, x)), format!("{name} depends on itself"));
    assert_eq!(
        error(&|b, [x, y, z]| {
            b.group(vec![x, y], ReplicaSync::None);
            b.group(vec![z, x], ReplicaSync::None);
        }),
        format!("{name} is in two groups")
    );
    assert_eq!(
        error(&|b, [x, ..]| {
            b.group(vec![x, x], ReplicaSync::None);
        }),
        format!("{name} is in two groups")
    );
    assert_eq!(
        error(&|b, _| {
            b.group(vec![], ReplicaSync::None);
        }),
        "group 0 has no members"
    );
    assert_eq!(
        error(&|b, [x, ..]| {
            b.group(vec![x], ReplicaSync::Blocks(3));
        }),
        "blocks of 3 do not divide 2 replicas"
    );
    assert_eq!(
        error(&|b, [x, ..]| {
            b.group(vec![x], ReplicaSync::Blocks(0));
        }),
        "blocks of 0 do not divide 2 replicas"
    );
    assert_eq!(
        error(&|b, _| {
            b.op(op(OpKind::Gc, 0, 1));
        }),
        "`gc[0]@stage1` is on a stage beyond the last of 1"
    );
    assert_eq!(StepGraphBuilder::new(1, 0).build().unwrap_err(), GraphError::NoReplicas);
}

/// A circle through a group: the message goes from member to member.
#[test]
fn a_circle_through_a_group_names_its_members() {
    let mut b = StepGraphBuilder::new(2, 1);
    let send = b.op(op(OpKind::ForwardSend, 3, 0));
    let recv = b.op(op(OpKind::ForwardRecv, 3, 1));
    let forward = b.op(op(OpKind::ForwardCompute, 3, 1));
    let idle = b.op(op(OpKind::Gc, 0, 0));
    let after = b.op(op(OpKind::Optimizer, 0, 0));
    b.dep(recv, forward);
    b.dep(forward, send);
    b.dep(idle, send);
    b.dep(forward, after);
    b.group(vec![send, recv], ReplicaSync::None);
    assert_eq!(
        b.build().unwrap_err().to_string(),
        "operations wait for each other: forward-send[3]@stage0 -> forward-recv[3]@stage1 -> \
         forward-compute[3]@stage1 -> forward-send[3]@stage0"
    );
}

#[test]
fn a_dependency_within_a_group_is_a_circle() {
    let (mut b, [x, y, _]) = three();
    b.dep(x, y);
    b.group(vec![x, y], ReplicaSync::None);
    assert!(matches!(b.build().unwrap_err(), GraphError::Cycle { ops } if ops.len() == 2));
}

#[test]
fn of_many_circles_a_shortest_through_the_first_operation_is_named() {
    let mut b = StepGraphBuilder::new(1, 1);
    let ids: Vec<OpId> = (0..50).map(|i| b.op(op(OpKind::ForwardCompute, i, 0))).collect();
    for pair in ids.windows(2) {
        b.dep(pair[0], pair[1]);
    }
    b.dep(ids[49], ids[10]);
    b.dep(ids[12], ids[10]);
    let GraphError::Cycle { ops } = b.build().unwrap_err() else { panic!("no circle") };
    assert_eq!(ops.iter().map(|o| o.seq).collect::<Vec<_>>(), [10, 11, 12]);
}

/// Every start comes after the ends it waits for, every group after its members' starts.
fn assert_topological(graph: &StepGraph) {
    let mut ended = vec![false; graph.ops().len()];
    let mut started = vec![false; graph.ops().len()];
    for &event in graph.order() {
        match event {
            Event::Start(id) => {
                assert!(graph.deps(id).iter().all(|d| ended[d.0 as usize]), "{event:?}");
                assert!(!std::mem::replace(&mut started[id.0 as usize], true));
                ended[id.0 as usize] = graph.group_of(id).is_none();
            }
            Event::Group(GroupId(g)) => {
                for m in &graph.groups()[g as usize].members {
                    assert!(started[m.0 as usize]);
                    assert!(!std::mem::replace(&mut ended[m.0 as usize], true));
                }
            }
        }
    }
    assert!(ended.iter().all(|&e| e));
    assert_eq!(graph.order().len(), graph.ops().len() + graph.groups().len());
}

/// The most operations whose end some later event still needs.
fn most_alive(graph: &StepGraph) -> usize {
    let mut users = vec![0_usize; graph.ops().len()];
    for (id, _) in graph.iter() {
        graph.deps(id).iter().for_each(|d| users[d.0 as usize] += 1);
    }
    let (mut alive, mut most) = (0, 0_usize);
    for &event in graph.order() {
        let ended: Vec<OpId> = match event {
            Event::Start(id) if graph.group_of(id).is_none() => vec![id],
            Event::Start(_) => vec![],
            Event::Group(GroupId(g)) => graph.groups()[g as usize].members.clone(),
        };
        alive += ended.iter().filter(|id| users[id.0 as usize] > 0).count();
        most = most.max(alive);
        if let Event::Start(id) = event {
            for d in graph.deps(id) {
                users[d.0 as usize] -= 1;
                alive -= usize::from(users[d.0 as usize] == 0);
            }
        }
    }
    most
}

#[test]
fn orders_are_topological_and_repeatable() {
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    for _ in 0..100 {
        let shape = common::random_schedule(&mut rng);
        let graph = shape.graph().unwrap();
        assert_topological(&graph);
        assert_eq!(graph, shape.graph().unwrap(), "{shape:?}");
    }
}

/// Memory of an evaluation follows the pipeline's depth, not the number of microbatches.
#[test]
fn few_operations_are_alive_at_once() {
    let alive = |microbatches| {
        let shape = Schedule::new(ScheduleKind::OneFOneB, 16, microbatches);
        most_alive(&shape.graph().unwrap())
    };
    let (short, long) = (alive(32), alive(256));
    assert!(long <= short + 2, "{short} alive with 32 microbatches, {long} with 256");
    assert!(long <= 8 * 16, "{long} alive on 16 stages");
}

#[test]
fn hints_decide_between_orders() {
    let starts = |hints: [f64; 3]| {
        let (mut b, ids) = three();
        ids.iter().zip(hints).for_each(|(&id, h)| b.hint(id, h));
        let graph = b.build().unwrap();
        graph.order().to_vec()
    };
    let order = |ids: [u32; 3]| ids.map(|i| Event::Start(OpId(i))).to_vec();
    assert_eq!(starts([3.0, 1.0, 2.0]), order([1, 2, 0]));
    assert_eq!(starts([1.0, 1.0, 1.0]), order([0, 1, 2]));
}

#[test]
fn operations_are_found_by_key() {
    let graph = Schedule::new(ScheduleKind::OneFOneB, 3, 4).graph().unwrap();
    for (id, op) in graph.iter() {
        assert_eq!(graph.find(op.kind, op.seq, op.stage), Some(id));
    }
    assert_eq!(graph.find(OpKind::ForwardCompute, 4, 0), None);
    assert_eq!(graph.find(OpKind::Barrier, 0, 0), None);
    assert_eq!(graph.iter().len(), graph.ops().len());
    let deps: usize = graph.iter().map(|(id, _)| graph.deps(id).len()).sum();
    assert_eq!(deps, graph.dep_count());
}

#[test]
fn without_a_sink_the_last_operations_are_sinks() {
    let (mut b, [x, y, z]) = three();
    b.dep(x, y);
    let graph = b.build().unwrap();
    assert_eq!(graph.sinks(), [y, z]);
}
