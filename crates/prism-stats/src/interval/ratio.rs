//! An interval for the ratio of two means.

use super::Interval;
use crate::error::{Result, StatsError, check_open_unit, check_sample};
use crate::htest::t_quantile_upper;

/// The jackknife interval for the ratio of the means of paired values, with Student's t of n − 1
/// degrees of freedom around the plain ratio (Miller, Biometrika 61, 1974): pairs are independent of
/// each other, the two values of a pair need not be. With equal denominators it is
/// [`super::mean_interval`] divided by them.
///
/// ```
/// use prism_stats::interval::ratio_interval;
///
/// let slowdown = ratio_interval(&[2.0, 2.2, 2.1, 2.3], &[1.0, 1.1, 1.0, 1.1], 0.95)?;
/// assert!(slowdown.contains(8.6 / 4.2) && slowdown.upper - slowdown.lower < 0.2);
/// # Ok::<(), prism_stats::StatsError>(())
/// ```
///
/// # Errors
/// If there are fewer than 2 pairs, the lengths differ, a value is not finite, the denominators'
/// mean is 0 (also without one of them), or the confidence is not in (0, 1).
pub fn ratio_interval(
    numerators: &[f64],
    denominators: &[f64],
    confidence: f64,
) -> Result<Interval> {
    check_open_unit("confidence", confidence)?;
    check_sample(numerators, 2, "an interval for a ratio")?;
    check_sample(denominators, 2, "an interval for a ratio")?;
    let (top, bottom): (f64, f64) = (numerators.iter().sum(), denominators.iter().sum());
    if numerators.len() != denominators.len() {
        return Err(StatsError::LengthMismatch {
            left_name: "numerators",
            left: numerators.len(),
            right_name: "denominators",
            right: denominators.len(),
        });
    }
    if let Some(value) = denominators.iter().map(|b| bottom - b).chain([bottom]).find(|&b| b == 0.0)
    {
        return Err(StatsError::Argument {
            argument: "denominators",
            value,
            domain: "apart from 0",
        });
    }
    let ratio = top / bottom;
    let left_out: Vec<f64> =
        numerators.iter().zip(denominators).map(|(a, b)| (top - a) / (bottom - b)).collect();
    let n = left_out.len() as f64;
    let mean = left_out.iter().sum::<f64>() / n;
    let squares: f64 = left_out.iter().map(|r| (r - mean) * (r - mean)).sum();
    let half =
        t_quantile_upper(0.5 * (1.0 - confidence), n - 1.0) * ((n - 1.0) / n * squares).sqrt();
    Ok(Interval { lower: ratio - half, upper: ratio + half, confidence })
}
