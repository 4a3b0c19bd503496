//! What is minimised, and how sure its values are.

use prism_engine::predict::{Bounds, Estimate};
use prism_stats::interval::{mean_interval, quantile_interval};
use prism_stats::quantile::sorted;
use prism_stats::resample::{iid_indices, percentile_interval};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::PlaceError;

/// The quantile that [`Objective::P95`] and [`Objective::Cvar`] are about.
const Q: f64 = 0.95;
/// Bootstrap repetitions of paired intervals.
const REPETITIONS: usize = 400;

/// What a placement minimises.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The 95 % quantile of step time.
    #[default]
    P95,
    /// Mean step time.
    Mean,
    /// Mean of the slowest 5 % of steps (conditional value at risk).
    Cvar,
}

impl Objective {
    /// Its value over samples, whose order is lost. Quantiles interpolate between order statistics
    /// (type 7).
    pub(super) fn of(self, values: &mut [f64]) -> f64 {
        let n = values.len();
        if n == 0 {
            return f64::NAN;
        }
        match self {
            Objective::Mean => values.iter().sum::<f64>() / n as f64,
            Objective::P95 => {
                let at = Q * (n - 1) as f64;
                let (low, part) = (at.floor() as usize, at.fract());
                let (_, &mut value, above) = values.select_nth_unstable_by(low, f64::total_cmp);
                let next = above.iter().copied().fold(f64::INFINITY, f64::min);
                if part > 0.0 { value + part * (next - value) } else { value }
            }
            Objective::Cvar => {
                // The slowest twentieth of the samples, the least of them in part.
                let tail = (n as f64 / 20.0).max(1.0);
                let count = tail.ceil();
                let (_, &mut least, above) =
                    values.select_nth_unstable_by(n - count as usize, f64::total_cmp);
                (above.iter().sum::<f64>() + least * (tail - (count - 1.0))) / tail
            }
        }
    }

    /// Its value with the interval that drawing finitely many samples leaves.
    ///
    /// # Errors
    /// [`PlaceError::Stats`] if there are too few samples.
    pub(super) fn estimate(
        self,
        samples_s: &[f64],
        confidence: f64,
        seed: u64,
    ) -> Result<Estimate, PlaceError> {
        let value = self.of(&mut samples_s.to_vec());
        let sampling = match self {
            Objective::Mean => {
                let i = mean_interval(samples_s, confidence)?;
                Bounds { lower: i.lower, upper: i.upper }
            }
            Objective::P95 => {
                let i = quantile_interval(&sorted(samples_s), Q, confidence)?;
                Bounds {
                    lower: i.lower.map_or(f64::NEG_INFINITY, |b| b.value),
                    upper: i.upper.map_or(f64::INFINITY, |b| b.value),
                }
            }
            Objective::Cvar => {
                let rows = paired(self, &[samples_s], seed);
                bounds(&rows.iter().map(|r| r[0]).collect::<Vec<_>>(), confidence)?
            }
        };
        Ok(Estimate { value, sampling, total: None })
    }
}

/// A ratio of objectives with the interval that sampling leaves, both drawn with the same random
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// Its interval: percentile bootstrap over samples, numerator and denominator together.
    pub sampling: Bounds,
}

impl Ratio {
    /// Whether the interval lies above 1.
    pub fn above_one(&self) -> bool {
        self.sampling.lower > 1.0
    }
}

/// The objective of several sets of samples drawn with common random numbers, and its bootstrap
/// repetitions over samples, which are resampled for all sets alike.
#[derive(Clone, Debug)]
pub(super) struct Paired {
    confidence: f64,
    values: Vec<f64>,
    /// `[repetition][set]`.
    rows: Vec<Vec<f64>>,
}

impl Paired {
    pub(super) fn new(objective: Objective, sets: &[&[f64]], confidence: f64, seed: u64) -> Paired {
        let values = sets.iter().map(|s| objective.of(&mut s.to_vec())).collect();
        Paired { confidence, values, rows: paired(objective, sets, seed) }
    }

    /// Objective of one set.
    pub(super) fn value(&self, set: usize) -> f64 {
        self.values[set]
    }

    /// Any function of the sets' objectives, with its interval.
    ///
    /// # Errors
    /// [`PlaceError::Stats`] if the function is not finite.
    pub(super) fn of(&self, f: impl Fn(&[f64]) -> f64) -> Result<Ratio, PlaceError> {
        let replicates: Vec<f64> = self.rows.iter().map(|r| f(r)).collect();
        Ok(Ratio { value: f(&self.values), sampling: bounds(&replicates, self.confidence)? })
    }

    /// Objective of set `over` relative to that of set `under`.
    ///
    /// # Errors
    /// As [`Paired::of`].
    pub(super) fn ratio(&self, over: usize, under: usize) -> Result<Ratio, PlaceError> {
        self.of(|v| v[over] / v[under])
    }
}

fn bounds(replicates: &[f64], confidence: f64) -> Result<Bounds, PlaceError> {
    let i = percentile_interval(replicates, confidence)?;
    Ok(Bounds { lower: i.lower, upper: i.upper })
}

fn paired(objective: Objective, sets: &[&[f64]], seed: u64) -> Vec<Vec<f64>> {
    let n = sets.first().map_or(0, |s| s.len());
    let one = |replicate: usize| {
        let rows = iid_indices(n, seed, replicate as u64);
        let mut again = Vec::with_capacity(n);
        let mut of = |set: &&[f64]| {
            again.clear();
            again.extend(rows.iter().map(|&i| set[i]));
            objective.of(&mut again)
        };
        sets.iter().map(&mut of).collect()
    };
    (0..REPETITIONS).into_par_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prism_stats::quantile::quantile_type7;

    #[test]
    fn objectives_are_those_of_the_sorted_samples() {
        for n in [1_usize, 2, 19, 20, 21, 100, 101, 999] {
            let values: Vec<f64> = (0..n).map(|i| f64::from((i as u32 * 7919) % 1009)).collect();
            let ascending = sorted(&values);
            let p95 = Objective::P95.of(&mut values.clone());
            assert_eq!(p95, quantile_type7(&ascending, Q).unwrap(), "{n}");
            // The integral of the quantile function's upper twentieth.
            let tail = (n as f64 / 20.0).max(1.0);
            let mut left = tail;
            let mut sum = 0.0;
            for v in ascending.iter().rev() {
                sum += v * left.clamp(0.0, 1.0);
                left -= 1.0;
            }
            let cvar = Objective::Cvar.of(&mut values.clone());
            assert!((cvar - sum / tail).abs() < 1e-9, "{n}: {cvar} {}", sum / tail);
            assert!(cvar >= p95 || n < 20);
        }
    }

    #[test]
    fn a_common_factor_has_no_interval_under_common_random_numbers() {
        let a: Vec<f64> = (0..500).map(|i| 1.0 + f64::from((i * 37) % 500) / 500.0).collect();
        let b: Vec<f64> = a.iter().map(|v| 1.25 * v).collect();
        let paired = Paired::new(Objective::P95, &[&a, &b], 0.95, 1);
        let ratio = paired.ratio(1, 0).unwrap();
        assert!((ratio.value - 1.25).abs() < 1e-12);
        assert!(ratio.sampling.upper - ratio.sampling.lower < 1e-12);
        assert!(ratio.above_one() && !paired.ratio(0, 1).unwrap().above_one());
    }
}
