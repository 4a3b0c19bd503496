//! The pipeline of a recorded step, recognised so that it can be built at another size.
//!
//! Both builders of a trace's graph give a stage the same skeleton: a sequence of slots (compute;
//! a send, batched with the receive of the other direction after it), each after the one before,
//! and beside it the kinds of sends and receives that do not block, under the reference rules. With
//! all four kinds beside, that is the reference graph.

use std::collections::{BTreeMap, BTreeSet};

use prism_graph::schedule::{Pass, Schedule, ScheduleKind};
use prism_graph::{GraphError, Op, OpId, ReplicaSync, StepGraph, StepGraphBuilder};
use prism_model::{Direction, ImpliedDependency, OpKind};

/// Kind and sequence number of an operation of one stage.
type Name = (OpKind, u32);

/// Sends and receives, in the order of [`Beside`].
const KINDS: [OpKind; 4] =
    [OpKind::ForwardSend, OpKind::ForwardRecv, OpKind::BackwardSend, OpKind::BackwardRecv];

/// Which of [`KINDS`] run beside a stage's compute.
type Beside = [bool; 4];

/// A recognised pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pipeline {
    pub(super) schedule: Schedule,
    /// By stage; with several chunks all run beside.
    beside: Vec<Beside>,
}

/// Whether an operation belongs to the pipeline: compute of microbatches, sends, receives.
pub(super) fn in_pipeline(kind: OpKind) -> bool {
    kind.is_microbatch_compute() || kind.is_p2p()
}

impl Pipeline {
    /// Finds the schedule and the rules that give exactly the pipeline of `graph`, the dependencies
    /// that were found in the data aside; `None` if there are none.
    pub(super) fn recognise(graph: &StepGraph, implied: &[ImpliedDependency]) -> Option<Pipeline> {
        let seen = Seen::new(graph, implied);
        let count = |f: &dyn Fn(&Op) -> i64| {
            graph.ops().iter().filter(|op| op.kind.is_microbatch_compute()).map(f).max()
        };
        let microbatches = u32::try_from(count(&|op| i64::from(op.microbatch))? + 1).ok()?;
        let chunks = u16::try_from(count(&|op| i64::from(op.chunk.max(0)))? + 1).ok()?;
        let kinds = if chunks > 1 {
            vec![ScheduleKind::InterleavedOneFOneB]
        } else {
            vec![ScheduleKind::OneFOneB, ScheduleKind::GPipe]
        };
        kinds.into_iter().find_map(|kind| {
            let mut schedule = Schedule::new(kind, graph.stages(), microbatches);
            schedule.chunks = chunks;
            schedule.replicas = graph.replicas();
            let beside = (0..graph.stages())
                .map(|stage| seen.beside(&schedule, stage))
                .collect::<Option<Vec<_>>>()?;
            let found = Pipeline { schedule, beside };
            let again = found.graph().ok()?;
            (Seen::new(&again, &[]) == seen).then_some(found)
        })
    }

    /// The same rules at another size; a new stage in the middle follows those of `template`.
    pub(super) fn resized(
        &self,
        stages: u16,
        microbatches: u32,
        template: impl Fn(u16) -> u16,
    ) -> Pipeline {
        let beside = (0..stages).map(|s| self.beside[usize::from(template(s))]).collect();
        let schedule = Schedule { stages, microbatches, ..self.schedule };
        Pipeline { schedule, beside }
    }

    /// The graph of the pipeline alone.
    pub(super) fn graph(&self) -> Result<StepGraph, GraphError> {
        if self.schedule.chunks > 1 {
            return self.schedule.graph();
        }
        self.schedule.validate()?;
        let stages = self.schedule.stages;
        let mut builder = StepGraphBuilder::new(stages, self.schedule.replicas);
        let mut pairs = Pairs::default();
        for stage in 0..stages {
            let passes = self.schedule.passes(stage)?;
            for op in operations(&self.schedule, stage, &passes) {
                builder.op(op);
            }
        }
        let find =
            |builder: &StepGraphBuilder, stage, (kind, seq): Name| builder.find(kind, seq, stage);
        for stage in 0..stages {
            let passes = self.schedule.passes(stage)?;
            let rules =
                stage_rules(&self.schedule, stage, &passes, self.beside[usize::from(stage)]);
            for (before, after) in rules.deps {
                if let (Some(b), Some(a)) =
                    (find(&builder, stage, before), find(&builder, stage, after))
                {
                    builder.dep(b, a);
                }
            }
            for slot in rules.batches {
                let ids: Vec<OpId> =
                    slot.into_iter().filter_map(|n| find(&builder, stage, n)).collect();
                ids.windows(2).for_each(|pair| pairs.unite(pair[0], pair[1]));
            }
            for seq in 0..self.schedule.microbatches {
                for (send, recv, peer) in [
                    (OpKind::ForwardSend, OpKind::ForwardRecv, stage.checked_add(1)),
                    (OpKind::BackwardSend, OpKind::BackwardRecv, stage.checked_sub(1)),
                ] {
                    let Some(peer) = peer else { continue };
                    if let (Some(send), Some(recv)) =
                        (builder.find(send, seq, stage), builder.find(recv, seq, peer))
                    {
                        pairs.unite(send, recv);
                    }
                }
            }
        }
        for group in pairs.sets() {
            builder.group(group, ReplicaSync::None);
        }
        builder.build()
    }
}

