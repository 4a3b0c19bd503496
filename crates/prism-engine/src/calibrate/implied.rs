//! Dependencies that no rule states but the times show.
//!
//! A launch delay that is really waiting would be carried over unchanged to a sampled step in which
//! the awaited operation ends at another time. Where an operation has a long launch delay, the
//! operation that ended last before it in *every* observed step is looked for in the same replica;
//! if that leaves less than half of the delay, the delay is counted from there.

use prism_graph::{Event, GraphError, Observed, OpId, StepGraph, StepGraphBuilder};
use prism_model::ImpliedDependency;

use super::Selection;
use crate::replay::Split;

/// Launch delays below this share of the mean step time are left as they are.
const LONG_SHARE: f64 = 0.002;
/// Clock tolerance, as a share of the mean step time.
const TOLERANCE_SHARE: f64 = 2e-5;
/// The lag must be below this share of the launch delay it replaces.
const GAIN: f64 = 0.5;

/// Finds implied dependencies; see the module documentation. `step_s` is the mean step time.
pub(super) fn implied_dependencies(
    graph: &StepGraph,
    observed: &Observed,
    split: &Split,
    selection: &Selection,
    step_s: f64,
) -> Vec<ImpliedDependency> {
    let mut out: Vec<ImpliedDependency> = Vec::new();
    let downstream = Downstream::new(graph);
    for (op, _) in graph.iter() {
        let (Some(start), delay) = (observed.start(op), split.launch_delay_of(op)) else {
            continue;
        };
        let mut after: Option<Vec<bool>> = None;
        for (i, &r) in selection.replicas.iter().enumerate() {
            let at = |t: usize| t * selection.all_replicas + r;
            let mean_delay = selection.steps.iter().map(|&t| delay[at(t)]).sum::<f64>()
                / selection.steps.len() as f64;
            if mean_delay < LONG_SHARE * step_s {
                continue;
            }
            let after = after.get_or_insert_with(|| downstream.of(op));
            let best = graph
                .iter()
                .filter(|(on, _)| !after[on.0 as usize])
                .filter_map(|(on, _)| {
                    let end = observed.end(on)?;
                    let lags = selection.steps.iter().map(|&t| start[at(t)] - end[at(t)]);
                    let (sum, least) =
                        lags.fold((0.0, f64::INFINITY), |(s, m), l| (s + l, l.min(m)));
                    let steady = least > -TOLERANCE_SHARE * step_s;
                    steady.then_some((sum / selection.steps.len() as f64, on))
                })
                .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let Some((lag, on)) = best else { continue };
            if lag > GAIN * mean_delay || graph.deps(op).contains(&on) {
                continue;
            }
            let (Some(end), steps) = (observed.end(on), selection.steps.len()) else { continue };
            let found =
                out.iter().position(|d| d.op == op.0 && d.on == on.0).unwrap_or_else(|| {
                    let inactive = ImpliedDependency::INACTIVE_S;
                    let lag_s = vec![inactive; selection.replicas.len() * steps];
                    out.push(ImpliedDependency { op: op.0, on: on.0, lag_s });
                    out.len() - 1
                });
            for (k, &t) in selection.steps.iter().enumerate() {
                out[found].lag_s[i * steps + k] = (start[at(t)] - end[at(t)]) as f32;
            }
        }
    }
    // Two implied dependencies may close a circle that neither closes alone.
    while with_dependencies(graph, &out, graph.replicas()).is_err() && !out.is_empty() {
        out.pop();
    }
    out
}

/// The same graph with the implied dependencies as further edges, over another number of replicas;
/// operations keep their ids.
///
/// # Errors
/// [`GraphError`] if an id is dangling or the dependencies close a circle.
pub fn with_dependencies(
    graph: &StepGraph,
    implied: &[ImpliedDependency],
    replicas: u32,
) -> Result<StepGraph, GraphError> {
    let mut builder = StepGraphBuilder::new(graph.stages(), replicas);
    let position = positions(graph);
    for (id, op) in graph.iter() {
        let new = builder.op(op.clone());
        builder.hint(new, position[id.0 as usize]);
    }
    for (id, _) in graph.iter() {
        graph.deps(id).iter().for_each(|&before| builder.dep(before, id));
    }
    for dependency in implied {
        builder.dep(OpId(dependency.on), OpId(dependency.op));
    }
    for group in graph.groups() {
        builder.group(group.members.clone(), group.sync);
    }
    graph.sinks().iter().for_each(|&sink| builder.sink(sink));
    builder.build()
}

/// Place of each operation's start in the topological order.
fn positions(graph: &StepGraph) -> Vec<f64> {
    let mut out = vec![0.0; graph.ops().len()];
    for (i, event) in graph.order().iter().enumerate() {
        if let Event::Start(op) = event {
            out[op.0 as usize] = i as f64;
        }
    }
    out
}

/// Which operations cannot end before a given one has started.
struct Downstream<'a> {
    graph: &'a StepGraph,
    next: Vec<Vec<OpId>>,
}

impl<'a> Downstream<'a> {
    fn new(graph: &'a StepGraph) -> Self {
        let mut next = vec![Vec::new(); graph.ops().len()];
        for (id, _) in graph.iter() {
            for before in graph.deps(id) {
                next[before.0 as usize].push(id);
            }
        }
        Downstream { graph, next }
    }

    fn of(&self, op: OpId) -> Vec<bool> {
        let mut seen = vec![false; self.next.len()];
        let mut stack = vec![op];
        while let Some(at) = stack.pop() {
            if std::mem::replace(&mut seen[at.0 as usize], true) {
                continue;
            }
            stack.extend(&self.next[at.0 as usize]);
            if let Some(group) = self.graph.group_of(at) {
                stack.extend(&self.graph.groups()[group.0 as usize].members);
            }
        }
        seen
    }
}
