//! The total of a run's step times.

use std::sync::Arc;

use prism_stats::pooled::ScalePosterior;
use prism_stats::stream;
use rand::{Rng, RngExt};
use rand_distr::{Distribution as _, Poisson, StandardNormal};
use rayon::prelude::*;

use super::StepsError;
use super::evidence::row_of;
use super::model::{Posterior, StepModel};

/// Draws that make one stream.
const BLOCK: usize = 1 << 10;
/// From so many stalls in a run on, their sum is drawn as one normal number.
const MANY: u64 = 1 << 10;
/// A run more than this factor away from the calibrated level is another system's: not drawn.
const FACTOR: f64 = 2.0;

/// Which steps a run has.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Shape {
    /// Steps.
    pub steps: u64,
    /// Step id of the first; none for the first of the calibrated runs.
    pub first_step: Option<i64>,
    /// Steps, counted from 0, right before which there was an evaluation.
    pub evaluations: Vec<u64>,
    /// Likewise, a checkpoint for which training stopped.
    pub checkpoints: Vec<u64>,
}

/// The predicted total of step times.
#[derive(Clone, Debug, PartialEq)]
pub struct Total {
    /// Equally likely totals, ascending, seconds.
    pub sorted_s: Vec<f64>,
    /// What was extrapolated.
    pub warnings: Vec<String>,
}

/// A run's level, seconds.
pub(crate) struct Level {
    posterior: ScalePosterior,
    centre: f64,
}

impl Level {
    pub(crate) fn new(posterior: ScalePosterior) -> Self {
        let centre = posterior.centre();
        Level { posterior, centre }
    }

    /// A run's level, with noise of variance `noise` on its logarithm.
    pub(crate) fn draw<R: Rng + ?Sized>(&self, rng: &mut R, noise: f64) -> f64 {
        let reach = FACTOR.ln();
        for _ in 0..64 {
            let ln = self.posterior.sample(rng, noise);
            if (ln - self.centre).abs() <= reach {
                return ln.exp();
            }
        }
        self.centre.exp()
    }
}

/// Excess of stalls, in core steps: those seen, and other systems' with probability 1/(n + 1).
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    own: Vec<f64>,
    borrowed: Vec<f64>,
    /// The same law as a list of equally likely values.
    list: Arc<[f64]>,
}

impl Marks {
    pub(super) fn new(own: Vec<f64>, borrowed: Vec<f64>) -> Self {
        let own: Vec<f64> = own.into_iter().map(|m| m.max(0.0)).collect();
        let share = 1.0 / (own.len() + 1) as f64;
        // 512 values: of each kind as many as its share, evenly spread over its quantiles.
        let list: Arc<[f64]> = if own.is_empty() || borrowed.is_empty() {
            own.iter().chain(&borrowed).copied().collect()
        } else {
            let many = 512_usize;
            let foreign = ((share * many as f64).round() as usize).max(1);
            spread(&borrowed, foreign).chain(spread(&own, many - foreign)).collect()
        };
        Marks { own, borrowed, list }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Equally likely values of this law.
    pub(super) fn list(&self) -> Arc<[f64]> {
        Arc::clone(&self.list)
    }

    /// Probability of another system's stall, where there are both.
    fn borrowing(&self) -> f64 {
        1.0 / (self.own.len() + 1) as f64
    }

    fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        let foreign = self.own.is_empty()
            || (!self.borrowed.is_empty() && rng.random::<f64>() < self.borrowing());
        let from = if foreign { &self.borrowed } else { &self.own };
        if from.is_empty() { 0.0 } else { from[rng.random_range(0..from.len())] }
    }

