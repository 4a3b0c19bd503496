//! Crossed effects of compute, estimated by the method of moments on a balanced array.
//!
//! Every effect sums to zero over each of its indices. Variances are those of the effect itself:
//! the noise of its estimate, which the levels below it cause, is subtracted (analysis of
//! variance). Each effect is tested against the level below.

use prism_model::{Effect, EffectKind, EffectTest, OpKind};
use prism_stats::htest;

use super::cube::Cube;
use super::factor::{one_factor, sphericity};
use super::shrink::{Class, Levels};

/// Estimates of everything in the compute part of the model, before tests drop any of it.
#[derive(Clone, Debug)]
pub(crate) struct Estimates {
    /// Grand means, `[c]`.
    pub(crate) base: Vec<f64>,
    /// Position effect, `[c][m]`.
    pub(crate) position: Vec<Vec<f64>>,
    /// Worker effect, `[c][r]`.
    pub(crate) worker: Vec<Vec<f64>>,
    /// Means over microbatches with base, worker and position removed, `[c][t][r]`.
    pub(crate) cell: Vec<Vec<f64>>,
    /// What varies inside a (step, replica) cell, `[c][m][t][r]`; sums to zero over m.
    pub(crate) inner: Cube,
    /// Variance of `inner` per signature, degrees of freedom corrected.
    pub(crate) inner_variance: Vec<f64>,
}

impl Estimates {
    /// Splits log durations into levels.
    pub(crate) fn of(mut cube: Cube) -> Estimates {
        let (microbatches, cells, replicas) = (cube.microbatches, cube.cells(), cube.replicas);
        let mut out = (vec![], vec![], vec![], vec![], vec![]);
        for c in 0..cube.len() {
            let y = cube.signature_mut(c);
            let base = mean(y);
            for v in y.iter_mut() {
                *v -= base;
            }
            let position: Vec<f64> = y.chunks(cells).map(mean).collect();
            for (row, p) in y.chunks_mut(cells).zip(&position) {
                for v in row {
                    *v -= p;
                }
            }
            let mut cell = vec![0.0; cells];
            for row in y.chunks(cells) {
                for (a, v) in cell.iter_mut().zip(row) {
                    *a += v / microbatches as f64;
                }
            }
            for row in y.chunks_mut(cells) {
                for (v, a) in row.iter_mut().zip(&cell) {
                    *v -= a;
                }
            }
            let worker = column_means(&cell, replicas);
            for row in cell.chunks_mut(replicas) {
                for (v, w) in row.iter_mut().zip(&worker) {
                    *v -= w;
                }
            }
            let freedom = (microbatches.saturating_sub(1) * (cells - 1)).max(1) as f64;
            out.0.push(base);
            out.1.push(position);
            out.2.push(worker);
            out.3.push(cell);
            out.4.push(y.iter().map(|v| v * v).sum::<f64>() / freedom);
        }
        Estimates {
            base: out.0,
            position: out.1,
            worker: out.2,
            cell: out.3,
            inner: cube,
            inner_variance: out.4,
        }
    }

    pub(super) fn steps(&self) -> usize {
        self.inner.steps
    }

    pub(super) fn replicas(&self) -> usize {
        self.inner.replicas
    }

    pub(super) fn microbatches(&self) -> usize {
        self.inner.microbatches
    }

    /// Noise variance that `inner` leaves in one cell mean.
    pub(crate) fn cell_noise(&self, c: usize) -> f64 {
        self.inner_variance[c] / self.microbatches() as f64
    }

    /// What step vectors are made of.
    pub(crate) fn levels(&self) -> Levels {
        let class = |(_, signatures): (OpKind, Vec<usize>)| {
            let noise = self.mean_noise(&signatures);
            Class { signatures, noise }
        };
        Levels {
            steps: self.steps(),
            replicas: self.replicas(),
            cell: self.cell.clone(),
            cell_noise: (0..self.inner.len()).map(|c| self.cell_noise(c)).collect(),
            classes: self.classes().into_iter().map(class).collect(),
        }
    }

    /// Compute kinds present, each with its signatures.
    pub(crate) fn classes(&self) -> Vec<(OpKind, Vec<usize>)> {
        let mut out: Vec<(OpKind, Vec<usize>)> = Vec::new();
        for (c, s) in self.inner.signatures.iter().enumerate() {
            match out.iter_mut().find(|(k, _)| *k == s.kind) {
                Some((_, list)) => list.push(c),
                None => out.push((s.kind, vec![c])),
            }
        }
        out
    }

