//! Autocorrelation of steps that were not all recorded.

use serde::{Deserialize, Serialize};

use crate::error::{Result, StatsError, check_sample};

/// A lag-1 autocorrelation from pairs of adjacent steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Autocorrelation {
    /// The estimate, in [−1, 1].
    pub lag1: f64,
    /// Number of adjacent pairs it rests on.
    pub pairs: usize,
    /// Its standard error, √((1 − r²)/pairs), that of a first-order autoregression with the mean
    /// known; valid for pairs ≳ 10.
    pub standard_error: f64,
}

/// Lag-1 autocorrelation of `values` using only pairs whose step ids differ by exactly one.
///
/// Traces keep windows of non-consecutive steps, and neighbours in the file may be thousands of
/// steps apart. `ids` and `values` have one entry per step, in any order. Deviations are from the
/// mean of all values; the covariance over pairs is divided by the geometric mean of the variances
/// of their two sides, so |r| ≤ 1. None if there are fewer than 3 adjacent pairs or one side does not
/// vary.
///
/// # Errors
/// If the lengths differ, a value is not finite, or an id occurs twice.
pub fn lag1(ids: &[i64], values: &[f64]) -> Result<Option<Autocorrelation>> {
    if ids.len() != values.len() {
        return Err(StatsError::LengthMismatch {
            left_name: "ids",
            left: ids.len(),
            right_name: "values",
            right: values.len(),
        });
    }
    check_sample(values, 0, "an autocorrelation")?;
    let mut steps: Vec<(i64, f64)> = ids.iter().copied().zip(values.iter().copied()).collect();
    steps.sort_by_key(|s| s.0);
    if let Some(w) = steps.windows(2).find(|w| w[0].0 == w[1].0) {
        return Err(StatsError::Argument {
            argument: "ids",
            value: w[0].0 as f64,
            domain: "a step id that occurs once",
        });
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let adjacent: Vec<(f64, f64)> = steps
        .windows(2)
        .filter(|w| w[1].0.checked_sub(w[0].0) == Some(1))
        .map(|w| (w[0].1 - mean, w[1].1 - mean))
        .collect();
    if adjacent.len() < 3 {
        return Ok(None);
    }
    let (mut cross, mut left, mut right) = (0.0, 0.0, 0.0);
    for (a, b) in &adjacent {
        cross += a * b;
        left += a * a;
        right += b * b;
    }
    let scale = (left * right).sqrt();
    if scale == 0.0 {
        return Ok(None);
    }
    let lag1 = (cross / scale).clamp(-1.0, 1.0);
    let pairs = adjacent.len();
    let standard_error = ((1.0 - lag1 * lag1) / pairs as f64).sqrt();
    Ok(Some(Autocorrelation { lag1, pairs, standard_error }))
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use rand_distr::StandardNormal;

    use super::*;
    use crate::stream::stream;

    #[test]
    fn gaps_are_not_pairs() {
        let ids = [1, 2, 3, 10, 11, 20, 4];
        let values = [1.0, 2.0, 1.0, 5.0, 4.0, 9.0, 3.0];
        let got = lag1(&ids, &values).unwrap().unwrap();
        // Pairs (1,2), (2,3), (3,4), (10,11) about the mean 25/7.
        let m = 25.0 / 7.0;
        let pairs = [(1.0, 2.0), (2.0, 1.0), (1.0, 3.0), (5.0, 4.0)];
        let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
            pairs.iter().map(|(a, b)| f(a - m, b - m)).sum()
        };
        let want = sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
        assert_eq!(got.pairs, 4);
        assert!((got.lag1 - want).abs() < 1e-14);
        assert!((got.standard_error - ((1.0 - want * want) / 4.0).sqrt()).abs() < 1e-14);
    }

    #[test]
    fn a_first_order_autoregression_is_recovered_from_windows() {
        for (rho, seed) in [(0.0_f64, 1), (0.4, 2), (0.8, 3), (-0.5, 4)] {
            let mut rng = stream(seed, "ar1", &[]);
            let (mut ids, mut values) = (Vec::new(), Vec::new());
            let mut x = 0.0;
            for t in 0..12_000 {
                let e: f64 = rng.sample(StandardNormal);
                x = rho * x + (1.0 - rho * rho).sqrt() * e;
                // Windows of five steps in every ten.
                if t % 10 < 5 {
                    ids.push(t);
                    values.push(x);
                }
            }
            let got = lag1(&ids, &values).unwrap().unwrap();
            assert_eq!(got.pairs, 4800);
            assert!((got.lag1 - rho).abs() < 4.0 * got.standard_error, "{rho}: {got:?}");
        }
    }

    #[test]
    fn too_little_gives_nothing_and_nonsense_an_error() {
        assert_eq!(lag1(&[1, 2, 3], &[1.0, 2.0, 3.0]).unwrap(), None);
        assert_eq!(lag1(&[1, 2, 3, 4], &[1.0; 4]).unwrap(), None);
        assert_eq!(lag1(&[], &[]).unwrap(), None);
        assert!(lag1(&[1, 1], &[1.0, 2.0]).is_err());
        assert!(lag1(&[1], &[1.0, 2.0]).is_err());
        assert!(lag1(&[1, 2], &[1.0, f64::NAN]).is_err());
        // The largest span of ids must not overflow.
        assert_eq!(lag1(&[i64::MIN, i64::MAX], &[1.0, 2.0]).unwrap(), None);
    }
}
