//! Sampled steps, operation by operation.

use prism_graph::{StepGraph, Timeline};

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
    let timeline = Timeline::new(graph, run.samples, ready, end)?;
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
