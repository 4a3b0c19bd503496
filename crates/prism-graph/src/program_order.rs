//! The program-order builder: sends and receives block, and are launched in batches.
//!
//! Section 9 of the straggler trace format's description. The reference rules let sends and
//! receives run beside compute; the recorded jobs launch one slot of work after the other.

use std::collections::BTreeMap;

use prism_io::OpTable;
use prism_model::OpKind;

use crate::p2p::{Matching, match_p2p};
use crate::reference::{chain, first_backward, gather_deps, p2p_deps, scatter_deps};
use crate::trace_step::TraceStep;
use crate::{
    GraphError, Group, GroupId, Observed, Op, OpId, ReplicaSync, StepGraph, StepGraphBuilder,
    build_reference,
};

/// Operations that start within this many seconds can be one batch.
const BATCH_S: f64 = 1e-4;

/// A barrier may be seen to end this much after what waits for it, seconds.
const BARRIER_SLACK_S: f64 = 1e-3;

/// Kinds that can run beside compute on a stream of their own.
const STREAMS: [OpKind; 6] = [
    OpKind::ForwardSend,
    OpKind::ForwardRecv,
    OpKind::BackwardSend,
    OpKind::BackwardRecv,
    OpKind::ParamsAllGather,
    OpKind::GradsReduceScatter,
];

/// What one stage launches together.
type Slot = Vec<OpId>;

/// Builds a step's graph in which each stage runs its operations in the recorded order.
///
/// The order of a stage is by start in replica 0 of the table's first step, sends and receives
/// before compute on ties. `gc` hangs on the compute before it. Consecutive sends and receives of
/// different kinds form one batched slot where, in more than half of all steps and replicas, they
/// start within 0.1 ms of each other and before the first has ended. Every operation of a slot
/// waits for the whole slot before it. Groups are the unions of the reference rules' groups and
/// the batches; batches whose union would make operations wait for each other in a circle stay
/// separate, all of a circle's alike.
///
/// Sends, receives, gathers or scatters of a stage that overlap its compute keep the reference
/// rules: they evidently do not block. Where there is more than one replica and no step contradicts it, an [`OpKind::Barrier`] on the last stage
/// holds what follows the last backward until the slowest replica gets there.
///
/// # Errors
/// As [`build_reference`], and as [`Observed::align`].
pub fn build_program_order(table: &OpTable) -> Result<StepGraph, GraphError> {
    let reference = build_reference(table)?;
    let observed = Observed::align(&reference, table)?;
    let step = TraceStep::from_table(table)?;
    let program = Program::new(&step, &reference, &observed)?;
    let mut apart = vec![false; program.batches.len()];
    loop {
        match program.build(&apart) {
            Err(GraphError::Cycle { ops }) => {
                let find = |op: &Op| program.builder.find(op.kind, op.seq, op.stage);
                let circle: Vec<OpId> = ops.iter().filter_map(find).collect();
                if !separate(&program, &circle, &mut apart) {
                    return Err(GraphError::Cycle { ops });
                }
            }
            result => return result,
        }
    }
}

/// Marks as separate the still united batches on the circle, or if there are none, those in a
/// group on the circle; false if there are none either.
fn separate(program: &Program<'_>, circle: &[OpId], apart: &mut [bool]) -> bool {
    let mut sets = program.united(apart);
    let roots: Vec<usize> =
        circle.iter().filter_map(|&id| program.group(id)).map(|g| sets.root(g)).collect();
    let united: Vec<usize> = (0..apart.len()).filter(|&i| !apart[i]).collect();
    let slot = |i: usize| program.batches[i].iter();
    let mut chosen: Vec<usize> =
        united.iter().copied().filter(|&i| slot(i).any(|id| circle.contains(id))).collect();
    if chosen.is_empty() {
        let mut in_groups = |i: usize| {
            slot(i).filter_map(|&id| program.group(id)).any(|g| roots.contains(&sets.root(g)))
        };
        chosen = united.into_iter().filter(|&i| in_groups(i)).collect();
    }
    for &i in &chosen {
        apart[i] = true;
    }
    !chosen.is_empty()
}

/// Everything but which batches are united.
struct Program<'a> {
    /// Dependencies and operations.
    builder: StepGraphBuilder,
    groups: &'a [Group],
    group_of: Vec<Option<GroupId>>,
    /// Slots of more than one send or receive.
    batches: Vec<Slot>,
    barrier: Option<OpId>,
}

