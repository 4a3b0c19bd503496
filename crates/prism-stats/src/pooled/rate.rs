//! Rates of rare events.

use rand::Rng;
use rand_distr::Distribution as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::function::gamma::ln_gamma;

use super::fit::minimise;
use crate::error::{Result, StatsError};

/// How rates are distributed over groups: Gamma with this shape, and a mean of `shape / exposure`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatePrior {
    /// Shape of the Gamma law: as if so many events had been seen …
    pub shape: f64,
    /// … over this exposure.
    pub exposure: f64,
}

/// Events of a group, and over how much exposure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateGroup {
    /// Events.
    pub count: u64,
    /// Exposure, in the unit that rates are per.
    pub exposure: f64,
}

/// What is known of a group's rate: Gamma.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatePosterior {
    /// Shape.
    pub shape: f64,
    /// Inverse scale, the exposure.
    pub exposure: f64,
}

impl RatePrior {
    /// What is known of a group's rate, given its events.
    ///
    /// # Errors
    /// If a parameter is not positive or an exposure negative.
    pub fn posterior(&self, group: RateGroup) -> Result<RatePosterior> {
        for (argument, value) in [("shape", self.shape), ("exposure", self.exposure)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(StatsError::Argument {
                    argument,
                    value,
                    domain: "finite and positive",
                });
            }
        }
        check(group)?;
        Ok(RatePosterior {
            shape: self.shape + group.count as f64,
            exposure: self.exposure + group.exposure,
        })
    }
}

impl RatePosterior {
    /// Mean rate.
    pub fn mean(&self) -> f64 {
        self.shape / self.exposure
    }

    /// A rate.
    pub fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        rand_distr::Gamma::new(self.shape, 1.0 / self.exposure).map_or(0.0, |g| g.sample(rng))
    }
}

fn check(group: RateGroup) -> Result<()> {
    if group.exposure.is_finite() && group.exposure >= 0.0 {
        return Ok(());
    }
    let (argument, value) = ("exposure", group.exposure);
    Err(StatsError::Argument { argument, value, domain: "finite and not negative" })
}

/// Fits how rates are distributed over groups: maximum likelihood of the negative binomial counts.
///
/// The shape stays between 0.01 and 1,000; at the upper end all groups have one rate.
///
/// # Errors
/// With fewer than 3 groups of some exposure, or without any event.
pub fn fit_rates(groups: &[RateGroup]) -> Result<RatePrior> {
    const METHOD: &str = "pooled rates";
    for g in groups {
        check(*g)?;
    }
    let groups: Vec<&RateGroup> = groups.iter().filter(|g| g.exposure > 0.0).collect();
    if groups.len() < 3 {
        return Err(StatsError::TooFew { method: METHOD, have: groups.len(), need: 3 });
    }
    let count: u64 = groups.iter().map(|g| g.count).sum();
    if count == 0 {
        return Err(StatsError::TooFew { method: METHOD, have: 0, need: 1 });
    }
    let rate = count as f64 / groups.iter().map(|g| g.exposure).sum::<f64>();
    // In (ln shape, ln mean rate), which are nearly orthogonal.
    let cost = |ln_shape: f64, ln_rate: f64| {
        let (a, mean) = (ln_shape.exp(), ln_rate.exp());
        let b = a / mean;
        -groups
            .iter()
            .map(|g| {
                let (k, t) = (g.count as f64, g.exposure);
                ln_gamma(a + k) - ln_gamma(a) + a * (b / (b + t)).ln() + k * (1.0 / (b + t)).ln()
            })
            .sum::<f64>()
    };
    let starts = [(0.0, rate.ln()), (-1.5, rate.ln()), (3.0, rate.ln())];
    let bounds = [(0.01_f64.ln(), 1e3_f64.ln()), (rate.ln() - 5.0, rate.ln() + 5.0)];
    let (shape, mean) = minimise(cost, &starts, bounds, METHOD)?;
    Ok(RatePrior { shape: shape.exp(), exposure: shape.exp() / mean.exp() })
}