/// The pipeline operations of a stage.
fn operations(schedule: &Schedule, stage: u16, passes: &[Pass]) -> Vec<Op> {
    let mut out = Vec::new();
    let mut counts = [0_u32; 2];
    for pass in passes {
        let backward = pass.direction == Direction::Backward;
        let seq = counts[usize::from(backward)];
        counts[usize::from(backward)] += 1;
        let kinds = kinds(pass.direction);
        let op = |kind, chunk, microbatch| Op { kind, stage, chunk, microbatch, seq };
        out.push(op(kinds.compute, pass.chunk as i16, pass.microbatch as i32));
        for kind in [kinds.recv, kinds.send] {
            if has(schedule, stage, kind) {
                out.push(op(kind, -1, -1));
            }
        }
    }
    out
}

struct Kinds {
    compute: OpKind,
    send: OpKind,
    recv: OpKind,
}

fn kinds(direction: Direction) -> Kinds {
    match direction {
        Direction::Forward => Kinds {
            compute: OpKind::ForwardCompute,
            send: OpKind::ForwardSend,
            recv: OpKind::ForwardRecv,
        },
        Direction::Backward => Kinds {
            compute: OpKind::BackwardCompute,
            send: OpKind::BackwardSend,
            recv: OpKind::BackwardRecv,
        },
    }
}

/// Whether a stage has sends or receives of this kind.
fn has(schedule: &Schedule, stage: u16, kind: OpKind) -> bool {
    let after = matches!(kind, OpKind::ForwardSend | OpKind::BackwardRecv);
    stage != if after { schedule.stages - 1 } else { 0 }
}

/// What the rules say of one stage.
struct Rules {
    deps: BTreeSet<(Name, Name)>,
    /// Sends and receives that are launched together.
    batches: Vec<Vec<Name>>,
}

fn stage_rules(schedule: &Schedule, stage: u16, passes: &[Pass], beside: Beside) -> Rules {
    let aside = |kind: OpKind| KINDS.iter().zip(beside).any(|(k, b)| *k == kind && b);
    let mut slots: Vec<Vec<Name>> = Vec::new();
    let mut deps = BTreeSet::new();
    let mut counts = [0_u32; 2];
    let mut computes: Vec<Name> = Vec::new();
    for pass in passes {
        let k = kinds(pass.direction);
        let count = &mut counts[usize::from(pass.direction == Direction::Backward)];
        let seq = *count;
        *count += 1;
        if has(schedule, stage, k.recv) {
            let recv = (k.recv, seq);
            if aside(k.recv) {
                deps.insert((recv, (k.compute, seq)));
                if let Some(before) = seq.checked_sub(1) {
                    deps.insert(((k.compute, before), recv));
                    deps.insert(((k.recv, before), recv));
                }
            } else {
                match slots.last_mut() {
                    // A send and the receive of the other direction after it are one batch.
                    Some(slot) if slot.len() == 1 && slot[0].0.is_send() && slot[0].0 != k.send => {
                        slot.push(recv);
                    }
                    _ => slots.push(vec![recv]),
                }
            }
        }
        computes.push((k.compute, seq));
        slots.push(vec![(k.compute, seq)]);
        if has(schedule, stage, k.send) {
            let send = (k.send, seq);
            if aside(k.send) {
                deps.insert(((k.compute, seq), send));
                if let Some(before) = seq.checked_sub(1) {
                    deps.insert(((k.send, before), send));
                }
            } else {
                slots.push(vec![send]);
            }
        }
    }
    for pair in slots.windows(2) {
        for &before in &pair[0] {
            deps.extend(pair[1].iter().map(|&after| (before, after)));
        }
    }
    let first = computes.iter().position(|(kind, _)| *kind == OpKind::BackwardCompute);
    if let Some(before) = first.and_then(|f| f.checked_sub(2)) {
        for kind in [OpKind::BackwardRecv, OpKind::BackwardSend] {
            if has(schedule, stage, kind) && aside(kind) {
                deps.insert((computes[before], (kind, 0)));
            }
        }
    }
    slots.retain(|slot| slot.len() > 1);
    Rules { deps, batches: slots }
}

