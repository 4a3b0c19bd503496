//! Intervals for a mean and a standard deviation.

use super::Interval;
use crate::error::{Result, check_open_unit, check_sample};
use crate::htest::{chi_square_quantile, t_quantile_upper};

/// Mean and variance with divisor n − 1.
pub(crate) fn mean_variance(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (mean, squares / (n - 1.0))
}

/// Student's interval for the mean: exact for normal values, asymptotic otherwise.
///
/// # Errors
/// If there are fewer than 2 values, one is not finite, or the confidence is not in (0, 1).
pub fn mean_interval(values: &[f64], confidence: f64) -> Result<Interval> {
    check_open_unit("confidence", confidence)?;
    check_sample(values, 2, "an interval for the mean")?;
    let (mean, variance) = mean_variance(values);
    let n = values.len() as f64;
    let half = t_quantile_upper(0.5 * (1.0 - confidence), n - 1.0) * (variance / n).sqrt();
    Ok(Interval { lower: mean - half, upper: mean + half, confidence })
}

/// The chi-square interval for the standard deviation: exact for normal values, and *not* robust: a
/// kurtosis excess of γ scales the true variance of the estimate by 1 + γ/2.
///
/// # Errors
/// If there are fewer than 2 values, one is not finite, or the confidence is not in (0, 1).
pub fn sd_interval(values: &[f64], confidence: f64) -> Result<Interval> {
    check_open_unit("confidence", confidence)?;
    check_sample(values, 2, "an interval for the standard deviation")?;
    let (_, variance) = mean_variance(values);
    let dof = values.len() as f64 - 1.0;
    let (low, high) = (0.5 * (1.0 - confidence), 0.5 * (1.0 + confidence));
    let end = |p: f64| (variance * dof / chi_square_quantile(p, dof)).sqrt();
    Ok(Interval { lower: end(high), upper: end(low), confidence })
}
