//! Point-to-point transfers: whole rows over the members of a communication group.

use std::collections::BTreeMap;

use prism_graph::{OpId, StepGraph};
use prism_model::{Effect, EffectKind, Signature, TransferModel};
use prism_stats::htest;

use super::Selection;
use super::effects::{column_means, decide, mean, variance};
use crate::replay::Split;

/// Point-to-point groups of equal shape.
struct Shape {
    members: Vec<Signature>,
    instances: Vec<Vec<OpId>>,
}

/// Groups whose members are all point-to-point, by shape: kind, stage and chunk of each member.
fn shapes(graph: &StepGraph) -> Vec<Shape> {
    let mut by_shape: BTreeMap<Vec<Signature>, Vec<Vec<OpId>>> = BTreeMap::new();
    for group in graph.groups() {
        let op = |id: OpId| &graph.ops()[id.0 as usize];
        if group.members.iter().all(|&id| op(id).kind.is_p2p()) {
            let mut members = group.members.clone();
            members.sort_by_key(|&id| (op(id).signature(), op(id).seq));
            let shape = members.iter().map(|&id| op(id).signature()).collect();
            by_shape.entry(shape).or_default().push(members);
        }
    }
    by_shape.into_iter().map(|(members, instances)| Shape { members, instances }).collect()
}

/// Most rows kept per shape; beyond, every k-th row is.
const MAX_ROWS: usize = 20_000;

/// Transfers of all point-to-point groups, and each step's congestion factor (empty if dropped).
///
/// `log x = base(shape, member) + congestion(t) + draw(instance)`; the draw is a whole observed row.
/// Rows with a transfer that is not positive (clock errors) do not enter the congestion estimate.
pub(super) fn transfers(
    graph: &StepGraph,
    split: &Split,
    selection: &Selection,
    alpha: f64,
) -> (Vec<TransferModel>, Vec<f32>, Effect) {
    let shapes = shapes(graph);
    let steps = selection.steps.len();
    let replicas = selection.replicas.len().max(1);
    let mut deviations: Vec<Vec<f64>> = vec![Vec::new(); steps * replicas];
    for shape in &shapes {
        log_deviations(shape, split, selection, &mut deviations);
    }
    let (effect, factors) = congestion(&deviations, replicas, alpha);
    let models =
        shapes.iter().map(|shape| model(shape, split, selection, &factors, alpha)).collect();
    (models, factors, effect)
}

/// Where a stored row of transfers was observed, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// Instance of the communication group.
    pub instance: usize,
    /// Replica.
    pub replica: usize,
    /// Step of the model.
    pub step: usize,
}

/// Of this many rows, every how-manieth is stored.
pub(crate) fn transfer_stride(rows: usize) -> usize {
    rows.div_ceil(MAX_ROWS).max(1)
}

/// The place of each stored row of a transfer model, in the order of `rows_s`; `None` if the rows
/// are not those that calibration on `steps` steps of `replicas` replicas keeps.
pub fn row_places(
    transfer: &TransferModel,
    replicas: usize,
    steps: usize,
) -> Option<Vec<RowPlace>> {
    let width = transfer.members.len().max(1);
    let instances = transfer.ops.len() / width;
    let pools = transfer.cells(replicas);
    let (own_instances, own_replicas) = (
        if transfer.by_instance { 1 } else { instances },
        if transfer.by_replica { 1 } else { replicas },
    );
    let full = own_instances * own_replicas * steps;
    let stride = transfer_stride(full);
    let stored = full.div_ceil(stride);
    if full == 0 || transfer.rows_s.len() != stored * pools * width {
        return None;
    }
    let per_instance = if transfer.by_replica { replicas } else { 1 };
    let place = |pool: usize, row: usize| RowPlace {
        instance: if transfer.by_instance {
            pool / per_instance
        } else {
            row / (own_replicas * steps)
        },
        replica: if transfer.by_replica { pool % replicas } else { row / steps % own_replicas },
        step: row % steps,
    };
    let rows = |pool| (0..full).step_by(stride).map(move |row| place(pool, row));
    Some((0..pools).flat_map(rows).collect())
}

/// Rows of one shape, apart by instance and replica where those differ.
fn model(
    shape: &Shape,
    split: &Split,
    selection: &Selection,
    factors: &[f32],
    alpha: f64,
) -> TransferModel {
    let by_instance = differ(shape, split, selection, alpha, true);
    let by_replica = differ(shape, split, selection, alpha, false);
    let (instances, replicas, steps) =
        (shape.instances.len(), selection.replicas.len(), selection.steps.len());
    let cells = if by_instance { instances } else { 1 } * if by_replica { replicas } else { 1 };
    let stride = (instances * replicas * steps / cells).div_ceil(MAX_ROWS).max(1);
    let mut rows_s = Vec::new();
    let cell_instances: Vec<Vec<usize>> = if by_instance {
        (0..instances).map(|i| vec![i]).collect()
    } else {
        vec![(0..instances).collect()]
    };
    let cell_replicas: Vec<Vec<usize>> = if by_replica {
        selection.replicas.iter().map(|&r| vec![r]).collect()
    } else {
        vec![selection.replicas.clone()]
    };
    for own_instances in &cell_instances {
        for own_replicas in &cell_replicas {
            let mut row = 0;
            for &i in own_instances {
                for &r in own_replicas {
                    for (k, &t) in selection.steps.iter().enumerate() {
                        if row % stride == 0 {
                            let scale = factors.get(k).map_or(1.0, |&f| f64::from(f));
                            rows_s.extend(shape.instances[i].iter().map(|&id| {
                                (split.work_of(id)[t * selection.all_replicas + r] / scale) as f32
                            }));
                        }
                        row += 1;
                    }
                }
            }
        }
    }
    TransferModel {
        members: shape.members.clone(),
        ops: shape.instances.iter().flatten().map(|id| id.0).collect(),
        by_instance,
        by_replica,
        rows_s,
        laws: Vec::new(),
    }
}

