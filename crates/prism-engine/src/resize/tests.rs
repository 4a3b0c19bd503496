//! Graphs at another size against those of the same rules at that size.

use std::collections::{BTreeMap, BTreeSet};

use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{Op, OpId, ReplicaSync, StepGraph};
use prism_model::OpKind;

use super::shape::{Map, reshape};

type Key = (u16, OpKind, u32);

/// Everything about a graph but the numbering of its operations.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    ops: BTreeMap<Key, (i16, i32, BTreeSet<Key>)>,
    groups: BTreeSet<(Vec<Key>, String)>,
    sinks: BTreeSet<Key>,
}

fn named(graph: &StepGraph) -> Named {
    let key = |op: &Op| (op.stage, op.kind, op.seq);
    let of = |id: OpId| key(&graph.ops()[id.0 as usize]);
    let keys = |ids: &[OpId]| ids.iter().map(|&id| of(id)).collect::<BTreeSet<Key>>();
    Named {
        ops: graph
            .iter()
            .map(|(id, op)| (key(op), (op.chunk, op.microbatch, keys(graph.deps(id)))))
            .collect(),
        groups: graph
            .groups()
            .iter()
            .filter(|g| g.members.len() > 1 || g.sync != ReplicaSync::None)
            .map(|g| (keys(&g.members).into_iter().collect(), format!("{:?}", g.sync)))
            .collect(),
        sinks: keys(graph.sinks()),
    }
}

fn plan(
    kind: ScheduleKind,
    stages: u16,
    chunks: u16,
    microbatches: u32,
    overlap: bool,
) -> Schedule {
    Schedule {
        replicas: 2,
        chunks,
        overlap_grad_reduce: overlap,
        ..Schedule::new(kind, stages, microbatches)
    }
}

/// A schedule's graph at one size becomes its graph at another.
#[test]
fn a_resized_schedule_is_the_schedule_at_that_size() {
    use ScheduleKind::{GPipe, InterleavedOneFOneB, OneFOneB};
    let sizes = [(4, 8), (4, 32), (8, 32), (3, 12), (6, 24), (16, 64), (4, 16)];
    for (kind, chunks) in
        [(OneFOneB, 1), (GPipe, 1), (InterleavedOneFOneB, 2), (InterleavedOneFOneB, 3)]
    {
        for overlap in [false, true] {
            for from in [(4_u16, 8_u32), (4, 16), (6, 24)] {
                let old = plan(kind, from.0, chunks, from.1, overlap).graph().unwrap();
                for to in sizes {
                    let map = Map { stages: (from.0, to.0), microbatches: (from.1, to.1) };
                    let new = reshape(&old, &[], map).unwrap();
                    let wanted = plan(kind, to.0, chunks, to.1, overlap).graph().unwrap();
                    let (got, wanted) = (named(&new.graph), named(&wanted));
                    for (key, op) in &wanted.ops {
                        assert_eq!(
                            got.ops.get(key),
                            Some(op),
                            "{kind:?} {chunks} {from:?} {to:?} {key:?}"
                        );
                    }
                    assert_eq!(got, wanted, "{kind:?} {chunks} {overlap} {from:?} to {to:?}");
                }
            }
        }
    }
}
