//! Which compute a send or receive belongs to, and who its peer is.
//!
//! Sections 3 and 4 of the straggler trace format. A recorded send or receive is one of
//! - *unlaunched*: recorded before the first or after the last compute it could serve; it belongs
//!   to no compute;
//! - *no-op*: its compute is at the model's first or last chunk, so there is nobody to talk to;
//! - *valid*: the k-th valid one of a kind is matched with the k-th valid one of the peer kind on
//!   the neighbouring stage.

use prism_model::{Direction, OpKind};

use crate::trace_step::{TraceStep, compute_of};
use crate::{GraphError, OpId};

/// Tolerance for clocks of one rank, seconds.
const EPS_S: f64 = 5e-5;

/// The four kinds of send and receive.
pub(crate) const P2P: [OpKind; 4] =
    [OpKind::ForwardSend, OpKind::ForwardRecv, OpKind::BackwardSend, OpKind::BackwardRecv];

/// All sends and receives of a step.
pub(crate) struct Matching {
    /// (send or receive, its compute).
    pub(crate) computes: Vec<(OpId, OpId)>,
    /// Matched send and receive.
    pub(crate) pairs: Vec<[OpId; 2]>,
    /// Unlaunched ones and no-ops.
    pub(crate) singles: Vec<OpId>,
}

/// Matches all sends and receives of a step.
///
/// # Errors
/// [`GraphError::P2pCount`] and [`GraphError::Unmatched`].
pub(crate) fn match_p2p(step: &TraceStep) -> Result<Matching, GraphError> {
    let mut matching = Matching { computes: Vec::new(), pairs: Vec::new(), singles: Vec::new() };
    // valid[stage][kind as in P2P]
    let mut valid: Vec<[Vec<OpId>; 4]> = Vec::with_capacity(step.stages as usize);
    for stage in 0..step.stages {
        let mut on_stage: [Vec<OpId>; 4] = Default::default();
        for (kind, list) in P2P.into_iter().zip(&mut on_stage) {
            *list = match_computes(step, stage, kind, &mut matching)?;
        }
        valid.push(on_stage);
    }
    pair_up(step, &valid, &mut matching)?;
    Ok(matching)
}

/// Matches one stage's operations of one kind with computes; returns the valid ones.
fn match_computes(
    step: &TraceStep,
    stage: u16,
    kind: OpKind,
    matching: &mut Matching,
) -> Result<Vec<OpId>, GraphError> {
    let Some(direction) = kind.direction() else { return Ok(Vec::new()) };
    let ops = step.in_order(stage, &[kind]);
    let computes = step.of_kind(stage, compute_of(direction));
    let (launched, unlaunched): (Vec<OpId>, Vec<OpId>) =
        ops.iter().partition(|&&id| is_launched(step, id, &computes));
    matching.singles.extend(unlaunched);
    let missing = computes.len().checked_sub(launched.len());
    let at_end = stage == 0 || stage + 1 == step.stages;
    let wrong_count =
        || GraphError::P2pCount { kind, stage, p2p: launched.len(), computes: computes.len() };
    let first = match missing {
        Some(0) => 0,
        // The first receive of stage 0 (or the last stage's first, backward) may be unrecorded.
        Some(1) if at_end => usize::from(kind.is_recv()),
        _ if launched.is_empty() && at_end => 0,
        _ => return Err(wrong_count()),
    };
    let mut valid = Vec::with_capacity(launched.len());
    for (&op, &compute) in launched.iter().zip(&computes[first..]) {
        matching.computes.push((op, compute));
        if has_peer(step, kind, compute) {
            valid.push(op);
        } else {
            matching.singles.push(op);
        }
    }
    let needed = computes.iter().filter(|&&c| has_peer(step, kind, c)).count();
    if valid.len() == needed { Ok(valid) } else { Err(wrong_count()) }
}

/// Whether the operation was recorded within the span of the computes it could serve.
fn is_launched(step: &TraceStep, id: OpId, computes: &[OpId]) -> bool {
    let op = step.get(id);
    let computes = computes.iter().map(|&c| step.get(c));
    if op.op.kind.is_recv() {
        let last = computes.map(|c| c.start_s).fold(f64::NEG_INFINITY, f64::max);
        op.start_s <= last + EPS_S
    } else {
        let first = computes.map(|c| c.end_s).fold(f64::INFINITY, f64::min);
        op.end_s >= first - EPS_S
    }
}

fn has_peer(step: &TraceStep, kind: OpKind, compute: OpId) -> bool {
    let later = matches!(kind, OpKind::ForwardSend | OpKind::BackwardRecv);
    let peer = step.model_chunk(compute).saturating_add(if later { 1 } else { -1 });
    (0..step.chunks * i32::from(step.stages)).contains(&peer)
}

fn pair_up(
    step: &TraceStep,
    valid: &[[Vec<OpId>; 4]],
    matching: &mut Matching,
) -> Result<(), GraphError> {
    let stages = step.stages as usize;
    for stage in 0..stages {
        for direction in [Direction::Forward, Direction::Backward] {
            let (send, recv, peer) = match direction {
                Direction::Forward => (0, 1, (stage + 1) % stages),
                Direction::Backward => (2, 3, (stage + stages - 1) % stages),
            };
            let (sends, recvs) = (&valid[stage][send], &valid[peer][recv]);
            matching.pairs.extend(sends.iter().zip(recvs).map(|(&s, &r)| [s, r]));
            let matched = sends.len().min(recvs.len());
            let unmatched = |id: OpId, kind: OpKind, peer_stage: usize| {
                let op = step.get(id).op.clone();
                GraphError::Unmatched { op, peer: kind, peer_stage: peer_stage as u16 }
            };
            if let Some(&id) = sends.get(matched) {
                return Err(unmatched(id, P2P[recv], peer));
            }
            if let Some(&id) = recvs.get(matched) {
                return Err(unmatched(id, P2P[send], stage));
            }
        }
    }
    Ok(())
}
