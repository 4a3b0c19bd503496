//! Step times alone, block by block, with durations that need not exist as arrays.

use std::ops::Range;

use crate::evaluate::{check_shape, lane, raise};
use crate::{Event, GraphError, OpId, StepGraph, synchronise};

/// Samples evaluated together by [`step_times`]: the times of a graph of some thousand operations
/// stay in the second-level cache.
const BLOCK: usize = 32;

/// Durations of a graph's operations, however they are kept.
///
/// A sample is a (step, replica) pair, `step * replicas + replica`.
pub trait Durations {
    /// Adds the own work of `op` in the samples from `first` on, seconds, to `times`.
    fn add_work(&self, op: OpId, first: usize, times: &mut [f64]);

    /// Adds the launch delay of `op` in the samples from `first` on, seconds, to `times`. Without
    /// an implementation there is none.
    fn add_launch_delay(&self, _op: OpId, _first: usize, _times: &mut [f64]) {}
}

/// Durations in flat `[operation][step][replica]` arrays.
#[derive(Clone, Copy, Debug)]
pub struct ArrayDurations<'a> {
    samples: usize,
    work: &'a [f64],
    launch_delay: Option<&'a [f64]>,
}

impl<'a> ArrayDurations<'a> {
    /// Work and launch delays of `steps` steps, seconds.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if an array has the wrong length.
    pub fn new(
        graph: &StepGraph,
        steps: usize,
        work: &'a [f64],
        launch_delay: Option<&'a [f64]>,
    ) -> Result<ArrayDurations<'a>, GraphError> {
        let samples = steps.saturating_mul(graph.replicas() as usize);
        check_shape("work", work, graph, samples)?;
        if let Some(delay) = launch_delay {
            check_shape("launch_delay", delay, graph, samples)?;
        }
        Ok(ArrayDurations { samples, work, launch_delay })
    }
}

impl Durations for ArrayDurations<'_> {
    fn add_work(&self, op: OpId, first: usize, times: &mut [f64]) {
        add(times, &lane(self.work, op, self.samples)[first..]);
    }

    fn add_launch_delay(&self, op: OpId, first: usize, times: &mut [f64]) {
        if let Some(delay) = self.launch_delay {
            add(times, &lane(delay, op, self.samples)[first..]);
        }
    }
}

/// Evaluates blocks of steps of one graph, to step times only.
///
/// The same numbers, to the bit, as [`crate::evaluate()`] and [`crate::Timeline::step_times`]. It
/// keeps one time an operation and sample, the ready time of a grouped operation until its group
/// starts and its end from then on, and the memory from block to block.
#[derive(Clone, Debug)]
pub struct StepTimes<'a> {
    graph: &'a StepGraph,
    times: Vec<f64>,
    common: Vec<f64>,
}

impl<'a> StepTimes<'a> {
    /// An evaluator of `graph`.
    pub fn new(graph: &'a StepGraph) -> StepTimes<'a> {
        StepTimes { graph, times: Vec::new(), common: Vec::new() }
    }

    /// Appends the step times, seconds, of the steps in this range to `out`.
    pub fn append(&mut self, steps: Range<usize>, durations: &impl Durations, out: &mut Vec<f64>) {
        let replicas = self.graph.replicas() as usize;
        let (first, samples) = (steps.start * replicas, steps.len() * replicas);
        self.times.resize(self.graph.ops().len() * samples, 0.0);
        self.common.resize(samples, 0.0);
        for &event in self.graph.order() {
            match event {
                Event::Start(op) => self.start(op, first, durations),
                Event::Group(group) => {
                    let group = &self.graph.groups()[group.0 as usize];
                    self.common.fill(f64::NEG_INFINITY);
                    for &member in &group.members {
                        raise(&mut self.common, lane(&self.times, member, samples));
                    }
                    synchronise(&mut self.common, self.graph.replicas(), group.sync);
                    for &member in &group.members {
                        let end = &mut self.times[member.0 as usize * samples..][..samples];
                        end.copy_from_slice(&self.common);
                        durations.add_work(member, first, end);
                    }
                }
            }
        }
        self.common.fill(0.0);
        for &sink in self.graph.sinks() {
            raise(&mut self.common, lane(&self.times, sink, samples));
        }
        out.extend(self.common.chunks(replicas).map(|r| r.iter().copied().fold(0.0, f64::max)));
    }

    fn start(&mut self, op: OpId, first: usize, durations: &impl Durations) {
        let samples = self.common.len();
        self.common.fill(0.0);
        for &before in self.graph.deps(op) {
            raise(&mut self.common, lane(&self.times, before, samples));
        }
        durations.add_launch_delay(op, first, &mut self.common);
        if self.graph.group_of(op).is_none() {
            durations.add_work(op, first, &mut self.common);
        }
        self.times[op.0 as usize * samples..][..samples].copy_from_slice(&self.common);
    }
}

/// How many steps of a graph are best evaluated together.
pub fn steps_per_block(graph: &StepGraph) -> usize {
    (BLOCK / graph.replicas() as usize).max(1)
}

/// Step times of `steps` steps, seconds.
pub fn step_times(graph: &StepGraph, steps: usize, durations: &impl Durations) -> Vec<f64> {
    let mut out = Vec::with_capacity(steps);
    let mut evaluator = StepTimes::new(graph);
    let block = steps_per_block(graph);
    for first in (0..steps).step_by(block) {
        evaluator.append(first..steps.min(first + block), durations, &mut out);
    }
    out
}

fn add(target: &mut [f64], other: &[f64]) {
    for (t, o) in target.iter_mut().zip(other) {
        *t += o;
    }
}
