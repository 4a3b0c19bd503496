//! One side's model with a part as on the other side.

use std::collections::BTreeMap;

use prism_model::{
    DurationModel, EffectKind, ImpliedDependency, Signature, StepVector, TransferModel,
};

use super::cells::Cell;
use super::report::{Measure, Part, Scope};
use super::side::{OpName, Side};

/// A part that can be changed in a model.
pub(super) struct Edit {
    pub(super) scope: Scope,
    pub(super) measure: Measure,
    pub(super) cells: Vec<Cell>,
    /// How a launch delay's change is spread over the operations of each cell: factors of mean 1.
    shapes: Vec<BTreeMap<OpName, f64>>,
}

/// A shape is trusted where the plain means differ by at least this share of the estimated change.
const TRUSTED: f64 = 0.2;

impl Edit {
    /// The change of a set of cells by `change` (seconds for launch delays, else not needed here).
    pub(super) fn new(
        a: &Side<'_>,
        b: &Side<'_>,
        (scope, measure): (Scope, Measure),
        cells: Vec<Cell>,
        change: f64,
    ) -> Edit {
        let shapes = if scope.part == Part::LaunchDelay {
            cells.iter().map(|c| shape(a, b, c, change)).collect()
        } else {
            Vec::new()
        };
        Edit { scope, measure, cells, shapes }
    }

    /// Changes a model of this side: by a factor `exp(change)`, or by `change` seconds where that is
    /// measured. `false` if the model has no such part.
    pub(super) fn apply(&self, side: &Side<'_>, model: &mut DurationModel, change: f64) -> bool {
        match self.scope.part {
            Part::Compute => self.compute(model, change),
            Part::Transfer => self.transfers(model, change),
            Part::StepWork => self.step_work(side, model, change),
            Part::LaunchDelay => self.launch_delays(side, model, change),
            Part::Spread => self.spread(model, change),
        }
    }

    fn compute(&self, model: &mut DurationModel, change: f64) -> bool {
        let replicas = model.replicas as usize;
        let compute = &mut model.compute;
        if compute.worker_log.is_empty() {
            compute.worker_log = vec![0.0; compute.signatures.len() * replicas];
        }
        let mut done = false;
        for cell in &self.cells {
            for (c, s) in compute.signatures.iter().enumerate() {
                if Some(s.signature) == cell.signature() {
                    for r in replicas_of(cell, replicas) {
                        compute.worker_log[c * replicas + r] += change;
                        done = true;
                    }
                }
            }
        }
        done
    }

    fn changed(&self, value: f32, change: f64) -> f32 {
        (match self.measure {
            Measure::Seconds => f64::from(value) + change,
            Measure::Duration | Measure::SdLog => f64::from(value) * change.exp(),
        }) as f32
    }

    fn transfers(&self, model: &mut DurationModel, change: f64) -> bool {
        let replicas = model.replicas as usize;
        let mut done = false;
        for cell in &self.cells {
            for transfer in model.transfers.iter_mut().filter(|t| t.members == cell.members) {
                if cell.dp.is_some() {
                    by_replica(transfer, replicas);
                }
                let pools = transfer.cells(replicas).max(1);
                let size = transfer.rows_s.len() / pools;
                for (i, pool) in transfer.rows_s.chunks_mut(size.max(1)).enumerate() {
                    if cell.dp.is_none_or(|dp| i % replicas == dp as usize) {
                        for v in pool.iter_mut() {
                            *v = self.changed(*v, change);
                        }
                        done = true;
                    }
                }
            }
        }
        done
    }

    fn step_work(&self, side: &Side<'_>, model: &mut DurationModel, change: f64) -> bool {
        let replicas = model.replicas as usize;
        let mut done = false;
        for vector in &mut model.step_work {
            let signature = side.graph.ops()[vector.op as usize].signature();
            for cell in self.cells.iter().filter(|c| c.signature() == Some(signature)) {
                let lane = vector.values_s.len() / replicas;
                for r in replicas_of(cell, replicas) {
                    for v in &mut vector.values_s[r * lane..(r + 1) * lane] {
                        *v = self.changed(*v, change);
                    }
                    done = true;
                }
            }
        }
        done
    }

    fn launch_delays(&self, side: &Side<'_>, model: &mut DurationModel, change: f64) -> bool {
        let (replicas, steps) = (model.replicas as usize, model.steps.len());
        let mut done = false;
        for (cell, shape) in self.cells.iter().zip(&self.shapes) {
            let Some(ops) = cell.signature().and_then(|s| side.ops.get(&s)) else { continue };
            for &op in ops {
                let Some(factor) = shape.get(&side.name(op)) else { continue };
                let shift = (change * factor) as f32;
                for r in replicas_of(cell, replicas) {
                    done = true;
                    let lag = model.implied.iter_mut().find(|d| d.op == op.0);
                    if let Some(lag) = lag {
                        let lane = &mut lag.lag_s[r * steps..(r + 1) * steps];
                        if lane.iter().all(|l| *l > ImpliedDependency::INACTIVE_S) {
                            for l in lane.iter_mut() {
                                *l += shift;
                            }
                            continue;
                        }
                    }
                    let vector = delay_of(&mut model.launch_delay, op.0, replicas);
                    let lane = vector.values_s.len() / replicas;
                    let own = &mut vector.values_s[r * lane..(r + 1) * lane];
                    for v in own.iter_mut() {
                        *v += shift;
                    }
                }
            }
        }
        done
    }

