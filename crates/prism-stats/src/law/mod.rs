//! Laws of one random variable and the trait they share.
//!
//! A duration is in seconds here as everywhere, so parameters of location and scale are seconds and
//! those of a logarithm have no unit; nothing in this module depends on it.

mod constant;
mod empirical;
mod gamma;
mod log_normal;
mod normal;
mod raw;
mod student_t;

use rand::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use constant::Constant;
pub use empirical::Empirical;
pub use gamma::Gamma;
pub use log_normal::{LogNormal, ShiftedLogNormal};
pub use normal::Normal;
pub use raw::RawLaw;
pub use student_t::StudentT;
pub(crate) use student_t::{t_inverse, t_log_constant, t_tails};

use crate::error::{Result, StatsError};

/// What every law can be asked.
///
/// Arguments outside their domain give NaN: a probability outside [0, 1], or a NaN.
pub trait Distribution {
    /// P(X ≤ x).
    fn cdf(&self, x: f64) -> f64;

    /// P(X < x); differs from [`cdf`](Self::cdf) only at an atom.
    fn cdf_below(&self, x: f64) -> f64 {
        self.cdf(x)
    }

    /// P(X > x), accurate far below the rounding of 1 − cdf.
    fn sf(&self, x: f64) -> f64;

    /// The smallest x with cdf(x) ≥ p, for p in [0, 1].
    fn quantile(&self, p: f64) -> f64;

    /// The x with P(X > x) = q, accurate for q down to about 1e-300.
    fn quantile_upper(&self, q: f64) -> f64;

    /// Expectation; NaN where it does not exist.
    fn mean(&self) -> f64;

    /// Standard deviation; infinite or NaN where it does not exist.
    fn sd(&self) -> f64;

    /// Logarithm of the density; −∞ outside the support and +∞ at an atom.
    fn ln_pdf(&self, x: f64) -> f64;

    /// The smallest closed interval that carries the law, `(low, high)`, possibly infinite.
    fn support(&self) -> (f64, f64);

    /// Number of free parameters, as counted by AIC.
    fn n_parameters(&self) -> usize;

    /// One draw.
    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64
    where
        Self: Sized;
}

/// The name of a family of laws.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Family {
    /// One value.
    Constant,
    /// Gaussian.
    Normal,
    /// Gamma.
    Gamma,
    /// The logarithm is Gaussian.
    LogNormal,
    /// A constant plus a log-normal.
    ShiftedLogNormal,
    /// Student's t with location and scale.
    StudentT,
    /// The observed values, interpolated.
    Empirical,
}

impl Family {
    /// The three families of Golden et al. (arXiv 2510.15596).
    pub const PAPER: [Self; 3] = [Self::Normal, Self::Gamma, Self::LogNormal];

    /// All families with a fixed number of parameters and a density.
    pub const PARAMETRIC: [Self; 5] =
        [Self::Normal, Self::Gamma, Self::LogNormal, Self::ShiftedLogNormal, Self::StudentT];

    /// The name used in files and in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Normal => "normal",
            Self::Gamma => "gamma",
            Self::LogNormal => "log_normal",
            Self::ShiftedLogNormal => "shifted_log_normal",
            Self::StudentT => "student_t",
            Self::Empirical => "empirical",
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A law of any family, with checked parameters; in files an object tagged by `family`.
///
/// ```
/// use prism_stats::{Distribution, Law};
///
/// let law = Law::log_normal(0.0, 0.05)?;
/// assert!((law.quantile(0.95) - (0.05f64 * 1.6448536269514722).exp()).abs() < 1e-12);
/// # Ok::<(), prism_stats::StatsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawLaw", into = "RawLaw")]
#[non_exhaustive]
pub enum Law {
    /// One value.
    Constant(Constant),
    /// Gaussian.
    Normal(Normal),
    /// Gamma.
    Gamma(Gamma),
    /// The logarithm is Gaussian.
    LogNormal(LogNormal),
    /// A constant plus a log-normal.
    ShiftedLogNormal(ShiftedLogNormal),
    /// Student's t with location and scale.
    StudentT(StudentT),
    /// The observed values, interpolated.
    Empirical(Empirical),
}

impl Law {
    /// The constant `value`.
    ///
    /// # Errors
    /// If it is not finite.
    pub fn constant(value: f64) -> Result<Self> {
        Constant::new(value).map(Self::Constant)
    }

