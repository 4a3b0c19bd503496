//! The gamma law.

use std::f64::consts::PI;

use rand::{Rng, RngExt};

use super::{Distribution, positive};
use crate::error::Result;
use crate::special::{Tail, deviance, gamma_inverse, gamma_tails, stirling_error};

/// Gamma with a shape (no unit) and a scale: mean shape·scale, `CoV` 1/√shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gamma {
    shape: f64,
    scale: f64,
}

impl Gamma {
    /// Gamma with the given shape and scale, both > 0.
    ///
    /// # Errors
    /// If a parameter is outside its domain.
    pub fn new(shape: f64, scale: f64) -> Result<Self> {
        positive("gamma", "shape", shape)?;
        positive("gamma", "scale", scale)?;
        Ok(Self { shape, scale })
    }

    /// The shape; no unit.
    pub fn shape(&self) -> f64 {
        self.shape
    }

    /// The scale.
    pub fn scale(&self) -> f64 {
        self.scale
    }
}

impl Distribution for Gamma {
    fn cdf(&self, x: f64) -> f64 {
        gamma_tails(self.shape, x / self.scale).0
    }

    fn sf(&self, x: f64) -> f64 {
        gamma_tails(self.shape, x / self.scale).1
    }

    fn quantile(&self, p: f64) -> f64 {
        self.scale * gamma_inverse(self.shape, Tail::Lower(p))
    }

    fn quantile_upper(&self, q: f64) -> f64 {
        self.scale * gamma_inverse(self.shape, Tail::Upper(q))
    }

    fn mean(&self) -> f64 {
        self.shape * self.scale
    }

    fn sd(&self) -> f64 {
        self.shape.sqrt() * self.scale
    }

    fn ln_pdf(&self, x: f64) -> f64 {
        if x.is_nan() {
            return x;
        }
        if x < 0.0 || x == f64::INFINITY {
            return f64::NEG_INFINITY;
        }
        if x == 0.0 {
            return match self.shape.partial_cmp(&1.0) {
                Some(std::cmp::Ordering::Less) => f64::INFINITY,
                Some(std::cmp::Ordering::Equal) => -self.scale.ln(),
                _ => f64::NEG_INFINITY,
            };
        }
        // k ln y − y − ln Γ(k), y = x/scale, in Loader's form: no cancellation for a large shape.
        let k = self.shape;
        0.5 * (k / (2.0 * PI)).ln() - stirling_error(k) - deviance(k, x / self.scale) - x.ln()
    }

    fn support(&self) -> (f64, f64) {
        (0.0, f64::INFINITY)
    }

    fn n_parameters(&self) -> usize {
        2
    }

    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        match rand_distr::Gamma::new(self.shape, self.scale) {
            Ok(sampler) => rng.sample(sampler),
            // Reached only if the library narrows its domain; inversion is slower and as exact.
            Err(_) => self.quantile(rng.random()),
        }
    }
}
