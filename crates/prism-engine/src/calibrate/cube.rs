//! Log durations of microbatch compute as a balanced array.

use prism_graph::{Observed, OpId, StepGraph};
use prism_model::{DurationModel, Signature};

use super::CalibrateError;

/// Log durations (seconds) of forward and backward compute, `[c][m][t][r]`: signature, microbatch
/// position, step, replica.
#[derive(Clone, Debug)]
pub(crate) struct Cube {
    pub(crate) signatures: Vec<Signature>,
    /// Graph operations, `[c][m]`.
    pub(crate) ops: Vec<Vec<OpId>>,
    pub(crate) microbatches: usize,
    pub(crate) steps: usize,
    pub(crate) replicas: usize,
    values: Vec<f64>,
}

impl Cube {
    /// Collects the compute of a graph for the steps and replicas given by index.
    ///
    /// # Errors
    /// If signatures have different numbers of microbatches, or a duration is not positive.
    pub(crate) fn collect(
        graph: &StepGraph,
        observed: &Observed,
        steps: &[usize],
        replicas: &[usize],
    ) -> Result<Cube, CalibrateError> {
        let (signatures, ops) = compute_ops(graph)?;
        let microbatches = ops.first().map_or(0, Vec::len);
        let all_replicas = observed.replicas() as usize;
        let mut values =
            Vec::with_capacity(signatures.len() * microbatches * steps.len() * replicas.len());
        for &id in ops.iter().flatten() {
            let durations = observed.duration(id).unwrap_or_default();
            for &t in steps {
                for &r in replicas {
                    let d = durations[t * all_replicas + r];
                    if d <= 0.0 || !d.is_finite() {
                        return Err(CalibrateError::NotPositive {
                            op: graph.ops()[id.0 as usize].clone(),
                            step: observed.steps()[t],
                            replica: r as u32,
                            duration_s: d,
                        });
                    }
                    // Profiles store single precision: what is computed from a trace and from its
                    // profile must not differ.
                    values.push(f64::from(d.ln() as f32));
                }
            }
        }
        let (steps, replicas) = (steps.len(), replicas.len());
        Ok(Cube { signatures, ops, microbatches, steps, replicas, values })
    }

    /// The array that a stored model was calibrated on, restricted to the given rows of its steps;
    /// a row may be given several times.
    pub(crate) fn of_model(model: &DurationModel, rows: &[usize]) -> Cube {
        let compute = &model.compute;
        let (steps, replicas) = (model.steps.len(), model.replicas as usize);
        let values = compute
            .observations_log_s
            .chunks(steps * replicas)
            .flat_map(|m| rows.iter().flat_map(|&t| &m[t * replicas..(t + 1) * replicas]))
            .map(|&v| f64::from(v))
            .collect();
        Cube {
            signatures: compute.signatures.iter().map(|s| s.signature).collect(),
            ops: compute
                .signatures
                .iter()
                .map(|s| s.ops.iter().map(|&i| OpId(i)).collect())
                .collect(),
            microbatches: model.microbatches as usize,
            steps: rows.len(),
            replicas,
            values,
        }
    }

    /// All values, `[c][m][t][r]`.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// Number of signatures.
    pub(crate) fn len(&self) -> usize {
        self.signatures.len()
    }

    /// All values of one signature, `[m][t][r]`.
    pub(crate) fn signature(&self, c: usize) -> &[f64] {
        let n = self.microbatches * self.steps * self.replicas;
        &self.values[c * n..(c + 1) * n]
    }

    pub(crate) fn signature_mut(&mut self, c: usize) -> &mut [f64] {
        let n = self.microbatches * self.steps * self.replicas;
        &mut self.values[c * n..(c + 1) * n]
    }

    /// (step, replica) pairs.
    pub(crate) fn cells(&self) -> usize {
        self.steps * self.replicas
    }
}

/// Compute operations by signature and microbatch position.
fn compute_ops(graph: &StepGraph) -> Result<(Vec<Signature>, Vec<Vec<OpId>>), CalibrateError> {
    let mut by_signature: std::collections::BTreeMap<Signature, Vec<(i32, OpId)>> =
        std::collections::BTreeMap::new();
    for (i, op) in graph.ops().iter().enumerate().filter(|(_, o)| o.kind.is_microbatch_compute()) {
        let position = if op.microbatch >= 0 { op.microbatch } else { op.seq as i32 };
        by_signature.entry(op.signature()).or_default().push((position, OpId(i as u32)));
    }
    let counts: Vec<(Signature, usize)> =
        by_signature.iter().map(|(s, ops)| (*s, ops.len())).collect();
    if counts.is_empty() {
        return Err(CalibrateError::NoCompute);
    }
    if let Some(odd) = counts.iter().find(|(_, n)| *n != counts[0].1) {
        return Err(CalibrateError::Unbalanced {
            first: counts[0].0,
            first_count: counts[0].1,
            other: odd.0,
            other_count: odd.1,
        });
    }
    let mut signatures = Vec::new();
    let mut ops = Vec::new();
    for (signature, mut list) in by_signature {
        list.sort_unstable();
        signatures.push(signature);
        ops.push(list.into_iter().map(|(_, id)| id).collect());
    }
    Ok((signatures, ops))
}

/// Window of each step: a new one begins where the gap between step ids exceeds both 10 and ten
/// times the median gap.
pub fn windows(steps: &[i64]) -> Vec<u32> {
    let mut gaps: Vec<i64> = steps.windows(2).map(|w| w[1] - w[0]).collect();
    let by_step = gaps.clone();
    gaps.sort_unstable();
    let limit = gaps.get(gaps.len() / 2).map_or(10, |&median| (10 * median).max(10));
    let mut window = 0;
    let mut out = Vec::with_capacity(steps.len());
    for i in 0..steps.len() {
        if i > 0 && by_step[i - 1] > limit {
            window += 1;
        }
        out.push(window);
    }
    out
}
