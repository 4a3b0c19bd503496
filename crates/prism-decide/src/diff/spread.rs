//! Spreads of effects, as one value a step.
//!
//! A variance is measured by what a step's values say of it alone: the squared deviation of the step
//! less what the level below it adds. Each is an unbiased estimate, so a microbatch effect that doubles
//! does not show as a step effect. Spread inside cells (residual) is a log s.d. a step.

use std::collections::{BTreeMap, BTreeSet};

use prism_model::{DurationModel, EffectKind, Signature};

use super::cells::{Block, Cell, mean_lane};
use super::report::{Measure, Part};
use super::side::Side;
use super::units::median;

/// Smallest s.d. of a log s.d. that is believed.
const LEAST_LOG_SD: f64 = 1e-3;
/// Smallest s.d. of a log duration that is believed.
const LEAST_SD: f64 = 1e-6;

/// Spread blocks of both sides.
pub(super) fn blocks(a: &Side<'_>, b: &Side<'_>, means: &[Block]) -> Vec<Block> {
    let mut out = inside(a, b);
    for block in means {
        match block.part {
            Part::Compute => out.extend(between(a, b, block)),
            Part::Transfer if block.measure == Measure::Duration => {
                out.extend(variance_block(
                    EffectKind::Congestion,
                    common_squares(&block.a, &[]),
                    common_squares(&block.b, &[]),
                ));
            }
            _ => {}
        }
    }
    out
}

fn block(effect: EffectKind, least: f64) -> Block {
    Block {
        part: Part::Spread,
        effect: Some(effect),
        measure: Measure::SdLog,
        cells: Vec::new(),
        a: Vec::new(),
        b: Vec::new(),
        least,
    }
}

/// A block of one cell: variances by step.
fn variance_block(effect: EffectKind, a: Vec<f64>, b: Vec<f64>) -> Option<Block> {
    let level = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
    let there = level(&a).max(level(&b)) > LEAST_SD * LEAST_SD;
    there.then(|| {
        let mut out = block(effect, LEAST_SD * LEAST_SD);
        out.push(Cell { members: Vec::new(), dp: None }, a, b);
        out
    })
}

/// Step and step x worker effect.
fn between(a: &Side<'_>, b: &Side<'_>, means: &Block) -> Vec<Block> {
    let (noise_a, noise_b) = (Noise::of(a, means), Noise::of(b, means));
    let step = variance_block(
        EffectKind::Step,
        common_squares(&means.a, &noise_a.common),
        common_squares(&means.b, &noise_b.common),
    );
    let worker = variance_block(
        EffectKind::StepWorker,
        own_squares(&means.a, &noise_a),
        own_squares(&means.b, &noise_b),
    );
    // Over all replicas, or with one worker, workers cannot be told from the step.
    let workers = means.cells.len() > 2 && means.cells.iter().all(|c| c.dp.is_some());
    step.into_iter().chain(worker.filter(|_| workers)).collect()
}

/// What microbatches add to variances of means, by step.
struct Noise {
    /// Of the mean over all cells, `[t]`.
    common: Vec<f64>,
    /// Of each cell's mean, `[cell][t]`.
    cells: Vec<Vec<f64>>,
}

impl Noise {
    fn of(side: &Side<'_>, means: &Block) -> Noise {
        let (steps, replicas) = (side.steps(), side.replicas());
        let m = f64::from(side.model.microbatches);
        let n = means.cells.len().max(1);
        if side.model.microbatches < 2 {
            return Noise { common: vec![0.0; steps], cells: vec![vec![0.0; steps]; n] };
        }
        let signatures: BTreeSet<Signature> =
            means.cells.iter().filter_map(Cell::signature).collect();
        let inners: BTreeMap<Signature, Inner> = signatures
            .into_iter()
            .filter_map(|s| Some((s, inner(side.model, index(side.model, s)?))))
            .collect();
        let over_replicas = |lanes: &[Vec<f64>]| -> Vec<f64> {
            mean_lane(lanes).iter().map(|v| v / m / replicas as f64).collect()
        };
        let of = |cell: &Cell| -> Vec<f64> {
            let own = cell.signature().and_then(|s| inners.get(&s));
            let lanes = own.map_or_else(Vec::new, Inner::variances);
            match cell.dp.and_then(|r| lanes.get(r as usize)) {
                Some(lane) => lane.iter().map(|v| v / m).collect(),
                None => over_replicas(&lanes),
            }
        };
        let all: Vec<Inner> = inners.values().cloned().collect();
        Noise {
            common: over_replicas(&average(&all).variances()),
            cells: means.cells.iter().map(of).collect(),
        }
    }
}

