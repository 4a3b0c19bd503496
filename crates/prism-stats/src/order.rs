//! Order statistics: what a synchronisation over many independent members waits for.
//!
//! The largest of n independent draws of F has the law Fⁿ, so its quantile at p is F's at p^(1/n). For
//! n = 8,192 and p = 0.95 that is a tail probability of 6·10⁻⁶ of one member; everything here therefore
//! works with upper tails and logarithms.

use crate::error::{Result, StatsError, check_open_unit};
use crate::law::Distribution;
use crate::root;
use crate::special::normal_cdf;

/// The upper-tail probability q of one member at which the largest of `n` has probability `p` of not
/// exceeding: 1 − p^(1/n), without cancellation.
///
/// # Errors
/// If p is not strictly between 0 and 1, or n is zero.
pub fn member_tail(n: u64, p: f64) -> Result<f64> {
    check_open_unit("p", p)?;
    if n == 0 {
        return Err(StatsError::TooFew { method: "a largest value", have: 0, need: 1 });
    }
    Ok(-(p.ln() / n as f64).exp_m1())
}

/// Quantile p of the largest of `n` independent draws of a law.
///
/// # Errors
/// If p is not strictly between 0 and 1, or n is zero.
///
/// ```
/// use prism_stats::{Law, order};
///
/// // A 2 % spread between 64 GPUs: the median step waits for a GPU that is 4.6 % slow.
/// let slowest = order::quantile_of_max(&Law::normal(1.0, 0.02)?, 64, 0.5)?;
/// assert!((slowest - 1.0460).abs() < 1e-4);
/// # Ok::<(), prism_stats::StatsError>(())
/// ```
pub fn quantile_of_max(law: &impl Distribution, n: u64, p: f64) -> Result<f64> {
    Ok(law.quantile_upper(member_tail(n, p)?))
}

/// P(max ≤ x) of the largest of independent draws, `count` from each law: Π Fₖ(x)^countₖ, as
/// exp(Σ countₖ·ln(1 − P(Xₖ > x))).
pub fn cdf_of_max<D: Distribution>(strata: &[(D, u64)], x: f64) -> f64 {
    let log: f64 = strata
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(law, count)| *count as f64 * ln_cdf(law, x))
        .sum();
    log.exp()
}

/// ln F(x), accurate at both ends.
fn ln_cdf(law: &impl Distribution, x: f64) -> f64 {
    let upper = law.sf(x);
    if upper < 0.5 { (-upper).ln_1p() } else { law.cdf(x).ln() }
}

/// Quantile p of the largest of independent draws, `count` from each law (strata of persistent
/// speed).
///
/// # Errors
/// If p is not strictly between 0 and 1, or no stratum has a member.
pub fn quantile_of_max_over<D: Distribution>(strata: &[(D, u64)], p: f64) -> Result<f64> {
    check_open_unit("p", p)?;
    let members: u64 = strata.iter().map(|s| s.1).sum();
    if members == 0 {
        return Err(StatsError::TooFew { method: "a largest value", have: 0, need: 1 });
    }
    // Each stratum's own largest is a lower bound; the answer is below the largest at which every
    // stratum leaves only its share of the miss.
    let (mut low, mut high) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    let share = p.ln() / members as f64;
    for (law, count) in strata.iter().filter(|s| s.1 > 0) {
        low = low.max(law.quantile_upper(-(p.ln() / *count as f64).exp_m1()));
        high = high.max(law.quantile_upper(-share.exp_m1()));
    }
    let target = -p.ln();
    let miss = |x: f64| {
        let log: f64 =
            strata.iter().filter(|s| s.1 > 0).map(|(law, c)| *c as f64 * ln_cdf(law, x)).sum();
        // Increasing in x, and close to linear where the tails are exponential.
        target.ln() - (-log).max(1e-320).ln()
    };
    Ok(root::bracketed(miss, low, high))
}

