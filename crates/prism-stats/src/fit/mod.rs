//! Maximum likelihood, family by family.
//!
//! | family | method | values needed |
//! |---|---|---|
//! | constant | all values equal | 1 |
//! | normal, log-normal | closed form | 2 |
//! | gamma | Newton on the logarithm of the shape | 2 |
//! | shifted log-normal | profile likelihood over the shift, local maximum | 8 |
//! | Student t | profile likelihood over the degrees of freedom, PX-EM inside | 8 |
//! | empirical | the values themselves | 1 |

mod choose;
mod profile;
mod shifted;
mod student;

use serde::{Deserialize, Serialize};

use crate::error::{Result, StatsError, check_sample};
pub use crate::law::Family;
use crate::law::{Distribution, Law};
use crate::special::{k_trigamma_minus_one, ln_1p_minus, ln_minus_digamma};
pub use choose::{AIC_MARGIN, Candidate, Choice, Reason, choose, choose_by_ks, rejected_by_ks};

/// A law fitted by maximum likelihood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fitted {
    /// The law.
    pub law: Law,
    /// Number of values it was fitted to.
    pub n: usize,
    /// Logarithm of the likelihood at the maximum; none for laws without a density.
    pub log_likelihood: Option<f64>,
}

impl Fitted {
    fn with_density(law: Law, values: &[f64]) -> Self {
        let log_likelihood = values.iter().map(|&x| law.ln_pdf(x)).sum();
        Self { law, n: values.len(), log_likelihood: Some(log_likelihood) }
    }

    /// Akaike's criterion, 2·parameters − 2·ln L; none for laws without a density.
    pub fn aic(&self) -> Option<f64> {
        self.log_likelihood.map(|l| 2.0 * self.law.n_parameters() as f64 - 2.0 * l)
    }
}

/// Fits one family to values in any order.
///
/// # Errors
/// If there are too few values, one is not finite or outside the family's support, all are equal
/// (except for the constant and empirical laws), or the likelihood has no interior maximum: then the
/// family degenerates on these values, most often into the Normal.
///
/// ```
/// use prism_stats::{Distribution, Family, fit};
///
/// let fitted = fit(Family::Normal, &[1.0, 2.0, 3.0])?;
/// assert_eq!(fitted.law.mean(), 2.0);
/// assert_eq!(fitted.law.sd(), (2.0f64 / 3.0).sqrt());
/// # Ok::<(), prism_stats::StatsError>(())
/// ```
pub fn fit(family: Family, values: &[f64]) -> Result<Fitted> {
    match family {
        Family::Constant => constant(values),
        Family::Empirical => Ok(Fitted {
            law: Law::empirical(values.to_vec())?,
            n: values.len(),
            log_likelihood: None,
        }),
        Family::Normal => {
            spread(family, values, 2)?;
            let (mean, sd) = moments(values);
            Ok(Fitted::with_density(Law::normal(mean, sd)?, values))
        }
        Family::LogNormal => {
            spread(family, values, 2)?;
            let logs = positive_logs(family, values)?;
            let (log_mean, log_sd) = moments(&logs);
            if log_sd == 0.0 {
                return Err(StatsError::NoSpread { family, n: values.len(), value: values[0] });
            }
            Ok(Fitted::with_density(Law::log_normal(log_mean, log_sd)?, values))
        }
        Family::Gamma => {
            spread(family, values, 2)?;
            gamma(values)
        }
        Family::ShiftedLogNormal => {
            spread(family, values, 8)?;
            Ok(Fitted::with_density(shifted::fit(values)?, values))
        }
        Family::StudentT => {
            spread(family, values, 8)?;
            Ok(Fitted::with_density(student::fit(values)?, values))
        }
    }
}

fn constant(values: &[f64]) -> Result<Fitted> {
    check_sample(values, 1, "a constant")?;
    match values.iter().position(|&v| v != values[0]) {
        Some(index) => {
            Err(StatsError::OutOfSupport { family: Family::Constant, index, value: values[index] })
        }
        None => {
            Ok(Fitted { law: Law::constant(values[0])?, n: values.len(), log_likelihood: None })
        }
    }
}

/// Checks that there are `need` finite values and that they are not all equal.
fn spread(family: Family, values: &[f64], need: usize) -> Result<()> {
    check_sample(values, need, family.name())?;
    if values.iter().all(|&v| v == values[0]) {
        return Err(StatsError::NoSpread { family, n: values.len(), value: values[0] });
    }
    Ok(())
}

/// Mean and maximum-likelihood standard deviation (divisor n), in two passes.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let origin = values[0];
    let mean = origin + values.iter().map(|v| v - origin).sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    (mean, variance.sqrt())
}

fn positive_logs(family: Family, values: &[f64]) -> Result<Vec<f64>> {
    match values.iter().position(|&v| v <= 0.0) {
        Some(index) => Err(StatsError::OutOfSupport { family, index, value: values[index] }),
        None => Ok(values.iter().map(|v| v.ln()).collect()),
    }
}

/// Solves `ln k − ψ(k) = ln(mean) − mean(ln x)` by Newton's method on ln k, from Minka's start.
fn gamma(values: &[f64]) -> Result<Fitted> {
    positive_logs(Family::Gamma, values)?;
    let n = values.len() as f64;
    let (mean, _) = moments(values);
    // The right side is −mean(ln(x/mean)); the linear part of it vanishes and would cancel.
    let s = -values.iter().map(|x| ln_1p_minus((x - mean) / mean)).sum::<f64>() / n;
    if s <= 0.0 {
        return Err(StatsError::NoSpread {
            family: Family::Gamma,
            n: values.len(),
            value: values[0],
        });
    }
    let mut log_k = ((3.0 - s + ((s - 3.0) * (s - 3.0) + 24.0 * s).sqrt()) / (12.0 * s)).ln();
    for _ in 0..50 {
        let k = log_k.exp();
        let step = (ln_minus_digamma(k) - s) / k_trigamma_minus_one(k);
        log_k += step.clamp(-2.0, 2.0);
        if step.abs() < 1e-13 {
            let k = log_k.exp();
            return Ok(Fitted::with_density(Law::gamma(k, mean / k)?, values));
        }
    }
    Err(StatsError::NoConvergence { method: "Newton's method for the gamma shape" })
}

#[cfg(test)]
mod tests;
