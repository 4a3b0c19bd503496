//! A whole run's steps, summed in closed form.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Poisson, StandardNormal};

use rand::RngExt;

use crate::{Pace, RunError};

/// Stalls up to this many are drawn one by one; of more, the sum is normal to far below a run's other
/// noise (its skewness falls with their root).
const DRAWN_STALLS: f64 = 512.0;

/// The steps of a run, all together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    /// Mean step, stalls in it, seconds.
    pub(super) step_s: f64,
    /// Share of stalls in it.
    pub(super) stalls: f64,
}

/// Draws the sum of n steps: an AR(1) process's, normal with the exact variance
/// s²·(n(1+ρ)/(1−ρ) − 2ρ(1−ρⁿ)/(1−ρ)²), and a compound Poisson process's of stalls.
pub(super) fn level(pace: &Pace, steps: u32, rng: &mut ChaCha8Rng) -> Level {
    let n = f64::from(steps);
    let z: f64 = StandardNormal.sample(rng);
    let sd = pace.core_cov * sum_variance(n, pace.rho).sqrt();
    // A sum of positive times: the normal law's lower tail ends well above 0.
    let core = (n + sd * z).max(0.01 * n);
    let stalls = stalls(pace, n, rng);
    let all = core + stalls;
    Level { step_s: pace.core_s * all / n, stalls: stalls / all }
}

/// Variance of the sum of n values of a stationary AR(1) process of variance 1.
pub(super) fn sum_variance(n: f64, rho: f64) -> f64 {
    let rest = 1.0 - rho;
    n * (1.0 + rho) / rest - 2.0 * rho * (1.0 - rho.powf(n)) / (rest * rest)
}

/// Excess of the stalls of n steps, in core steps.
fn stalls(pace: &Pace, n: f64, rng: &mut ChaCha8Rng) -> f64 {
    let Ok(law) = Poisson::new(n * pace.stall_rate) else { return 0.0 };
    let count: f64 = law.sample(rng);
    let marks = &pace.stall_marks;
    if count <= DRAWN_STALLS {
        return (0..count as u32).map(|_| marks[rng.random_range(0..marks.len())]).sum();
    }
    let size = marks.len() as f64;
    let mean = marks.iter().sum::<f64>() / size;
    let variance = marks.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>() / size;
    let z: f64 = StandardNormal.sample(rng);
    (count * mean + z * (count * variance).sqrt()).max(0.0)
}

/// Refuses what is no pace.
pub(super) fn check(pace: &Pace, run: u64) -> Result<(), RunError> {
    let wrong = |what, value| Err(RunError::Pace { run, what, value });
    if !(pace.core_s.is_finite() && pace.core_s > 0.0) {
        return wrong("core_s", pace.core_s);
    }
    if !(pace.rho > -1.0 && pace.rho < 1.0) {
        return wrong("rho", pace.rho);
    }
    let others = [
        ("core_cov", pace.core_cov),
        ("stall_rate", pace.stall_rate),
        ("warm_up_s", pace.warm_up_s),
    ];
    for (what, value) in others {
        if !(value.is_finite() && value >= 0.0) {
            return wrong(what, value);
        }
    }
    // The first step after an evaluation may be the faster one.
    if !(pace.after_evaluation_s.is_finite() && pace.after_evaluation_s > -pace.core_s) {
        return wrong("after_evaluation_s", pace.after_evaluation_s);
    }
    if pace.stall_rate > 0.0 && pace.stall_marks.is_empty() {
        return wrong("stall_marks", 0.0);
    }
    match pace.stall_marks.iter().find(|m| !(m.is_finite() && **m >= 0.0)) {
        Some(mark) if pace.stall_rate > 0.0 => wrong("stall_marks", *mark),
        _ => Ok(()),
    }
}