/// Whether instances, or replicas, differ in their mean log transfer: one-way analysis of variance
/// at level `alpha` over the members (Bonferroni), where the difference also carries at least a tenth
/// of the variance, so that it is worth the smaller pools.
fn differ(
    shape: &Shape,
    split: &Split,
    selection: &Selection,
    alpha: f64,
    by_instance: bool,
) -> bool {
    let groups = if by_instance { shape.instances.len() } else { selection.replicas.len() };
    if groups < 2 {
        return false;
    }
    (0..shape.members.len()).any(|member| {
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); groups];
        for (i, instance) in shape.instances.iter().enumerate() {
            let work = split.work_of(instance[member]);
            for (k, &r) in selection.replicas.iter().enumerate() {
                let lane = selection.steps.iter().map(|&t| work[t * selection.all_replicas + r]);
                let target = &mut values[if by_instance { i } else { k }];
                target.extend(lane.filter(|x| *x > 0.0).map(f64::ln));
            }
        }
        let slices: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        let Ok(table) = htest::one_way(&slices) else { return false };
        let between = table.groups.variance.max(0.0);
        let within = table.residual_sum_of_squares / table.residual_dof;
        table.groups.p_value * (shape.members.len() as f64) < alpha
            && between > 0.1 * (between + within)
    })
}

/// Log transfers less the mean of their member, averaged over the members of a group: one value an
/// instance, by (step, replica), `[t][r]`. Participants share a draw, so they are one observation.
fn log_deviations(shape: &Shape, split: &Split, selection: &Selection, out: &mut [Vec<f64>]) {
    let width = shape.members.len();
    let mut rows: Vec<(usize, Vec<f64>)> = Vec::new();
    for instance in &shape.instances {
        for (i, &t) in selection.steps.iter().enumerate() {
            for (k, &r) in selection.replicas.iter().enumerate() {
                let at = t * selection.all_replicas + r;
                let row: Vec<f64> = instance.iter().map(|&id| split.work_of(id)[at]).collect();
                if row.iter().all(|x| *x > 0.0) {
                    let logs = row.iter().map(|x| x.ln()).collect();
                    rows.push((i * selection.replicas.len() + k, logs));
                }
            }
        }
    }
    let n = rows.len().max(1) as f64;
    let centre: Vec<f64> =
        (0..width).map(|k| rows.iter().map(|(_, row)| row[k]).sum::<f64>() / n).collect();
    for (cell, row) in rows {
        let deviation = row.iter().zip(&centre).map(|(l, c)| l - c).sum::<f64>();
        out[cell].push(deviation / width as f64);
    }
}

/// Whether transfers of a step are slow together, on all replicas: step means against the
/// step x replica interaction, or against single transfers with one replica. `deviations` are by
/// (step, replica). Steps in which a replica has none do not take part.
fn congestion(deviations: &[Vec<f64>], replicas: usize, alpha: f64) -> (Effect, Vec<f32>) {
    let complete: Vec<&[Vec<f64>]> =
        deviations.chunks(replicas).filter(|row| row.iter().all(|d| !d.is_empty())).collect();
    let (t, r) = (complete.len() as f64, replicas as f64);
    let n: f64 = complete.iter().flat_map(|row| row.iter()).map(|d| d.len() as f64).sum();
    let kind = EffectKind::Congestion;
    if t < 3.0 || (replicas < 2 && n <= t) {
        let reason = "fewer than three steps with point-to-point transfers".to_owned();
        return (Effect { kind, sd_log: 0.0, test: None, kept: false, reason }, Vec::new());
    }
    let cells: Vec<f64> = complete.iter().flat_map(|row| row.iter().map(|d| mean(d))).collect();
    let steps: Vec<f64> = cells.chunks(replicas).map(mean).collect();
    let between = variance(&steps);
    let (noise, df2) = if replicas < 2 {
        let squares = |d: &Vec<f64>| d.iter().map(|v| (v - mean(d)).powi(2)).sum::<f64>();
        let within = complete.iter().map(|row| squares(&row[0])).sum::<f64>() / (n - t);
        (within / (n / t), n - t)
    } else {
        let columns = column_means(&cells, replicas);
        let grand = mean(&columns);
        let rest = |(i, v): (usize, &f64)| {
            (v - steps[i / replicas] - columns[i % replicas] + grand).powi(2)
        };
        let freedom = (t - 1.0) * (r - 1.0);
        (cells.iter().enumerate().map(rest).sum::<f64>() / freedom / r, freedom)
    };
    let statistic = if noise > 0.0 { between / noise } else { 0.0 };
    let per = [(statistic, between - noise)];
    let (yes, no) = ("transfers of a step are slow together", "transfers do not move by the step");
    let effect = decide(kind, alpha, &per, t - 1.0, df2, yes, no);
    if !effect.kept {
        return (effect, Vec::new());
    }
    let shrink = if between > 0.0 { (1.0 - noise / between).max(0.0).sqrt() } else { 0.0 };
    let centre = mean(&steps);
    let factor = |row: &[Vec<f64>]| {
        if row.iter().any(Vec::is_empty) {
            return 1.0;
        }
        let own = row.iter().map(|d| mean(d)).sum::<f64>() / r;
        (shrink * (own - centre)).exp() as f32
    };
    let factors = deviations.chunks(replicas).map(factor).collect();
    (effect, factors)
}
