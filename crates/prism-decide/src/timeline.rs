//! One step, operation by operation: what a timeline is drawn from.

use prism_engine::predict::means;
use prism_engine::replay::Replayed;
use prism_graph::{GraphError, OpId, StepGraph, Timeline, evaluate};
use prism_model::{DurationModel, OpKind};

use crate::critical::{CriticalPath, Slack, View, critical_path, slack};

/// When one operation of one replica is ready and ends, and what the time goes to. Seconds.
///
/// `end_s - start_s = wait_s + work_s`; the launch delay is before `start_s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpTimes {
    /// Readiness, since the step's start.
    pub start_s: f64,
    /// End, since the step's start.
    pub end_s: f64,
    /// Between the last dependency's end and readiness.
    pub launch_delay_s: f64,
    /// For the group and the replicas it waits for.
    pub wait_s: f64,
    /// Own work; of a grouped operation, its transfer.
    pub work_s: f64,
}

/// One step of all replicas, from any source of times.
///
/// | method | kind |
/// |---|---|
/// | [`new`](Self::new), [`recorded`](Self::recorded), [`ideal`](Self::ideal) | constructor |
/// | [`of`](Self::of) | accessor |
#[derive(Clone, Debug, PartialEq)]
pub struct StepTimeline {
    /// What it is, for people: `recorded step 821`.
    pub name: String,
    /// Training step id, where it is of a recorded step.
    pub step: Option<i64>,
    /// Latest end of the graph's sinks, seconds.
    pub step_s: f64,
    /// The chain that makes the step as long as it is.
    pub path: CriticalPath,
    /// By how much everything else could be later.
    pub slack: Slack,
    replicas: usize,
    ops: Vec<OpTimes>,
}

impl StepTimeline {
    /// The step at `index` of a timeline, counted from 0.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if the timeline is of another graph or has no such step.
    pub fn new(
        name: impl Into<String>,
        step: Option<i64>,
        graph: &StepGraph,
        timeline: &Timeline,
        index: usize,
    ) -> Result<StepTimeline, GraphError> {
        let view = View::new(graph, timeline, index)?;
        let path = critical_path(graph, timeline, index)?;
        let slack = slack(graph, timeline, index)?;
        let mut ops = Vec::with_capacity(graph.ops().len() * graph.replicas() as usize);
        for (id, _) in graph.iter() {
            for replica in 0..graph.replicas() {
                let (start_s, end_s) = (view.ready(id, replica), view.end(id, replica));
                let (launched, _) = view.launched(id, replica);
                let together = view
                    .group(id)
                    .map_or(start_s, |group| view.latest_member(group, id, replica).0);
                ops.push(OpTimes {
                    start_s,
                    end_s,
                    launch_delay_s: start_s - launched,
                    wait_s: together - start_s,
                    work_s: end_s - together,
                });
            }
        }
        let replicas = graph.replicas() as usize;
        Ok(StepTimeline { name: name.into(), step, step_s: path.end_s, path, slack, replicas, ops })
    }

    /// A recorded step, at the recorded times; `index` counts the trace's steps from 0. Barriers,
    /// which are not recorded, are where the replay puts them.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if the replay's parts do not belong together or have no such step.
    pub fn recorded(replayed: &Replayed, index: usize) -> Result<StepTimeline, GraphError> {
        let Replayed { graph, observed, split, .. } = replayed;
        let steps = observed.steps().len();
        let step = observed.steps().get(index).copied();
        let Some(id) = step else {
            return Err(GraphError::Shape { what: "steps", got: steps, expected: index + 1 });
        };
        let replayed = evaluate(graph, steps, &split.work, Some(&split.launch_delay))?;
        let mut start = Vec::with_capacity(graph.ops().len() * observed.samples());
        let mut end = Vec::with_capacity(start.capacity());
        for (op, _) in graph.iter() {
            start.extend_from_slice(observed.start(op).unwrap_or_else(|| replayed.start(op)));
            end.extend_from_slice(observed.end(op).unwrap_or_else(|| replayed.end(op)));
        }
        let timeline = Timeline::new(graph, steps, start, end)?;
        StepTimeline::new(format!("recorded step {id}"), Some(id), graph, &timeline, index)
    }