    /// Position effect: do microbatch positions differ in their mean?
    pub(crate) fn position_effect(&self, alpha: f64) -> Effect {
        let (m, cells) = (self.microbatches() as f64, (self.steps() * self.replicas()) as f64);
        if m < 2.0 || cells < 2.0 {
            return untestable(
                EffectKind::Position,
                0.0,
                false,
                "needs two microbatches and steps",
            );
        }
        let (df1, df2) = (m - 1.0, (m - 1.0) * (cells - 1.0));
        let per: Vec<(f64, f64)> = (0..self.inner.len())
            .map(|c| {
                let between = self.position[c].iter().map(|p| p * p).sum::<f64>() / df1;
                let noise = self.inner_variance[c] / cells;
                (ratio(between, noise), between - noise)
            })
            .collect();
        decide(EffectKind::Position, alpha, &per, df1, df2, "positions differ", "positions agree")
    }

    /// Worker effect: do replicas differ for good?
    pub(crate) fn worker_effect(&self, alpha: f64) -> Effect {
        let (t, r) = (self.steps() as f64, self.replicas() as f64);
        if r < 2.0 {
            return untestable(EffectKind::Worker, 0.0, false, "one replica");
        }
        if t < 2.0 {
            return untestable(EffectKind::Worker, 0.0, false, "one step");
        }
        let (df1, df2) = (r - 1.0, (r - 1.0) * (t - 1.0));
        let per: Vec<(f64, f64)> = (0..self.inner.len())
            .map(|c| {
                let between = self.worker[c].iter().map(|w| w * w).sum::<f64>() / df1;
                let noise = self.interaction_variance(&self.cell[c]) / t;
                (ratio(between, noise), between - noise)
            })
            .collect();
        let yes = "replicas differ for good: not exchangeable without this effect";
        decide(EffectKind::Worker, alpha, &per, df1, df2, yes, "replicas are exchangeable")
    }

    /// Step x replica interaction variance of a `[t][r]` array whose columns sum to zero.
    pub(crate) fn interaction_variance(&self, cell: &[f64]) -> f64 {
        let (t, r) = (self.steps() as f64, self.replicas() as f64);
        let sum: f64 = cell
            .chunks(self.replicas())
            .map(|row| {
                let step = mean(row);
                row.iter().map(|v| (v - step) * (v - step)).sum::<f64>()
            })
            .sum();
        sum / ((t - 1.0) * (r - 1.0)).max(1.0)
    }

    /// Mean of several signatures' cells, `[t][r]`.
    pub(crate) fn cell_mean(&self, signatures: &[usize]) -> Vec<f64> {
        let mut out = vec![0.0; self.steps() * self.replicas()];
        for &c in signatures {
            for (o, v) in out.iter_mut().zip(&self.cell[c]) {
                *o += v / signatures.len() as f64;
            }
        }
        out
    }

    /// Mean over several signatures of what varies inside cells, `[m][t][r]`.
    pub(crate) fn inner_mean(&self, signatures: &[usize]) -> Vec<f64> {
        let mut sum = vec![0.0; self.microbatches() * self.steps() * self.replicas()];
        for &c in signatures {
            for (s, v) in sum.iter_mut().zip(self.inner.signature(c)) {
                *s += v / signatures.len() as f64;
            }
        }
        sum
    }

    /// Variance of the mean of several signatures inside a cell, divided by microbatches: the noise
    /// in the mean of their cells.
    pub(crate) fn mean_noise(&self, signatures: &[usize]) -> f64 {
        let m = self.microbatches();
        if m < 2 {
            return 0.0;
        }
        let sum = self.inner_mean(signatures);
        let freedom = ((m - 1) * (self.steps() * self.replicas() - 1)).max(1) as f64;
        sum.iter().map(|v| v * v).sum::<f64>() / freedom / m as f64
    }

    /// Step effect: does a whole step move, on all replicas? With one replica it is compared with
    /// the noise that microbatches leave.
    pub(crate) fn step_effect(&self, alpha: f64) -> Effect {
        let (t, r) = (self.steps() as f64, self.replicas() as f64);
        if t < 3.0 {
            return untestable(EffectKind::Step, 0.0, false, "fewer than three steps");
        }
        let m = self.microbatches() as f64;
        if r < 2.0 && m < 2.0 {
            let sd = rms(self.classes().iter().map(|(_, list)| variance(&self.cell_mean(list))));
            let why = "one replica and one microbatch: cannot be told from the residual";
            return untestable(EffectKind::Step, sd, true, why);
        }
        let df2 = if r < 2.0 { t * (m - 1.0) } else { (t - 1.0) * (r - 1.0) };
        let per: Vec<(f64, f64)> = self
            .classes()
            .iter()
            .map(|(_, list)| {
                let a = self.cell_mean(list);
                let steps: Vec<f64> = a.chunks(self.replicas()).map(mean).collect();
                let between = steps.iter().map(|s| s * s).sum::<f64>() / (t - 1.0);
                let noise =
                    if r < 2.0 { self.mean_noise(list) } else { self.interaction_variance(&a) / r };
                (ratio(between, noise), between - noise)
            })
            .collect();
        decide(EffectKind::Step, alpha, &per, t - 1.0, df2, "steps differ", "steps agree")
    }

