//! Spread between the values of a group.

use rand::{Rng, RngExt};
use rand_distr::{Distribution as _, StandardNormal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::function::gamma::ln_gamma;

use super::fit::minimise;
use crate::error::{Result, StatsError, check_sample};

/// Nodes of the grid over ln τ.
const NODES: usize = 600;
/// The grid reaches from the smallest relevant scale down, and from the largest up, by this factor.
const REACH: f64 = 1e4;

/// How scales are distributed over groups: `τ² ~ scaled inverse χ²(dof, scale²)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScalePrior {
    /// Typical s.d. inside a group, in the values' unit.
    pub scale: f64,
    /// Degrees of freedom: how much the groups' scales agree.
    pub dof: f64,
}

/// A group's values, each with the variance of its own noise (known, 0 where there is none).
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Group {
    /// The values.
    pub values: Vec<f64>,
    /// Their noise variances.
    pub variances: Vec<f64>,
}

/// What is known of the next value of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalePosterior {
    /// Cumulative weights of the nodes.
    cumulative: Vec<f64>,
    /// Of each node: τ², centre, variance of the centre.
    nodes: Vec<[f64; 3]>,
}

impl Group {
    /// Values without noise of their own.
    pub fn exact(values: &[f64]) -> Self {
        Group { values: values.to_vec(), variances: vec![0.0; values.len()] }
    }

    fn check(&self) -> Result<()> {
        check_sample(&self.values, 1, "a pooled scale")?;
        if self.values.len() != self.variances.len() {
            return Err(StatsError::LengthMismatch {
                left_name: "values",
                left: self.values.len(),
                right_name: "variances",
                right: self.variances.len(),
            });
        }
        match self.variances.iter().find(|v| !(v.is_finite() && **v >= 0.0)) {
            Some(&value) => Err(StatsError::Argument {
                argument: "variances",
                value,
                domain: "finite and not negative",
            }),
            None => Ok(()),
        }
    }

    /// S.d. of the values; none of one.
    fn sd(&self) -> Option<f64> {
        let n = self.values.len() as f64;
        let mean = self.values.iter().sum::<f64>() / n;
        let sum: f64 = self.values.iter().map(|v| (v - mean).powi(2)).sum();
        (self.values.len() > 1).then(|| (sum / (n - 1.0)).sqrt())
    }

    /// Restricted log-likelihood of τ², the centre, and its variance.
    fn at(&self, tau2: f64) -> (f64, f64, f64) {
        let weight = |v: &f64| 1.0 / (tau2 + v);
        let (mut total, mut sum, mut logs) = (0.0, 0.0, 0.0);
        for (y, v) in self.values.iter().zip(&self.variances) {
            let w = weight(v);
            total += w;
            sum += w * y;
            logs += w.ln();
        }
        let centre = sum / total;
        let residual: f64 = self
            .values
            .iter()
            .zip(&self.variances)
            .map(|(y, v)| weight(v) * (y - centre).powi(2))
            .sum();
        (0.5 * (logs - total.ln() - residual), centre, 1.0 / total)
    }
}

/// Even nodes of ln τ², from well below `low` to well above `high` (scales).
fn grid(low: f64, high: f64) -> Vec<f64> {
    let (from, to) = (2.0 * (low / REACH).ln(), 2.0 * (high * REACH).ln());
    let step = (to - from) / (NODES - 1) as f64;
    (0..NODES).map(|i| (from + step * i as f64).exp()).collect()
}

impl ScalePrior {
    /// Log density of ln τ².
    fn ln_density(self, tau2: f64) -> f64 {
        let (half, s2) = (self.dof / 2.0, self.scale * self.scale);
        half * (half * s2).ln() - ln_gamma(half) - half * tau2.ln() - half * s2 / tau2
    }

    /// What is known of a group's next value, given those it has.
    ///
    /// # Errors
    /// If there are no values, lengths differ, or the prior is not positive.
    pub fn posterior(&self, group: &Group) -> Result<ScalePosterior> {
        self.check()?;
        group.check()?;
        let seen = group.sd().unwrap_or(0.0);
        let grid = grid(self.scale, self.scale.max(seen));
        let points: Vec<(f64, [f64; 3])> = grid
            .iter()
            .map(|&tau2| {
                let (likelihood, centre, variance) = group.at(tau2);
                (likelihood + self.ln_density(tau2), [tau2, centre, variance])
            })
            .collect();
        let top = points.iter().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = points
            .iter()
            .map(|p| {
                sum += (p.0 - top).exp();
                sum
            })
            .collect();
        for c in &mut cumulative {
            *c /= sum;
        }
        Ok(ScalePosterior { cumulative, nodes: points.into_iter().map(|p| p.1).collect() })
    }

