//! What many groups teach about one of which two or three values are known.
//!
//! Two runs of a job say almost nothing of how far a third may be: a variance from one degree of freedom
//! is off by a factor of several. Many systems with a few runs each say how such variances are
//! distributed. [`ScalePrior`] and [`RatePrior`] hold that; a group's own values sharpen it
//! ([`ScalePrior::posterior`], [`RatePrior::posterior`]).
//!
//! # The scale
//! The values of group j are `y ~ N(μⱼ, τⱼ² + v)` with a known v each, no knowledge of μⱼ, and
//! `τⱼ² ~ scaled inverse χ²(ν, s²)`. Where v is negligible, the sample variance of n values obeys
//! `var / s² ~ F(n − 1, ν)` and the next value is Student's t with ν + n − 1 degrees of freedom around the
//! mean (Gelman et al., Bayesian Data Analysis, 3rd ed., sections 3.2 and 5.4); with v, the integral over τ
//! is done on a grid.
//!
//! # The rate
//! Counts are Poisson, rates Gamma: a count over an exposure is negative binomial.

mod fit;
mod rate;
mod scale;
#[cfg(test)]
mod tests;

pub use rate::{RateGroup, RatePosterior, RatePrior, fit_rates};
pub use scale::{Group, ScalePosterior, ScalePrior, fit_scales};