    /// Step x worker effect: does one worker move during a step, beyond its microbatches' noise?
    pub(crate) fn step_worker_effect(&self, alpha: f64) -> Effect {
        let (t, r, m) = (self.steps() as f64, self.replicas() as f64, self.microbatches() as f64);
        let kind = EffectKind::StepWorker;
        if t < 3.0 {
            return untestable(kind, 0.0, false, "fewer than three steps");
        }
        if r < 2.0 {
            return untestable(
                kind,
                0.0,
                false,
                "one replica: cannot be told from the step effect",
            );
        }
        if m < 2.0 {
            let per = (0..self.inner.len()).map(|c| self.interaction_variance(&self.cell[c]));
            let why = "one microbatch: cannot be told from the residual";
            return untestable(kind, rms(per), true, why);
        }
        let (df1, df2) = ((t - 1.0) * (r - 1.0), (m - 1.0) * (t * r - 1.0));
        let per: Vec<(f64, f64)> = (0..self.inner.len())
            .map(|c| {
                let (between, noise) =
                    (self.interaction_variance(&self.cell[c]), self.cell_noise(c));
                (ratio(between, noise), between - noise)
            })
            .collect();
        let (yes, no) = ("workers move by the step", "workers move only with their microbatches");
        decide(kind, alpha, &per, df1, df2, yes, no)
    }

    /// Window effect: do workers keep an offset for a whole window of steps, beyond what single steps
    /// do? One-way analysis over windows of each worker's deviation from the step, all signatures of a
    /// class together.
    pub(crate) fn window_effect(&self, windows: &[u32], alpha: f64) -> Effect {
        let kind = EffectKind::Window;
        let count = windows.iter().max().map_or(0, |w| *w as usize + 1);
        let (n, r) = (self.steps() as f64, self.replicas());
        if count < 2 || self.steps() < 2 * count {
            return untestable(kind, 0.0, false, "one window, or windows of one step");
        }
        let mut per = Vec::new();
        let mut freedom = (1.0, 1.0);
        for (_, class) in self.classes() {
            let centre = self.cell_mean(&class);
            let steps: Vec<f64> = centre.chunks(r).map(mean).collect();
            let series = class.iter().flat_map(|&c| (0..r).map(move |i| (c, i)));
            let (mut between, mut within, mut kept) = (0.0, 0.0, 0.0);
            for (c, i) in series {
                let values: Vec<f64> =
                    (0..self.steps()).map(|t| self.cell[c][t * r + i] - steps[t]).collect();
                let (b, w) = window_squares(&values, windows, count);
                between += b;
                within += w;
                kept += 1.0;
            }
            // Deviations from the step sum to zero over workers: one series less is free.
            let free = (kept - 1.0f64).max(1.0);
            freedom = ((count as f64 - 1.0) * free, (n - count as f64) * free);
            let (between, within) = (between / freedom.0, within / freedom.1);
            per.push((ratio(between, within), (between - within) * count as f64 / n));
        }
        if self.inner.len() * r < 2 {
            return untestable(kind, 0.0, false, "one worker: part of the step effect");
        }
        let (yes, no) = ("workers keep an offset for a window", "windows do not differ by worker");
        decide(kind, alpha, &per, freedom.0, freedom.1, yes, no)
    }

