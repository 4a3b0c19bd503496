//! Nodes and weights for expectations over a standard normal variable.

use crate::error::{Result, StatsError};

/// The `count` nodes (ascending) and weights of Gauss–Hermite quadrature for the standard normal
/// density: E g(Z) = Σ wᵢ·g(zᵢ), exact for polynomials up to degree 2·count − 1. The outer nodes lie
/// where the tail's quantiles are decided, unlike midpoints of equal probability.
///
/// Roots by Newton's method on the orthonormal recurrence (Golub and Welsch 1969 for the theory).
///
/// # Errors
/// If the count is not between 1 and 100.
pub fn normal_nodes(count: usize) -> Result<Vec<(f64, f64)>> {
    if !(1..=100).contains(&count) {
        return Err(StatsError::Argument {
            argument: "count",
            value: count as f64,
            domain: "between 1 and 100",
        });
    }
    let n = count as f64;
    // h_k orthonormal: √(k+1)·h_{k+1} = z·h_k − √k·h_{k−1}; h_n' = √n·h_{n−1}.
    let evaluate = |z: f64| {
        let (mut before, mut now) = (0.0, 1.0);
        for k in 0..count {
            let k = k as f64;
            (before, now) = (now, (z * now - k.sqrt() * before) / (k + 1.0).sqrt());
        }
        (now, n.sqrt() * before)
    };
    // The roots lie within ±√(4n + 2) and at least 1/√n apart: signs on a fine grid bracket them all.
    let reach = (4.0 * n + 2.0).sqrt();
    let cells = 60 * count;
    let at = |i: usize| reach * (2.0 * i as f64 / cells as f64 - 1.0) + 1e-3 / n;
    let mut nodes = Vec::with_capacity(count);
    for i in 0..cells {
        let (mut low, mut high) = (at(i), at(i + 1));
        let sign = evaluate(low).0;
        if sign * evaluate(high).0 > 0.0 {
            continue;
        }
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if sign * evaluate(middle).0 > 0.0 { low = middle } else { high = middle }
        }
        let z = 0.5 * (low + high);
        let slope = evaluate(z).1;
        // w = 1/(n·h_{n−1}²), and slope² = n·h_{n−1}².
        nodes.push((z, 1.0 / (slope * slope)));
    }
    let total: f64 = nodes.iter().map(|x| x.1).sum();
    if nodes.len() == count && (total - 1.0).abs() < 1e-9 {
        Ok(nodes)
    } else {
        Err(StatsError::NoConvergence { method: "Gauss–Hermite nodes" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_exact() {
        for count in [1_usize, 2, 5, 8, 16, 33, 64, 100] {
            let nodes = normal_nodes(count).unwrap();
            let mut want = 1.0;
            for power in (0..(2 * count).min(12)).step_by(2) {
                let got: f64 = nodes.iter().map(|(z, w)| w * z.powi(power as i32)).sum();
                assert!((got / want - 1.0).abs() < 1e-9, "{count} {power}: {got} {want}");
                want *= power as f64 + 1.0;
            }
            // A lognormal mean.
            let got: f64 = nodes.iter().map(|(z, w)| w * (0.1 * z).exp()).sum();
            let tolerance = if count < 5 { 0.006 } else { 1e-11 };
            assert!((got - 0.005_f64.exp()).abs() < tolerance, "{count}: {got}");
        }
        assert!(normal_nodes(0).is_err() && normal_nodes(101).is_err());
    }
}