    /// Normal with the given mean and standard deviation (> 0).
    ///
    /// # Errors
    /// If a parameter is outside its domain.
    pub fn normal(mean: f64, sd: f64) -> Result<Self> {
        Normal::new(mean, sd).map(Self::Normal)
    }

    /// Gamma with the given shape (> 0, no unit) and scale (> 0).
    ///
    /// # Errors
    /// If a parameter is outside its domain.
    pub fn gamma(shape: f64, scale: f64) -> Result<Self> {
        Gamma::new(shape, scale).map(Self::Gamma)
    }

    /// Log-normal: ln X is normal with mean `log_mean` and s.d. `log_sd` (> 0).
    ///
    /// # Errors
    /// If a parameter is outside its domain.
    pub fn log_normal(log_mean: f64, log_sd: f64) -> Result<Self> {
        LogNormal::new(log_mean, log_sd).map(Self::LogNormal)
    }

    /// `shift` plus a log-normal.
    ///
    /// # Errors
    /// If a parameter is outside its domain.
    pub fn shifted_log_normal(shift: f64, log_mean: f64, log_sd: f64) -> Result<Self> {
        ShiftedLogNormal::new(shift, log_mean, log_sd).map(Self::ShiftedLogNormal)
    }

    /// `location + scale·T`, T Student's t with `dof` (> 0) degrees of freedom.
    ///
    /// # Errors
    /// If a parameter is outside its domain.
    pub fn student_t(location: f64, scale: f64, dof: f64) -> Result<Self> {
        StudentT::new(location, scale, dof).map(Self::StudentT)
    }

    /// The interpolated law of the given values, in any order.
    ///
    /// # Errors
    /// If there is none or one is not finite.
    pub fn empirical(values: Vec<f64>) -> Result<Self> {
        Empirical::new(values).map(Self::Empirical)
    }

    /// The family of this law.
    pub fn family(&self) -> Family {
        match self {
            Self::Constant(_) => Family::Constant,
            Self::Normal(_) => Family::Normal,
            Self::Gamma(_) => Family::Gamma,
            Self::LogNormal(_) => Family::LogNormal,
            Self::ShiftedLogNormal(_) => Family::ShiftedLogNormal,
            Self::StudentT(_) => Family::StudentT,
            Self::Empirical(_) => Family::Empirical,
        }
    }
}

/// Calls one method of whichever law is inside.
macro_rules! inner {
    ($law:expr, $inner:ident => $call:expr) => {
        match $law {
            Law::Constant($inner) => $call,
            Law::Normal($inner) => $call,
            Law::Gamma($inner) => $call,
            Law::LogNormal($inner) => $call,
            Law::ShiftedLogNormal($inner) => $call,
            Law::StudentT($inner) => $call,
            Law::Empirical($inner) => $call,
        }
    };
}

impl Distribution for Law {
    fn cdf(&self, x: f64) -> f64 {
        inner!(self, law => law.cdf(x))
    }

    fn cdf_below(&self, x: f64) -> f64 {
        inner!(self, law => law.cdf_below(x))
    }

    fn sf(&self, x: f64) -> f64 {
        inner!(self, law => law.sf(x))
    }

    fn quantile(&self, p: f64) -> f64 {
        inner!(self, law => law.quantile(p))
    }

    fn quantile_upper(&self, q: f64) -> f64 {
        inner!(self, law => law.quantile_upper(q))
    }

    fn mean(&self) -> f64 {
        inner!(self, law => law.mean())
    }

    fn sd(&self) -> f64 {
        inner!(self, law => law.sd())
    }

    fn ln_pdf(&self, x: f64) -> f64 {
        inner!(self, law => law.ln_pdf(x))
    }

    fn support(&self) -> (f64, f64) {
        inner!(self, law => law.support())
    }

    fn n_parameters(&self) -> usize {
        inner!(self, law => law.n_parameters())
    }

    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        inner!(self, law => law.sample(rng))
    }
}

/// Checks that a parameter is finite.
fn finite(law: &'static str, parameter: &'static str, value: f64) -> Result<()> {
    if value.is_finite() {
        Ok(())
    } else {
        Err(StatsError::Parameter { law, parameter, value, domain: "a finite number" })
    }
}

/// Checks that a parameter is finite and positive.
fn positive(law: &'static str, parameter: &'static str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(StatsError::Parameter { law, parameter, value, domain: "a finite positive number" })
    }
}

#[cfg(test)]
mod tests;