impl<'a> Program<'a> {
    fn new(
        step: &TraceStep,
        reference: &'a StepGraph,
        observed: &Observed,
    ) -> Result<Program<'a>, GraphError> {
        let mut builder = step.builder();
        let matching = match_p2p(step)?;
        let mut batches = Vec::new();
        for stage in 0..step.stages {
            let computes = step.computes(stage)?;
            let beside = overlapping(step, stage, &computes);
            run_beside(step, stage, &beside, &computes, &matching, &mut builder);
            let sequence = sequence(step, stage, &beside);
            let slots = slots(step, observed, &sequence);
            for pair in slots.windows(2) {
                for &before in &pair[0] {
                    for &after in &pair[1] {
                        builder.dep(before, after);
                    }
                }
            }
            hang_gc(step, stage, &sequence, &mut builder);
            if beside.contains(&OpKind::GradsReduceScatter) {
                join_scatters(step, stage, &sequence, &mut builder);
            }
            batches.extend(slots.into_iter().filter(|slot| slot.len() > 1));
        }
        let barrier = barrier(step, observed, &mut builder)?;
        let group_of = (0..reference.ops().len() as u32).map(|i| reference.group_of(OpId(i)));
        let group_of = group_of.collect();
        Ok(Program { builder, groups: reference.groups(), group_of, batches, barrier })
    }

    /// The reference group of an operation.
    fn group(&self, id: OpId) -> Option<usize> {
        Some(self.group_of.get(id.0 as usize).copied()??.0 as usize)
    }

    /// Reference groups, united by the batches that are not `apart`.
    fn united(&self, apart: &[bool]) -> DisjointSets {
        let mut sets = DisjointSets::new(self.groups.len());
        for (batch, _) in self.batches.iter().zip(apart).filter(|&(_, apart)| !apart) {
            let groups: Vec<usize> = batch.iter().filter_map(|&id| self.group(id)).collect();
            for pair in groups.windows(2) {
                sets.unite(pair[0], pair[1]);
            }
        }
        sets
    }

    /// The graph with all batches united that are not `apart`.
    fn build(&self, apart: &[bool]) -> Result<StepGraph, GraphError> {
        let mut builder = self.builder.clone();
        let mut sets = self.united(apart);
        let mut united: BTreeMap<usize, Vec<OpId>> = BTreeMap::new();
        for (i, group) in self.groups.iter().enumerate() {
            united.entry(sets.root(i)).or_default().extend(&group.members);
        }
        for (root, members) in united {
            builder.group(members, self.groups[root].sync);
        }
        if let Some(barrier) = self.barrier {
            builder.group(vec![barrier], ReplicaSync::All);
        }
        builder.build()
    }
}

/// Of the kinds that can, those that run beside the stage's compute.
fn overlapping(step: &TraceStep, stage: u16, computes: &[OpId]) -> Vec<OpKind> {
    let span = |id: OpId| {
        let op = step.get(id);
        (op.start_s + BATCH_S < op.end_s).then_some((op.start_s, op.end_s))
    };
    // Starts ascend; with each the latest end so far.
    let mut busy: Vec<(f64, f64)> = computes.iter().filter_map(|&c| span(c)).collect();
    for i in 1..busy.len() {
        busy[i].1 = busy[i].1.max(busy[i - 1].1);
    }
    let overlaps = |(start, end): (f64, f64)| {
        let started = busy.partition_point(|&(s, _)| s + BATCH_S < end);
        started > 0 && start + BATCH_S < busy[started - 1].1
    };
    let beside =
        |kind: OpKind| step.of_kind(stage, kind).into_iter().filter_map(span).any(overlaps);
    STREAMS.into_iter().filter(|&kind| beside(kind)).collect()
}

/// The reference rules for the kinds that run beside compute.
fn run_beside(
    step: &TraceStep,
    stage: u16,
    beside: &[OpKind],
    computes: &[OpId],
    matching: &Matching,
    builder: &mut StepGraphBuilder,
) {
    for &kind in beside {
        chain(builder, &step.in_order(stage, &[kind]));
        match kind {
            OpKind::ParamsAllGather => gather_deps(step, stage, computes, builder),
            OpKind::GradsReduceScatter => scatter_deps(step, stage, computes, builder),
            _ => {
                let of_kind = |id: OpId| {
                    let op = &step.get(id).op;
                    op.kind == kind && op.stage == stage
                };
                p2p_deps(step, matching, builder, of_kind);
                first_backward(step, stage, computes, builder, of_kind);
            }
        }
    }
}

/// The stage's operations in program order, without `gc` and the kinds that run beside.
fn sequence(step: &TraceStep, stage: u16, beside: &[OpKind]) -> Vec<OpId> {
    let kinds: Vec<OpKind> = OpKind::RECORDED
        .into_iter()
        .filter(|kind| *kind != OpKind::Gc && !beside.contains(kind))
        .collect();
    let mut ops = step.in_order(stage, &kinds);
    // Stable: ties keep (sequence number, name).
    ops.sort_by(|&a, &b| {
        let (a, b) = (step.get(a), step.get(b));
        let late = |kind: OpKind| !kind.is_p2p();
        a.start_s.total_cmp(&b.start_s).then(late(a.op.kind).cmp(&late(b.op.kind)))
    });
    ops
}