/// The pipeline part of a graph by names, to compare.
#[derive(PartialEq, Eq)]
struct Seen {
    ops: BTreeSet<(u16, Name, i16, i32)>,
    deps: BTreeMap<u16, BTreeSet<(Name, Name)>>,
    groups: BTreeSet<Vec<(u16, Name)>>,
    /// Dependencies across stages: no rule has any.
    across: usize,
}

impl Seen {
    fn new(graph: &StepGraph, implied: &[ImpliedDependency]) -> Seen {
        let name = |op: &Op| (op.kind, op.seq);
        let found: BTreeSet<(u32, u32)> = implied.iter().map(|d| (d.on, d.op)).collect();
        let mut seen = Seen {
            ops: BTreeSet::new(),
            deps: BTreeMap::new(),
            groups: BTreeSet::new(),
            across: 0,
        };
        for (id, op) in graph.iter().filter(|(_, op)| in_pipeline(op.kind)) {
            seen.ops.insert((op.stage, name(op), op.chunk, op.microbatch));
            for before in graph.deps(id) {
                let other = &graph.ops()[before.0 as usize];
                if !in_pipeline(other.kind) || found.contains(&(before.0, id.0)) {
                    continue;
                }
                if other.stage == op.stage {
                    seen.deps.entry(op.stage).or_default().insert((name(other), name(op)));
                } else {
                    seen.across += 1;
                }
            }
        }
        for group in graph.groups() {
            let mut members: Vec<(u16, Name)> = group
                .members
                .iter()
                .map(|m| &graph.ops()[m.0 as usize])
                .filter(|op| in_pipeline(op.kind))
                .map(|op| (op.stage, name(op)))
                .collect();
            members.sort_unstable();
            if !members.is_empty() {
                seen.groups.insert(members);
            }
        }
        seen
    }

    /// Which kinds must run beside a stage's compute to give its dependencies.
    fn beside(&self, schedule: &Schedule, stage: u16) -> Option<Beside> {
        if schedule.chunks > 1 {
            return Some([true; 4]);
        }
        let passes = schedule.passes(stage).ok()?;
        let none = BTreeSet::new();
        let seen = self.deps.get(&stage).unwrap_or(&none);
        let found = (0..16_u32)
            .map(|bits| [0, 1, 2, 3].map(|i| bits >> i & 1 == 1))
            .find(|&beside| stage_rules(schedule, stage, &passes, beside).deps == *seen)?;
        // Kinds that the stage does not have: the reference rules, where a new stage has them.
        let absent = KINDS.map(|kind| !has(schedule, stage, kind));
        Some([0, 1, 2, 3].map(|i| found[i] || absent[i]))
    }
}

/// Sets of operations that start together.
#[derive(Default)]
struct Pairs {
    parent: BTreeMap<OpId, OpId>,
}

impl Pairs {
    fn root(&mut self, id: OpId) -> OpId {
        let mut at = id;
        while let Some(&up) = self.parent.get(&at).filter(|up| **up != at) {
            at = up;
        }
        self.parent.insert(id, at);
        at
    }

    fn unite(&mut self, a: OpId, b: OpId) {
        let (a, b) = (self.root(a), self.root(b));
        self.parent.insert(a.max(b), a.min(b));
        self.parent.entry(a.min(b)).or_insert(a.min(b));
    }

    fn sets(mut self) -> Vec<Vec<OpId>> {
        let mut out: BTreeMap<OpId, Vec<OpId>> = BTreeMap::new();
        let ids: Vec<OpId> = self.parent.keys().copied().collect();
        for id in ids {
            let root = self.root(id);
            out.entry(root).or_default().push(id);
        }
        out.into_values().collect()
    }
}
