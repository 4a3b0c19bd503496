//! Own work, waiting, and launch delay of recorded operations.

use std::collections::BTreeMap;

use prism_graph::{Event, GraphError, Observed, OpId, StepGraph, synchronise};

/// Transfers and launch delays of at most minus this many seconds are clock errors and become 0;
/// smaller negative ones are kept.
pub const CLAMP_S: f64 = 0.010;

/// Own work and launch delay of every operation in every step and replica.
///
/// Both are flat `[operation][step][replica]` arrays, seconds. The work of a grouped operation is
/// its transfer: its end less the latest start of its group (and of the replicas it waits for).
/// Barriers have neither work nor delay.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Own work, seconds.
    pub work: Vec<f64>,
    /// Launch delays, seconds: start less the latest end of what it waits for.
    pub launch_delay: Vec<f64>,
    /// Transfers that were set to 0.
    pub clamped_transfers: usize,
    /// Launch delays that were set to 0.
    pub clamped_delays: usize,
    samples: usize,
}

impl Split {
    /// Splits observed times along the graph.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if the observations are not of this graph.
    pub fn new(graph: &StepGraph, observed: &Observed) -> Result<Split, GraphError> {
        let samples = observed.samples();
        let (got, expected) = (observed.ops() * samples, graph.ops().len() * samples);
        if got != expected || observed.replicas() != graph.replicas() {
            return Err(GraphError::Shape { what: "observed", got, expected });
        }
        let mut splitting = Splitting {
            graph,
            observed,
            virtual_start: BTreeMap::new(),
            virtual_end: BTreeMap::new(),
            origin: step_starts(graph, observed),
            split: Split {
                work: vec![0.0; expected],
                launch_delay: vec![0.0; expected],
                clamped_transfers: 0,
                clamped_delays: 0,
                samples,
            },
        };
        let mut scratch = vec![0.0; samples];
        for &event in graph.order() {
            match event {
                Event::Start(op) => splitting.start(op, &mut scratch),
                Event::Group(group) => {
                    let group = &graph.groups()[group.0 as usize];
                    scratch.fill(f64::NEG_INFINITY);
                    for &member in &group.members {
                        raise(&mut scratch, splitting.start_of(member));
                    }
                    synchronise(&mut scratch, graph.replicas(), group.sync);
                    for &member in &group.members {
                        splitting.finish(member, &scratch);
                    }
                }
            }
        }
        Ok(splitting.split)
    }

    /// Own work of `op`, seconds, one a sample (`step * replicas + replica`).
    pub fn work_of(&self, op: OpId) -> &[f64] {
        &self.work[op.0 as usize * self.samples..][..self.samples]
    }

    /// Launch delays of `op`, seconds, one a sample.
    pub fn launch_delay_of(&self, op: OpId) -> &[f64] {
        &self.launch_delay[op.0 as usize * self.samples..][..self.samples]
    }

    /// Steps times replicas.
    pub fn samples(&self) -> usize {
        self.samples
    }
}

struct Splitting<'a> {
    graph: &'a StepGraph,
    observed: &'a Observed,
    /// Barriers: when they become ready and when they end, as the records imply.
    virtual_start: BTreeMap<OpId, Vec<f64>>,
    virtual_end: BTreeMap<OpId, Vec<f64>>,
    /// The step's earliest start, one a sample.
    origin: Vec<f64>,
    split: Split,
}

impl Splitting<'_> {
    fn start_of(&self, op: OpId) -> &[f64] {
        self.observed.start(op).unwrap_or_else(|| virtual_lane(&self.virtual_start, op))
    }

    fn end_of(&self, op: OpId) -> &[f64] {
        self.observed.end(op).unwrap_or_else(|| virtual_lane(&self.virtual_end, op))
    }

    fn start(&mut self, op: OpId, ready: &mut [f64]) {
        let deps = self.graph.deps(op);
        if deps.is_empty() {
            ready.copy_from_slice(&self.origin);
        } else {
            ready.fill(f64::NEG_INFINITY);
        }
        for &before in deps {
            raise(ready, self.end_of(before));
        }
        let grouped = self.graph.group_of(op).is_some();
        let at = op.0 as usize * self.split.samples;
        let lane = at..at + self.split.samples;
        if let (Some(start), Some(duration)) = (self.observed.start(op), self.observed.duration(op))
        {
            let delay = &mut self.split.launch_delay[lane.clone()];
            self.split.clamped_delays += difference(delay, start, ready);
            if !grouped {
                self.split.work[lane].copy_from_slice(duration);
            }
        } else {
            self.virtual_start.insert(op, ready.to_vec());
            if !grouped {
                self.virtual_end.insert(op, ready.to_vec());
            }
        }
    }

    fn finish(&mut self, member: OpId, together: &[f64]) {
        let at = member.0 as usize * self.split.samples;
        if let Some(end) = self.observed.end(member) {
            let transfer = &mut self.split.work[at..at + self.split.samples];
            self.split.clamped_transfers += difference(transfer, end, together);
        } else {
            self.virtual_end.insert(member, together.to_vec());
        }
    }
}

/// A barrier's values; the topological order has put them there before anything asks.
fn virtual_lane(lanes: &BTreeMap<OpId, Vec<f64>>, op: OpId) -> &[f64] {
    lanes.get(&op).map_or(&[], Vec::as_slice)
}

/// `target = later - earlier`, with clock errors set to 0; returns how many.
fn difference(target: &mut [f64], later: &[f64], earlier: &[f64]) -> usize {
    let mut clamped = 0;
    for ((t, a), b) in target.iter_mut().zip(later).zip(earlier) {
        let d = a - b;
        let wrong = d <= -CLAMP_S;
        clamped += usize::from(wrong);
        *t = if wrong { 0.0 } else { d };
    }
    clamped
}

fn raise(target: &mut [f64], other: &[f64]) {
    for (t, &o) in target.iter_mut().zip(other) {
        *t = if o > *t { o } else { *t };
    }
}

/// The step's earliest start over all operations and replicas, one a sample.
fn step_starts(graph: &StepGraph, observed: &Observed) -> Vec<f64> {
    let mut origin = vec![f64::INFINITY; observed.samples()];
    for start in graph.iter().filter_map(|(id, _)| observed.start(id)) {
        for (o, &s) in origin.iter_mut().zip(start) {
            *o = s.min(*o);
        }
    }
    for step in origin.chunks_mut(graph.replicas() as usize) {
        let first = step.iter().copied().fold(f64::INFINITY, f64::min);
        step.fill(first);
    }
    origin
}

/// Recorded step times: latest end less earliest start over all operations and replicas, seconds,
/// one a step.
pub fn recorded_step_times(graph: &StepGraph, observed: &Observed) -> Vec<f64> {
    let replicas = graph.replicas() as usize;
    let mut last = vec![f64::NEG_INFINITY; observed.samples()];
    for end in graph.iter().filter_map(|(id, _)| observed.end(id)) {
        raise(&mut last, end);
    }
    let first = step_starts(graph, observed);
    last.chunks(replicas)
        .zip(first.chunks(replicas))
        .map(|(end, start)| end.iter().copied().fold(f64::NEG_INFINITY, f64::max) - start[0])
        .collect()
}
