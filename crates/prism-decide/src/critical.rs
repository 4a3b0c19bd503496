//! The critical path of an evaluated step, and how much later everything else could end.
//!
//! The critical path method on a graph whose groups and replica synchronisations couple its
//! operations: an activity is one operation on one replica, a launch delay is an activity of its
//! own before it, and the members of a group, on all replicas it waits for, start together.

use std::collections::BTreeMap;

use prism_engine::replay::CLAMP_S;
use prism_graph::{Event, GraphError, Group, GroupId, OpId, ReplicaSync, StepGraph, Timeline};
use prism_model::OpKind;
use serde::{Deserialize, Serialize};

/// What a stretch of the critical path is spent on.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SegmentKind {
    /// Own work of the operation; of a grouped one, its transfer.
    Work,
    /// Between the last dependency's end and the operation's readiness.
    LaunchDelay,
}

/// A stretch of the critical path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// The operation that works or is launched.
    pub op: OpId,
    /// Its replica.
    pub replica: u32,
    /// What the time goes to.
    pub kind: SegmentKind,
    /// Seconds since the step's start.
    pub start_s: f64,
    /// Seconds since the step's start. Before `start_s` where a recorded transfer or launch delay
    /// is negative, by less than [`prism_engine::replay::CLAMP_S`]: a clock error.
    pub end_s: f64,
}

impl Segment {
    /// Seconds.
    pub fn duration_s(&self) -> f64 {
        self.end_s - self.start_s
    }
}

/// A chain of work and launch delays, without a gap, whose length is the step time.
///
/// There can be several. Of equal ends or ready times the path takes, backwards, the operation's
/// own before its group's others, then the lowest replica, then the lowest id.
#[derive(Clone, Debug, PartialEq)]
pub struct CriticalPath {
    /// In order of time: each starts, to the bit, where the one before ends; the first at 0.
    pub segments: Vec<Segment>,
    /// End of the last: the step time, seconds.
    pub end_s: f64,
}

impl CriticalPath {
    /// Whether the operation's own work on that replica is on the path.
    pub fn contains(&self, op: OpId, replica: u32) -> bool {
        self.segments
            .iter()
            .any(|s| s.kind == SegmentKind::Work && (s.op, s.replica) == (op, replica))
    }

    /// Seconds on the path by what `key` makes of the segments; their sum is the step time.
    pub fn seconds_by<K: Ord>(&self, key: impl Fn(&Segment) -> K) -> BTreeMap<K, f64> {
        let mut sums = BTreeMap::new();
        for segment in &self.segments {
            *sums.entry(key(segment)).or_insert(0.0) += segment.duration_s();
        }
        sums
    }

    /// Seconds on the path by kind of operation, stage, and work or launch delay.
    pub fn by_kind_and_stage(
        &self,
        graph: &StepGraph,
    ) -> BTreeMap<(OpKind, u16, SegmentKind), f64> {
        self.seconds_by(|s| {
            let op = &graph.ops()[s.op.0 as usize];
            (op.kind, op.stage, s.kind)
        })
    }
}

/// By how much each operation could be delayed without delaying the step, seconds.
///
/// Exactly 0 on every critical path: of the end where an operation's work is on it, of the readiness
/// where its launch delay is. Infinite where the step's end does not depend on the
/// operation at all, such as sends that nobody waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Slack {
    replicas: usize,
    end: Vec<f64>,
    ready: Vec<f64>,
}

impl Slack {
    /// By how much `op` could end later on `replica`: what its own work could grow by.
    pub fn of(&self, op: OpId, replica: u32) -> f64 {
        self.end[op.0 as usize * self.replicas + replica as usize]
    }

    /// By how much `op` could become ready later on `replica`: what its launch delay could grow
    /// by. More than [`Slack::of`] where it waits for its group.
    pub fn of_ready(&self, op: OpId, replica: u32) -> f64 {
        self.ready[op.0 as usize * self.replicas + replica as usize]
    }
}

