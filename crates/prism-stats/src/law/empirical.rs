//! The law of observed values.

use rand::{Rng, RngExt};

use super::Distribution;
use crate::error::{Result, check_sample};
use crate::quantile::type7_unchecked;

/// The observed values, interpolated: the law whose quantile function is the type-7 quantile
/// (Hyndman and Fan 1996), piecewise linear through the order statistics at (i−1)/(n−1).
///
/// It is what a tabulated quantile function draws from. Its moments are those of the interpolated
/// law, not of the sample: each end value weighs half. Values that occur more than once are atoms.
/// It has no tail beyond the largest value. For the step function that jumps by 1/n at each value
/// see [`ecdf`](crate::quantile::ecdf).
#[derive(Clone, Debug, PartialEq)]
pub struct Empirical {
    values: Vec<f64>,
}

impl Empirical {
    /// The law of the given values, in any order.
    ///
    /// # Errors
    /// If there is none or one is not finite.
    pub fn new(mut values: Vec<f64>) -> Result<Self> {
        check_sample(&values, 1, "an empirical law")?;
        values.sort_by(f64::total_cmp);
        Ok(Self { values })
    }

    /// The values in ascending order.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The values in ascending order.
    pub fn into_values(self) -> Vec<f64> {
        self.values
    }

    fn ends(&self) -> (f64, f64) {
        // A law holds at least one value.
        (
            self.values.first().copied().unwrap_or(f64::NAN),
            self.values.last().copied().unwrap_or(f64::NAN),
        )
    }

    /// Rank of x on the scale 0..=n−1 of the order statistics, where k of them, 0 < k < n, count as
    /// below it.
    fn rank(&self, x: f64, k: usize) -> f64 {
        let (low, high) = (self.values[k - 1], self.values[k]);
        let inside = if high > low { ((x - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 };
        (k - 1) as f64 + inside
    }
}

impl Distribution for Empirical {
    fn cdf(&self, x: f64) -> f64 {
        if x.is_nan() {
            return x;
        }
        let k = self.values.partition_point(|&v| v <= x);
        let last = self.values.len() - 1;
        if k == 0 || k > last {
            return f64::from(k > last);
        }
        self.rank(x, k) / last as f64
    }

    fn cdf_below(&self, x: f64) -> f64 {
        if x.is_nan() {
            return x;
        }
        let k = self.values.partition_point(|&v| v < x);
        let last = self.values.len() - 1;
        if k == 0 || k > last {
            return f64::from(k > last);
        }
        self.rank(x, k) / last as f64
    }

    fn sf(&self, x: f64) -> f64 {
        if x.is_nan() {
            return x;
        }
        let k = self.values.partition_point(|&v| v <= x);
        let last = self.values.len() - 1;
        if k == 0 || k > last {
            return f64::from(k == 0);
        }
        (last as f64 - self.rank(x, k)) / last as f64
    }

    fn quantile(&self, p: f64) -> f64 {
        if (0.0..=1.0).contains(&p) { type7_unchecked(&self.values, p) } else { f64::NAN }
    }

    fn quantile_upper(&self, q: f64) -> f64 {
        if !(0.0..=1.0).contains(&q) {
            return f64::NAN;
        }
        let last = self.values.len() - 1;
        let h = q * last as f64;
        let i = (h.floor() as usize).min(last);
        let (high, low) = (self.values[last - i], self.values[last - (i + 1).min(last)]);
        high - (h - i as f64) * (high - low)
    }

    fn mean(&self) -> f64 {
        let (first, last) = self.ends();
        if self.values.len() == 1 {
            return first;
        }
        let centred: f64 = self.values.iter().map(|v| v - first).sum();
        first + (centred - 0.5 * (last - first)) / (self.values.len() - 1) as f64
    }

    fn sd(&self) -> f64 {
        if self.values.len() == 1 {
            return 0.0;
        }
        let mean = self.mean();
        // Second moment of a uniform piece with ends a and b: (a² + ab + b²)/3.
        let sum: f64 = self
            .values
            .windows(2)
            .map(|w| (w[0] - mean, w[1] - mean))
            .map(|(a, b)| (a * a + a * b + b * b) / 3.0)
            .sum();
        (sum / (self.values.len() - 1) as f64).sqrt()
    }

    fn ln_pdf(&self, x: f64) -> f64 {
        if x.is_nan() {
            return x;
        }
        let (first, last) = self.ends();
        if x < first || x > last {
            return f64::NEG_INFINITY;
        }
        if self.cdf(x) > self.cdf_below(x) {
            return f64::INFINITY;
        }
        let k = self.values.partition_point(|&v| v <= x).clamp(1, self.values.len() - 1);
        let width = self.values[k] - self.values[k - 1];
        -((self.values.len() - 1) as f64 * width).ln()
    }

    fn support(&self) -> (f64, f64) {
        self.ends()
    }

    fn n_parameters(&self) -> usize {
        self.values.len()
    }

    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        type7_unchecked(&self.values, rng.random())
    }
}
