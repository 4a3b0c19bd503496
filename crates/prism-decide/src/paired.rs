//! Statistics of paired samples: two jobs that saw the same noise.

use std::fmt;

use prism_engine::predict::Bounds;
use prism_stats::{htest, resample};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// A statistic of step time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// Mean.
    Mean,
    /// Standard deviation.
    Sd,
    /// Half the distance between the quantiles of 15.87 and 84.13 %: the standard deviation of a
    /// normal law, and blind to rare stalls.
    CoreSpread,
    /// Quantile of a probability (type 7).
    Quantile(f64),
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Mean => f.pad("mean"),
            Statistic::Sd => f.pad("s.d."),
            Statistic::CoreSpread => f.pad("core spread"),
            // Through a rounding that takes away what binary fractions add.
            Statistic::Quantile(p) => f.pad(&format!("p{}", (p * 1e11).round() / 1e9)),
        }
    }
}

/// P(Z ≤ 1) of a standard normal Z.
const UPPER: f64 = 0.841_344_746_068_542_9;

/// Samples with their order, so that statistics of many resamples cost one pass each.
#[derive(Clone, Debug)]
pub struct Ordered<'a> {
    values: &'a [f32],
    /// Indices by rising value.
    order: Vec<u32>,
}

impl<'a> Ordered<'a> {
    /// Sorts.
    pub fn new(values: &'a [f32]) -> Ordered<'a> {
        let mut order: Vec<u32> = (0..values.len() as u32).collect();
        order.sort_by(|a, b| values[*a as usize].total_cmp(&values[*b as usize]).then(a.cmp(b)));
        Ordered { values, order }
    }

    /// The statistic of all samples.
    pub fn of_all(&self, statistic: Statistic) -> f64 {
        self.of(statistic, &vec![1; self.values.len()])
    }

    /// The statistic of the samples, each counted so many times.
    pub fn of(&self, statistic: Statistic, counts: &[u16]) -> f64 {
        match statistic {
            Statistic::Mean => self.mean(counts),
            Statistic::Sd => {
                let mean = self.mean(counts);
                let n = counts.iter().map(|c| f64::from(*c)).sum::<f64>();
                let squares: f64 = self
                    .values
                    .iter()
                    .zip(counts)
                    .map(|(v, c)| f64::from(*c) * (f64::from(*v) - mean).powi(2))
                    .sum();
                (squares / (n - 1.0).max(1.0)).sqrt()
            }
            Statistic::CoreSpread => {
                0.5 * (self.quantile(UPPER, counts) - self.quantile(1.0 - UPPER, counts))
            }
            Statistic::Quantile(p) => self.quantile(p, counts),
        }
    }

    fn mean(&self, counts: &[u16]) -> f64 {
        let (mut sum, mut n) = (0.0, 0.0);
        for (v, c) in self.values.iter().zip(counts) {
            sum += f64::from(*v) * f64::from(*c);
            n += f64::from(*c);
        }
        sum / n
    }

    /// Type 7: between the order statistics around `p·(n − 1)`.
    fn quantile(&self, p: f64, counts: &[u16]) -> f64 {
        let n: usize = counts.iter().map(|c| usize::from(*c)).sum();
        if n == 0 {
            return f64::NAN;
        }
        let place = p * (n - 1) as f64;
        let (below, share) = (place.floor() as usize, place - place.floor());
        let above = (below + 1).min(n - 1);
        let (mut passed, mut low) = (0, None);
        for &i in &self.order {
            passed += usize::from(counts[i as usize]);
            let value = f64::from(self.values[i as usize]);
            if low.is_none() && passed > below {
                low = Some(value);
            }
            if let (Some(low), true) = (low, passed > above) {
                return low + share * (value - low);
            }
        }
        f64::NAN
    }
}

/// Bootstrap resamples of `n` samples, with replacement: a function of the seed.
#[derive(Clone, Copy, Debug)]
pub struct Resamples {
    n: usize,
    repetitions: usize,
    seed: u64,
}

impl Resamples {
    /// So many resamples.
    pub fn new(n: usize, repetitions: usize, seed: u64) -> Resamples {
        Resamples { n, repetitions, seed }
    }

    /// A function of each resample: of how often it has each sample.
    pub fn map<T: Send>(&self, f: impl Fn(&[u16]) -> T + Sync + Send) -> Vec<T> {
        let one = |k: usize| {
            let mut counts = vec![0_u16; self.n];
            for i in resample::iid_indices(self.n, self.seed, k as u64) {
                counts[i] = counts[i].saturating_add(1);
            }
            f(&counts)
        };
        (0..self.repetitions).into_par_iter().map(one).collect()
    }
}

/// Standard deviation of the values.
pub fn standard_error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt()
}

/// Interval around `value` whose resampled values are `replicates`: normal, with their standard error.
///
/// ```
/// use prism_decide::paired::normal_bounds;
///
/// let bounds = normal_bounds(1.0, &[0.9, 1.1, 0.8, 1.2, 1.0], 0.95);
/// assert!(bounds.lower < 0.75 && bounds.upper > 1.25);
/// ```
pub fn normal_bounds(value: f64, replicates: &[f64], confidence: f64) -> Bounds {
    let half = htest::normal_quantile(0.5 * (1.0 + confidence)) * standard_error(replicates);
    Bounds { lower: value - half, upper: value + half }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted statistics are those of the samples written out.
    #[test]
    fn counts_are_repetitions() {
        let values: Vec<f32> = (0..57).map(|i| ((i * 37) % 57) as f32 * 0.5 + 3.0).collect();
        let ordered = Ordered::new(&values);
        let resamples = Resamples::new(values.len(), 5, 3);
        for counts in &resamples.map(<[u16]>::to_vec) {
            let mut written: Vec<f64> = Vec::new();
            for (v, c) in values.iter().zip(counts) {
                written.extend(std::iter::repeat_n(f64::from(*v), usize::from(*c)));
            }
            written.sort_by(f64::total_cmp);
            assert_eq!(written.len(), values.len());
            for p in [0.0, 0.05, 0.5, 0.95, 1.0] {
                let expected = prism_stats::quantile_type7(&written, p).unwrap();
                let got = ordered.of(Statistic::Quantile(p), counts);
                assert!((got - expected).abs() < 1e-9, "{p}: {got} {expected}");
            }
            let n = written.len() as f64;
            let mean = written.iter().sum::<f64>() / n;
            let sd = (written.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
            assert!((ordered.of(Statistic::Mean, counts) - mean).abs() < 1e-9);
            assert!((ordered.of(Statistic::Sd, counts) - sd).abs() < 1e-9);
        }
    }
}
