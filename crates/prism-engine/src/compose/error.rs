//! What can stop a composition.

use prism_stats::StatsError;
use prism_stats::quantile_table::QuantileTableError;
use thiserror::Error;

use crate::sample::SampleError;

/// Why a law could not be composed, or a question not be answered from it.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ComposeError {
    /// An input breaks a rule.
    #[error("{what} is {value}, which is not {rule}")]
    Input {
        /// The input.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The rule.
        rule: &'static str,
    },
    /// The data reach less far into the tail than the question.
    #[error(
        "quantile {p} rests on {have:.1} effective exceedances, where {need} are needed; the data \
         answer from {from:.3e} to {to:.9}"
    )]
    NoData {
        /// Probability asked for.
        p: f64,
        /// Effective number of samples beyond the answer.
        have: f64,
        /// Number needed.
        need: f64,
        /// Lowest probability that can be answered.
        from: f64,
        /// Highest probability that can be answered.
        to: f64,
    },
    /// Two estimates of one probability differ by more than chance allows.
    #[error(
        "P(T > {threshold}) is {plain:.3e} ± {plain_error:.1e} by plain sampling and \
         {weighted:.3e} ± {weighted_error:.1e} by weighted sampling: {z:.1} standard errors apart"
    )]
    Disagreement {
        /// Threshold in seconds.
        threshold: f64,
        /// Estimate from plain samples.
        plain: f64,
        /// Its standard error.
        plain_error: f64,
        /// Estimate from weighted samples.
        weighted: f64,
        /// Its standard error.
        weighted_error: f64,
        /// Difference in standard errors.
        z: f64,
    },
    /// Doubling the number of members still moved a quantile when the limit was reached.
    #[error(
        "with the slowest {members} members quantile {p} still moves by {moved:.2e} (relative), \
         where {tolerance:.2e} is allowed"
    )]
    NotStable {
        /// Members simulated last.
        members: usize,
        /// Quantile that moved most.
        p: f64,
        /// Its relative move.
        moved: f64,
        /// The move allowed.
        tolerance: f64,
    },
    /// A simulation did not return what was asked for.
    #[error("{what}: {have} entries, where {need} are needed")]
    Shape {
        /// What was returned.
        what: &'static str,
        /// Entries returned.
        have: usize,
        /// Entries needed.
        need: usize,
    },
    /// A tape has no output of the name.
    #[error("the tape has no output named `{name}`")]
    NoOutput {
        /// The name.
        name: String,
    },
    /// A statistical computation failed.
    #[error(transparent)]
    Stats(#[from] StatsError),
    /// A simulation failed.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A law cannot be tabulated.
    #[error(transparent)]
    Table(#[from] QuantileTableError),
}

impl ComposeError {
    /// What the caller can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Input { .. } => "use a value that the rule allows",
            Self::NoData { .. } => {
                "draw more samples, sample the tail by importance, or ask for a less extreme quantile"
            }
            Self::Disagreement { .. } => {
                "a mechanism of the tail is missing from the tilt, or the weights are not those of \
                 the simulation: use plain samples"
            }
            Self::NotStable { .. } => "raise the limit of members, or the tolerance",
            Self::Shape { .. } => "return one entry per sample, column or member asked for",
            Self::NoOutput { .. } => "name the value with `Program::output`",
            Self::Stats(e) => e.hint(),
            Self::Sample(e) => e.hint(),
            Self::Table(e) => e.hint(),
        }
    }

    /// An input that breaks a rule unless `holds`.
    pub(crate) fn check(
        holds: bool,
        what: &'static str,
        value: f64,
        rule: &'static str,
    ) -> Result<()> {
        if holds { Ok(()) } else { Err(Self::Input { what, value, rule }) }
    }
}

/// Result of this module's fallible functions.
pub type Result<T> = std::result::Result<T, ComposeError>;