/// Mean of several signatures' values inside cells.
fn average(inners: &[Inner]) -> Inner {
    let n = inners.len().max(1) as f64;
    let mut rows = inners.first().map_or_else(Vec::new, |i| i.rows.clone());
    for (i, row) in rows.iter_mut().enumerate() {
        for (r, lane) in row.iter_mut().enumerate() {
            for (t, v) in lane.iter_mut().enumerate() {
                *v = inners.iter().map(|x| x.rows[i][r][t]).sum::<f64>() / n;
            }
        }
    }
    Inner { rows }
}

fn index(model: &DurationModel, signature: Signature) -> Option<usize> {
    model.compute.signatures.iter().position(|s| s.signature == signature)
}

/// Each cell's deviation from its own median over steps, `[cell][t]`.
fn centred(lanes: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let of = |lane: &Vec<f64>| {
        let centre = median(&mut lane.clone());
        lane.iter().map(|v| v - centre).collect()
    };
    lanes.iter().map(of).collect()
}

/// Squared deviation of the step over all cells, less the noise of their mean.
fn common_squares(lanes: &[Vec<f64>], noise: &[f64]) -> Vec<f64> {
    let common = mean_lane(&centred(lanes));
    let centre = median(&mut common.clone());
    let below = |t: usize| noise.get(t).copied().unwrap_or(0.0);
    common.iter().enumerate().map(|(t, v)| (v - centre).powi(2) - below(t)).collect()
}

/// Squared deviation of cells from their step, less what microbatches add to it: the sum of the cells'
/// squares is that of the deviations and of the step.
fn own_squares(lanes: &[Vec<f64>], noise: &Noise) -> Vec<f64> {
    let centred = centred(lanes);
    let common = mean_lane(&centred);
    let n = centred.len() as f64;
    let squares = |t: usize| {
        let own: f64 = centred.iter().map(|l| (l[t] - common[t]).powi(2)).sum();
        let below: f64 = noise.cells.iter().map(|l| l[t]).sum::<f64>() - n * noise.common[t];
        (own - below) / (n - 1.0).max(1.0)
    };
    (0..common.len()).map(squares).collect()
}

/// Log durations inside (step, replica) cells, `[m][r][t]`, position and cell means removed.
#[derive(Clone)]
struct Inner {
    rows: Vec<Vec<Vec<f64>>>,
}

impl Inner {
    /// Unbiased variance over microbatches, `[r][t]`.
    fn variances(&self) -> Vec<Vec<f64>> {
        let m = self.rows.len() as f64;
        let (replicas, steps) =
            self.rows.first().map_or((0, 0), |r| (r.len(), r.first().map_or(0, Vec::len)));
        let cells = (replicas * steps) as f64;
        // Position means took one of all cells' degrees of freedom.
        let freedom = (m - 1.0) * (cells - 1.0).max(1.0) / cells.max(1.0);
        let of = |r: usize, t: usize| {
            self.rows.iter().map(|row| row[r][t] * row[r][t]).sum::<f64>() / freedom
        };
        (0..replicas).map(|r| (0..steps).map(|t| of(r, t)).collect()).collect()
    }
}

fn inner(model: &DurationModel, c: usize) -> Inner {
    let (steps, replicas) = (model.steps.len(), model.replicas as usize);
    let m = model.microbatches as usize;
    let cells = steps * replicas;
    let values = &model.compute.observations_log_s[c * m * cells..][..m * cells];
    let at = |i: usize, r: usize, t: usize| f64::from(values[i * cells + t * replicas + r]);
    let mut cell = vec![vec![0.0; steps]; replicas];
    for (r, lane) in cell.iter_mut().enumerate() {
        for (t, v) in lane.iter_mut().enumerate() {
            *v = (0..m).map(|i| at(i, r, t)).sum::<f64>() / m as f64;
        }
    }
    let rows = (0..m)
        .map(|i| {
            let mut row: Vec<Vec<f64>> = (0..replicas)
                .map(|r| (0..steps).map(|t| at(i, r, t) - cell[r][t]).collect())
                .collect();
            let position = row.iter().flatten().sum::<f64>() / cells as f64;
            row.iter_mut().flatten().for_each(|v| *v -= position);
            row
        })
        .collect();
    Inner { rows }
}

