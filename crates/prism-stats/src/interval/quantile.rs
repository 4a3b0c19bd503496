//! Intervals for a quantile from order statistics.

use serde::{Deserialize, Serialize};

use crate::error::{Result, StatsError, check_open_unit, check_sample, check_sorted};
use crate::quantile::type7_unchecked;
use crate::special::binomial_tails;

/// Ranks of the order statistics that bound a quantile, and the coverage they achieve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranks {
    /// Rank, counted from 1, of the lower bound; none where even the smallest value cannot bound.
    pub lower: Option<u64>,
    /// Rank, counted from 1, of the upper bound; none where even the largest value cannot bound.
    pub upper: Option<u64>,
    /// Probability that the two enclose the quantile: exact for independent values of a continuous
    /// law, a lower bound otherwise. A missing end counts as infinite.
    pub coverage: f64,
}

/// An order statistic used as a bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderBound {
    /// Rank in ascending order, counted from 1.
    pub rank: u64,
    /// The value at that rank.
    pub value: f64,
}

/// A quantile with its distribution-free interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuantileInterval {
    /// The probability of the quantile.
    pub p: f64,
    /// The type-7 estimate.
    pub estimate: f64,
    /// Lower bound; none where there are too few values for one.
    pub lower: Option<OrderBound>,
    /// Upper bound; none where there are too few values for one.
    pub upper: Option<OrderBound>,
    /// The confidence asked for.
    pub confidence: f64,
    /// The confidence achieved, see [`Ranks::coverage`].
    pub coverage: f64,
}

impl QuantileInterval {
    /// Whether x lies inside, ends included; a missing end is infinite.
    pub fn contains(&self, x: f64) -> bool {
        self.lower.is_none_or(|b| b.value <= x) && self.upper.is_none_or(|b| x <= b.value)
    }
}

/// The smallest k in 0..=n for which `holds`, which must be monotone; none if it holds for none.
fn first(n: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    if !holds(n) {
        return None;
    }
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

/// Largest k with P(B ≤ k) ≤ a and smallest k ≤ n with P(B ≥ k) ≤ a, B binomial (n, p).
fn binomial_ends(n: u64, p: f64, a: f64) -> (Option<u64>, Option<u64>) {
    let below = first(n, |k| binomial_tails(k, n, p).0 > a).and_then(|k| k.checked_sub(1));
    let above = first(n, |k| k > 0 && binomial_tails(k - 1, n, p).1 <= a);
    (below, above)
}

fn check(n: u64, p: f64, confidence: f64) -> Result<()> {
    check_open_unit("p", p)?;
    check_open_unit("confidence", confidence)?;
    if n == 0 {
        return Err(StatsError::TooFew { method: "a quantile interval", have: 0, need: 1 });
    }
    Ok(())
}

/// Ranks that bound quantile p of the law of `n` independent values with at least the given
/// confidence, each end missing with at most half of the rest.
///
/// # Errors
/// If n is zero, or p or the confidence is not strictly between 0 and 1.
///
/// ```
/// use prism_stats::interval::quantile_ranks;
///
/// let ranks = quantile_ranks(10_000, 0.95, 0.95)?;
/// assert_eq!((ranks.lower, ranks.upper), (Some(9457), Some(9543)));
/// # Ok::<(), prism_stats::StatsError>(())
/// ```
pub fn quantile_ranks(n: u64, p: f64, confidence: f64) -> Result<Ranks> {
    check(n, p, confidence)?;
    // B values lie at or below the quantile. Rank l misses when B < l, rank u when B ≥ u.
    let (below, above) = binomial_ends(n, p, 0.5 * (1.0 - confidence));
    let miss = below.map_or(0.0, |k| binomial_tails(k, n, p).0)
        + above.map_or(0.0, |k| binomial_tails(k - 1, n, p).1);
    Ok(Ranks { lower: below.map(|k| k + 1), upper: above, coverage: 1.0 - miss })
}

/// Ranks among the `2·pairs` pooled values of antithetic pairs that bound quantile p, whatever the
/// dependence within a pair.
///
/// The pair is the unit. Let S₁ and S₂ count the first and the second members at or below the
/// quantile: each is binomial (pairs, p), and S₁ + S₂ ≤ 2k + 1 implies that one of them is at most k,
/// so P(S₁ + S₂ ≤ 2k + 1) ≤ 2·P(B ≤ k), and likewise above. The interval is therefore valid without
/// any assumption on the coupling and, for antithetic pairs, conservative: about 1.6 times as wide as
/// that of [`quantile_ranks`] with 2·pairs independent values.
///
/// # Errors
/// As [`quantile_ranks`].
pub fn quantile_ranks_pairs(pairs: u64, p: f64, confidence: f64) -> Result<Ranks> {
    check(pairs, p, confidence)?;
    let (below, above) = binomial_ends(pairs, p, 0.25 * (1.0 - confidence));
    let miss = below.map_or(0.0, |k| binomial_tails(k, pairs, p).0)
        + above.map_or(0.0, |k| binomial_tails(k - 1, pairs, p).1);
    Ok(Ranks {
        lower: below.map(|k| 2 * k + 2),
        upper: above.map(|k| 2 * k - 1),
        coverage: 1.0 - 2.0 * miss,
    })
}

fn at(sorted: &[f64], rank: Option<u64>) -> Option<OrderBound> {
    rank.map(|rank| OrderBound { rank, value: sorted[rank as usize - 1] })
}

fn interval(sorted: &[f64], p: f64, confidence: f64, ranks: Ranks) -> QuantileInterval {
    QuantileInterval {
        p,
        estimate: type7_unchecked(sorted, p),
        lower: at(sorted, ranks.lower),
        upper: at(sorted, ranks.upper),
        confidence,
        coverage: ranks.coverage,
    }
}

/// Quantile p of the law of independent values, given in ascending order, with its interval.
///
/// # Errors
/// As [`quantile_ranks`], and if a value is not finite or they do not ascend.
pub fn quantile_interval(sorted: &[f64], p: f64, confidence: f64) -> Result<QuantileInterval> {
    check_sorted(sorted, "a quantile interval")?;
    let ranks = quantile_ranks(sorted.len() as u64, p, confidence)?;
    Ok(interval(sorted, p, confidence, ranks))
}

/// Quantile p of the common law of the members of independent pairs, in any order, with the interval
/// of [`quantile_ranks_pairs`].
///
/// # Errors
/// As [`quantile_ranks`], and if a value is not finite.
pub fn quantile_interval_pairs(
    pairs: &[[f64; 2]],
    p: f64,
    confidence: f64,
) -> Result<QuantileInterval> {
    let mut pooled: Vec<f64> = pairs.iter().flatten().copied().collect();
    check_sample(&pooled, 2, "a quantile interval")?;
    pooled.sort_by(f64::total_cmp);
    let ranks = quantile_ranks_pairs(pairs.len() as u64, p, confidence)?;
    Ok(interval(&pooled, p, confidence, ranks))
}
