//! Pools of recorded durations.

use std::collections::BTreeMap;

use prism_graph::{Observed, OpId, ReplicaSync, StepGraph};
use prism_model::{KernelClass, LawCandidate, LawChoice, OpKind, Signature};
use prism_stats::quantile::sorted;
use prism_stats::{Family, choose_by_ks, ks_statistic};
use serde::{Deserialize, Serialize};

use super::{GapPool, KernelPool};
use crate::calibrate::{CalibrateError, Selection};
use crate::replay::{Replayed, Split};

/// Durations that are drawn from, and the law that describes them best.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Pool {
    /// Durations, seconds.
    pub values_s: Vec<f32>,
    /// The chosen law.
    pub law: LawChoice,
}

/// Observations of a pool: (index of the selected step, seconds).
pub(super) type List = Vec<(usize, f64)>;

impl Pool {
    /// A pool of some durations, in seconds.
    ///
    /// # Errors
    /// If there is none, or one is not finite.
    pub fn of(values_s: impl IntoIterator<Item = f64>) -> Result<Pool, CalibrateError> {
        let values_s: Vec<f32> = values_s.into_iter().map(|v| v as f32).collect();
        let wide: Vec<f64> = values_s.iter().map(|&v| f64::from(v)).collect();
        let choice = choose_by_ks(&wide)?;
        let ks = match choice.best.family() {
            // The law is the values.
            Family::Constant | Family::Empirical => 0.0,
            _ => ks_statistic(&sorted(&wide), &choice.best)?,
        };
        let mut losers: Vec<LawCandidate> = choice
            .candidates
            .into_iter()
            .filter(|c| c.family != choice.best.family())
            .map(|c| LawCandidate {
                family: c.family.to_string(),
                ks: c.ks,
                aic: c.aic,
                error: c.error,
            })
            .collect();
        losers.sort_by(|a, b| a.ks.unwrap_or(2.0).total_cmp(&b.ks.unwrap_or(2.0)));
        let law = LawChoice { law: choice.best, n: wide.len(), ks, losers };
        Ok(Pool { values_s, law })
    }
}

/// Selected values of one operation, with the index of their step.
pub(super) fn lane<'a>(
    values: &'a [f64],
    selection: &'a Selection,
) -> impl Iterator<Item = (usize, f64)> + 'a {
    selection.steps.iter().enumerate().flat_map(move |(i, &t)| {
        selection.replicas.iter().map(move |&r| (i, values[t * selection.all_replicas + r]))
    })
}

/// Whether an operation is drawn as communication.
pub(super) fn is_communication(kind: OpKind) -> bool {
    matches!(kind.class(), KernelClass::Collective | KernelClass::PointToPoint)
}

/// Recorded durations of everything that is no communication, by signature.
pub(super) fn kernels(
    replayed: &Replayed,
    selection: &Selection,
) -> Result<Vec<KernelPool>, CalibrateError> {
    let mut by_signature: BTreeMap<Signature, Vec<f64>> = BTreeMap::new();
    for (id, op) in replayed.graph.iter().filter(|(_, op)| !is_communication(op.kind)) {
        if let Some(durations) = replayed.observed.duration(id) {
            let list = by_signature.entry(op.signature()).or_default();
            list.extend(lane(durations, selection).map(|v| v.1));
        }
    }
    by_signature
        .into_iter()
        .map(|(signature, values)| Ok(KernelPool { signature, pool: Pool::of(values)? }))
        .collect()
}

/// What tells collectives apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CollectiveKey {
    pub(super) kind: OpKind,
    pub(super) chunk: i16,
    pub(super) stages: Vec<u16>,
}

/// The operations that take part in a collective with `op`, itself included, and the replicas.
pub(super) fn participants(graph: &StepGraph, op: OpId) -> (Vec<OpId>, ReplicaSync) {
    let kind = graph.ops()[op.0 as usize].kind;
    match graph.group_of(op) {
        None => (vec![op], ReplicaSync::None),
        Some(group) => {
            let group = &graph.groups()[group.0 as usize];
            let same = |id: &OpId| graph.ops()[id.0 as usize].kind == kind;
            (group.members.iter().copied().filter(same).collect(), group.sync)
        }
    }
}

/// The pool that a collective belongs to.
pub(super) fn collective_key(graph: &StepGraph, participants: &[OpId]) -> Option<CollectiveKey> {
    let ops = || participants.iter().map(|id| &graph.ops()[id.0 as usize]);
    let first = ops().next()?;
    let mut stages: Vec<u16> = ops().map(|op| op.stage).collect();
    stages.sort_unstable();
    stages.dedup();
    Some(CollectiveKey { kind: first.kind, chunk: first.chunk, stages })
}

/// One observation an instance of every collective: the shortest of its participants' durations.
///
/// Participants that are not selected count too: an instance's transfer is one, whoever asks.
pub(super) fn collectives(
    graph: &StepGraph,
    observed: &Observed,
    selection: &Selection,
) -> BTreeMap<CollectiveKey, List> {
    let mut out: BTreeMap<CollectiveKey, List> = BTreeMap::new();
    for (id, op) in graph.iter().filter(|(_, op)| op.kind.class() == KernelClass::Collective) {
        let (members, sync) = participants(graph, id);
        // Each group once.
        if members.first() != Some(&id) || observed.duration(id).is_none() {
            continue;
        }
        let Some(key) = collective_key(graph, &members) else { continue };
        let durations: Vec<&[f64]> = members.iter().filter_map(|&m| observed.duration(m)).collect();
        let block = match sync {
            ReplicaSync::None => 1,
            ReplicaSync::All => selection.all_replicas,
            ReplicaSync::Blocks(block) => (block as usize).max(1),
        };
        debug_assert_eq!(op.kind, key.kind);
        let list = out.entry(key).or_default();
        for (i, &t) in selection.steps.iter().enumerate() {
            let mut blocks: Vec<usize> = selection.replicas.iter().map(|r| r / block).collect();
            blocks.dedup();
            for b in blocks {
                let replicas = b * block..((b + 1) * block).min(selection.all_replicas);
                let at = |r: usize| t * selection.all_replicas + r;
                let shortest = replicas
                    .flat_map(|r| durations.iter().map(move |d| d[at(r)]))
                    .fold(f64::INFINITY, f64::min);
                list.push((i, shortest));
            }
        }
    }
    out
}

/// Launch delays by signature, where any is not 0.
pub(super) fn gaps(graph: &StepGraph, split: &Split, selection: &Selection) -> Vec<GapPool> {
    let mut by_signature: BTreeMap<Signature, Vec<f32>> = BTreeMap::new();
    for (id, op) in graph.iter().filter(|(_, op)| op.kind != OpKind::Barrier) {
        let list = by_signature.entry(op.signature()).or_default();
        list.extend(lane(split.launch_delay_of(id), selection).map(|v| v.1 as f32));
    }
    by_signature
        .into_iter()
        .filter(|(_, values)| values.iter().any(|v| *v != 0.0))
        .map(|(signature, values_s)| GapPool { signature, values_s })
        .collect()
}
