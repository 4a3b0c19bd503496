//! Student's t with location and scale.

use std::f64::consts::PI;

use rand::{Rng, RngExt};

use super::{Distribution, finite, positive};
use crate::error::Result;
use crate::root;
use crate::special::{Tail, beta_tails, normal_quantile, stirling_error};

/// `location + scale·T` with T Student's t: a normal core with heavier tails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StudentT {
    location: f64,
    scale: f64,
    dof: f64,
}

impl StudentT {
    /// The law with the given centre, scale (> 0) and degrees of freedom (> 0).
    ///
    /// # Errors
    /// If a parameter is outside its domain.
    pub fn new(location: f64, scale: f64, dof: f64) -> Result<Self> {
        finite("student_t", "location", location)?;
        positive("student_t", "scale", scale)?;
        positive("student_t", "dof", dof)?;
        Ok(Self { location, scale, dof })
    }

    /// The centre: median, and mean where there is one.
    pub fn location(&self) -> f64 {
        self.location
    }

    /// The scale; the standard deviation is scale·√(dof/(dof−2)).
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Degrees of freedom.
    pub fn dof(&self) -> f64 {
        self.dof
    }

    fn standardised(self, x: f64) -> f64 {
        (x - self.location) / self.scale
    }
}

/// P(T ≤ t) and P(T > t) of Student's t.
pub(crate) fn t_tails(t: f64, dof: f64) -> (f64, f64) {
    if t.is_nan() {
        return (t, t);
    }
    let t2 = t * t;
    // Through the ratio that is at most one, so that neither overflows.
    let (x, y) = if t2 > dof {
        let r = dof / t2;
        (r / (1.0 + r), 1.0 / (1.0 + r))
    } else {
        let r = t2 / dof;
        (1.0 / (1.0 + r), r / (1.0 + r))
    };
    let tail = 0.5 * beta_tails(0.5 * dof, 0.5, x, y).0;
    if t >= 0.0 { (1.0 - tail, tail) } else { (tail, 1.0 - tail) }
}

/// The point at which Student's t has the given tail.
pub(crate) fn t_inverse(dof: f64, tail: Tail) -> f64 {
    let (q, sign) = match tail.smaller() {
        Tail::Lower(p) => (p, -1.0),
        Tail::Upper(q) => (q, 1.0),
    };
    if !(0.0..=1.0).contains(&q) {
        return f64::NAN;
    }
    if q == 0.5 {
        return 0.0;
    }
    if q == 0.0 {
        return sign * f64::INFINITY;
    }
    // The normal quantile lies below that of every t; half of it is a safe start.
    let start = (-0.5 * normal_quantile(q)).ln();
    let target = q.ln();
    let log_t = root::expanding(|l| target - t_tails(l.exp(), dof).1.ln().max(-1e4), start, 1.0);
    sign * log_t.exp()
}

impl Distribution for StudentT {
    fn cdf(&self, x: f64) -> f64 {
        t_tails(self.standardised(x), self.dof).0
    }

    fn sf(&self, x: f64) -> f64 {
        t_tails(self.standardised(x), self.dof).1
    }

    fn quantile(&self, p: f64) -> f64 {
        self.location + self.scale * t_inverse(self.dof, Tail::Lower(p))
    }

    fn quantile_upper(&self, q: f64) -> f64 {
        self.location + self.scale * t_inverse(self.dof, Tail::Upper(q))
    }

    fn mean(&self) -> f64 {
        if self.dof > 1.0 { self.location } else { f64::NAN }
    }

    fn sd(&self) -> f64 {
        if self.dof > 2.0 {
            self.scale * (self.dof / (self.dof - 2.0)).sqrt()
        } else if self.dof > 1.0 {
            f64::INFINITY
        } else {
            f64::NAN
        }
    }

    fn ln_pdf(&self, x: f64) -> f64 {
        let (z, nu) = (self.standardised(x), self.dof);
        t_log_constant(nu) - self.scale.ln() - 0.5 * (nu + 1.0) * (z * z / nu).ln_1p()
    }

    fn support(&self) -> (f64, f64) {
        (f64::NEG_INFINITY, f64::INFINITY)
    }

    fn n_parameters(&self) -> usize {
        3
    }

    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        let t = match rand_distr::StudentT::new(self.dof) {
            Ok(sampler) => rng.sample(sampler),
            // Reached only if the library narrows its domain; inversion is slower and as exact.
            Err(_) => t_inverse(self.dof, Tail::Lower(rng.random())),
        };
        self.location + self.scale * t
    }
}

/// `ln [Γ((ν+1)/2) / (Γ(ν/2) √(νπ))]`, by Stirling's errors so that a large ν keeps its digits.
pub(crate) fn t_log_constant(nu: f64) -> f64 {
    let (a, b) = (0.5 * nu + 0.5, 0.5 * nu);
    // ln Γ(x) = (x − ½) ln x − x + ½ ln 2π + stirling_error(x).
    let ratio = b * (0.5 / b).ln_1p() - 0.5 + stirling_error(a) - stirling_error(b);
    // (a−½) ln a − (b−½) ln b = b ln(a/b) + ½ ln b, and the ½ ln b goes with √ν.
    ratio - 0.5 * (2.0 * PI).ln()
}
