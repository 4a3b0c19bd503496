//! Bootstrap repetitions: the same model re-estimated on other steps, from sums that are taken
//! once.

use prism_model::{ComputeModel, DurationModel, ImpliedDependency, StepVector};

use super::Kept;
use super::cube::Cube;
use super::effects::Estimates;
use super::shrink::{Class, Keep, Levels, step_vectors};

/// A model with what its repetitions are computed from.
///
/// A repetition re-estimates base, position, worker and step effects and their shrinkage; the
/// decisions, the noise each observed step leaves, laws, spreads and point-to-point rows stay.
/// Microbatch rows are those of the repetition's steps. Steps and rows are put in order of their
/// size, so that repetitions under the same random numbers differ by what was observed only.
#[derive(Clone, Debug)]
pub struct Resampler<'a> {
    model: &'a DurationModel,
    kept: Kept,
    /// Means over microbatches, `[c][t][r]`.
    cell: Vec<Vec<f64>>,
    /// Means over replicas, `[c][m][t]`.
    position: Vec<Vec<f64>>,
    /// Sums of squares inside cells, over m and r: `[c][t]`.
    squares: Vec<Vec<f64>>,
    /// The same for the mean over a class's signatures.
    classes: Vec<(Vec<usize>, Vec<f64>)>,
    /// Rank of each step by its mean.
    step_rank: Vec<usize>,
    /// Microbatch rows by rising mean, with the step each was observed in.
    rows: Vec<(usize, usize)>,
}

impl<'a> Resampler<'a> {
    /// Takes the sums. The model's arrays must have the lengths its plan implies, as those of
    /// [`super::calibrate`] and [`super::rebuild`] have.
    pub fn new(model: &'a DurationModel) -> Self {
        let all: Vec<usize> = (0..model.steps.len()).collect();
        let cube = Cube::of_model(model, &all);
        let (steps, replicas) = (cube.steps, cube.replicas);
        let cells = steps * replicas;
        let (mut cell, mut position) = (Vec::new(), Vec::new());
        for c in 0..cube.len() {
            let y = cube.signature(c);
            let mut sums = vec![0.0; cells];
            for row in y.chunks(cells) {
                sums.iter_mut().zip(row).for_each(|(s, v)| *s += v / cube.microbatches as f64);
            }
            cell.push(sums);
            position.push(y.chunks(replicas).map(super::effects::mean).collect());
        }
        let estimates = Estimates::of(cube);
        let by_step = |values: &[f64]| {
            let mut out = vec![0.0; steps];
            for (i, v) in values.iter().enumerate() {
                out[i / replicas % steps] += v * v;
            }
            out
        };
        let squares = (0..cell.len()).map(|c| by_step(estimates.inner.signature(c))).collect();
        let classes = estimates
            .classes()
            .into_iter()
            .map(|(_, list)| {
                let sums = by_step(&estimates.inner_mean(&list));
                (list, sums)
            })
            .collect();
        Resampler {
            kept: Kept::of(&model.effects),
            step_rank: step_ranks(&cell, steps, replicas),
            rows: sorted_rows(model),
            model,
            cell,
            position,
            squares,
            classes,
        }
    }

    /// The model of the given rows of its observed steps (a row may occur several times).
    /// `windows` labels the rows.
    pub fn repeat(&self, rows: &[usize], windows: &[u32]) -> DurationModel {
        let mut order: Vec<usize> = (0..rows.len().min(windows.len())).collect();
        order.sort_by_key(|&i| (self.step_rank[rows[i]], i));
        let rows: Vec<usize> = order.iter().map(|&i| rows[i]).collect();
        let windows: Vec<u32> = order.iter().map(|&i| windows[i]).collect();
        let model = self.model;
        let steps = model.steps.len();
        let select = |values: &[f32]| -> Vec<f32> {
            values.chunks(steps).flat_map(|lane| rows.iter().map(|&t| lane[t])).collect()
        };
        let vectors = |vectors: &[StepVector]| -> Vec<StepVector> {
            let constant = |v: &StepVector| v.values_s.len() == model.replicas as usize;
            let values =
                |v: &StepVector| if constant(v) { v.values_s.clone() } else { select(&v.values_s) };
            vectors.iter().map(|v| StepVector { op: v.op, values_s: values(v) }).collect()
        };
        let implied = |d: &ImpliedDependency| ImpliedDependency {
            op: d.op,
            on: d.on,
            lag_s: select(&d.lag_s),
        };
        DurationModel {
            steps: rows.iter().map(|&t| model.steps[t]).collect(),
            replicas: model.replicas,
            microbatches: model.microbatches,
            effects: model.effects.clone(),
            compute: self.compute(&rows, &windows),
            transfers: model.transfers.clone(),
            congestion: select(&model.congestion),
            step_work: vectors(&model.step_work),
            launch_delay: vectors(&model.launch_delay),
            implied: model.implied.iter().map(implied).collect(),
            regimes: model.regimes.clone(),
            windows,
        }
    }

