//! Student's t.
//!
//! For fixed degrees of freedom, location and scale follow from PX-EM (Liu, Rubin and Wu, Biometrika
//! 85, 1998); the degrees of freedom maximise the profile. They are sought between 1, below which
//! there is no mean, and 200, above which the law is a Normal to every purpose.

use std::cell::Cell;

use crate::error::{Result, StatsError};
use crate::law::{Family, Law, t_log_constant};
use crate::quantile::{sorted, type7_unchecked};

use super::profile::minimise;

/// Bounds of the degrees of freedom.
const DOF: (f64, f64) = (1.0, 200.0);

/// A scale this far below the range of the values means that it is collapsing onto tied values.
const COLLAPSE: f64 = 1e-9;

pub(super) fn fit(values: &[f64]) -> Result<Law> {
    let family = Family::StudentT;
    let n = values.len();
    let sorted = sorted(values);
    let range = sorted[n - 1] - sorted[0];
    let centre = type7_unchecked(&sorted, 0.5);
    let quartiles = type7_unchecked(&sorted, 0.75) - type7_unchecked(&sorted, 0.25);
    let start = (centre, (quartiles / 1.35).max(1e-3 * range));
    // Each fit starts from the one before: neighbouring degrees of freedom have close estimates.
    let last = Cell::new(start);
    let cost = |log_dof: f64| {
        let dof = log_dof.exp();
        let (location, scale) = location_scale(&sorted, dof, last.get());
        if scale < COLLAPSE * range {
            return f64::INFINITY;
        }
        last.set((location, scale));
        negative_log_likelihood(&sorted, location, scale, dof)
    };
    let bounds = (DOF.0.ln(), DOF.1.ln());
    let log_dof = minimise(cost, bounds, 13, "Brent's method for the degrees of freedom")?
        .ok_or(StatsError::NoMaximum { family, n })?;
    let dof = log_dof.exp();
    let (location, scale) = location_scale(&sorted, dof, last.get());
    Law::student_t(location, scale, dof)
}

fn negative_log_likelihood(values: &[f64], location: f64, scale: f64, dof: f64) -> f64 {
    let sum: f64 = values
        .iter()
        .map(|x| {
            let z = (x - location) / scale;
            (z * z / dof).ln_1p()
        })
        .sum();
    let n = values.len() as f64;
    n * (scale.ln() - t_log_constant(dof)) + 0.5 * (dof + 1.0) * sum
}

/// PX-EM for the location and scale at fixed degrees of freedom.
fn location_scale(values: &[f64], dof: f64, start: (f64, f64)) -> (f64, f64) {
    let (mut location, mut scale) = start;
    for _ in 0..500 {
        let (mut weights, mut first, mut second) = (0.0, 0.0, 0.0);
        for x in values {
            let d = x - location;
            let z = d / scale;
            let w = (dof + 1.0) / (dof + z * z);
            weights += w;
            first += w * d;
            second += w * d * d;
        }
        let shift = first / weights;
        let next = (second / weights - shift * shift).max(0.0).sqrt();
        location += shift;
        let change = shift.abs() + (next - scale).abs();
        scale = next;
        if change <= 1e-10 * scale || scale == 0.0 {
            break;
        }
    }
    (location, scale)
}