/// The critical path of one step of a timeline; `step` counts the timeline's steps from 0.
///
/// Backwards from the sink that ends last: to the latest ready member of its group, over the
/// replicas that the group waits for; then to the latest end of that one's dependencies.
///
/// # Errors
/// [`GraphError::Shape`] if the timeline is of another graph or has no such step.
pub fn critical_path(
    graph: &StepGraph,
    timeline: &Timeline,
    step: usize,
) -> Result<CriticalPath, GraphError> {
    let view = View::new(graph, timeline, step)?;
    let mut segments = Vec::new();
    let Some((end_s, mut op, mut replica)) = view.last_sink() else {
        return Ok(CriticalPath { segments, end_s: 0.0 });
    };
    loop {
        let end_s = view.end(op, replica);
        let together = view.group(op).map(|group| view.latest_member(group, op, replica));
        let (start_s, first, on) = together.unwrap_or((view.ready(op, replica), op, replica));
        segments.push(Segment { op, replica, kind: SegmentKind::Work, start_s, end_s });
        (op, replica) = (first, on);
        let (launched, before) = view.launched(op, replica);
        if launched != start_s {
            let kind = SegmentKind::LaunchDelay;
            segments.push(Segment { op, replica, kind, start_s: launched, end_s: start_s });
        }
        match before {
            Some(before) => op = before,
            None => break,
        }
    }
    segments.reverse();
    Ok(CriticalPath { segments, end_s })
}

/// Every operation's slack in one step of a timeline; `step` counts the timeline's steps from 0.
///
/// A backward pass. Slacks are added up from the differences along the way, not taken from latest
/// ends, so that a path without waiting has slack 0 to the bit.
///
/// # Errors
/// [`GraphError::Shape`] if the timeline is of another graph or has no such step.
pub fn slack(graph: &StepGraph, timeline: &Timeline, step: usize) -> Result<Slack, GraphError> {
    let view = View::new(graph, timeline, step)?;
    let replicas = view.replicas as usize;
    let mut slack = Slack {
        replicas,
        end: vec![f64::INFINITY; graph.ops().len() * replicas],
        ready: vec![f64::INFINITY; graph.ops().len() * replicas],
    };
    let step_end = view.last_sink().map_or(0.0, |(end, ..)| end);
    for &sink in graph.sinks() {
        for replica in 0..view.replicas {
            slack.end[view.at(sink, replica)] = step_end - view.end(sink, replica);
        }
    }
    for &event in graph.order().iter().rev() {
        match event {
            Event::Group(id) => view.group_slack(id, &mut slack),
            Event::Start(op) => view.start_slack(op, &mut slack),
        }
    }
    Ok(slack)
}

/// One step of a timeline.
pub(crate) struct View<'a> {
    graph: &'a StepGraph,
    timeline: &'a Timeline,
    /// Of the step's replica 0.
    sample: usize,
    replicas: u32,
}