/// Microbatch effect (what the signatures of a microbatch share) and residual (what they do not).
fn inside(a: &Side<'_>, b: &Side<'_>) -> Vec<Block> {
    let both: Vec<(usize, usize, Signature)> = (a.model.compute.signatures.iter().enumerate())
        .filter_map(|(i, s)| Some((i, index(b.model, s.signature)?, s.signature)))
        .collect();
    if a.model.microbatches.min(b.model.microbatches) < 2 || both.is_empty() {
        return Vec::new();
    }
    let shared =
        (a.model.compute.microbatch_shared || b.model.compute.microbatch_shared) && both.len() > 1;
    let load: Vec<f64> = both
        .iter()
        .map(|&(i, j, _)| {
            let of = |m: &DurationModel, c: usize| {
                m.compute.microbatch_shared.then(|| m.compute.signatures[c].microbatch_load)
            };
            let loads = [of(a.model, i), of(b.model, j)];
            let known: Vec<f64> = loads.into_iter().flatten().collect();
            known.iter().sum::<f64>() / known.len().max(1) as f64
        })
        .collect();
    let take = |side: &Side<'_>, which: &dyn Fn(&(usize, usize, Signature)) -> usize| {
        let inners: Vec<Inner> = both.iter().map(|s| inner(side.model, which(s))).collect();
        if shared { apart(inners, &load) } else { (Vec::new(), inners) }
    };
    let (factor_a, rest_a) = take(a, &|s| s.0);
    let (factor_b, rest_b) = take(b, &|s| s.1);
    let mut out = Vec::new();
    if shared {
        out.extend(variance_block(EffectKind::Microbatch, factor_a, factor_b));
    }
    let mut residual = block(EffectKind::Residual, LEAST_LOG_SD);
    for ((_, _, s), (x, y)) in both.iter().zip(rest_a.iter().zip(&rest_b)) {
        if let (Some(x), Some(y)) = (log_sd(x), log_sd(y)) {
            residual.push(Cell { members: vec![*s], dp: None }, x, y);
        }
    }
    if !residual.cells.is_empty() {
        out.push(residual);
    }
    out
}

/// Log s.d. inside cells, replicas averaged, by step; none where something does not vary.
fn log_sd(inner: &Inner) -> Option<Vec<f64>> {
    let mean = mean_lane(&inner.variances());
    let least = LEAST_SD * LEAST_SD;
    mean.iter().all(|v| *v > least).then(|| mean.iter().map(|v| 0.5 * v.ln()).collect())
}

/// Variance of the common factor by step, noise of its estimate removed, and what the factor leaves.
fn apart(mut inners: Vec<Inner>, load: &[f64]) -> (Vec<f64>, Vec<Inner>) {
    let norm: f64 = load.iter().map(|l| l * l).sum();
    let n = inners.len() as f64;
    let shape: Vec<Vec<Vec<f64>>> = inners[0].rows.clone();
    let mut factor = Inner { rows: shape };
    for (i, row) in factor.rows.iter_mut().enumerate() {
        for (r, lane) in row.iter_mut().enumerate() {
            for (t, f) in lane.iter_mut().enumerate() {
                *f = inners.iter().zip(load).map(|(x, l)| l * x.rows[i][r][t]).sum::<f64>() / norm;
                for (x, l) in inners.iter_mut().zip(load) {
                    x.rows[i][r][t] -= l * *f;
                }
            }
        }
    }
    let mut out = mean_lane(&factor.variances());
    for (x, l) in inners.iter().zip(load) {
        for (o, v) in out.iter_mut().zip(mean_lane(&x.variances())) {
            // The factor took one of n degrees of freedom from the residuals.
            *o -= l * l * v * n / (n - 1.0) / (norm * norm);
        }
    }
    (out, inners)
}
