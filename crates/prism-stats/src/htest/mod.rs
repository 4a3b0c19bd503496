//! Tests of hypotheses, the analyses of variance behind them, and correlations.

mod anova;
mod correlation;
mod laws;
mod multiple;
mod rank;

pub use anova::{Effect, OneWay, TwoWay, one_way, two_way};
pub use correlation::{pearson, spearman};
pub use laws::{
    chi_square_cdf, chi_square_quantile, chi_square_sf, f_cdf, f_quantile_upper, f_sf, normal_cdf,
    normal_quantile, normal_sf, t_cdf, t_quantile, t_quantile_upper, t_sf, t_two_sided,
};
pub use multiple::{benjamini_hochberg, bonferroni, holm};
pub use rank::{RankTest, kruskal_wallis, mid_ranks, permutation_p};

#[cfg(test)]
mod tests;