    /// Mean and s.d. of a mark.
    fn moments(&self) -> (f64, f64) {
        let share = match (self.own.is_empty(), self.borrowed.is_empty()) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => self.borrowing(),
        };
        let mean = |v: &[f64], k: i32| {
            if v.is_empty() {
                0.0
            } else {
                v.iter().map(|x| x.powi(k)).sum::<f64>() / v.len() as f64
            }
        };
        let both = |k| share * mean(&self.borrowed, k) + (1.0 - share) * mean(&self.own, k);
        (both(1), (both(2) - both(1).powi(2)).max(0.0).sqrt())
    }

    /// Excess of `count` stalls together.
    pub(crate) fn sum<R: Rng + ?Sized>(&self, rng: &mut R, count: u64) -> f64 {
        if count <= MANY {
            return (0..count).map(|_| self.draw(rng)).sum();
        }
        let (mean, sd) = self.moments();
        let z: f64 = StandardNormal.sample(rng);
        (count as f64 * mean + (count as f64).sqrt() * sd * z).max(0.0)
    }
}

/// `count` values that have about the law of `values`.
fn spread(values: &[f64], count: usize) -> impl Iterator<Item = f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    (0..count).map(move |i| sorted[((2 * i + 1) * n / (2 * count)).min(n - 1)])
}

/// Sums over a shape's rows that do not vary.
struct Rows {
    /// Core and stalled rows: how many, and Σ (1 + profile).
    rest: (f64, f64),
    /// Rows after an evaluation, after a checkpoint: how many, and Σ (1 + profile).
    after: [(f64, f64); 2],
    /// Rows of warm-up.
    warm_up: f64,
    /// Sum over rows beyond the shared course, of how far off its mean may be.
    beyond_sd: f64,
    /// Recurring stalls inside.
    recurring: Vec<usize>,
}

impl StepModel {
    fn rows(&self, shape: &Shape) -> Rows {
        let e = &self.evidence;
        let first = shape.first_step.unwrap_or(e.first_step);
        let stride = e.stride.unsigned_abs().max(1);
        let rows = shape.steps.div_ceil(stride);
        let warm = (e.warm_up_rows as u64).min(rows);
        let mut kind = std::collections::BTreeMap::new();
        for (slot, list) in [(0_usize, &shape.evaluations), (1, &shape.checkpoints)] {
            for at in list.iter().map(|s| s / stride).filter(|r| (warm..rows).contains(r)) {
                kind.entry(at).or_insert(slot);
            }
        }
        let at = |row: u64| {
            let step = first.saturating_add((row as i64).saturating_mul(e.stride));
            1.0 + self.profile_at(step)
        };
        let mut after = [(0.0, 0.0); 2];
        for (&row, &slot) in &kind {
            after[slot].0 += 1.0;
            after[slot].1 += at(row);
        }
        let known = e.profile.as_ref().map_or(0, |p| p.deviation.len() as u64);
        let skipped = row_of(first, e.first_step, e.stride).unwrap_or(0) as u64;
        let (mut sum, mut row) = (0.0, warm);
        while row < rows && row + skipped < known {
            sum += at(row);
            row += 1;
        }
        let beyond_sd = (rows - row) as f64 * e.profile.as_ref().map_or(0.0, |p| p.tail().1);
        sum += (rows - row) as f64 * if row < rows { at(row) } else { 1.0 };
        let count = (rows - warm) as f64 - after[0].0 - after[1].0;
        sum -= after[0].1 + after[1].1;
        let last = first.saturating_add((rows as i64 - 1).saturating_mul(e.stride));
        let inside = |i: &usize| e.recurring[*i].first >= first && e.recurring[*i].last <= last;
        Rows {
            rest: (count, sum),
            after,
            warm_up: warm as f64,
            beyond_sd,
            recurring: (0..e.recurring.len()).filter(inside).collect(),
        }
    }

    /// Mean profile over a shape's rows, and how far off that may be where it goes beyond the course seen.
    pub fn mean_profile(&self, shape: &Shape) -> (f64, f64) {
        let rows = self.rows(shape);
        let n = rows.rest.0;
        if n > 0.0 { (rows.rest.1 / n - 1.0, rows.beyond_sd / n) } else { (0.0, 0.0) }
    }

