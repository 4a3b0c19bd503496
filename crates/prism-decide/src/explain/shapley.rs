//! Shares of a whole that do not add up by themselves.
//!
//! `v(S)` is a statistic of step time when only the variation of the players in `S` is there; the whole
//! is `v(all) − v(none)`. A player *alone* adds `v({i}) − v(none)`, and *removing* it gains
//! `v(all) − v(all without i)`; neither adds up to the whole, since step time is a maximum over paths.
//! The Shapley value (Shapley 1953; Owen, SIAM/ASA J. Uncertainty Quantification 2, 2014) is the mean
//! contribution over all orders in which players can join, and does.

/// Index of a set of players: bit i for player i.
pub(super) type Coalition = usize;

/// A player's contributions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contribution {
    /// Added to nothing.
    pub(super) alone: f64,
    /// Taken from everything.
    pub(super) removed: f64,
    /// Mean over all orders.
    pub(super) shapley: f64,
}

/// Contributions of `n` players, given `v` of all 2^n coalitions.
pub(super) fn contributions(n: usize, v: &[f64]) -> Vec<Contribution> {
    let all: Coalition = (1 << n) - 1;
    let weight = weights(n);
    (0..n)
        .map(|i| {
            let bit = 1 << i;
            let shapley = (0..=all)
                .filter(|s| s & bit == 0)
                .map(|s| weight[s.count_ones() as usize] * (v[s | bit] - v[s]))
                .sum();
            Contribution { alone: v[bit] - v[0], removed: v[all] - v[all & !bit], shapley }
        })
        .collect()
}

/// Share of orders in which a given set of each size comes before a given player:
/// `s!·(n − s − 1)!/n!`.
fn weights(n: usize) -> Vec<f64> {
    let mut out = vec![0.0; n];
    for (s, w) in out.iter_mut().enumerate() {
        // 1 / (n · C(n − 1, s))
        let binomial: f64 = (0..s).map(|k| (n - 1 - k) as f64 / (k + 1) as f64).product();
        *w = 1.0 / (n as f64 * binomial);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contributions by the definition: over all orders.
    fn by_orders(n: usize, v: &[f64]) -> Vec<f64> {
        fn walk(n: usize, v: &[f64], set: usize, sums: &mut [f64], count: &mut f64) {
            if set == (1 << n) - 1 {
                *count += 1.0;
                return;
            }
            for i in (0..n).filter(|i| set & (1 << i) == 0) {
                let next = set | 1 << i;
                // Each order passes through here as often as there are orders of the rest.
                let rest: f64 = (1..=(n - next.count_ones() as usize)).map(|k| k as f64).product();
                sums[i] += rest * (v[next] - v[set]);
                walk(n, v, next, sums, count);
            }
        }
        let (mut sums, mut count) = (vec![0.0; n], 0.0);
        walk(n, v, 0, &mut sums, &mut count);
        sums.iter().map(|s| s / count).collect()
    }

    #[test]
    fn mean_over_all_orders() {
        for n in 1..=5 {
            let v: Vec<f64> = (0..1 << n).map(|s: usize| ((s * 7919) % 101) as f64).collect();
            let got = contributions(n, &v);
            for (g, e) in got.iter().zip(by_orders(n, &v)) {
                assert!((g.shapley - e).abs() < 1e-9, "{n}: {} {e}", g.shapley);
            }
            let sum: f64 = got.iter().map(|c| c.shapley).sum();
            assert!((sum - (v[(1 << n) - 1] - v[0])).abs() < 1e-9);
        }
    }

    /// The maximum of two equal parts: each alone adds everything, neither can be removed with gain.
    #[test]
    fn a_maximum_is_shared_equally() {
        let got = contributions(2, &[0.0, 1.0, 1.0, 1.0]);
        for c in got {
            assert_eq!((c.alone, c.removed, c.shapley), (1.0, 0.0, 0.5));
        }
    }
}
