//! What can go wrong with logs of steps.

use prism_stats::StatsError;

/// Why a law of steps cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepsError {
    /// A log is too short.
    #[error(
        "{name}: {rows} rows, where {need} are needed after the first {warm} (warm-up) and those right \
         after a pause"
    )]
    TooShort {
        /// The log.
        name: String,
        /// Rows it has.
        rows: usize,
        /// Rows needed.
        need: usize,
        /// Rows of warm-up.
        warm: usize,
    },
    /// Logs that average over different numbers of steps.
    #[error("{first} logs means over {a} steps, {second} over {b}: they cannot be pooled")]
    Averages {
        /// A log.
        first: String,
        /// Its steps a row.
        a: u32,
        /// Another.
        second: String,
        /// Its steps a row.
        b: u32,
    },
    /// Step ids too far apart.
    #[error("{name}: steps go from {first} to {last} over all logs, more than {most} apart")]
    Span {
        /// The log of the last step.
        name: String,
        /// First step of all logs.
        first: i64,
        /// Last step of this one.
        last: i64,
        /// Most rows between them.
        most: usize,
    },
    /// No log was given.
    #[error("no log of steps")]
    NoLogs,
    /// Too few systems for what is asked.
    #[error("{have} systems with two runs or more, where {need} are needed for {what}")]
    TooFewSystems {
        /// What was asked.
        what: &'static str,
        /// Systems there are.
        have: usize,
        /// Systems needed.
        need: usize,
    },
    /// A number a user gave.
    #[error("{what} is {got}, which is not {rule}")]
    Setting {
        /// What.
        what: &'static str,
        /// The rule.
        rule: &'static str,
        /// What it is.
        got: String,
    },
    /// A file of ours that is not as it should be.
    #[error("{what}: {why}")]
    File {
        /// Which kind of file.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// A statistic that cannot be computed.
    #[error("{what}")]
    Statistics {
        /// Of what.
        what: String,
        /// Why.
        source: StatsError,
    },
}

impl StepsError {
    /// What the user may do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            StepsError::TooShort { .. } => Some("log more steps, or leave this run out"),
            StepsError::Averages { .. } => Some(
                "calibrate them apart, or log every step (Megatron: `--log-interval 1`, torchtitan: \
                 `metrics.log_freq = 1`)",
            ),
            StepsError::Span { .. } => Some(
                "give logs whose steps are counted from one start: no times of day, no ids of something else",
            ),
            StepsError::TooFewSystems { .. } => {
                Some("give logs of more systems, at least two runs each, or use the preset prior")
            }
            _ => None,
        }
    }
}
