//! Kolmogorov-Smirnov distances, their laws, and the floor that makes a distance readable.
//!
//! A KS distance means nothing without its n: even the true model has a distance of about 0.87/√n
//! from n held-out values. [`ks_floor`] gives that figure.

mod one_sample;
mod two_sample;

use serde::{Deserialize, Serialize};

use crate::error::{Result, StatsError, check_sorted};
use crate::law::Distribution;
use crate::root;

pub use one_sample::{ks_cdf, ks_sf};
pub use two_sample::ks_sf_two;

/// Largest distance between the empirical distribution function of values in ascending order and a
/// law; ties and atoms of the law are handled.
///
/// # Errors
/// If there is no value, one is not finite, or they do not ascend.
pub fn ks_statistic(sorted: &[f64], law: &impl Distribution) -> Result<f64> {
    check_sorted(sorted, "a KS distance")?;
    let n = sorted.len() as f64;
    let mut distance = 0.0_f64;
    let mut i = 0;
    while i < sorted.len() {
        let x = sorted[i];
        let below = i as f64 / n;
        while i < sorted.len() && sorted[i] == x {
            i += 1;
        }
        let above = i as f64 / n;
        distance = distance.max((law.cdf(x) - above).abs()).max((law.cdf_below(x) - below).abs());
    }
    Ok(distance)
}

/// Largest distance between the empirical distribution functions of two samples, each in ascending
/// order; ties within and between them are handled.
///
/// # Errors
/// If either has no value, one is not finite, or they do not ascend.
pub fn ks_statistic_two(a: &[f64], b: &[f64]) -> Result<f64> {
    check_sorted(a, "a KS distance")?;
    check_sorted(b, "a KS distance")?;
    let (mut i, mut j, mut distance) = (0, 0, 0.0_f64);
    while i < a.len() && j < b.len() {
        let x = a[i].min(b[j]);
        while i < a.len() && a[i] == x {
            i += 1;
        }
        while j < b.len() && b[j] == x {
            j += 1;
        }
        let gap = i as f64 / a.len() as f64 - j as f64 / b.len() as f64;
        distance = distance.max(gap.abs());
    }
    Ok(distance)
}

/// What a perfect model gets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KsFloor {
    /// Expected KS distance.
    pub mean: f64,
    /// Its 95th percentile: a larger distance refutes the model at 5 %.
    pub p95: f64,
}

/// KS distance that the true, continuous law gets from `n` independent values.
///
/// From the finite-n law of [`ks_cdf`]; the mean by Simpson's rule to about 1e-5 relative.
///
/// # Errors
/// If n is zero.
///
/// ```
/// let floor = prism_stats::ks::ks_floor(43)?;
/// assert!((floor.mean - 0.1287).abs() < 1e-4 && (floor.p95 - 0.2028).abs() < 1e-4);
/// # Ok::<(), prism_stats::StatsError>(())
/// ```
pub fn ks_floor(n: usize) -> Result<KsFloor> {
    if n == 0 {
        return Err(StatsError::TooFew { method: "a KS floor", have: 0, need: 1 });
    }
    let root_n = (n as f64).sqrt();
    let (start, end) = (0.5 / n as f64, (4.0 / root_n).min(1.0));
    // Below 1/(2n) the distance cannot fall; the range in z = d√n is covered evenly.
    let mean = start + simpson(|d| ks_sf(n, d), start, end, 160);
    let p95 = root::bracketed(|d| 0.05 - ks_sf(n, d), start, end);
    Ok(KsFloor { mean, p95 })
}

/// KS distance between two samples of `n` and `m` independent values of one continuous law, as
/// between held-out steps and draws of a perfect model.
///
/// Exact for n·m up to 10⁶ (lattice paths; the mean by Simpson's rule where the lattice has more
/// than 1,000 points); beyond, the one-sample law with nm/(n+m) values.
///
/// # Errors
/// If n or m is zero.
pub fn ks_floor_two(n: usize, m: usize) -> Result<KsFloor> {
    if n == 0 || m == 0 {
        return Err(StatsError::TooFew { method: "a two-sample KS floor", have: 0, need: 1 });
    }
    two_sample::floor(n, m)
}

/// Composite Simpson rule with an even number of intervals.
fn simpson(f: impl Fn(f64) -> f64, a: f64, b: f64, intervals: usize) -> f64 {
    let h = (b - a) / intervals as f64;
    let inner: f64 =
        (1..intervals).map(|i| f(a + h * i as f64) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
    h / 3.0 * (f(a) + inner + f(b))
}

#[cfg(test)]
mod tests;