    /// The step with each kind's ideal work and no launch delays.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if the replay's parts do not belong together.
    pub fn ideal(replayed: &Replayed) -> Result<StepTimeline, GraphError> {
        let graph = &replayed.graph;
        let work = replayed.report.ideal.work(graph, graph.replicas() as usize);
        let timeline = evaluate(graph, 1, &work, None)?;
        StepTimeline::new("ideal step", None, graph, &timeline, 0)
    }

    /// One operation of one replica.
    pub fn of(&self, op: OpId, replica: u32) -> OpTimes {
        self.ops[op.0 as usize * self.replicas + replica as usize]
    }
}

/// The step in which every operation takes its mean, persistent differences included.
///
/// # Errors
/// [`GraphError::Shape`] if the model does not belong to the graph.
pub fn mean_step(graph: &StepGraph, model: &DurationModel) -> Result<StepTimeline, GraphError> {
    let means = means(graph, model);
    let timeline = evaluate(graph, 1, &means.work_s, Some(&means.delay_s))?;
    StepTimeline::new("step without noise", None, graph, &timeline, 0)
}

/// Index of the recorded step whose time is nearest the median; the first of equals. `None` without
/// steps.
pub fn median_step(replayed: &Replayed) -> Option<usize> {
    let times: Vec<f64> = replayed.report.steps.iter().map(|s| s.base_s).collect();
    let median = prism_stats::robust::median(&times).ok()?;
    let off = |i: usize| (times[i] - median).abs();
    (0..times.len()).reduce(|a, b| if off(b) < off(a) { b } else { a })
}

/// The stage at the other end of a send or receive: that of its partner, where its group is these two
/// alone; else the neighbour in the order of stages. `None` for every other operation.
pub fn peer_stage(graph: &StepGraph, id: OpId) -> Option<u16> {
    let op = graph.ops().get(id.0 as usize)?;
    if !op.kind.is_p2p() {
        return None;
    }
    let members = graph.group_of(id).map(|g| graph.groups()[g.0 as usize].members.as_slice());
    if let Some([a, b]) = members {
        let other = if *a == id { *b } else { *a };
        return Some(graph.ops()[other.0 as usize].stage);
    }
    Some(match op.kind {
        OpKind::ForwardSend | OpKind::BackwardRecv => graph.stage_after(op.stage),
        _ => graph.stage_before(op.stage),
    })
}

/// Matched sends and receives: of a group of two, these; of a larger one, the k-th send of a stage with
/// the k-th receive of the stage it sends to.
pub fn send_recv_pairs(graph: &StepGraph) -> Vec<(OpId, OpId)> {
    let op = |id: OpId| &graph.ops()[id.0 as usize];
    let mut pairs = Vec::new();
    for group in graph.groups() {
        if let [a, b] = group.members[..] {
            let (x, y) = (op(a).kind, op(b).kind);
            let one_way = x.is_p2p() && y.is_p2p() && x.direction() == y.direction();
            match (one_way, x.is_send(), y.is_send()) {
                (true, true, false) => pairs.push((a, b)),
                (true, false, true) => pairs.push((b, a)),
                _ => {}
            }
            continue;
        }
        let of = |kind: OpKind, stage: u16| {
            let mut ids: Vec<OpId> = group
                .members
                .iter()
                .copied()
                .filter(|&id| op(id).kind == kind && op(id).stage == stage)
                .collect();
            ids.sort_by_key(|&id| op(id).seq);
            ids
        };
        let mut from: Vec<(OpKind, u16)> =
            group.members.iter().map(|&id| (op(id).kind, op(id).stage)).collect();
        from.sort_unstable();
        from.dedup();
        for (kind, stage) in from {
            let (recv, to) = match kind {
                OpKind::ForwardSend => (OpKind::ForwardRecv, graph.stage_after(stage)),
                OpKind::BackwardSend => (OpKind::BackwardRecv, graph.stage_before(stage)),
                _ => continue,
            };
            pairs.extend(of(kind, stage).into_iter().zip(of(recv, to)));
        }
    }
    pairs
}