    fn spread(&self, model: &mut DurationModel, change: f64) -> bool {
        let factor = change.exp() as f32;
        match self.scope.effect {
            Some(EffectKind::Microbatch) => self.inside(model, factor, true),
            Some(EffectKind::Residual) => self.inside(model, factor, false),
            Some(EffectKind::Step) => between(model, factor, true),
            Some(EffectKind::StepWorker) => between(model, factor, false),
            Some(EffectKind::Congestion) => {
                for c in &mut model.congestion {
                    *c = c.powf(factor);
                }
                !model.congestion.is_empty()
            }
            _ => false,
        }
    }

    /// Scales the common factor of microbatch rows, or what it leaves of some signatures.
    fn inside(&self, model: &mut DurationModel, factor: f32, common: bool) -> bool {
        let compute = &mut model.compute;
        let shared = compute.microbatch_shared;
        if compute.microbatch_vectors_log.is_empty() || (common && !shared) {
            return false;
        }
        let load: Vec<f32> = compute.signatures.iter().map(|s| s.microbatch_load as f32).collect();
        let norm: f32 = load.iter().map(|l| l * l).sum();
        let chosen: Vec<bool> = compute
            .signatures
            .iter()
            .map(|s| self.cells.iter().any(|c| c.signature() == Some(s.signature)))
            .collect();
        for row in compute.microbatch_vectors_log.chunks_mut(load.len()) {
            let f = if shared {
                row.iter().zip(&load).map(|(v, l)| v * l).sum::<f32>() / norm
            } else {
                0.0
            };
            for ((v, l), &chosen) in row.iter_mut().zip(&load).zip(&chosen) {
                let (part, rest) = (f * l, *v - f * l);
                if common {
                    *v = factor * part + rest;
                } else if chosen {
                    *v = part + factor * rest;
                }
            }
        }
        true
    }
}

/// Scales the step effect, or what single workers add to it.
fn between(model: &mut DurationModel, factor: f32, common: bool) -> bool {
    let steps = model.steps.len();
    let vectors = &mut model.compute.step_vectors_log;
    if vectors.is_empty() || steps == 0 {
        return false;
    }
    let lanes = (vectors.len() / steps) as f32;
    let mean: Vec<f32> =
        (0..steps).map(|t| vectors.iter().skip(t).step_by(steps).sum::<f32>() / lanes).collect();
    for lane in vectors.chunks_mut(steps) {
        for (v, m) in lane.iter_mut().zip(&mean) {
            *v = if common { factor * m + (*v - m) } else { m + factor * (*v - m) };
        }
    }
    true
}

fn replicas_of(cell: &Cell, replicas: usize) -> std::ops::Range<usize> {
    match cell.dp {
        Some(dp) => dp as usize..(dp as usize + 1).min(replicas),
        None => 0..replicas,
    }
}

/// Gives each replica rows of its own.
fn by_replica(transfer: &mut TransferModel, replicas: usize) {
    if transfer.by_replica {
        return;
    }
    let size = transfer.rows_s.len() / transfer.cells(replicas).max(1);
    let rows = transfer.rows_s.chunks(size.max(1));
    transfer.rows_s = rows.flat_map(|pool| pool.repeat(replicas)).collect();
    transfer.by_replica = true;
}

/// The launch delay of an operation, made where there is none.
fn delay_of(delays: &mut Vec<StepVector>, op: u32, replicas: usize) -> &mut StepVector {
    let at = delays.iter().position(|v| v.op == op).unwrap_or_else(|| {
        delays.push(StepVector { op, values_s: vec![0.0; replicas] });
        delays.len() - 1
    });
    &mut delays[at]
}

/// How the plain mean delays of a cell's operations differ, relative to their mean; even where that is
/// too small a part of the estimate to go by.
fn shape(a: &Side<'_>, b: &Side<'_>, cell: &Cell, change: f64) -> BTreeMap<OpName, f64> {
    let Some(signature) = cell.signature() else { return BTreeMap::new() };
    let (x, y) = (delays(a, signature, cell), delays(b, signature, cell));
    let names: Vec<OpName> = x.keys().filter(|n| y.contains_key(n)).copied().collect();
    let difference: Vec<f64> = names.iter().map(|n| y[n] - x[n]).collect();
    let mean = difference.iter().sum::<f64>() / names.len().max(1) as f64;
    if mean * change > 0.0 && mean.abs() > TRUSTED * change.abs() {
        return names.into_iter().zip(difference.iter().map(|d| d / mean)).collect();
    }
    let all = |side: &Side<'_>| -> Vec<OpName> {
        side.ops
            .get(&signature)
            .map_or_else(Vec::new, |o| o.iter().map(|op| side.name(*op)).collect())
    };
    all(a).into_iter().chain(all(b)).map(|n| (n, 1.0)).collect()
}

/// Mean delay (or lag) of each operation of a cell, seconds.
fn delays(side: &Side<'_>, signature: Signature, cell: &Cell) -> BTreeMap<OpName, f64> {
    let (replicas, steps) = (side.replicas(), side.steps());
    let model = side.model;
    let samples = (replicas_of(cell, replicas).len() * steps).max(1) as f64;
    let of = |op: u32| -> f64 {
        let own = model.launch_delay.iter().find(|v| v.op == op);
        let lag = model.implied.iter().find(|d| d.op == op);
        let mut sum = 0.0;
        for r in replicas_of(cell, replicas) {
            for t in 0..steps {
                sum += own.map_or(0.0, |v| side.value(v, r, t));
                let lag = lag.map(|d| d.lag_s[r * steps + t]);
                sum += lag.filter(|l| *l > ImpliedDependency::INACTIVE_S).map_or(0.0, f64::from);
            }
        }
        sum / samples
    };
    let ops = side.ops.get(&signature).map_or(&[][..], Vec::as_slice);
    ops.iter().map(|op| (side.name(*op), of(op.0))).collect()
}
