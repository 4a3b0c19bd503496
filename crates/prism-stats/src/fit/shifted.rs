//! The shifted log-normal law.
//!
//! Its likelihood is unbounded: as the shift approaches the smallest value, one density grows without
//! limit. The estimate is therefore the *local* maximum of the profile likelihood over the shift
//! (Cohen, JASA 46, 1951; Griffiths, Technometrics 22, 1980). For data that are not skewed to the
//! right the profile only rises towards a shift of minus infinity, which is the Normal: no maximum.

use crate::error::{Result, StatsError};
use crate::fit::moments;
use crate::law::{Family, Law};

use super::profile::minimise;

/// ln(smallest − shift) is searched from ln(range) − 18, an excess 10⁻⁸ of the range, to
/// ln(range) + 7, where the skewness of the excess is below 0.003.
const SEARCH: (f64, f64) = (-18.0, 7.0);

pub(super) fn fit(values: &[f64]) -> Result<Law> {
    let family = Family::ShiftedLogNormal;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log_range = (high - low).ln();
    let above: Vec<f64> = values.iter().map(|v| v - low).collect();
    let n = values.len();
    let cost = |u: f64| {
        let (log_mean, log_sd) = log_moments(&above, u);
        log_sd.ln() + log_mean
    };
    let bounds = (log_range + SEARCH.0, log_range + SEARCH.1);
    let u = minimise(cost, bounds, 51, "Brent's method for the shift")?
        .ok_or(StatsError::NoMaximum { family, n })?;
    let (log_mean, log_sd) = log_moments(&above, u);
    Law::shifted_log_normal(low - u.exp(), log_mean, log_sd)
}

/// Mean and s.d. of ln(x − shift), given x − smallest and u = ln(smallest − shift).
fn log_moments(above: &[f64], u: f64) -> (f64, f64) {
    let gap = u.exp();
    let logs: Vec<f64> = above.iter().map(|a| (a / gap).ln_1p()).collect();
    let (mean, sd) = moments(&logs);
    (mean + u, sd)
}
