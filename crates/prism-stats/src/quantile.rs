//! Quantiles of samples: type 7, weighted, and the empirical distribution function.

use crate::error::{Result, StatsError, check_sample, check_sorted};

/// Quantile p of values in ascending order, type 7 of Hyndman and Fan (1996), numpy's and R's
/// default: linear between the order statistics placed at (i−1)/(n−1).
///
/// # Errors
/// If there is no value, one is not finite, they do not ascend, or p is outside [0, 1].
///
/// ```
/// # use prism_stats::quantile::quantile_type7;
/// assert_eq!(quantile_type7(&[1.0, 2.0, 4.0], 0.75)?, 3.0);
/// # Ok::<(), prism_stats::StatsError>(())
/// ```
pub fn quantile_type7(sorted: &[f64], p: f64) -> Result<f64> {
    check_sorted(sorted, "a quantile")?;
    if !(0.0..=1.0).contains(&p) {
        return Err(StatsError::Argument { argument: "p", value: p, domain: "between 0 and 1" });
    }
    Ok(type7_unchecked(sorted, p))
}

/// [`quantile_type7`] of values known to be sorted and finite; NaN if there is none.
pub(crate) fn type7_unchecked(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let h = p * last as f64;
    let i = (h.floor() as usize).min(last);
    let (low, high) = (sorted[i], sorted[(i + 1).min(last)]);
    low + (h - i as f64) * (high - low)
}

/// Several type-7 quantiles of values in any order, sorted once.
///
/// # Errors
/// As [`quantile_type7`].
pub fn quantiles(values: &[f64], probabilities: &[f64]) -> Result<Vec<f64>> {
    check_sample(values, 1, "a quantile")?;
    let sorted = sorted(values);
    probabilities.iter().map(|&p| quantile_type7(&sorted, p)).collect()
}

/// A copy in ascending order (NaN last).
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut copy = values.to_vec();
    copy.sort_by(f64::total_cmp);
    copy
}

/// Quantile p of values that carry weights: the smallest value at which the cumulated weight
/// reaches p of the total (the inverse of the weighted distribution function). For p = 0 it is the
/// smallest value of positive weight. `values` and `weights` have one entry per observation, in any
/// order; weights are non-negative and not all zero.
///
/// # Errors
/// If lengths differ, a value or weight is not finite or a weight negative, the total is zero, or p
/// is outside [0, 1].
pub fn weighted_quantile(values: &[f64], weights: &[f64], p: f64) -> Result<f64> {
    check_sample(values, 1, "a weighted quantile")?;
    if values.len() != weights.len() {
        return Err(StatsError::LengthMismatch {
            left_name: "values",
            left: values.len(),
            right_name: "weights",
            right: weights.len(),
        });
    }
    if let Some(&w) = weights.iter().find(|w| !(w.is_finite() && **w >= 0.0)) {
        return Err(StatsError::Argument {
            argument: "weight",
            value: w,
            domain: "finite and at least 0",
        });
    }
    if !(0.0..=1.0).contains(&p) {
        return Err(StatsError::Argument { argument: "p", value: p, domain: "between 0 and 1" });
    }
    let mut pairs: Vec<(f64, f64)> =
        values.iter().copied().zip(weights.iter().copied()).filter(|x| x.1 > 0.0).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = pairs.iter().map(|x| x.1).sum();
    let Some(&(largest, _)) = pairs.last() else {
        return Err(StatsError::Argument {
            argument: "total weight",
            value: total,
            domain: "positive",
        });
    };
    // The rounding of a sum of n terms must not push the answer to the next value.
    let target = p * total - 4.0 * f64::EPSILON * total;
    let mut cumulated = 0.0;
    for (value, weight) in pairs {
        cumulated += weight;
        if cumulated >= target {
            return Ok(value);
        }
    }
    Ok(largest)
}

/// The share of values at or below x, of values in ascending order; NaN if there is none.
pub fn ecdf(sorted: &[f64], x: f64) -> f64 {
    sorted.partition_point(|&v| v <= x) as f64 / sorted.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type7_agrees_with_numpy() {
        // numpy.quantile([1, 2, 4, 8, 16, 17.5], [0, .1, .37, .5, .95, 1])
        let v = [1.0, 2.0, 4.0, 8.0, 16.0, 17.5];
        let want = [1.0, 1.5, 3.7, 6.0, 17.125, 17.5];
        for (p, w) in [0.0, 0.1, 0.37, 0.5, 0.95, 1.0].into_iter().zip(want) {
            assert!((quantile_type7(&v, p).unwrap() - w).abs() < 1e-14);
        }
    }

    #[test]
    fn weighted_quantile_equals_repetition() {
        let values = [3.0, 1.0, 2.0, 5.0];
        let weights = [2.0, 3.0, 0.0, 5.0];
        let mut repeated = vec![1.0; 3];
        repeated.extend([3.0, 3.0, 5.0, 5.0, 5.0, 5.0, 5.0]);
        for i in 1..=10 {
            let p = f64::from(i) / 10.0;
            let got = weighted_quantile(&values, &weights, p).unwrap();
            assert_eq!(got, repeated[i as usize - 1], "p = {p}");
        }
        assert_eq!(weighted_quantile(&values, &weights, 0.0).unwrap(), 1.0);
        assert!(weighted_quantile(&values, &[0.0; 4], 0.5).is_err());
        assert!(weighted_quantile(&values, &[1.0, -1.0, 1.0, 1.0], 0.5).is_err());
    }

    #[test]
    fn refuses_what_has_no_quantile() {
        assert!(matches!(quantile_type7(&[], 0.5), Err(StatsError::TooFew { .. })));
        assert!(matches!(
            quantile_type7(&[2.0, 1.0], 0.5),
            Err(StatsError::NotSorted { index: 1 })
        ));
        assert!(quantile_type7(&[1.0], 1.5).is_err());
        assert!(matches!(
            quantiles(&[1.0, f64::NAN], &[0.5]),
            Err(StatsError::NotFinite { index: 1, .. })
        ));
    }

    #[test]
    fn ecdf_counts_ties() {
        let v = [1.0, 2.0, 2.0, 3.0];
        assert_eq!([0.5, 1.0, 2.0, 2.5, 3.0].map(|x| ecdf(&v, x)), [0.0, 0.25, 0.75, 0.75, 1.0]);
    }
}
