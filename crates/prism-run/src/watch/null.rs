//! How large the change statistic gets where nothing changes.

use prism_stats::stream;
use rand::RngExt;
use rand_distr::{Distribution as _, Poisson, StandardNormal};
use rayon::prelude::*;

use super::watcher::Watcher;
use crate::steps::{StepModel, StepsError};

/// Runs drawn from the profile.
const RUNS: usize = 600;
/// Steps of each.
const STEPS: usize = 1_500;
/// Share of the largest maxima that the tail is followed from.
const TAIL: f64 = 0.2;

/// Maxima of the change statistic over runs of as many steps in which nothing changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Null {
    /// Ascending.
    maxima: Vec<f64>,
    /// Steps of each run.
    steps: f64,
}

impl Null {
    /// Draws runs from a profile: a level each, AR(1) around it with the fitted innovations, stalls.
    ///
    /// # Errors
    /// [`StepsError::Statistics`].
    pub fn simulated(model: &StepModel, seed: u64) -> Result<Self, StepsError> {
        let watcher = Watcher::without_threshold(model)?;
        let posterior = model.posterior()?;
        let level = crate::steps::Level::new(posterior.level.clone());
        let e = &model.evidence;
        let first = e.first_step;
        let stride = e.stride;
        let base = model.core_s()?;
        let mut maxima: Vec<f64> = (0..RUNS)
            .into_par_iter()
            .map(|run| {
                let mut rng = stream(seed, "watch null", &[run as u64]);
                let mut watcher = watcher.clone();
                let level = level.draw(&mut rng, 0.0);
                let (cov, rho) = estimated(model, &mut rng);
                let rate = posterior.rate.sample(&mut rng).min(0.2);
                let mut z: f64 = StandardNormal.sample(&mut rng);
                let mut largest = 0.0_f64;
                for i in 0..STEPS + e.warm_up_rows {
                    z = rho * z + prism_stats::Distribution::sample(&e.innovation, &mut rng);
                    let step = first + i as i64 * stride;
                    let mut t = level * (1.0 + cov * z);
                    if rng.random::<f64>() < rate {
                        let count = Poisson::new(0.05).map_or(0.0, |p| p.sample(&mut rng)) as u64;
                        t += base * posterior.marks.sum(&mut rng, 1 + count);
                    }
                    largest = largest.max(watcher.statistic_of(step, t.max(1e-3 * base)));
                }
                largest
            })
            .collect();
        maxima.sort_by(f64::total_cmp);
        Ok(Null { maxima, steps: STEPS as f64 })
    }

    /// Probability that the statistic passes `x` somewhere in a run, and whether that is
    /// an upper bound.
    fn in_a_run(&self, x: f64) -> (f64, bool) {
        let n = self.maxima.len() as f64;
        let above = n - self.maxima.partition_point(|m| *m <= x) as f64;
        let tail = (n * TAIL).floor();
        if above >= 20.0 {
            return (above / n, false);
        }
        // Beyond, the tail falls like that of a normal maximum: the exponent is linear in x².
        let from = self.maxima[self.maxima.len() - tail as usize];
        let mean: f64 =
            self.maxima.iter().rev().take(tail as usize).map(|m| m * m - from * from).sum::<f64>()
                / tail.max(1.0);
        let p = TAIL * (-(x * x - from * from) / mean.max(1e-12)).exp();
        if p < 1e-6 { (1e-6, true) } else { (p, false) }
    }

    /// Probability that the statistic passes `x` in `steps` steps, and whether that is an upper bound.
    pub fn probability(&self, x: f64, steps: f64) -> (f64, bool) {
        let (p, bound) = self.in_a_run(x);
        let rate = -(-p.min(1.0 - 1e-12)).ln_1p() / self.steps;
        (-(-rate * steps.max(1.0)).exp_m1(), bound)
    }

    /// The threshold that is passed `alarms` times in 10,000 steps.
    pub fn threshold(&self, alarms: f64) -> f64 {
        let wanted = -(-alarms * self.steps / 1e4).exp_m1();
        let (mut low, mut high) = (0.0, 100.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if self.in_a_run(middle).0 > wanted { low = middle } else { high = middle }
        }
        high
    }
}

/// Spread and correlation of the core as they may be, for all that so many rows tell.
fn estimated(model: &StepModel, rng: &mut rand_chacha::ChaCha8Rng) -> (f64, f64) {
    let e = &model.evidence;
    let rows: usize = e.runs.iter().map(|r| r.core_rows).sum();
    let n = rows.max(1) as f64;
    let mut normal = || -> f64 { StandardNormal.sample(rng) };
    // Relative error of a s.d. of correlated values; heavy tails add to it about as much again.
    let spread = ((1.0 + e.rho.powi(2)) / (1.0 - e.rho.powi(2)) / n).sqrt();
    let rho = e.rho + normal() * ((1.0 - e.rho.powi(2)) / n).sqrt();
    (e.core_cov * (spread * normal()).exp(), rho.clamp(0.0, 0.98))
}
