//! Work without variation, and work replaced in part.

use std::collections::BTreeMap;

use prism_graph::{GraphError, Op, StepGraph};
use prism_model::{KernelClass, OpKind};
use serde::{Deserialize, Serialize};

use super::Split;

/// One duration for each kind of operation, over all steps, replicas and stages.
///
/// The mean of the work for compute, gc and optimizer; the median for everything else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Ideal {
    /// Seconds by kind.
    pub work_s: BTreeMap<OpKind, f64>,
}

impl Ideal {
    /// Takes each kind's ideal from the split of recorded steps.
    pub fn new(graph: &StepGraph, split: &Split) -> Ideal {
        let mut work: BTreeMap<OpKind, Vec<f64>> = BTreeMap::new();
        for (id, op) in graph.iter() {
            work.entry(op.kind).or_default().extend_from_slice(split.work_of(id));
        }
        let work_s = work
            .into_iter()
            .map(|(kind, values)| {
                let averaged = matches!(
                    kind.class(),
                    KernelClass::Compute | KernelClass::Memory | KernelClass::Host
                );
                (kind, if averaged { mean(&values) } else { median(values) })
            })
            .collect();
        Ideal { work_s }
    }

    /// The ideal as a flat `[operation][step][replica]` array of `samples` values an operation,
    /// seconds.
    pub fn work(&self, graph: &StepGraph, samples: usize) -> Vec<f64> {
        let mut work = Vec::with_capacity(graph.ops().len() * samples);
        for op in graph.ops() {
            let ideal = self.work_s.get(&op.kind).copied().unwrap_or(0.0);
            work.resize(work.len() + samples, ideal);
        }
        work
    }
}

/// `base`, with the values of `other` where `select(op, step, replica)` holds.
///
/// Both are flat `[operation][step][replica]` arrays for `steps` steps.
///
/// # Errors
/// [`GraphError::Shape`] if an array has the wrong length.
pub fn replace(
    graph: &StepGraph,
    steps: usize,
    base: &[f64],
    other: &[f64],
    select: impl Fn(&Op, usize, u32) -> bool,
) -> Result<Vec<f64>, GraphError> {
    let samples = steps.saturating_mul(graph.replicas() as usize);
    let expected = graph.ops().len().saturating_mul(samples);
    for (what, values) in [("base", base), ("other", other)] {
        if values.len() != expected {
            return Err(GraphError::Shape { what, got: values.len(), expected });
        }
    }
    let mut work = base.to_vec();
    for (id, op) in graph.iter() {
        for step in 0..steps {
            for replica in 0..graph.replicas() {
                if select(op, step, replica) {
                    let at = id.0 as usize * samples
                        + step * graph.replicas() as usize
                        + replica as usize;
                    work[at] = other[at];
                }
            }
        }
    }
    Ok(work)
}

/// Arithmetic mean; 0 of nothing.
pub(super) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Median, the mean of the middle two for an even number; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    let n = values.len();
    if n == 0 {
        return 0.0;
    }
    let (below, &mut upper, _) = values.select_nth_unstable_by(n / 2, f64::total_cmp);
    if n % 2 == 1 {
        upper
    } else {
        let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        f64::midpoint(lower, upper)
    }
}
