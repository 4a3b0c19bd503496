//! Intervals for a probability from a count.

use super::Interval;
use crate::error::{Result, StatsError, check_open_unit};
use crate::root;
use crate::special::{binomial_tails, normal_quantile};

fn check(successes: u64, n: u64, confidence: f64) -> Result<()> {
    check_open_unit("confidence", confidence)?;
    if n == 0 {
        return Err(StatsError::TooFew { method: "an interval for a share", have: 0, need: 1 });
    }
    if successes > n {
        return Err(StatsError::Argument {
            argument: "successes",
            value: successes as f64,
            domain: "at most the number of trials",
        });
    }
    Ok(())
}

/// Wilson's score interval for a probability (J. Am. Stat. Assoc. 22, 1927): coverage near the nominal
/// on average, below it for some probabilities.
///
/// # Errors
/// If n is zero, successes exceed it, or the confidence is not in (0, 1).
pub fn wilson(successes: u64, n: u64, confidence: f64) -> Result<Interval> {
    check(successes, n, confidence)?;
    let (k, size) = (successes as f64, n as f64);
    let z = -normal_quantile(0.5 * (1.0 - confidence));
    let (share, z2) = (k / size, z * z);
    let centre = (share + z2 / (2.0 * size)) / (1.0 + z2 / size);
    let half =
        z / (1.0 + z2 / size) * (share * (1.0 - share) / size + z2 / (4.0 * size * size)).sqrt();
    let lower = if successes == 0 { 0.0 } else { (centre - half).max(0.0) };
    let upper = if successes == n { 1.0 } else { (centre + half).min(1.0) };
    Ok(Interval { lower, upper, confidence })
}

/// The Clopper-Pearson interval for a probability (Biometrika 26, 1934): coverage never below the
/// nominal.
///
/// # Errors
/// If n is zero, successes exceed it, or the confidence is not in (0, 1).
pub fn clopper_pearson(successes: u64, n: u64, confidence: f64) -> Result<Interval> {
    check(successes, n, confidence)?;
    let target = 0.5 * (1.0 - confidence);
    let share = successes as f64 / n as f64;
    let log = |q: f64| q.max(1e-300).ln() - target.ln();
    // In the logit, so that ends close to 0 or 1 keep their digits.
    let share_of = |l: f64| 1.0 / (1.0 + (-l).exp());
    let logit = |s: f64| (s / (1.0 - s)).ln().clamp(-700.0, 36.0);
    let lower = if successes == 0 {
        0.0
    } else {
        let f = |l: f64| log(binomial_tails(successes - 1, n, share_of(l)).1);
        share_of(root::bracketed(f, -700.0, logit(share)))
    };
    let upper = if successes == n {
        1.0
    } else {
        let f = |l: f64| -log(binomial_tails(successes, n, share_of(l)).0);
        share_of(root::bracketed(f, logit(share), 36.0))
    };
    Ok(Interval { lower, upper, confidence })
}
