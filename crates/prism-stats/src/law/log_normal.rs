//! The log-normal law, plain and shifted.

use rand::Rng;

use super::{Distribution, Normal, finite, positive};
use crate::error::Result;

/// Log-normal: the logarithm is normal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogNormal {
    log: Normal,
}

impl LogNormal {
    /// ln X has mean `log_mean` and standard deviation `log_sd` (> 0).
    ///
    /// # Errors
    /// If a parameter is outside its domain.
    pub fn new(log_mean: f64, log_sd: f64) -> Result<Self> {
        finite("log_normal", "log_mean", log_mean)?;
        positive("log_normal", "log_sd", log_sd)?;
        Ok(Self { log: Normal::new(log_mean, log_sd)? })
    }

    /// Mean of the logarithm.
    pub fn log_mean(&self) -> f64 {
        self.log.location()
    }

    /// Standard deviation of the logarithm.
    pub fn log_sd(&self) -> f64 {
        self.log.scale()
    }
}

impl Distribution for LogNormal {
    fn cdf(&self, x: f64) -> f64 {
        if x <= 0.0 { 0.0 } else { self.log.cdf(x.ln()) }
    }

    fn sf(&self, x: f64) -> f64 {
        if x <= 0.0 { 1.0 } else { self.log.sf(x.ln()) }
    }

    fn quantile(&self, p: f64) -> f64 {
        self.log.quantile(p).exp()
    }

    fn quantile_upper(&self, q: f64) -> f64 {
        self.log.quantile_upper(q).exp()
    }

    fn mean(&self) -> f64 {
        (self.log_mean() + 0.5 * self.log_sd() * self.log_sd()).exp()
    }

    fn sd(&self) -> f64 {
        self.mean() * (self.log_sd() * self.log_sd()).exp_m1().sqrt()
    }

    fn ln_pdf(&self, x: f64) -> f64 {
        if x <= 0.0 || x == f64::INFINITY {
            f64::NEG_INFINITY
        } else {
            self.log.ln_pdf(x.ln()) - x.ln()
        }
    }

    fn support(&self) -> (f64, f64) {
        (0.0, f64::INFINITY)
    }

    fn n_parameters(&self) -> usize {
        2
    }

    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        self.log.sample(rng).exp()
    }
}

/// A constant plus a log-normal: a floor that a duration cannot fall below, and a skewed excess.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShiftedLogNormal {
    shift: f64,
    excess: LogNormal,
}

impl ShiftedLogNormal {
    /// ln(X − shift) has mean `log_mean` and standard deviation `log_sd` (> 0).
    ///
    /// # Errors
    /// If a parameter is outside its domain.
    pub fn new(shift: f64, log_mean: f64, log_sd: f64) -> Result<Self> {
        finite("shifted_log_normal", "shift", shift)?;
        finite("shifted_log_normal", "log_mean", log_mean)?;
        positive("shifted_log_normal", "log_sd", log_sd)?;
        Ok(Self { shift, excess: LogNormal::new(log_mean, log_sd)? })
    }

    /// The constant.
    pub fn shift(&self) -> f64 {
        self.shift
    }

    /// Mean of the logarithm of the excess.
    pub fn log_mean(&self) -> f64 {
        self.excess.log_mean()
    }

    /// Standard deviation of the logarithm of the excess.
    pub fn log_sd(&self) -> f64 {
        self.excess.log_sd()
    }
}

impl Distribution for ShiftedLogNormal {
    fn cdf(&self, x: f64) -> f64 {
        self.excess.cdf(x - self.shift)
    }

    fn sf(&self, x: f64) -> f64 {
        self.excess.sf(x - self.shift)
    }

    fn quantile(&self, p: f64) -> f64 {
        self.shift + self.excess.quantile(p)
    }

    fn quantile_upper(&self, q: f64) -> f64 {
        self.shift + self.excess.quantile_upper(q)
    }

    fn mean(&self) -> f64 {
        self.shift + self.excess.mean()
    }

    fn sd(&self) -> f64 {
        self.excess.sd()
    }

    fn ln_pdf(&self, x: f64) -> f64 {
        self.excess.ln_pdf(x - self.shift)
    }

    fn support(&self) -> (f64, f64) {
        (self.shift, f64::INFINITY)
    }

    fn n_parameters(&self) -> usize {
        3
    }

    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        self.shift + self.excess.sample(rng)
    }
}