/// Cuts a sequence into slots.
fn slots(step: &TraceStep, observed: &Observed, sequence: &[OpId]) -> Vec<Slot> {
    let kind = |id: OpId| step.get(id).op.kind;
    let mut slots: Vec<Slot> = Vec::new();
    for &op in sequence {
        if let Some(slot) = slots.last_mut()
            && kind(op).is_p2p()
            && slot.iter().all(|&other| kind(other).is_p2p() && kind(other) != kind(op))
            && slot.iter().all(|&other| batched(observed, other, op))
        {
            slot.push(op);
        } else {
            slots.push(vec![op]);
        }
    }
    slots
}

/// Whether two operations are launched together in most steps and replicas.
fn batched(observed: &Observed, a: OpId, b: OpId) -> bool {
    let (Some(start_a), Some(start_b)) = (observed.start(a), observed.start(b)) else {
        return false;
    };
    let (Some(end_a), Some(end_b)) = (observed.end(a), observed.end(b)) else { return false };
    let together = (0..observed.samples())
        .filter(|&i| {
            let first_end = if start_a[i] <= start_b[i] { end_a[i] } else { end_b[i] };
            let later = start_a[i].max(start_b[i]);
            (start_a[i] - start_b[i]).abs() < BATCH_S && later < first_end
        })
        .count();
    2 * together > observed.samples()
}

/// `compute -> gc -> ` the first operation after it that is neither compute nor send or receive.
fn hang_gc(step: &TraceStep, stage: u16, sequence: &[OpId], builder: &mut StepGraphBuilder) {
    let collections = step.in_order(stage, &[OpKind::Gc]);
    chain(builder, &collections);
    for gc in collections {
        let start_s = step.get(gc).start_s;
        let is_compute = |id: OpId| step.get(id).op.kind.is_microbatch_compute();
        let before = sequence.partition_point(|&op| step.get(op).start_s <= start_s);
        let compute = sequence[..before].iter().rposition(|&op| is_compute(op));
        if let Some(at) = compute {
            builder.dep(sequence[at], gc);
        }
        let blocked = |id: OpId| {
            let op = step.get(id);
            op.start_s >= start_s && !op.op.kind.is_microbatch_compute() && !op.op.kind.is_p2p()
        };
        let rest = &sequence[compute.map_or(0, |at| at + 1)..];
        if let Some(&next) = rest.iter().find(|&&op| blocked(op)) {
            builder.dep(gc, next);
        }
    }
}

/// What follows the last backward waits for scatters that ran beside it.
fn join_scatters(step: &TraceStep, stage: u16, sequence: &[OpId], builder: &mut StepGraphBuilder) {
    let scatters = step.in_order(stage, &[OpKind::GradsReduceScatter]);
    if let (Some(&scatter), Some((_, next))) =
        (scatters.last(), after_last_backward(step, sequence))
    {
        builder.dep(scatter, next);
    }
}

/// The last backward of a sequence, and the first operation after it that is not a send or
/// receive.
fn after_last_backward(step: &TraceStep, sequence: &[OpId]) -> Option<(OpId, OpId)> {
    let kind = |id: OpId| step.get(id).op.kind;
    let at = sequence.iter().rposition(|&op| kind(op) == OpKind::BackwardCompute)?;
    let next = sequence[at + 1..].iter().find(|&&op| !kind(op).is_p2p())?;
    Some((sequence[at], *next))
}

/// Adds the last stage's unrecorded barrier over the replicas, if the observations allow for it.
fn barrier(
    step: &TraceStep,
    observed: &Observed,
    builder: &mut StepGraphBuilder,
) -> Result<Option<OpId>, GraphError> {
    let stage = step.stages - 1;
    let beside = overlapping(step, stage, &step.computes(stage)?);
    let sequence = sequence(step, stage, &beside);
    let Some((backward, next)) = after_last_backward(step, &sequence) else {
        return Ok(None);
    };
    if step.replicas < 2 || !waits_for_all(observed, backward, next) {
        return Ok(None);
    }
    let barrier =
        builder.op(Op { kind: OpKind::Barrier, stage, chunk: -1, microbatch: -1, seq: 0 });
    builder.hint(barrier, step.get(backward).end_s);
    builder.dep(backward, barrier);
    builder.dep(barrier, next);
    Ok(Some(barrier))
}

/// Whether `next` never starts before the slowest replica has ended `backward`.
fn waits_for_all(observed: &Observed, backward: OpId, next: OpId) -> bool {
    let (Some(end), Some(start)) = (observed.end(backward), observed.start(next)) else {
        return false;
    };
    let replicas = observed.replicas() as usize;
    end.chunks(replicas).zip(start.chunks(replicas)).all(|(end, start)| {
        let slowest = end.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        start.iter().all(|s| s + BARRIER_SLACK_S >= slowest)
    })
}

/// Disjoint sets; the root of a set is its smallest member.
struct DisjointSets(Vec<usize>);

impl DisjointSets {
    fn new(n: usize) -> Self {
        DisjointSets((0..n).collect())
    }

    fn root(&mut self, mut i: usize) -> usize {
        while self.0[i] != i {
            self.0[i] = self.0[self.0[i]];
            i = self.0[i];
        }
        i
    }

    fn unite(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b)] = a.min(b);
    }
}
