//! The reference builder: dependencies and groups of the straggler trace format.
//!
//! Sections 3 and 4 of the format's description. Sends and receives run beside compute. Links of
//! a chain whose operation was not recorded are skipped.

use prism_io::OpTable;
use prism_model::OpKind;

use crate::p2p::{Matching, P2P, match_p2p};
use crate::trace_step::TraceStep;
use crate::{GraphError, OpId, ReplicaSync, StepGraph, StepGraphBuilder};

/// Kinds that wait for all replicas and stand alone within theirs.
const SINGLE_SYNCED: [OpKind; 3] =
    [OpKind::ParamsAllGather, OpKind::GradsReduceScatter, OpKind::SeparateGradsAllReduce];

/// Builds a step's graph from replica 0 of the table's first step by the reference rules.
///
/// The same graph holds for every step and replica. Without an optimizer, operations that nothing
/// depends on end the step.
///
/// # Errors
/// [`GraphError`] if a stage lacks compute, sends and receives cannot be matched, an operation
/// occurs twice, or operations wait for each other in a circle.
pub fn build_reference(table: &OpTable) -> Result<StepGraph, GraphError> {
    let step = TraceStep::from_table(table)?;
    let computes = (0..step.stages).map(|s| step.computes(s)).collect::<Result<Vec<_>, _>>()?;
    let matching = match_p2p(&step)?;
    let mut builder = step.builder();
    for (stage, computes) in (0..step.stages).zip(computes) {
        chain(&mut builder, &computes);
        for kind in P2P {
            chain(&mut builder, &step.in_order(stage, &[kind]));
        }
        first_backward(&step, stage, &computes, &mut builder, |_| true);
        if step.sharded {
            let kinds = [OpKind::ParamsAllGather, OpKind::GradsReduceScatter];
            chain(&mut builder, &step.in_order(stage, &kinds));
            gather_deps(&step, stage, &computes, &mut builder);
            if step.overlap {
                scatter_deps(&step, stage, &computes, &mut builder);
            }
        }
        tail(&step, stage, &computes, &mut builder);
    }
    p2p_deps(&step, &matching, &mut builder, |_| true);
    groups(&step, &matching, &mut builder);
    builder.build()
}

/// Each waits for the one before.
pub(crate) fn chain(builder: &mut StepGraphBuilder, ops: &[OpId]) {
    for pair in ops.windows(2) {
        builder.dep(pair[0], pair[1]);
    }
}

/// Rule 3 for the operations that `select` takes: `compute_k -> send_k`, `recv_k -> compute_k`,
/// `compute_{k-1} -> recv_k`.
pub(crate) fn p2p_deps(
    step: &TraceStep,
    matching: &Matching,
    builder: &mut StepGraphBuilder,
    select: impl Fn(OpId) -> bool,
) {
    for &(op, compute) in matching.computes.iter().filter(|&&(op, _)| select(op)) {
        if step.get(op).op.kind.is_send() {
            builder.dep(compute, op);
            continue;
        }
        builder.dep(op, compute);
        let c = &step.get(compute).op;
        if let Some(seq) = c.seq.checked_sub(1)
            && let Some(previous) = builder.find(c.kind, seq, c.stage)
        {
            builder.dep(previous, op);
        }
    }
}

/// Rule 4 for the operations that `select` takes: the first backward send and receive are
/// launched one compute ahead.
pub(crate) fn first_backward(
    step: &TraceStep,
    stage: u16,
    computes: &[OpId],
    builder: &mut StepGraphBuilder,
    select: impl Fn(OpId) -> bool,
) {
    let first = computes.iter().position(|&c| step.get(c).op.kind == OpKind::BackwardCompute);
    let Some(before) = first.and_then(|f| f.checked_sub(2)) else { return };
    for kind in [OpKind::BackwardRecv, OpKind::BackwardSend] {
        if let Some(op) = builder.find(kind, 0, stage).filter(|&op| select(op)) {
            builder.dep(computes[before], op);
        }
    }
}

/// Of rule 5: the first forward of a chunk waits for its gather, the last of several.
pub(crate) fn gather_deps(
    step: &TraceStep,
    stage: u16,
    computes: &[OpId],
    builder: &mut StepGraphBuilder,
) {
    let gathers = step.of_kind(stage, OpKind::ParamsAllGather);
    for gather in one_per_chunk(step, gathers.iter().rev()) {
        let users = computes.iter().filter(|&&c| serves(step, gather, c, OpKind::ForwardCompute));
        let first = users.min_by(|&&a, &&b| step.get(a).start_s.total_cmp(&step.get(b).start_s));
        if let Some(&first) = first {
            builder.dep(gather, first);
        }
    }
}

