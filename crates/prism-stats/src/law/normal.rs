//! The normal law.

use std::f64::consts::PI;

use rand::{Rng, RngExt};
use rand_distr::StandardNormal;

use super::{Distribution, finite, positive};
use crate::error::Result;
use crate::special::{normal_cdf, normal_quantile};

/// Normal with a mean and a standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normal {
    location: f64,
    scale: f64,
}

impl Normal {
    /// Normal with the given mean and standard deviation (> 0).
    ///
    /// # Errors
    /// If a parameter is outside its domain.
    pub fn new(mean: f64, sd: f64) -> Result<Self> {
        finite("normal", "mean", mean)?;
        positive("normal", "sd", sd)?;
        Ok(Self { location: mean, scale: sd })
    }

    /// The mean.
    pub fn location(&self) -> f64 {
        self.location
    }

    /// The standard deviation.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    fn standardised(self, x: f64) -> f64 {
        (x - self.location) / self.scale
    }
}

impl Distribution for Normal {
    fn cdf(&self, x: f64) -> f64 {
        normal_cdf(self.standardised(x))
    }

    fn sf(&self, x: f64) -> f64 {
        normal_cdf(-self.standardised(x))
    }

    fn quantile(&self, p: f64) -> f64 {
        if !(0.0..=1.0).contains(&p) {
            return f64::NAN;
        }
        self.location + self.scale * normal_quantile(p)
    }

    fn quantile_upper(&self, q: f64) -> f64 {
        if !(0.0..=1.0).contains(&q) {
            return f64::NAN;
        }
        self.location - self.scale * normal_quantile(q)
    }

    fn mean(&self) -> f64 {
        self.location
    }

    fn sd(&self) -> f64 {
        self.scale
    }

    fn ln_pdf(&self, x: f64) -> f64 {
        let z = self.standardised(x);
        -0.5 * z * z - self.scale.ln() - 0.5 * (2.0 * PI).ln()
    }

    fn support(&self) -> (f64, f64) {
        (f64::NEG_INFINITY, f64::INFINITY)
    }

    fn n_parameters(&self) -> usize {
        2
    }

    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        let z: f64 = rng.sample(StandardNormal);
        self.location + self.scale * z
    }
}
