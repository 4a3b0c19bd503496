//! Confidence intervals and guarantees.
//!
//! Everything about a quantile here is free of assumptions on the shape of the law: order statistics
//! of independent values, with the binomial law of how many fall below.

mod mean;
mod proportion;
mod quantile;
mod ratio;
mod tolerance;

use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use mean::mean_variance;
pub use mean::{mean_interval, sd_interval};
pub use proportion::{clopper_pearson, wilson};
pub use quantile::{
    OrderBound, QuantileInterval, Ranks, quantile_interval, quantile_interval_pairs,
    quantile_ranks, quantile_ranks_pairs,
};
pub use ratio::ratio_interval;
pub use tolerance::{Tolerance, tolerance_upper};

use crate::error::{Result, StatsError, check_open_unit};

/// A two-sided interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
    /// The confidence asked for, in (0, 1).
    pub confidence: f64,
}

impl Interval {
    /// Whether x lies inside, ends included.
    pub fn contains(&self, x: f64) -> bool {
        self.lower <= x && x <= self.upper
    }
}

/// Half the width of the Dvoretzky-Kiefer-Wolfowitz band with Massart's constant: with at least the
/// given confidence the whole empirical distribution function of `n` independent values lies within
/// √(ln(2/(1−confidence))/(2n)) of the true one (Massart, Annals of Probability 18, 1990).
///
/// # Errors
/// If n is zero or the confidence not strictly between 0 and 1.
pub fn dkw_half_width(n: u64, confidence: f64) -> Result<f64> {
    check_open_unit("confidence", confidence)?;
    if n == 0 {
        return Err(StatsError::TooFew { method: "a DKW band", have: 0, need: 1 });
    }
    Ok(((2.0 / (1.0 - confidence)).ln() / (2.0 * n as f64)).sqrt().min(1.0))
}

#[cfg(test)]
mod tests;
