//! Point-to-point transfers: whole rows over the members of a communication group.

use std::collections::BTreeMap;

use prism_graph::{OpId, StepGraph};
use prism_model::{Effect, EffectKind, Signature, TransferModel};
use prism_stats::htest;

use super::Selection;
use super::effects::{decide, mean};
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
    let mut deviations: Vec<Vec<f64>> = vec![Vec::new(); steps];
    for shape in &shapes {
        log_deviations(shape, split, selection, &mut deviations);
    }
    let (effect, factors) = congestion(&deviations, alpha);
    let models =
        shapes.iter().map(|shape| model(shape, split, selection, &factors, alpha)).collect();
    (models, factors, effect)
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

/// Log transfers minus the mean of their member, by step.
fn log_deviations(shape: &Shape, split: &Split, selection: &Selection, out: &mut [Vec<f64>]) {
    for member in 0..shape.members.len() {
        let mut logs = Vec::new();
        for instance in &shape.instances {
            let work = split.work_of(instance[member]);
            for (i, &t) in selection.steps.iter().enumerate() {
                for &r in &selection.replicas {
                    let x = work[t * selection.all_replicas + r];
                    if x > 0.0 {
                        logs.push((i, x.ln()));
                    }
                }
            }
        }
        if logs.is_empty() {
            continue;
        }
        let centre = logs.iter().map(|l| l.1).sum::<f64>() / logs.len() as f64;
        logs.into_iter().for_each(|(i, l)| out[i].push(l - centre));
    }
}

fn congestion(deviations: &[Vec<f64>], alpha: f64) -> (Effect, Vec<f32>) {
    let steps: Vec<&Vec<f64>> = deviations.iter().filter(|d| !d.is_empty()).collect();
    let n: f64 = steps.iter().map(|d| d.len() as f64).sum();
    let t = steps.len() as f64;
    let kind = EffectKind::Congestion;
    if t < 3.0 || n <= t {
        let reason = "fewer than three steps with point-to-point transfers".to_owned();
        return (Effect { kind, sd_log: 0.0, test: None, kept: false, reason }, Vec::new());
    }
    let means: Vec<f64> = steps.iter().map(|d| mean(d)).collect();
    let squares = |(d, m): (&&Vec<f64>, &f64)| d.iter().map(|v| (v - m).powi(2)).sum::<f64>();
    let within = steps.iter().zip(&means).map(squares).sum::<f64>() / (n - t);
    let per_step = n / t;
    let weighted = steps.iter().zip(&means).map(|(d, m)| d.len() as f64 * m * m);
    let between = weighted.sum::<f64>() / (t - 1.0);
    let statistic = if within > 0.0 { between / within } else { 0.0 };
    let per = [(statistic, (between - within) / per_step)];
    let (yes, no) = ("transfers of a step are slow together", "transfers do not move by the step");
    let effect = decide(kind, alpha, &per, t - 1.0, n - t, yes, no);
    let factors = if effect.kept {
        let shrink = if between > 0.0 { (1.0 - within / between).max(0.0).sqrt() } else { 0.0 };
        deviations
            .iter()
            .map(|d| if d.is_empty() { 1.0 } else { (shrink * mean(d)).exp() as f32 })
            .collect()
    } else {
        Vec::new()
    };
    (effect, factors)
}