/// Expectation of the largest of `n` independent standard normal values, by quadrature; 0 for n = 1.
///
/// E = ∫ (1 − Φⁿ) over the positive line − ∫ Φⁿ over the negative one; relative error below 1e-10 up to
/// n = 10⁹.
///
/// # Errors
/// If n is zero.
pub fn expected_max_of_normals(n: u64) -> Result<f64> {
    if n == 0 {
        return Err(StatsError::TooFew { method: "a largest value", have: 0, need: 1 });
    }
    let size = n as f64;
    let ln_power = |z: f64| {
        let upper = normal_cdf(-z);
        size * if upper < 0.5 { (-upper).ln_1p() } else { normal_cdf(z).ln() }
    };
    // The trapezoidal rule converges geometrically on a smooth integrand that vanishes at both ends:
    // E = ∫ z d(Φⁿ), the density in log form.
    let (low, high, points) = (-40.0, 40.0, 16_000_u32);
    let h = (high - low) / f64::from(points);
    let log_norm = size.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln();
    let sum: f64 = (0..=points)
        .map(|i| {
            let z = low + h * f64::from(i);
            let below = if n == 1 { 0.0 } else { ln_power(z) * (size - 1.0) / size };
            z * (log_norm - 0.5 * z * z + below).exp()
        })
        .sum();
    Ok(h * sum)
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::law::Law;
    use crate::quantile::{sorted, type7_unchecked};
    use crate::stream::stream;

    #[test]
    fn expected_maxima_agree_with_closed_forms_and_scipy() {
        let pi = std::f64::consts::PI;
        for (n, want) in [(2, 1.0 / pi.sqrt()), (3, 1.5 / pi.sqrt())] {
            let got = expected_max_of_normals(n).unwrap();
            assert!((got - want).abs() < 1e-10, "{n}: {got} {want}");
        }
        assert!(expected_max_of_normals(1).unwrap().abs() < 1e-14);
        assert!(expected_max_of_normals(0).is_err());
        // integrate.quad of z·n·φ(z)·Φ(z)ⁿ⁻¹ (scipy 1.17.1)
        let quadratures = [
            (5, 1.162_964_473_640_519_6),
            (64, 2.343_733_465_079_44),
            (8192, 3.802_279_218_908_485_5),
            (65_536, 4.291_129_315_896_464),
            (1_000_000_000, 6.087_684_584_445_952),
        ];
        for (n, want) in quadratures {
            let got = expected_max_of_normals(n).unwrap();
            assert!((got / want - 1.0).abs() < 1e-9, "{n}: {got} {want}");
        }
    }

    #[test]
    fn the_largest_of_normals_has_its_exact_quantile() {
        // norm.isf(-expm1(log(p)/n)), scipy 1.17.1
        let cases = [
            (64, 0.5, 2.298_313_131_383_402_7),
            (8192, 0.95, 4.368_282_616_958_992),
            (512, 0.95, 3.718_569_217_270_06),
            (1_000_000_000, 0.999, 7.034_414_074_530_86),
            (8, 0.01, 0.156_908_006_665_141_5),
        ];
        for (n, p, want) in cases {
            let got = quantile_of_max(&Law::normal(0.0, 1.0).unwrap(), n, p).unwrap();
            assert!((got / want - 1.0).abs() < 1e-9, "{n} {p}: {got} {want}");
        }
        assert!(member_tail(0, 0.5).is_err() && member_tail(3, 1.0).is_err());
    }

    #[test]
    fn strata_of_one_law_equal_that_law() {
        let law = Law::gamma(30.0, 0.1).unwrap();
        let strata = [(law.clone(), 100), (law.clone(), 0), (law.clone(), 412)];
        for p in [1e-9, 0.05, 0.5, 0.95, 0.999_999] {
            let want = quantile_of_max(&law, 512, p).unwrap();
            let got = quantile_of_max_over(&strata, p).unwrap();
            assert!((got / want - 1.0).abs() < 1e-10, "{p}: {got} {want}");
            assert!((cdf_of_max(&strata, got) / p - 1.0).abs() < 1e-7);
        }
        assert!(quantile_of_max_over(&[(law, 0)], 0.5).is_err());
    }

    #[test]
    fn strata_agree_with_brute_force() {
        let strata = [
            (Law::log_normal(0.0, 0.05).unwrap(), 40),
            (Law::log_normal(0.06, 0.03).unwrap(), 3),
            (Law::constant(1.1).unwrap(), 1),
        ];
        let n = 40_000;
        let mut rng = stream(3, "strata", &[]);
        let draws: Vec<f64> = (0..n)
            .map(|_| {
                strata.iter().fold(f64::NEG_INFINITY, |m, (law, count)| {
                    (0..*count).fold(m, |m, _| m.max(law.quantile(rng.random())))
                })
            })
            .collect();
        let draws = sorted(&draws);
        for p in [0.3_f64, 0.5, 0.9, 0.99] {
            let x = quantile_of_max_over(&strata, p).unwrap();
            let share = draws.partition_point(|&d| d <= x) as f64 / f64::from(n);
            let error = (p * (1.0 - p) / f64::from(n)).sqrt();
            assert!((share - p).abs() < 4.0 * error, "{p}: {x} {share}");
        }
        assert!(type7_unchecked(&draws, 0.0) >= 1.1);
        // The constant holds the low quantiles up.
        assert_eq!(quantile_of_max_over(&strata, 1e-4).unwrap(), 1.1);
    }
}
