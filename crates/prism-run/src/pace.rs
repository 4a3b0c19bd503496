//! How fast one run goes.
//!
//! A run keeps some things from its first step to its last: the machines it was given, the level of its
//! step time, how often it stalls. They are drawn once a run ([`Steps::pace`]); what varies from step to
//! step is drawn around them.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

/// What one run keeps from its first step to its last.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// Mean core step, seconds, the run's own shift in it.
    pub core_s: f64,
    /// S.d. of a core step over its mean.
    pub core_cov: f64,
    /// Correlation of neighbouring core steps, an AR(1) process.
    pub rho: f64,
    /// Stalls per step, a Poisson process over steps.
    pub stall_rate: f64,
    /// Excess of a stalled step over a core step, in core steps: equally likely values; empty only where
    /// `stall_rate` is 0.
    pub stall_marks: Arc<[f64]>,
    /// Excess of the first steps of every start and restart, all together, seconds.
    pub warm_up_s: f64,
    /// Mean excess of the first step after an evaluation, seconds; negative where it is the faster one.
    pub after_evaluation_s: f64,
}

/// Where the pace of a run comes from: a calibrated profile, or a predicted step time.
pub trait Steps: Sync {
    /// The pace of one more run.
    fn pace(&self, rng: &mut ChaCha8Rng) -> Pace;
}
