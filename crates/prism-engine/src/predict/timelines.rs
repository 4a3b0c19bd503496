//! Sampled steps, operation by operation.

use prism_graph::{StepGraph, Timeline, synchronise};

use super::PredictError;
use crate::sample::{RunOptions, Samples, Tape};

/// Sampled steps: when every operation of every sample and replica is ready and ends.
///
/// A flat index is `sample * replicas + replica`, as for recorded steps, so that what is done with
/// one can be done with the other. Values were computed in single precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Timelines {
    /// Ready times and ends.
    pub timeline: Timeline,
    /// Step times, seconds, one a sample.
    pub step_s: Vec<f64>,
}

/// Runs a tape that was lowered with [`super::Probes::timeline`] and collects its operations' times.
///
/// # Errors
/// [`PredictError::Sample`] if the tape cannot be run, [`PredictError::NoTimeline`] if it was lowered
/// without the probe.
pub fn timelines(
    graph: &StepGraph,
    tape: &Tape,
    run: &RunOptions,
) -> Result<Timelines, PredictError> {
    let samples = tape.run(run)?;
    let step_s: Vec<f64> = samples
        .get("step")
        .ok_or(PredictError::NoTimeline)?
        .row(0)
        .iter()
        .map(|&v| f64::from(v))
        .collect();
    let ready = collect(graph, &samples, "ready", run.samples)?;
    let end = collect(graph, &samples, "end", run.samples)?;
    let width = run.samples * graph.replicas() as usize;
    let timeline = Timeline::from_parts(graph, width, ready, end)?;
    Ok(Timelines { timeline, step_s })
}

/// One kind of times as a flat `[operation][sample][replica]` array.
fn collect(
    graph: &StepGraph,
    samples: &Samples,
    what: &str,
    count: usize,
) -> Result<Vec<f64>, PredictError> {
    let replicas = graph.replicas() as usize;
    let mut by_name = std::collections::BTreeMap::new();
    for output in samples.outputs() {
        if let Some(id) = output.name().strip_prefix(what).and_then(|n| n.strip_prefix('#')) {
            by_name.insert(id, output);
        }
    }
    let mut out = Vec::with_capacity(graph.ops().len() * count * replicas);
    for at in 0..graph.ops().len() {
        let output = by_name.get(at.to_string().as_str()).ok_or(PredictError::NoTimeline)?;
        for sample in 0..count {
            for replica in 0..replicas {
                // A value that is the same for all replicas has one row.
                let row = output.row(if output.rows() == 1 { 0 } else { replica });
                out.push(f64::from(row[sample]));
            }
        }
    }
    Ok(out)
}

impl Timelines {
    /// Own work and launch delays, flat `[operation][sample][replica]` arrays in seconds: what
    /// [`prism_graph::evaluate`] needs to compute the same steps again, with changes.
    ///
    /// The launch delay is the ready time less the latest end of the operation's dependencies; where
    /// that is negative, because a dependency found in the data does not bind on a replica, it is
    /// negative here too. The work of a grouped operation is its transfer.
    pub fn split(&self, graph: &StepGraph) -> (Vec<f64>, Vec<f64>) {
        let samples = self.timeline.samples();
        let mut work = Vec::with_capacity(graph.ops().len() * samples);
        let mut delay = Vec::with_capacity(graph.ops().len() * samples);
        let mut together = vec![0.0; samples];
        for (id, _) in graph.iter() {
            let ready = self.timeline.start(id);
            let begin = match graph.group_of(id) {
                None => ready,
                Some(group) => {
                    let group = &graph.groups()[group.0 as usize];
                    together.fill(f64::NEG_INFINITY);
                    for &member in &group.members {
                        raise(&mut together, self.timeline.start(member));
                    }
                    synchronise(&mut together, graph.replicas(), group.sync);
                    &together
                }
            };
            work.extend(self.timeline.end(id).iter().zip(begin).map(|(e, b)| e - b));
            let mut before = vec![0.0; samples];
            for &on in graph.deps(id) {
                raise(&mut before, self.timeline.end(on));
            }
            delay.extend(ready.iter().zip(&before).map(|(r, b)| r - b));
        }
        (work, delay)
    }
}

fn raise(target: &mut [f64], other: &[f64]) {
    for (t, &o) in target.iter_mut().zip(other) {
        *t = t.max(o);
    }
}