    fn check(self) -> Result<()> {
        for (argument, value) in [("scale", self.scale), ("dof", self.dof)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(StatsError::Argument {
                    argument,
                    value,
                    domain: "finite and positive",
                });
            }
        }
        Ok(())
    }
}

impl ScalePosterior {
    /// The group's own values for the next one: (centre, s.d.) without noise of its own, drawn from what is
    /// known of them.
    pub fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> (f64, f64) {
        let u: f64 = rng.random();
        let i = self.cumulative.partition_point(|c| *c < u).min(self.nodes.len() - 1);
        let [tau2, centre, variance] = self.nodes[i];
        (centre, (tau2 + variance).sqrt())
    }

    /// The group's next value, with noise of variance `noise` of its own.
    pub fn sample<R: Rng + ?Sized>(&self, rng: &mut R, noise: f64) -> f64 {
        let (centre, sd) = self.draw(rng);
        let z: f64 = StandardNormal.sample(rng);
        centre + z * (sd * sd + noise).sqrt()
    }

    /// P(next value ≤ x), with noise of variance `noise` of its own.
    pub fn cdf(&self, x: f64, noise: f64) -> f64 {
        let mut before = 0.0;
        let mut sum = 0.0;
        for (c, [tau2, centre, variance]) in self.cumulative.iter().zip(&self.nodes) {
            let z = (x - centre) / (tau2 + variance + noise).sqrt();
            sum += (c - before) * crate::special::normal_cdf(z);
            before = *c;
        }
        sum
    }

    /// The x below which the next value is with probability `p`, with noise of variance `noise` of its own; NaN
    /// for a `p` outside (0, 1).
    pub fn quantile(&self, p: f64, noise: f64) -> f64 {
        if !(p > 0.0 && p < 1.0) {
            return f64::NAN;
        }
        let centre = self.centre();
        let widest = self.nodes.last().map_or(1.0, |n| (n[0] + n[2] + noise).sqrt());
        let reach = 40.0 * widest.max(f64::MIN_POSITIVE);
        crate::root::bracketed(|x| self.cdf(x, noise) - p, centre - reach, centre + reach)
    }

    /// Mean of the group's centre.
    pub fn centre(&self) -> f64 {
        let mut before = 0.0;
        let mut sum = 0.0;
        for (c, node) in self.cumulative.iter().zip(&self.nodes) {
            sum += (c - before) * node[1];
            before = *c;
        }
        sum
    }
}

/// Fits how scales are distributed over groups, by maximum marginal likelihood.
///
/// Groups of one value say nothing of a scale and are left out.
///
/// # Errors
/// With fewer than 3 groups of two values, all of them without spread, or no convergence.
pub fn fit_scales(groups: &[Group]) -> Result<ScalePrior> {
    const METHOD: &str = "pooled scales";
    for g in groups {
        g.check()?;
    }
    let groups: Vec<&Group> = groups.iter().filter(|g| g.values.len() > 1).collect();
    if groups.len() < 3 {
        return Err(StatsError::TooFew { method: METHOD, have: groups.len(), need: 3 });
    }
    let mut sds: Vec<f64> = groups.iter().filter_map(|g| g.sd()).filter(|s| *s > 0.0).collect();
    sds.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) = (sds.first().copied(), sds.last().copied()) else {
        return Err(StatsError::NoConvergence { method: METHOD });
    };
    let grid = grid(low, high);
    let likelihoods: Vec<Vec<f64>> =
        groups.iter().map(|g| grid.iter().map(|&t| g.at(t).0).collect()).collect();
    let step = (grid[1] / grid[0]).ln();
    let cost = |ln_scale: f64, ln_dof: f64| {
        let prior = ScalePrior { scale: ln_scale.exp(), dof: ln_dof.exp() };
        let density: Vec<f64> = grid.iter().map(|&t| prior.ln_density(t)).collect();
        let of_group = |l: &Vec<f64>| {
            let joint: Vec<f64> = l.iter().zip(&density).map(|(a, b)| a + b).collect();
            let top = joint.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            top + (joint.iter().map(|j| (j - top).exp()).sum::<f64>() * step).ln()
        };
        -likelihoods.iter().map(of_group).sum::<f64>()
    };
    let middle = sds[sds.len() / 2].ln();
    let starts = [(middle, 0.0), (middle - 1.0, 0.5), (middle, 2.0)];
    let bounds = [((low / 10.0).ln(), (high * 10.0).ln()), (0.2_f64.ln(), 100.0_f64.ln())];
    let (scale, dof) = minimise(cost, &starts, bounds, METHOD)?;
    Ok(ScalePrior { scale: scale.exp(), dof: dof.exp() })
}
