//! Step vectors: the step and step x worker effects of every observed step, shrunk so that their
//! variance is the effect's own.
//!
//! A cell mean is the sum of the cell's effect and of the noise its microbatches leave. Drawing
//! observed cell means *and* microbatches would count that noise twice. Each level (step; replica
//! within step; stage within replica), split into means of windows and deviations inside windows,
//! is therefore scaled by `√(1 − noise variance / observed variance)`.

/// What step vectors are made of.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    pub(crate) steps: usize,
    pub(crate) replicas: usize,
    /// Means over microbatches with base, worker and position removed, `[c][t][r]`.
    pub(crate) cell: Vec<Vec<f64>>,
    /// Noise variance that microbatches leave in one cell mean, `[c]`.
    pub(crate) cell_noise: Vec<f64>,
    pub(crate) classes: Vec<Class>,
}

/// Signatures of one kind of compute.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) signatures: Vec<usize>,
    /// Noise variance that microbatches leave in the mean of their cells.
    pub(crate) noise: f64,
}

impl Levels {
    /// Mean of a class's cells, `[t][r]`.
    fn class_mean(&self, class: &Class) -> Vec<f64> {
        let mut out = vec![0.0; self.steps * self.replicas];
        for &c in &class.signatures {
            for (o, v) in out.iter_mut().zip(&self.cell[c]) {
                *o += v / class.signatures.len() as f64;
            }
        }
        out
    }
}

/// Scales by level and class, for the record.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shrinkage {
    /// (between windows, inside windows) per class: step.
    pub(crate) step: Vec<(f64, f64)>,
    /// Replica within step.
    pub(crate) replica: Vec<(f64, f64)>,
    /// Stage within replica.
    pub(crate) stage: Vec<(f64, f64)>,
}

/// What the tests said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    pub(crate) step: bool,
    pub(crate) step_worker: bool,
    pub(crate) window: bool,
}

/// Step vectors in log time, `[c][r][t]`.
pub(crate) fn step_vectors(e: &Levels, windows: &[u32], keep: Keep) -> (Vec<f32>, Shrinkage) {
    let (steps, replicas) = (e.steps, e.replicas);
    let mut vectors = vec![0.0f64; e.cell.len() * steps * replicas];
    let mut shrinkage = Shrinkage::default();
    for level in &e.classes {
        let (class, class_noise) = (&level.signatures, level.noise);
        let replica_level = e.class_mean(level);
        let step_level: Vec<f64> =
            replica_level.chunks(replicas).map(super::effects::mean).collect();
        let mut total = vec![0.0; steps];
        if keep.step {
            let noise = class_noise / replicas as f64;
            let level = [step_level.clone()];
            shrinkage.step.push(shrink(&level, noise, windows, (true, true), &mut [&mut total]));
        }
        let mut by_replica = vec![vec![0.0; steps]; replicas];
        if keep.step_worker || keep.window {
            let level: Vec<Vec<f64>> = (0..replicas)
                .map(|r| {
                    (0..steps).map(|t| replica_level[t * replicas + r] - step_level[t]).collect()
                })
                .collect();
            let noise = class_noise * (1.0 - 1.0 / replicas as f64);
            let mut out: Vec<&mut Vec<f64>> = by_replica.iter_mut().collect();
            shrinkage.replica.push(shrink(
                &level,
                noise,
                windows,
                (keep.window, keep.step_worker),
                &mut out,
            ));
        }
        let mut by_stage = vec![vec![0.0; steps]; class.len() * replicas];
        if (keep.step_worker || keep.window) && class.len() > 1 {
            let level: Vec<Vec<f64>> = class
                .iter()
                .flat_map(|&c| (0..replicas).map(move |r| (c, r)))
                .map(|(c, r)| {
                    (0..steps)
                        .map(|t| e.cell[c][t * replicas + r] - replica_level[t * replicas + r])
                        .collect()
                })
                .collect();
            let own = class.iter().map(|&c| e.cell_noise[c]).sum::<f64>() / class.len() as f64;
            let mut out: Vec<&mut Vec<f64>> = by_stage.iter_mut().collect();
            let noise = (own - class_noise).max(0.0);
            let kept = (keep.window, keep.step_worker);
            shrinkage.stage.push(shrink(&level, noise, windows, kept, &mut out));
        }
        for (i, &c) in class.iter().enumerate() {
            for r in 0..replicas {
                let row = &mut vectors[(c * replicas + r) * steps..][..steps];
                for (t, v) in row.iter_mut().enumerate() {
                    *v = total[t] + by_replica[r][t] + by_stage[i * replicas + r][t];
                }
            }
        }
    }
    (vectors.into_iter().map(|v| v as f32).collect(), shrinkage)
}

/// Shrinks series of one level by common factors and writes them to `out`.
///
/// `noise` is the variance that lower levels leave in one value; `kept` says whether differences
/// between windows, and inside them, are there. Returns the factors between and inside windows.
fn shrink(
    level: &[Vec<f64>],
    noise: f64,
    windows: &[u32],
    kept: (bool, bool),
    out: &mut [&mut Vec<f64>],
) -> (f64, f64) {
    let n = windows.len();
    let count = windows.iter().max().map_or(1, |&w| w as usize + 1);
    let mut sizes = vec![0.0f64; count];
    for &w in windows {
        sizes[w as usize] += 1.0;
    }
    let means: Vec<Vec<f64>> = level
        .iter()
        .map(|series| {
            let mut m = vec![0.0; count];
            series.iter().zip(windows).for_each(|(v, &w)| m[w as usize] += v / sizes[w as usize]);
            m
        })
        .collect();
    let series = level.len().max(1) as f64;
    let inside_freedom = (n - count).max(1) as f64;
    let inside = level
        .iter()
        .zip(&means)
        .map(|(s, m)| s.iter().zip(windows).map(|(v, &w)| (v - m[w as usize]).powi(2)).sum::<f64>())
        .sum::<f64>()
        / inside_freedom
        / series;
    let factor_inside = if kept.1 && n > count { survive(noise, inside) } else { 0.0 };
    let factor_between = if kept.0 && count > 1 {
        let share = 1.0 - 1.0 / count as f64;
        let between = means
            .iter()
            .map(|m| m.iter().zip(&sizes).map(|(v, s)| v * v * s).sum::<f64>())
            .sum::<f64>()
            / (n as f64 * share)
            / series;
        let own = if n > count { inside } else { noise };
        survive(own * (count as f64 - 1.0) / (n as f64 * share), between)
    } else {
        0.0
    };
    let stretch = factor_inside * (n as f64 / inside_freedom).sqrt();
    for ((s, m), o) in level.iter().zip(&means).zip(out.iter_mut()) {
        for (t, &w) in windows.iter().enumerate() {
            o[t] = factor_between * m[w as usize] + stretch * (s[t] - m[w as usize]);
        }
    }
    (factor_between, factor_inside)
}

/// `√(1 − noise / observed)`, 0 if the noise explains it all.
fn survive(noise: f64, observed: f64) -> f64 {
    if observed > 0.0 { (1.0 - noise / observed).max(0.0).sqrt() } else { 0.0 }
}