    /// Predicts the total of all step times of one more run.
    ///
    /// `samples` equally likely totals; the same seed gives the same on any number of threads.
    ///
    /// # Errors
    /// [`StepsError::Setting`] for a run without steps; [`StepsError::Statistics`].
    pub fn total(&self, shape: &Shape, samples: usize, seed: u64) -> Result<Total, StepsError> {
        if shape.steps == 0 || samples == 0 {
            let what = if samples == 0 { "the number of samples" } else { "the number of steps" };
            return Err(StepsError::Setting { what, rule: "at least 1", got: "0".to_owned() });
        }
        let posterior = self.posterior()?;
        let level = Level::new(posterior.level.clone());
        let rows = self.rows(shape);
        let mut sorted_s: Vec<f64> = (0..samples.div_ceil(BLOCK))
            .into_par_iter()
            .flat_map_iter(|block| {
                let mut rng = stream(seed, "run total", &[block as u64]);
                let count = BLOCK.min(samples - block * BLOCK);
                let draw = |_| self.one_total(&rows, &posterior, &level, &mut rng);
                (0..count).map(draw).collect::<Vec<f64>>()
            })
            .collect();
        sorted_s.sort_by(f64::total_cmp);
        Ok(Total { sorted_s, warnings: self.extrapolations(shape) })
    }

    fn one_total<R: Rng + ?Sized>(
        &self,
        rows: &Rows,
        posterior: &Posterior,
        level: &Level,
        rng: &mut R,
    ) -> f64 {
        let e = &self.evidence;
        let k = e.stride as f64;
        let mut normal = || -> f64 { StandardNormal.sample(rng) };
        let (n, sum) = rows.rest;
        let mut core = sum + n * self.evidence.mean_variance(n).sqrt() * normal();
        core += rows.beyond_sd * normal();
        let pauses = [Some(posterior.after_evaluation), e.after_checkpoint];
        for ((n, sum), pause) in rows.after.into_iter().zip(pauses) {
            let Some(p) = pause.filter(|_| n > 0.0) else {
                core += sum;
                continue;
            };
            let sd = p.sd * (1.0 / n + 1.0 / p.count.max(1) as f64).sqrt();
            core += sum + n * (p.mean + sd * normal());
        }
        // Warm-up and stalls are in core steps, of which a row has k.
        let warm_up = posterior.warm_up.sample(rng, 0.0);
        let warm_up = warm_up.clamp(-rows.warm_up * k, posterior.longest_warm_up);
        let mut steps = (core + rows.warm_up) * k + warm_up;
        let mean = posterior.rate.sample(rng) * n;
        let stalls =
            if mean > 0.0 { Poisson::new(mean).map_or(0.0, |p| p.sample(rng)) } else { 0.0 };
        steps += posterior.marks.sum(rng, stalls as u64);
        for &i in &rows.recurring {
            // A stall of a hundred steps is another thing than what recurred.
            steps += posterior.recurring[i].sample(rng, 0.0).exp().min(100.0 * k);
        }
        level.draw(rng, 0.0) * steps
    }

    /// What a prediction of this shape follows beyond what was seen.
    pub fn extrapolations(&self, shape: &Shape) -> Vec<String> {
        let e = &self.evidence;
        let mut out = Vec::new();
        let longest = e.runs.iter().map(|r| r.steps).max().unwrap_or(0);
        if e.stall_rows == 0 {
            return out;
        }
        if let Some(profile) = e.profile.as_ref().filter(|_| shape.steps > longest) {
            let (tail, sd) = profile.tail();
            out.push(format!(
                "the runs share a course over their {longest} steps; after it, the mean of its last half is taken \
                 to last: {:+.2} % of the level, give or take {:.2} %",
                100.0 * tail,
                100.0 * sd
            ));
        }
        if shape.steps > longest.saturating_mul(10) {
            out.push(format!(
                "{} steps from runs of at most {longest}: stalls rarer than one in {} steps, drift and \
                 slow-downs over days were not seen",
                shape.steps, e.stall_rows as u64 * u64::from(e.averaged_over),
            ));
        }
        if !shape.checkpoints.is_empty() && e.after_checkpoint.is_none() {
            out.push(
                "no checkpoint in the logs: the first step after one is taken for any other"
                    .to_owned(),
            );
        }
        out
    }
}
