//! Exact evaluation of a graph with given durations, all steps and replicas at once.

use crate::{Event, GraphError, OpId, ReplicaSync, StepGraph};

/// When every operation of every step and replica starts and ends.
///
/// A *sample* is a (step, replica) pair, at index `step * replicas + replica`. The start of a
/// grouped operation is when it is ready itself, not when its group starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    samples: usize,
    start: Vec<f64>,
    end: Vec<f64>,
}

impl Timeline {
    /// A timeline from flat `[operation][sample]` arrays of ready times and ends, seconds since the
    /// step's start.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if an array has the wrong length.
    pub fn from_parts(
        graph: &StepGraph,
        samples: usize,
        start: Vec<f64>,
        end: Vec<f64>,
    ) -> Result<Timeline, GraphError> {
        check_shape("start", &start, graph, samples)?;
        check_shape("end", &end, graph, samples)?;
        Ok(Timeline { samples, start, end })
    }

    /// Ready times of `op`, seconds since the step's start, one a sample.
    pub fn start(&self, op: OpId) -> &[f64] {
        lane(&self.start, op, self.samples)
    }

    /// Ends of `op`, seconds since the step's start, one a sample.
    pub fn end(&self, op: OpId) -> &[f64] {
        lane(&self.end, op, self.samples)
    }

    /// Steps times replicas.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The latest end of the graph's sinks over the replicas, one a step; seconds.
    pub fn step_times(&self, graph: &StepGraph) -> Vec<f64> {
        let mut last = vec![0.0; self.samples];
        for &sink in graph.sinks() {
            raise(&mut last, self.end(sink));
        }
        last.chunks(graph.replicas() as usize)
            .map(|replicas| replicas.iter().copied().fold(0.0, f64::max))
            .collect()
    }
}

/// Values of one operation in a flat `[operation][sample]` array.
pub(crate) fn lane(values: &[f64], op: OpId, samples: usize) -> &[f64] {
    &values[op.0 as usize * samples..][..samples]
}

/// `target = max(target, other)`, element by element.
pub(crate) fn raise(target: &mut [f64], other: &[f64]) {
    for (t, &o) in target.iter_mut().zip(other) {
        *t = if o > *t { o } else { *t };
    }
}

/// Sets every value to the maximum over the replicas it waits for.
///
/// `values` holds samples, `step * replicas + replica`.
pub fn synchronise(values: &mut [f64], replicas: u32, sync: ReplicaSync) {
    let block = match sync {
        ReplicaSync::None => return,
        ReplicaSync::All => replicas,
        ReplicaSync::Blocks(block) => block,
    };
    for waiting in values.chunks_mut(block as usize) {
        let last = waiting.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        waiting.fill(last);
    }
}

/// Evaluates the graph for `steps` steps.
///
/// `work` and `launch_delay` are flat `[operation][step][replica]` arrays, seconds; without
/// `launch_delay` there is none. `start = max(end of dependencies) + launch delay`; an operation
/// in no group ends at `start + work`, a grouped one at the latest start over its group and the
/// replicas that the group waits for, plus its own work.
///
/// # Errors
/// [`GraphError::Shape`] if an array has the wrong length.
pub fn evaluate(
    graph: &StepGraph,
    steps: usize,
    work: &[f64],
    launch_delay: Option<&[f64]>,
) -> Result<Timeline, GraphError> {
    let samples = steps.saturating_mul(graph.replicas() as usize);
    check_shape("work", work, graph, samples)?;
    if let Some(delay) = launch_delay {
        check_shape("launch_delay", delay, graph, samples)?;
    }
    let mut start = vec![0.0; work.len()];
    let mut end = vec![0.0; work.len()];
    let mut together = vec![0.0; samples];
    for &event in graph.order() {
        match event {
            Event::Start(id) => {
                let at = id.0 as usize * samples;
                let ready = &mut start[at..at + samples];
                for &before in graph.deps(id) {
                    raise(ready, lane(&end, before, samples));
                }
                if let Some(delay) = launch_delay {
                    add(ready, lane(delay, id, samples));
                }
                if graph.group_of(id).is_none() {
                    sum(&mut end[at..at + samples], ready, lane(work, id, samples));
                }
            }
            Event::Group(id) => {
                let group = &graph.groups()[id.0 as usize];
                together.fill(f64::NEG_INFINITY);
                for &member in &group.members {
                    raise(&mut together, lane(&start, member, samples));
                }
                synchronise(&mut together, graph.replicas(), group.sync);
                for &member in &group.members {
                    let at = member.0 as usize * samples;
                    sum(&mut end[at..at + samples], &together, lane(work, member, samples));
                }
            }
        }
    }
    Ok(Timeline { samples, start, end })
}

/// Checks that `values` has one value for each operation and sample.
pub(crate) fn check_shape(
    what: &'static str,
    values: &[f64],
    graph: &StepGraph,
    samples: usize,
) -> Result<(), GraphError> {
    let expected = graph.ops().len().saturating_mul(samples);
    if values.len() == expected {
        Ok(())
    } else {
        Err(GraphError::Shape { what, got: values.len(), expected })
    }
}

fn add(target: &mut [f64], other: &[f64]) {
    for (t, o) in target.iter_mut().zip(other) {
        *t += o;
    }
}

fn sum(target: &mut [f64], a: &[f64], b: &[f64]) {
    for ((t, a), b) in target.iter_mut().zip(a).zip(b) {
        *t = a + b;
    }
}
