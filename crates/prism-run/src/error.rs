//! What can be wrong with a question about runs.

use prism_job::run::BrokenRunRule;
use prism_stats::StatsError;

/// Why a run was not simulated, or its result not summarised.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The plan breaks rules.
    #[error("the run is impossible: {}", .0.iter().map(|r| r.message.as_str()).collect::<Vec<_>>().join("; "))]
    Plan(Vec<BrokenRunRule>),
    /// A run's pace is none.
    #[error("the pace of run {run} is none: `{what}` is {value}")]
    Pace {
        /// Number of the run.
        run: u64,
        /// What is wrong.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// An argument is outside its domain.
    #[error("`{argument}` is {value}, which is not {domain}")]
    Argument {
        /// Name of the argument.
        argument: &'static str,
        /// The offending value.
        value: f64,
        /// The domain it should lie in, in words.
        domain: &'static str,
    },
    /// The question needs a part of the plan that is not there.
    #[error("the plan has no {what}")]
    Missing {
        /// What is missing.
        what: &'static str,
        /// What to write.
        hint: &'static str,
    },
    /// Runs did not end within their horizon, and the question is about their end.
    #[error(
        "{unfinished} of {runs} runs were given up: not done after {horizon} times their time without stops, or no \
         step further after 1,000 failures"
    )]
    Unfinished {
        /// How many were not done.
        unfinished: u64,
        /// Of how many.
        runs: u64,
        /// The horizon.
        horizon: f64,
    },
    /// A statistic was refused.
    #[error(transparent)]
    Stats(#[from] StatsError),
}

impl RunError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            RunError::Plan(rules) => {
                let hints: Vec<&str> = rules.iter().filter_map(|r| r.hint.as_deref()).collect();
                if hints.is_empty() { "change the keys named".to_owned() } else { hints.join("; ") }
            }
            RunError::Pace { .. } => {
                "times must be finite, a core step above 0, and stalls need marks".to_owned()
            }
            RunError::Argument { .. } => "use an argument inside the stated domain".to_owned(),
            RunError::Missing { hint, .. } => (*hint).to_owned(),
            RunError::Unfinished { .. } => {
                "failures come faster than the run gets on: shorten the checkpoint interval or the \
                 restart, or raise the horizon"
                    .to_owned()
            }
            RunError::Stats(error) => error.hint().to_owned(),
        }
    }
}

/// Refuses a number that is not above 0 and finite.
pub(crate) fn positive(argument: &'static str, value: f64) -> Result<(), RunError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(RunError::Argument { argument, value, domain: "a number above 0" })
}

/// Refuses a number that is not at least 0 and finite.
pub(crate) fn not_negative(argument: &'static str, value: f64) -> Result<(), RunError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(RunError::Argument { argument, value, domain: "a number of at least 0" })
}
