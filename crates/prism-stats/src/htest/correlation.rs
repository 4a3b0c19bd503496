//! Correlations.

use super::mid_ranks;
use crate::error::{Result, StatsError, check_sample};

/// Pearson's correlation of paired values; none if one side does not vary.
///
/// # Errors
/// If lengths differ, there are fewer than 2 pairs, or a value is not finite.
pub fn pearson(x: &[f64], y: &[f64]) -> Result<Option<f64>> {
    if x.len() != y.len() {
        return Err(StatsError::LengthMismatch {
            left_name: "x",
            left: x.len(),
            right_name: "y",
            right: y.len(),
        });
    }
    check_sample(x, 2, "a correlation")?;
    check_sample(y, 2, "a correlation")?;
    let n = x.len() as f64;
    let (mx, my) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (a, b) in x.iter().zip(y) {
        xx += (a - mx) * (a - mx);
        yy += (b - my) * (b - my);
        xy += (a - mx) * (b - my);
    }
    let scale = xx.sqrt() * yy.sqrt();
    Ok((scale > 0.0).then(|| (xy / scale).clamp(-1.0, 1.0)))
}

/// Spearman's rank correlation of paired values, tied ones sharing their mean rank; none if one side
/// does not vary.
///
/// # Errors
/// As [`pearson`].
pub fn spearman(x: &[f64], y: &[f64]) -> Result<Option<f64>> {
    check_sample(x, 2, "a correlation")?;
    check_sample(y, 2, "a correlation")?;
    pearson(&mid_ranks(x), &mid_ranks(y))
}
