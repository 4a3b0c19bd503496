//! Fits a prior to a collection of systems.

use prism_stats::pooled::{RatePrior, fit_rates, fit_scales};

use super::{PRIOR_SCHEMA, Prior};
use crate::steps::StepsError;
use crate::steps::evidence::{AfterPause, Evidence};

/// Fewest systems with two runs or more.
pub(crate) const FEWEST: usize = 3;

/// Fits how runs of one system differ to the evidence of several, by maximum marginal likelihood.
///
/// # Errors
/// [`StepsError::TooFewSystems`] with fewer than 3 systems of two runs; [`StepsError::Statistics`] where
/// nothing varies.
pub fn fit_prior(name: &str, source: &str, systems: &[&Evidence]) -> Result<Prior, StepsError> {
    let have = systems.iter().filter(|e| e.runs.len() > 1).count();
    if have < FEWEST {
        return Err(StepsError::TooFewSystems { what: "a prior", have, need: FEWEST });
    }
    let failed = |what: &'static str| {
        move |source| StepsError::Statistics { what: format!("the prior of {what}"), source }
    };
    let levels: Vec<_> = systems.iter().map(|e| e.levels()).collect();
    let warm_ups: Vec<_> = systems.iter().map(|e| e.warm_ups()).collect();
    let stalls: Vec<_> = systems.iter().map(|e| e.stalls()).collect();
    let mut marks: Vec<f64> = systems.iter().flat_map(|e| e.marks()).filter(|m| *m > 0.0).collect();
    marks.sort_by(f64::total_cmp);
    let rows: f64 = stalls.iter().map(|s| s.exposure).sum();
    let (rate, source) = if stalls.iter().all(|s| s.count == 0) {
        // As if half a stall had been seen in all of it (Jeffreys); lengths must come from elsewhere.
        marks = super::mlperf().marks;
        let none = format!("{source}; no stall in {rows} rows, lengths of stalls from mlperf-llm");
        (RatePrior { shape: 0.5, exposure: rows }, none)
    } else {
        (fit_rates(&stalls).map_err(failed("stalls"))?, source.to_owned())
    };
    Ok(Prior {
        schema: PRIOR_SCHEMA.to_owned(),
        name: name.to_owned(),
        source,
        systems: systems.len(),
        runs: systems.iter().map(|e| e.runs.len()).sum(),
        shift: fit_scales(&levels).map_err(failed("levels"))?,
        warm_up: fit_scales(&warm_ups).map_err(failed("warm-ups"))?,
        stalls: rate,
        marks,
        after_evaluation: over_systems(systems),
    })
}

/// Mean and spread over systems of the first step after an evaluation.
fn over_systems(systems: &[&Evidence]) -> AfterPause {
    let means: Vec<f64> =
        systems.iter().filter_map(|e| e.after_evaluation).map(|a| a.mean).collect();
    AfterPause::of(&means).unwrap_or(AfterPause { count: 0, mean: 0.0, sd: 0.0 })
}
