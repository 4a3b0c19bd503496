//! One-sided guarantees from observed values.

use serde::{Deserialize, Serialize};

use crate::error::{Result, StatsError, check_open_unit};
use crate::special::binomial_tails;

/// What observed values can guarantee about a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Tolerance {
    /// An order statistic bounds the quantile from above.
    Bound {
        /// Rank in ascending order, counted from 1, of the smallest one that does.
        rank: u64,
        /// The confidence it achieves, at least what was asked.
        confidence: f64,
    },
    /// Not even the largest value does.
    NeedMore {
        /// Number of values from which the largest one does.
        n_needed: u64,
        /// The confidence with which the largest of the values at hand bounds the quantile.
        confidence_of_max: f64,
    },
}

/// The smallest order statistic of `n` independent values that is, with the given confidence, at least
/// quantile `q` of their law (Wilks, Annals of Mathematical Statistics 12, 1941). Holds for any law.
///
/// # Errors
/// If n is zero, or q or the confidence is not strictly between 0 and 1.
///
/// ```
/// use prism_stats::interval::{Tolerance, tolerance_upper};
///
/// let Tolerance::Bound { rank, confidence } = tolerance_upper(59, 0.95, 0.95)? else { panic!() };
/// assert!(rank == 59 && confidence > 0.95);
/// let Tolerance::NeedMore { n_needed, confidence_of_max } = tolerance_upper(44, 0.95, 0.95)? else {
///     panic!()
/// };
/// assert!(n_needed == 59 && (confidence_of_max - 0.895).abs() < 5e-4);
/// # Ok::<(), prism_stats::StatsError>(())
/// ```
pub fn tolerance_upper(n: u64, q: f64, confidence: f64) -> Result<Tolerance> {
    check_open_unit("q", q)?;
    check_open_unit("confidence", confidence)?;
    if n == 0 {
        return Err(StatsError::TooFew { method: "a guarantee", have: 0, need: 1 });
    }
    // At most B binomial (n, q) values lie below the quantile; rank r bounds it when B < r.
    let of_max = -(n as f64 * q.ln()).exp_m1();
    if of_max < confidence {
        let n_needed = ((-confidence).ln_1p() / q.ln()).ceil() as u64;
        return Ok(Tolerance::NeedMore { n_needed, confidence_of_max: of_max });
    }
    let (mut low, mut high) = (1, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if binomial_tails(middle - 1, n, q).0 >= confidence {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(Tolerance::Bound { rank: low, confidence: binomial_tails(low - 1, n, q).0 })
}
