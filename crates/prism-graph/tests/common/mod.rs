//! What several test files need.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};

use prism_graph::schedule::{Schedule, ScheduleKind};
use prism_graph::{OpId, ReplicaSync, StepGraph};
use prism_io::{JobMeta, OpRow, OpTable, OpTableBuilder};
use prism_model::OpKind;
use rand::{Rng, RngExt};

/// A graph without its order and ids.
#[derive(Debug, PartialEq)]
pub(crate) struct Structure {
    /// Name to (chunk, microbatch).
    pub(crate) ops: BTreeMap<String, (i16, i32)>,
    pub(crate) deps: BTreeSet<(String, String)>,
    pub(crate) groups: BTreeSet<(Vec<String>, String)>,
    pub(crate) sinks: BTreeSet<String>,
    pub(crate) replicas: u32,
    pub(crate) stages: u16,
}

pub(crate) fn structure(graph: &StepGraph) -> Structure {
    let name = |id: &OpId| graph.ops()[id.0 as usize].to_string();
    Structure {
        ops: graph.ops().iter().map(|o| (o.to_string(), (o.chunk, o.microbatch))).collect(),
        deps: graph
            .iter()
            .flat_map(|(id, op)| graph.deps(id).iter().map(move |d| (name(d), op.to_string())))
            .collect(),
        groups: graph
            .groups()
            .iter()
            .map(|g| {
                let mut members: Vec<String> = g.members.iter().map(name).collect();
                members.sort();
                (members, format!("{:?}", g.sync))
            })
            .collect(),
        sinks: graph.sinks().iter().map(name).collect(),
        replicas: graph.replicas(),
        stages: graph.stages(),
    }
}

/// Names of the members of the group of an operation, sorted, and its synchronisation.
pub(crate) fn group_of(
    graph: &StepGraph,
    kind: OpKind,
    seq: u32,
    stage: u16,
) -> (Vec<String>, ReplicaSync) {
    let id = graph.find(kind, seq, stage).unwrap();
    let group = &graph.groups()[graph.group_of(id).unwrap().0 as usize];
    let mut members: Vec<String> =
        group.members.iter().map(|m| graph.ops()[m.0 as usize].to_string()).collect();
    members.sort();
    (members, group.sync)
}

/// Names of what an operation waits for, sorted.
pub(crate) fn deps(graph: &StepGraph, kind: OpKind, seq: u32, stage: u16) -> Vec<String> {
    let id = graph.find(kind, seq, stage).unwrap();
    let mut deps: Vec<String> =
        graph.deps(id).iter().map(|d| graph.ops()[d.0 as usize].to_string()).collect();
    deps.sort();
    deps
}

pub(crate) fn meta(dp: u32, pp: u32, vpp: u32) -> JobMeta {
    JobMeta {
        trial_name: "test".into(),
        run_id: 0,
        dp_size: dp,
        dsp_size: 1,
        pp_size: pp,
        tp_size: 2,
        vpp_size: vpp,
        world_size: 2 * dp * pp,
    }
}

pub(crate) fn meta_of(shape: &Schedule) -> JobMeta {
    meta(shape.replicas, u32::from(shape.stages), u32::from(shape.chunks))
}

/// The rows that `change` keeps, as it leaves them.
pub(crate) fn edit(table: &OpTable, mut change: impl FnMut(&mut OpRow) -> bool) -> OpTable {
    let mut builder = OpTableBuilder::new(table.meta.clone());
    for mut row in table.rows() {
        if change(&mut row) {
            builder.push(row);
        }
    }
    builder.finish()
}

/// Any possible shape of at most four stages.
pub(crate) fn random_schedule(rng: &mut impl Rng) -> Schedule {
    let kinds = [ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::InterleavedOneFOneB];
    let kind = kinds[rng.random_range(0..3)];
    let stages = rng.random_range(1..5_u16);
    let interleaved = kind == ScheduleKind::InterleavedOneFOneB;
    let rounds = rng.random_range(1..4);
    Schedule {
        kind,
        replicas: rng.random_range(1..4),
        stages,
        chunks: if interleaved { rng.random_range(1..4) } else { 1 },
        microbatches: if interleaved { u32::from(stages) * rounds } else { rng.random_range(1..9) },
        overlap_grad_reduce: rng.random_bool(0.5),
    }
}

/// Work of every operation: computes take 0.5 to 1.5 s, the rest up to 0.3 s.
pub(crate) fn random_work(graph: &StepGraph, samples: usize, rng: &mut impl Rng) -> Vec<f64> {
    let mut work = Vec::new();
    for op in graph.ops() {
        let range = if op.kind.is_microbatch_compute() { 0.5..1.5 } else { 0.01..0.3 };
        work.extend((0..samples).map(|_| rng.random_range(range.clone())));
    }
    work
}