/// Of rule 6, overlapped: a chunk's first scatter waits for its last backward.
pub(crate) fn scatter_deps(
    step: &TraceStep,
    stage: u16,
    computes: &[OpId],
    builder: &mut StepGraphBuilder,
) {
    let scatters = step.of_kind(stage, OpKind::GradsReduceScatter);
    for scatter in one_per_chunk(step, scatters.iter()) {
        let makers =
            computes.iter().filter(|&&c| serves(step, scatter, c, OpKind::BackwardCompute));
        if let Some(last) = latest_end(step, makers) {
            builder.dep(last, scatter);
        }
    }
}

/// The first of each model chunk in the given order.
fn one_per_chunk<'a>(step: &TraceStep, ops: impl Iterator<Item = &'a OpId>) -> Vec<OpId> {
    let mut seen = Vec::new();
    let mut kept = Vec::new();
    for &op in ops {
        let chunk = step.get(op).op.chunk;
        if !seen.contains(&chunk) {
            seen.push(chunk);
            kept.push(op);
        }
    }
    kept
}

/// Whether `compute` is of that kind and of the model chunk of `collective`; a collective without
/// a chunk is for the whole stage.
fn serves(step: &TraceStep, collective: OpId, compute: OpId, kind: OpKind) -> bool {
    let (collective, compute) = (&step.get(collective).op, &step.get(compute).op);
    compute.kind == kind && (collective.chunk < 0 || collective.chunk == compute.chunk)
}

/// The one with the latest end, the first of equals.
fn latest_end<'a>(step: &TraceStep, ops: impl Iterator<Item = &'a OpId>) -> Option<OpId> {
    ops.copied().reduce(|a, b| if step.get(b).end_s > step.get(a).end_s { b } else { a })
}

/// Rule 6: from the last compute to the optimizer.
fn tail(step: &TraceStep, stage: u16, computes: &[OpId], builder: &mut StepGraphBuilder) {
    let scatters = step.of_kind(stage, OpKind::GradsReduceScatter);
    let mut waits: Vec<OpId> = latest_end(step, computes.iter()).into_iter().collect();
    let mut link = |ops: Vec<OpId>, also: Option<OpId>| {
        for op in ops {
            for &before in &waits {
                builder.dep(before, op);
            }
            waits = vec![op];
        }
        waits.extend(also);
    };
    let of_kind = |kind| step.of_kind(stage, kind);
    let scattered_before = step.sharded && step.overlap;
    link(of_kind(OpKind::Gc), scatters.last().copied().filter(|_| scattered_before));
    link(of_kind(OpKind::LayernormGradsAllReduce), None);
    link(of_kind(OpKind::EmbeddingGradsAllReduce), None);
    if step.sharded {
        if step.overlap {
            link(of_kind(OpKind::SeparateGradsAllReduce), None);
        } else {
            link(scatters, None);
        }
    }
    link(of_kind(OpKind::OptimizerClipMainGrad), None);
    link(of_kind(OpKind::Optimizer), None);
}

/// Section 4.
fn groups(step: &TraceStep, matching: &Matching, builder: &mut StepGraphBuilder) {
    for &[send, recv] in &matching.pairs {
        builder.group(vec![send, recv], ReplicaSync::None);
    }
    for &op in &matching.singles {
        builder.group(vec![op], ReplicaSync::None);
    }
    for kind in SINGLE_SYNCED {
        for op in (0..step.stages).flat_map(|stage| step.of_kind(stage, kind)) {
            builder.group(vec![op], ReplicaSync::All);
        }
    }
    across_stages(step, OpKind::EmbeddingGradsAllReduce, ReplicaSync::None, builder);
    across_stages(step, OpKind::OptimizerClipMainGrad, ReplicaSync::All, builder);
}

/// One group for each sequence number, over all stages that have it.
fn across_stages(
    step: &TraceStep,
    kind: OpKind,
    sync: ReplicaSync,
    builder: &mut StepGraphBuilder,
) {
    let mut ops: Vec<OpId> = (0..step.stages).flat_map(|stage| step.of_kind(stage, kind)).collect();
    ops.sort_by_key(|&id| step.get(id).op.seq);
    for group in ops.chunk_by(|&a, &b| step.get(a).op.seq == step.get(b).op.seq) {
        builder.group(group.to_vec(), sync);
    }
}
