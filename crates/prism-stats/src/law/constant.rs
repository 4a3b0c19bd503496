//! The law of a value that does not vary.

use rand::Rng;

use super::{Distribution, finite};
use crate::error::Result;

/// One value with probability one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constant {
    value: f64,
}

impl Constant {
    /// The constant `value`.
    ///
    /// # Errors
    /// If it is not finite.
    pub fn new(value: f64) -> Result<Self> {
        finite("constant", "value", value)?;
        Ok(Self { value })
    }

    /// The value.
    pub fn value(&self) -> f64 {
        self.value
    }

    fn at(self, probability: f64) -> f64 {
        if (0.0..=1.0).contains(&probability) { self.value } else { f64::NAN }
    }
}

impl Distribution for Constant {
    fn cdf(&self, x: f64) -> f64 {
        if x.is_nan() { x } else { f64::from(x >= self.value) }
    }

    fn cdf_below(&self, x: f64) -> f64 {
        if x.is_nan() { x } else { f64::from(x > self.value) }
    }

    fn sf(&self, x: f64) -> f64 {
        1.0 - self.cdf(x)
    }

    fn quantile(&self, p: f64) -> f64 {
        self.at(p)
    }

    fn quantile_upper(&self, q: f64) -> f64 {
        self.at(q)
    }

    fn mean(&self) -> f64 {
        self.value
    }

    fn sd(&self) -> f64 {
        0.0
    }

    fn ln_pdf(&self, x: f64) -> f64 {
        if x.is_nan() {
            x
        } else if x == self.value {
            f64::INFINITY
        } else {
            f64::NEG_INFINITY
        }
    }

    fn support(&self) -> (f64, f64) {
        (self.value, self.value)
    }

    fn n_parameters(&self) -> usize {
        1
    }

    fn sample<R: Rng + ?Sized>(&self, _rng: &mut R) -> f64 {
        self.value
    }
}