    /// Covariance of signatures inside a cell, `[c][c]`, and its degrees of freedom.
    pub(crate) fn inner_covariance(&self) -> (Vec<f64>, f64) {
        let n = self.inner.len();
        let freedom = (self.microbatches().saturating_sub(1) * (self.steps() * self.replicas() - 1))
            .max(1) as f64;
        let mut out = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..=i {
                let (a, b) = (self.inner.signature(i), self.inner.signature(j));
                let dot: f64 = a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>() / freedom;
                out[i * n + j] = dot;
                out[j * n + i] = dot;
            }
        }
        (out, freedom)
    }

    /// Microbatch effect: do signatures move together inside a cell? Returns the effect, loadings
    /// (s.d. carried) and residual variances by signature.
    pub(crate) fn microbatch_effect(&self, alpha: f64) -> (Effect, Vec<f64>, Vec<f64>) {
        let n = self.inner.len();
        let none = |why: &str| {
            let effect = untestable(EffectKind::Microbatch, 0.0, false, why);
            (effect, vec![0.0; n], self.inner_variance.clone())
        };
        if self.microbatches() < 2 {
            return none("one microbatch: cannot be told from step x worker");
        }
        if n < 2 {
            return none("one compute signature: cannot be told from the residual");
        }
        let (covariance, freedom) = self.inner_covariance();
        let (statistic, df) = sphericity(&covariance, n, freedom);
        let p_value = htest::chi_square_sf(statistic, df);
        let fit = one_factor(&covariance, n);
        let sd = fit.loading.iter().sum::<f64>() / n as f64;
        let kept = p_value < alpha && sd > 0.0;
        let effect = Effect {
            kind: EffectKind::Microbatch,
            sd_log: sd,
            test: Some(EffectTest {
                name: format!("Bartlett sphericity, chi-square({df})"),
                statistic,
                p_value,
                comparisons: 1,
            }),
            kept,
            reason: if kept {
                "forward and backward of a microbatch move together on all stages".into()
            } else {
                "operations of a microbatch are independent".into()
            },
        };
        if kept {
            (effect, fit.loading, fit.unique)
        } else {
            (effect, vec![0.0; n], self.inner_variance.clone())
        }
    }
}

/// Keeps an effect if the smallest Bonferroni-corrected p-value of its F tests is below `alpha`.
/// `per` holds, by signature or class, the F statistic and the effect's variance.
pub(crate) fn decide(
    kind: EffectKind,
    alpha: f64,
    per: &[(f64, f64)],
    df1: f64,
    df2: f64,
    yes: &str,
    no: &str,
) -> Effect {
    let statistic = per.iter().map(|p| p.0).fold(0.0, f64::max);
    let comparisons = per.len();
    let p_value = (htest::f_sf(statistic, df1, df2) * comparisons as f64).min(1.0);
    let kept = p_value < alpha;
    let variance = per.iter().map(|p| p.1).sum::<f64>() / comparisons.max(1) as f64;
    Effect {
        kind,
        sd_log: variance.max(0.0).sqrt(),
        test: Some(EffectTest {
            name: format!("F({df1}, {df2}), largest of {comparisons}"),
            statistic,
            p_value,
            comparisons,
        }),
        kept,
        reason: if kept { yes } else { no }.to_owned(),
    }
}

pub(super) fn untestable(kind: EffectKind, sd_log: f64, kept: bool, why: &str) -> Effect {
    Effect { kind, sd_log, test: None, kept, reason: why.to_owned() }
}

/// Sums of squares of a series between and inside windows.
fn window_squares(values: &[f64], windows: &[u32], count: usize) -> (f64, f64) {
    let grand = mean(values);
    let (mut sum, mut size) = (vec![0.0; count], vec![0.0; count]);
    for (v, &w) in values.iter().zip(windows) {
        sum[w as usize] += v;
        size[w as usize] += 1.0;
    }
    let centre = |w: usize| if size[w] > 0.0 { sum[w] / size[w] } else { grand };
    let between = (0..count).map(|w| size[w] * (centre(w) - grand).powi(2)).sum();
    let within = values.iter().zip(windows).map(|(v, &w)| (v - centre(w as usize)).powi(2)).sum();
    (between, within)
}

/// `a / b`; 0 if both vanish (no variation at all), infinite if only the noise does.
pub(super) fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 {
        a / b
    } else if a > 1e-24 {
        f64::MAX
    } else {
        0.0
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sample variance.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let m = mean(values);
    values.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (values.len() as f64 - 1.0).max(1.0)
}

/// Root of the mean of squares given as squares.
fn rms(squares: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = squares.fold((0.0, 0.0), |(s, n), v| (s + v, n + 1.0));
    if n > 0.0 { (sum / n).max(0.0).sqrt() } else { 0.0 }
}

/// Column means of a row-major array with `columns` columns.
pub(crate) fn column_means(values: &[f64], columns: usize) -> Vec<f64> {
    let rows = values.len() / columns;
    let mut out = vec![0.0; columns];
    for row in values.chunks(columns) {
        for (o, v) in out.iter_mut().zip(row) {
            *o += v / rows as f64;
        }
    }
    out
}