impl<'a> View<'a> {
    pub(crate) fn new(
        graph: &'a StepGraph,
        timeline: &'a Timeline,
        step: usize,
    ) -> Result<View<'a>, GraphError> {
        let (got, expected) = (timeline.ops(), graph.ops().len());
        if got != expected {
            return Err(GraphError::Shape { what: "timeline operations", got, expected });
        }
        let replicas = graph.replicas();
        let (got, expected) =
            (timeline.samples(), step.saturating_add(1).saturating_mul(replicas as usize));
        if got < expected || !got.is_multiple_of(replicas as usize) {
            return Err(GraphError::Shape { what: "timeline samples", got, expected });
        }
        Ok(View { graph, timeline, sample: step * replicas as usize, replicas })
    }

    fn at(&self, op: OpId, replica: u32) -> usize {
        op.0 as usize * self.replicas as usize + replica as usize
    }

    pub(crate) fn ready(&self, op: OpId, replica: u32) -> f64 {
        self.timeline.start(op)[self.sample + replica as usize]
    }

    pub(crate) fn end(&self, op: OpId, replica: u32) -> f64 {
        self.timeline.end(op)[self.sample + replica as usize]
    }

    pub(crate) fn group(&self, op: OpId) -> Option<&'a Group> {
        self.graph.group_of(op).map(|id| &self.graph.groups()[id.0 as usize])
    }

    /// The sink that ends last: when, which, on which replica.
    fn last_sink(&self) -> Option<(f64, OpId, u32)> {
        let sinks = self.graph.sinks().iter();
        let ends = sinks.flat_map(|&op| (0..self.replicas).map(move |r| (r, op)));
        latest(ends.map(|(r, op)| (self.end(op, r), op, r)))
    }

    /// The replicas that `group` makes `replica` wait for.
    fn waits_for(&self, group: &Group, replica: u32) -> std::ops::Range<u32> {
        match group.sync {
            ReplicaSync::None => replica..replica + 1,
            ReplicaSync::All => 0..self.replicas,
            ReplicaSync::Blocks(block) => {
                let first = replica / block * block;
                first..first + block
            }
        }
    }

    /// The member of `op`'s group that is ready last: when, which, on which replica.
    pub(crate) fn latest_member(&self, group: &Group, op: OpId, replica: u32) -> (f64, OpId, u32) {
        let own = (self.ready(op, replica), op, replica);
        let others = self.waits_for(group, replica).flat_map(|r| {
            group.members.iter().map(move |&member| (self.ready(member, r), member, r))
        });
        others.fold(own, later)
    }

    /// When the launch of `op` begins, and the dependency that ends then: the last one, or none
    /// where all end before the step's start.
    pub(crate) fn launched(&self, op: OpId, replica: u32) -> (f64, Option<OpId>) {
        let ends = || {
            let deps = self.graph.deps(op).iter();
            deps.map(|&dep| (self.end(dep, replica), dep, replica))
        };
        let bind = |&(end, ..): &(f64, OpId, u32)| self.binds(end, op, replica);
        let last = latest(ends().filter(bind)).or_else(|| latest(ends()));
        match last.filter(|&(end, ..)| end >= 0.0) {
            Some((end, dep, _)) => (end, Some(dep)),
            None => (0.0, None),
        }
    }

    /// Whether an operation that was ready when it was can have waited for something that ended at
    /// `end_s`, clock errors aside. A dependency found in the data holds on some replicas only.
    fn binds(&self, end_s: f64, op: OpId, replica: u32) -> bool {
        end_s <= self.ready(op, replica) + CLAMP_S
    }

    /// Slack of readiness of a group's members, from that of their ends.
    fn group_slack(&self, id: GroupId, slack: &mut Slack) {
        let group = &self.graph.groups()[id.0 as usize];
        let mut replica = 0;
        while replica < self.replicas {
            let together = self.waits_for(group, replica);
            replica = together.end;
            let cells =
                || together.clone().flat_map(|r| group.members.iter().map(move |&m| (m, r)));
            let least = |f: &dyn Fn(OpId, u32) -> f64| {
                cells().map(|(m, r)| f(m, r)).fold(f64::INFINITY, f64::min)
            };
            let common = least(&|m, r| slack.end[self.at(m, r)]);
            let start = -least(&|m, r| -self.ready(m, r));
            for (member, r) in cells() {
                slack.ready[self.at(member, r)] = common + (start - self.ready(member, r));
            }
        }
    }

    /// Slack of the dependencies' ends, from that of an operation's readiness.
    fn start_slack(&self, op: OpId, slack: &mut Slack) {
        for replica in 0..self.replicas {
            let at = self.at(op, replica);
            if self.graph.group_of(op).is_none() {
                slack.ready[at] = slack.end[at];
            }
            let (launched, _) = self.launched(op, replica);
            for &dep in self.graph.deps(op) {
                if !self.binds(self.end(dep, replica), op, replica) {
                    continue;
                }
                let allowed = slack.ready[at] + (launched - self.end(dep, replica));
                let end = &mut slack.end[self.at(dep, replica)];
                *end = end.min(allowed);
            }
        }
    }
}

/// The later of two, the first of equals.
fn later(a: (f64, OpId, u32), b: (f64, OpId, u32)) -> (f64, OpId, u32) {
    if b.0 > a.0 { b } else { a }
}

/// The latest, the first of equals.
fn latest(times: impl Iterator<Item = (f64, OpId, u32)>) -> Option<(f64, OpId, u32)> {
    times.reduce(later)
}
