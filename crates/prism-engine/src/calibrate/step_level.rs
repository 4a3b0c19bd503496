//! What is drawn with the step, whole: work of collectives, optimizer and markers; launch delays.

use prism_graph::{OpId, StepGraph};
use prism_model::{ImpliedDependency, OpKind, StepVector};

use super::Selection;
use super::effects::{mean, variance};
use crate::replay::Split;

/// A launch delay whose s.d. over steps is below this share of the mean step time is a constant.
const CONSTANT_SHARE: f64 = 1e-5;
/// A constant below this share of the mean step time is left out.
const NONE_SHARE: f64 = 1e-7;

/// Work of every operation that is neither microbatch compute nor in a point-to-point group.
pub(super) fn step_work(
    graph: &StepGraph,
    split: &Split,
    selection: &Selection,
) -> Vec<StepVector> {
    graph
        .iter()
        .filter(|(_, op)| !op.kind.is_microbatch_compute() && op.kind != OpKind::Barrier)
        .filter(|&(id, op)| !(op.kind.is_p2p() && in_p2p_group(graph, id)))
        .map(|(id, _)| {
            let values = lanes(split.work_of(id), selection);
            StepVector { op: id.0, values_s: collapse(values, 0.0, selection.steps.len()) }
        })
        .collect()
}

fn in_p2p_group(graph: &StepGraph, id: OpId) -> bool {
    graph.group_of(id).is_some_and(|g| {
        let members = &graph.groups()[g.0 as usize].members;
        members.iter().all(|m| graph.ops()[m.0 as usize].kind.is_p2p())
    })
}

/// Launch delays that matter, with those that an implied dependency replaces set to 0.
pub(super) fn launch_delays(
    graph: &StepGraph,
    split: &Split,
    selection: &Selection,
    implied: &[ImpliedDependency],
    step_s: f64,
) -> Vec<StepVector> {
    let steps = selection.steps.len();
    let mut out = Vec::new();
    for (id, _) in graph.iter() {
        let mut values = lanes(split.launch_delay_of(id), selection);
        for dependency in implied.iter().filter(|d| d.op == id.0) {
            for (v, &lag) in values.iter_mut().zip(&dependency.lag_s) {
                if lag > ImpliedDependency::INACTIVE_S {
                    *v = 0.0;
                }
            }
        }
        let values_s = collapse(values, CONSTANT_SHARE * step_s, steps);
        let matters = values_s.iter().any(|v| f64::from(v.abs()) > NONE_SHARE * step_s);
        if matters {
            out.push(StepVector { op: id.0, values_s });
        }
    }
    out
}

/// Selected values, `[r][t]`.
fn lanes(samples: &[f64], selection: &Selection) -> Vec<f64> {
    let at = |r: usize, t: usize| samples[t * selection.all_replicas + r];
    selection
        .replicas
        .iter()
        .flat_map(|&r| selection.steps.iter().map(move |&t| at(r, t)))
        .collect()
}

/// One value per replica if each replica's s.d. is at most `limit`; else all.
fn collapse(values: Vec<f64>, limit: f64, steps: usize) -> Vec<f32> {
    let constant = values.chunks(steps).all(|v| variance(v).sqrt() <= limit);
    if constant {
        values.chunks(steps).map(|v| mean(v) as f32).collect()
    } else {
        values.into_iter().map(|v| v as f32).collect()
    }
}
