//! A duration model on a reshaped graph: every operation takes what was observed of the recorded
//! one it is like.

use std::collections::BTreeMap;

use prism_graph::{OpId, StepGraph};
use prism_model::{
    ComputeModel, ComputeSignature, DurationModel, OpKind, Signature, StepVector, TransferModel,
};
use prism_stats::stream;
use rand::RngExt;

use super::ResizeError;
use super::levels::Levels;
use super::shape::{Map, Shape, implied};
use super::split::Split;
use crate::predict::microbatch_part;

/// A reshaped model and what it took.
pub(super) struct Reshaped {
    pub(super) model: DurationModel,
    /// Recorded compute signature of each new one.
    pub(super) like: Vec<usize>,
}

/// Moves a model onto a reshaped graph. `split` says how compute and what follows the parameters is
/// divided among the new stages.
pub(super) fn reshape(
    graph: &StepGraph,
    model: &DurationModel,
    shape: &Shape,
    split: &Split,
    seed: u64,
) -> Result<Reshaped, ResizeError> {
    let (compute, like) = compute(model, shape, split, seed)?;
    let (implied, _) = implied(graph, shape, &model.implied);
    let vectors = |recorded: &[StepVector], scaled: bool| -> Vec<StepVector> {
        let by_op: BTreeMap<u32, &StepVector> = recorded.iter().map(|v| (v.op, v)).collect();
        let new = shape.graph.iter().filter_map(|(id, op)| {
            let old = by_op.get(&shape.template[id.0 as usize].0)?;
            let factor = if scaled { split.step_level(op.kind, op.seq, op.stage) } else { 1.0 };
            let values_s = old.values_s.iter().map(|v| v * factor as f32).collect();
            Some(StepVector { op: id.0, values_s })
        });
        new.collect()
    };
    let model = DurationModel {
        microbatches: shape.map.microbatches.1,
        compute,
        transfers: transfers(graph, model, shape)?,
        step_work: vectors(&model.step_work, true),
        launch_delay: vectors(&model.launch_delay, false),
        implied,
        ..model.clone()
    };
    Ok(Reshaped { model, like })
}

/// Compute signatures of the new graph with their operations by position.
fn signatures(shape: &Shape) -> BTreeMap<Signature, Vec<u32>> {
    let mut ops: BTreeMap<Signature, Vec<(i32, u32)>> = BTreeMap::new();
    for (id, op) in shape.graph.iter().filter(|(_, op)| op.kind.is_microbatch_compute()) {
        ops.entry(op.signature()).or_default().push((op.microbatch, id.0));
    }
    let sorted = |mut list: Vec<(i32, u32)>| {
        list.sort_unstable();
        list.into_iter().map(|(_, id)| id).collect()
    };
    ops.into_iter().map(|(s, list)| (s, sorted(list))).collect()
}

fn compute(
    model: &DurationModel,
    shape: &Shape,
    split: &Split,
    seed: u64,
) -> Result<(ComputeModel, Vec<usize>), ResizeError> {
    let old = &model.compute;
    let (replicas, microbatches) = (model.replicas as usize, model.microbatches as usize);
    let mut columns = Columns::default();
    let mut signatures_out = Vec::new();
    let (mut position_log, mut worker_log, mut worker_spread) = (vec![], vec![], vec![]);
    for (signature, ops) in signatures(shape) {
        let recorded = Signature { stage: shape.map.stage(signature.stage), ..signature };
        let c = old
            .signatures
            .iter()
            .position(|s| s.signature == recorded)
            .ok_or_else(|| ResizeError::NoTemplate { what: signature.to_string() })?;
        columns.like.push(c);
        columns.copy.push(shape.map.copy(signature.stage));
        columns.stage.push(signature.stage);
        signatures_out.push(ComputeSignature {
            signature,
            ops,
            base_log_s: old.signatures[c].base_log_s + split.compute_log(signature),
            ..old.signatures[c].clone()
        });
        if !old.position_log.is_empty() {
            let at = |m: u32| old.position_log[c * microbatches + shape.map.position(m) as usize];
            let row: Vec<f32> = (0..shape.map.microbatches.1).map(at).collect();
            // The mean over positions belongs to the base.
            position_log.extend(row);
        }
        let lane =
            |values: &[f64]| values.get(c * replicas..(c + 1) * replicas).map(<[f64]>::to_vec);
        worker_log.extend(lane(&old.worker_log).unwrap_or_default());
        worker_spread.extend(lane(&old.worker_spread).unwrap_or_default());
    }
    let fresh = ComputeModel {
        signatures: signatures_out,
        position_log,
        worker_log,
        worker_spread,
        observations_log_s: Vec::new(),
        step_vectors_log: columns.step_vectors(model, seed),
        microbatch_vectors_log: columns.microbatch_rows(old, seed),
        ..old.clone()
    };
    Ok((fresh, columns.like))
}

/// Recorded signatures of the new ones.
#[derive(Default)]
struct Columns {
    /// Recorded signature.
    like: Vec<usize>,
    /// How many earlier stages are like the same recorded one.
    copy: Vec<u16>,
    /// New stage.
    stage: Vec<u16>,
}

