//! Communication and step-level work of a planned job's model.

use std::collections::BTreeMap;

use prism_graph::{OpId, ReplicaSync};
use prism_model::{KernelClass, OpKind, Signature, StepVector, TransferModel};
use prism_stats::{Distribution, Law};

use super::PlannedError;
use super::assemble::{Assembly, given};
use super::lanes::shuffled;
use super::model::strata;
use crate::predict::log_mean_exp;

/// Rows of a point-to-point transfer.
const ROWS: usize = 1_024;

impl Assembly<'_> {
    fn mean_s(&self, op: OpId) -> f64 {
        self.step.work_s[op.0 as usize]
    }

    /// Factor of each step's communication, bursts included; empty if there is none.
    pub(super) fn congestion(&self) -> Result<Vec<f32>, PlannedError> {
        let t = self.temporal;
        let (p, factor) = t.burst;
        if t.congestion_sd == 0.0 && p == 0.0 {
            return Ok(Vec::new());
        }
        let usual = shuffled(&strata(self.steps, t.congestion_sd)?, self.seed, "congestion", &[]);
        let n = self.steps as f64;
        let slow = |i: usize| (i as f64 + 0.5) / n > 1.0 - p;
        let bursts: Vec<f64> =
            (0..self.steps).map(|i| if slow(i) { factor } else { 1.0 }).collect();
        let bursts = shuffled(&bursts, self.seed, "burst", &[]);
        let all: Vec<f64> = usual.iter().zip(&bursts).map(|(u, b)| u.exp() * b).collect();
        // What the strata hold of bursts is a whole number of steps; the mean is that of the law.
        let mean = all.iter().sum::<f64>() / n;
        let wanted = 1.0 + p * (factor - 1.0);
        Ok(all.iter().map(|v| (v * wanted / mean) as f32).collect())
    }

    /// One model a hop: all its instances have one law.
    pub(super) fn transfers(&self) -> Result<Vec<TransferModel>, PlannedError> {
        let graph = &self.step.planned.graph;
        let mut hops: BTreeMap<(Vec<Signature>, Vec<u64>), Vec<OpId>> = BTreeMap::new();
        for group in graph.groups() {
            let op = |id: &OpId| &graph.ops()[id.0 as usize];
            if group.members.iter().all(|id| op(id).kind.is_p2p()) {
                let members = group.members.iter().map(|id| op(id).signature()).collect();
                let means = group.members.iter().map(|id| self.mean_s(*id).to_bits()).collect();
                hops.entry((members, means)).or_default().extend(&group.members);
            }
        }
        let sd = self.temporal.transfer_sd;
        let factors = if sd > 0.0 { strata(ROWS, sd)? } else { vec![0.0] };
        let mut out = Vec::with_capacity(hops.len());
        for ((members, means), ops) in hops {
            let means: Vec<f64> = means.into_iter().map(f64::from_bits).collect();
            let first = members[0];
            let entity = [u64::from(first.stage), i64::from(first.chunk) as u64];
            let rows = shuffled(&factors, self.seed, first.kind.as_str(), &entity);
            let laws = means
                .iter()
                .map(|&mean| {
                    if sd == 0.0 || mean <= 0.0 {
                        return Ok(None);
                    }
                    Ok(Some(given(Law::log_normal(mean.ln() - 0.5 * sd * sd, sd)?)))
                })
                .collect::<Result<_, PlannedError>>()?;
            out.push(TransferModel {
                members,
                ops: ops.iter().map(|id| id.0).collect(),
                by_instance: false,
                by_replica: false,
                rows_s: rows
                    .iter()
                    .flat_map(|f| means.iter().map(|mean| (mean * f.exp()) as f32))
                    .collect(),
                laws,
            });
        }
        Ok(out)
    }

    /// Deviation of each step's fixed overhead, seconds; empty if there is none.
    fn overhead(&self) -> Result<Vec<f64>, PlannedError> {
        let sd = self.temporal.overhead_sd_s;
        if sd == 0.0 {
            return Ok(Vec::new());
        }
        let normal = Law::normal(0.0, 1.0)?;
        let n = self.steps.max(1) as f64;
        let scores: Vec<f64> =
            (0..self.steps).map(|i| normal.quantile((i as f64 + 0.5) / n)).collect();
        // Midpoints spread a little less than the law they stand for.
        let spread = (scores.iter().map(|z| z * z).sum::<f64>() / n).sqrt();
        let factor = sd / spread.max(f64::MIN_POSITIVE);
        let deviations: Vec<f64> = scores.iter().map(|z| z * factor).collect();
        Ok(shuffled(&deviations, self.seed, "overhead", &[]))
    }

    /// Collectives, drawn once for all that take part, and what does not vary.
    pub(super) fn step_work(&self, congestion: &[f32]) -> Result<Vec<StepVector>, PlannedError> {
        let graph = &self.step.planned.graph;
        let factors = strata(self.steps, self.temporal.transfer_sd)?;
        let varies = self.temporal.transfer_sd > 0.0 || !congestion.is_empty();
        let overhead = self.overhead()?;
        let mut out = Vec::new();
        for (id, op) in graph.iter() {
            if op.kind.is_microbatch_compute() || op.kind.is_p2p() {
                continue;
            }
            let mean = self.mean_s(id);
            if op.kind == OpKind::Optimizer && !overhead.is_empty() {
                // The fixed overhead is part of it, the same everywhere in a step.
                let lane = overhead.iter().map(|d| (mean + d).max(0.0) as f32);
                let values_s = (0..self.replicas).flat_map(|_| lane.clone()).collect();
                out.push(StepVector { op: id.0, values_s });
                continue;
            }
            if op.kind.class() != KernelClass::Collective || !varies || mean == 0.0 {
                let values_s = vec![mean as f32; self.replicas];
                out.push(StepVector { op: id.0, values_s });
                continue;
            }
            let group = graph.group_of(id).map(|g| &graph.groups()[g.0 as usize]);
            let shared = group.is_some_and(|g| g.sync == ReplicaSync::All);
            let first = group.and_then(|g| g.members.first().copied()).unwrap_or(id);
            let named = &graph.ops()[first.0 as usize];
            let mut values_s = Vec::with_capacity(self.replicas * self.steps);
            for r in 0..self.replicas {
                let replica = if shared { 0 } else { r as u64 };
                let entity = [u64::from(named.stage), u64::from(named.seq), replica];
                let lane = shuffled(&factors, self.seed, named.kind.as_str(), &entity);
                values_s.extend(with_congestion(mean, &lane, congestion));
            }
            out.push(StepVector { op: id.0, values_s });
        }
        Ok(out)
    }
}

/// Values of a collective by step, seconds, with the mean that both factors have together.
fn with_congestion<'a>(
    mean_s: f64,
    lane: &'a [f64],
    congestion: &'a [f32],
) -> impl Iterator<Item = f32> + 'a {
    let both =
        move |(t, log): (usize, &f64)| log + congestion.get(t).map_or(0.0, |c| f64::from(*c).ln());
    let logs: Vec<f64> = lane.iter().enumerate().map(both).collect();
    let usual = congestion.iter().map(|c| f64::from(*c)).sum::<f64>();
    let usual = if congestion.is_empty() { 1.0 } else { usual / congestion.len() as f64 };
    let shift = (mean_s * usual).ln() - log_mean_exp(logs.iter().copied());
    logs.into_iter().map(move |v| (v + shift).exp() as f32)
}