    /// Estimates on some steps.
    fn compute(&self, rows: &[usize], windows: &[u32]) -> ComputeModel {
        let old = &self.model.compute;
        let (n, replicas) = (rows.len().max(1) as f64, self.model.replicas as usize);
        let microbatches = self.model.microbatches as usize;
        let steps = self.model.steps.len();
        let mut signatures = old.signatures.clone();
        let (mut position_log, mut worker_log, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for (c, signature) in signatures.iter_mut().enumerate() {
            let mut worker = vec![0.0; replicas];
            for &t in rows {
                let row = &self.cell[c][t * replicas..][..replicas];
                worker.iter_mut().zip(row).for_each(|(w, v)| *w += v / n);
            }
            let base = super::effects::mean(&worker);
            signature.base_log_s = base;
            let observed = |t: usize| &self.cell[c][t * replicas..][..replicas];
            let own = rows.iter().flat_map(|&t| observed(t).iter().zip(&worker));
            cells.push(own.map(|(v, w)| v - w).collect::<Vec<f64>>());
            if self.kept.worker {
                worker_log.extend(worker.iter().map(|w| w - base));
            }
            if self.kept.position {
                position_log.extend((0..microbatches).map(|m| {
                    let lane = &self.position[c][m * steps..][..steps];
                    (rows.iter().map(|&t| lane[t]).sum::<f64>() / n - base) as f32
                }));
            }
        }
        let levels = self.levels(rows, cells);
        let Kept { step, step_worker, window, .. } = self.kept;
        let keep = Keep { step, step_worker, window };
        let (vectors, _) = step_vectors(&levels, windows, keep);
        ComputeModel {
            signatures,
            position_log,
            worker_log,
            worker_spread: old.worker_spread.clone(),
            observations_log_s: Vec::new(),
            step_vectors_log: if step || step_worker || window { vectors } else { Vec::new() },
            microbatch_vectors_log: self.microbatch_rows(rows),
            step_law: old.step_law.clone(),
            step_worker_law: old.step_worker_law.clone(),
            microbatch_law: old.microbatch_law.clone(),
            ..*old
        }
    }

    fn levels(&self, rows: &[usize], cell: Vec<Vec<f64>>) -> Levels {
        let m = f64::from(self.model.microbatches);
        let cells = (rows.len() * self.model.replicas as usize) as f64;
        let freedom = ((m - 1.0) * (cells - 1.0)).max(1.0);
        let noise = |squares: &[f64]| {
            if m < 2.0 { 0.0 } else { rows.iter().map(|&t| squares[t]).sum::<f64>() / freedom / m }
        };
        Levels {
            steps: rows.len(),
            replicas: self.model.replicas as usize,
            cell,
            cell_noise: self.squares.iter().map(|s| noise(s)).collect(),
            classes: self
                .classes
                .iter()
                .map(|(list, s)| Class { signatures: list.clone(), noise: noise(s) })
                .collect(),
        }
    }

    /// The microbatch rows of some steps, as often as each step occurs.
    fn microbatch_rows(&self, rows: &[usize]) -> Vec<f32> {
        let n = self.model.compute.signatures.len();
        let mut times = vec![0_usize; self.model.steps.len()];
        for &t in rows {
            times[t] += 1;
        }
        let vectors = &self.model.compute.microbatch_vectors_log;
        let mut out = Vec::with_capacity(vectors.len() * 5 / 4);
        for &(row, t) in &self.rows {
            for _ in 0..times[t] {
                out.extend_from_slice(&vectors[row * n..][..n]);
            }
        }
        out
    }
}

/// Rank of each step by its mean over signatures and replicas.
fn step_ranks(cell: &[Vec<f64>], steps: usize, replicas: usize) -> Vec<usize> {
    let mut means = vec![0.0; steps];
    for signature in cell {
        for (m, row) in means.iter_mut().zip(signature.chunks(replicas)) {
            *m += row.iter().sum::<f64>();
        }
    }
    let mut order: Vec<usize> = (0..steps).collect();
    order.sort_by(|&a, &b| means[a].total_cmp(&means[b]));
    let mut rank = vec![0; steps];
    order.into_iter().enumerate().for_each(|(i, t)| rank[t] = i);
    rank
}

/// Microbatch rows by rising mean, with the step of each.
fn sorted_rows(model: &DurationModel) -> Vec<(usize, usize)> {
    let n = model.compute.signatures.len().max(1);
    let (steps, replicas) = (model.steps.len(), model.replicas as usize);
    let stored: Vec<f32> =
        model.compute.microbatch_vectors_log.chunks(n).map(|row| row.iter().sum()).collect();
    let stride = super::compute::row_stride(model.microbatches as usize * steps * replicas);
    let mut rows: Vec<(usize, usize)> =
        (0..stored.len()).map(|row| (row, row * stride / replicas % steps)).collect();
    rows.sort_by(|a, b| stored[a.0].total_cmp(&stored[b.0]));
    rows
}