impl Columns {
    /// Rows of all new signatures. What a row shares stays shared; of several stages that are like
    /// one recorded stage the first keeps the row's own rest, the others take another row's, so
    /// that independent noise stays independent.
    fn microbatch_rows(&self, old: &ComputeModel, seed: u64) -> Vec<f32> {
        let n = old.signatures.len().max(1);
        let rows: Vec<&[f32]> = old.microbatch_vectors_log.chunks_exact(n).collect();
        let effect = microbatch_part(old);
        let mut out = Vec::with_capacity(rows.len() * self.like.len());
        for (i, row) in rows.iter().enumerate() {
            let mut donors: BTreeMap<u16, usize> = BTreeMap::new();
            for ((&c, &copy), &stage) in self.like.iter().zip(&self.copy).zip(&self.stage) {
                if copy == 0 {
                    out.push(row[c]);
                    continue;
                }
                let donor = *donors.entry(stage).or_insert_with(|| {
                    let entity = [u64::from(stage), i as u64];
                    stream(seed, "resize-residual", &entity).random_range(0..rows.len())
                });
                let load = old.signatures[c].microbatch_load;
                let rest = f64::from(rows[donor][c]) - load * effect[donor];
                out.push((load * effect[i] + rest) as f32);
            }
        }
        out
    }

    /// Step vectors `[c][r][t]`; what a stage alone does comes from another step for further
    /// copies of a recorded stage.
    fn step_vectors(&self, model: &DurationModel, seed: u64) -> Vec<f32> {
        let (steps, replicas) = (model.steps.len(), model.replicas as usize);
        let Some(levels) = Levels::new(model) else { return Vec::new() };
        let mut out = Vec::with_capacity(self.like.len() * steps * replicas);
        for ((&c, &copy), &stage) in self.like.iter().zip(&self.copy).zip(&self.stage) {
            for r in 0..replicas {
                for t in 0..steps {
                    let own = levels.stage(c, r, t);
                    let rest = if copy == 0 {
                        own
                    } else {
                        let entity = [u64::from(stage), r as u64, t as u64];
                        let mut rng = stream(seed, "resize-stage", &entity);
                        let d = rng.random_range(0..replicas);
                        levels.stage(c, d, rng.random_range(0..steps))
                    };
                    out.push((levels.shared(c, t) + levels.replica(c, r, t) + rest) as f32);
                }
            }
        }
        out
    }
}

/// Members of a group in the order of a transfer model.
fn sorted_members(graph: &StepGraph, members: &[OpId]) -> Vec<OpId> {
    let op = |id: OpId| &graph.ops()[id.0 as usize];
    let mut members = members.to_vec();
    members.sort_by_key(|&id| (op(id).signature(), op(id).seq));
    members
}

/// Point-to-point groups take the rows of a recorded group of the same kinds on the hop they are
/// like: that of their first member, or the nearest instance.
fn transfers(
    graph: &StepGraph,
    model: &DurationModel,
    shape: &Shape,
) -> Result<Vec<TransferModel>, ResizeError> {
    let mut place: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (k, transfer) in model.transfers.iter().enumerate() {
        let width = transfer.members.len().max(1);
        for (i, &op) in transfer.ops.iter().enumerate() {
            place.insert(op, (k, i / width));
        }
    }
    let mut out: BTreeMap<Vec<Signature>, (usize, Vec<usize>, Vec<u32>)> = BTreeMap::new();
    for group in shape.graph.groups() {
        let op = |id: OpId| &shape.graph.ops()[id.0 as usize];
        if !group.members.iter().all(|&m| op(m).kind.is_p2p()) {
            continue;
        }
        let members = sorted_members(&shape.graph, &group.members);
        let signatures: Vec<Signature> = members.iter().map(|&m| op(m).signature()).collect();
        let kinds: Vec<OpKind> = signatures.iter().map(|s| s.kind).collect();
        let like = shape.template[members[0].0 as usize];
        let wanted = graph.ops()[like.0 as usize].signature();
        let (k, instance) = place
            .get(&like.0)
            .copied()
            .filter(|(k, _)| same_kinds(&model.transfers[*k], &kinds))
            .or_else(|| nearest(model, &kinds, wanted, &shape.map, op(members[0]).seq))
            .ok_or_else(|| ResizeError::NoTemplate { what: op(members[0]).to_string() })?;
        let entry = out.entry(signatures).or_insert_with(|| (k, Vec::new(), Vec::new()));
        // Instances of one shape come from one recorded shape.
        let known =
            model.transfers[entry.0].ops.len() / model.transfers[entry.0].members.len().max(1);
        entry.1.push(if entry.0 == k { instance } else { instance.min(known.saturating_sub(1)) });
        entry.2.extend(members.iter().map(|m| m.0));
    }
    let replicas = model.replicas as usize;
    Ok(out
        .into_iter()
        .map(|(members, (k, instances, ops))| {
            let old = &model.transfers[k];
            let rows_s = if old.by_instance {
                let all = old.ops.len() / old.members.len().max(1);
                let per = old.rows_s.len() / all.max(1);
                instances
                    .iter()
                    .flat_map(|i| &old.rows_s[i * per..(i + 1) * per])
                    .copied()
                    .collect()
            } else {
                old.rows_s.clone()
            };
            debug_assert!(
                rows_s.len().is_multiple_of(old.cells(replicas).max(1)) || old.by_instance
            );
            TransferModel { members, ops, rows_s, ..old.clone() }
        })
        .collect())
}

fn same_kinds(transfer: &TransferModel, kinds: &[OpKind]) -> bool {
    transfer.members.iter().map(|s| s.kind).eq(kinds.iter().copied())
}

/// The recorded transfer model of these kinds nearest to the wanted hop.
fn nearest(
    model: &DurationModel,
    kinds: &[OpKind],
    wanted: Signature,
    map: &Map,
    seq: u32,
) -> Option<(usize, usize)> {
    let candidates = model.transfers.iter().enumerate().filter(|(_, t)| same_kinds(t, kinds));
    let (k, transfer) =
        candidates.min_by_key(|(k, t)| (t.members[0].stage.abs_diff(wanted.stage), *k))?;
    let instances = transfer.ops.len() / transfer.members.len().max(1);
    let instance = (map.position(seq.min(map.microbatches.1 - 1)) as usize).min(instances - 1);
    Some((k, instance))
}
