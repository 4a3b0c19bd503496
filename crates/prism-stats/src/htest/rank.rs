//! Tests by ranks and by permutation.

use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::chi_square_sf;
use crate::error::{Result, StatsError, check_sample};
use crate::stream::stream;

/// Ranks counted from 1, tied values sharing their mean rank.
pub fn mid_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut i = 0;
    while i < order.len() {
        let mut end = i + 1;
        while end < order.len() && values[order[end]] == values[order[i]] {
            end += 1;
        }
        // Ranks i+1 ..= end have the mean (i + 1 + end)/2.
        for &k in &order[i..end] {
            ranks[k] = (i + 1 + end) as f64 / 2.0;
        }
        i = end;
    }
    ranks
}

/// Outcome of a rank test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankTest {
    /// The statistic, asymptotically chi-square without a difference.
    pub statistic: f64,
    /// Degrees of freedom.
    pub dof: f64,
    /// Asymptotic p-value; fair from about 5 values per group on.
    pub p_value: f64,
}

/// Kruskal-Wallis test of whether groups share one level, corrected for ties.
///
/// # Errors
/// If there are fewer than two groups, one is empty, a value is not finite, or all values are equal.
pub fn kruskal_wallis(groups: &[&[f64]]) -> Result<RankTest> {
    if groups.len() < 2 {
        let method = "a Kruskal-Wallis test (groups)";
        return Err(StatsError::TooFew { method, have: groups.len(), need: 2 });
    }
    for g in groups {
        check_sample(g, 1, "a group of a Kruskal-Wallis test")?;
    }
    let pooled: Vec<f64> = groups.iter().flat_map(|g| g.iter().copied()).collect();
    let n = pooled.len() as f64;
    let ranks = mid_ranks(&pooled);
    let centre = f64::midpoint(n, 1.0);
    let (mut between, mut at) = (0.0, 0);
    for g in groups {
        let sum: f64 = ranks[at..at + g.len()].iter().sum();
        let mean = sum / g.len() as f64;
        between += g.len() as f64 * (mean - centre) * (mean - centre);
        at += g.len();
    }
    // The variance of the ranks themselves holds the correction for ties.
    let variance = ranks.iter().map(|r| (r - centre) * (r - centre)).sum::<f64>() / (n - 1.0);
    if variance == 0.0 {
        return Err(StatsError::Argument {
            argument: "values",
            value: pooled[0],
            domain: "more than one distinct value",
        });
    }
    let (statistic, dof) = (between / variance, groups.len() as f64 - 1.0);
    Ok(RankTest { statistic, dof, p_value: chi_square_sf(statistic, dof) })
}

/// P-value of `statistic` under exchangeability of `values`: the share of `permutations` random orders
/// (and the observed one) at which it is at least as large as observed. Large must mean "against".
/// Valid at every sample size; its smallest value is 1/(permutations + 1).
///
/// The orders are Fisher-Yates shuffles of the stream (seed, "permutation").
pub fn permutation_p(
    values: &[f64],
    permutations: u32,
    seed: u64,
    statistic: impl Fn(&[f64]) -> f64,
) -> f64 {
    let observed = statistic(values);
    let tolerance = 1e-12 * observed.abs();
    let mut rng = stream(seed, "permutation", &[]);
    let mut shuffled = values.to_vec();
    let mut extreme = 1_u32;
    for _ in 0..permutations {
        for i in (1..shuffled.len()).rev() {
            shuffled.swap(i, rng.random_range(0..=i));
        }
        if statistic(&shuffled) >= observed - tolerance {
            extreme += 1;
        }
    }
    f64::from(extreme) / (f64::from(permutations) + 1.0)
}
